"""Start and end helper processes, from a fork server of our own or by spawning.

``multiprocessing`` imports the caller's main module in its children, so that a script without a ``__main__`` guard runs itself
again, and a notebook cannot be imported at all. Workers do not need ``__main__``: what is defined there travels by value. The
fork server is separate from the interpreter's, which imports ``__main__`` too; it has imported numpy, and whatever plugins
name.

The kernel is asked whether a process has ended (by a pidfd on Linux, elsewhere by the sentinel of ``multiprocessing``), not its
exit status: where SIGCHLD is ignored, or other code reaps children, the exit status never reaches us.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, spawn, util
from multiprocessing.context import BaseContext
from typing import Any

from reactor_rl.errors import RunError
from reactor_rl.runtime.guards import holding
from reactor_rl.runtime.numeric_threads import SINGLE_THREADED
from reactor_rl.settings import check_start_method

__all__ = [
    "ChildProcess",
    "wait_for_all",
    "begin",
    "context_named",
    "end_all",
    "end_server",
    "environment",
    "may_start_processes",
    "new_process",
    "preload",
    "start_process",
    "take_environment",
]

_STATUS = 0.2
"""Seconds that the exit status of a process that has ended may take to arrive. The fork server sends it when it has reaped the
process, usually at once; where other code reaps children it never comes, and each death costs this wait.
"""
_LOOK = 0.5
"""Most seconds of one wait for the end of processes: another thread that ends them may close what is waited for."""


class ChildProcess:
    """One child process, from before it is started until it is gone.

    Args:
        process: A process of ``multiprocessing`` that is not started.
    """

    def __init__(self, process: Any) -> None:
        self._process = process
        self._pidfd = -1
        self._watch: Any = None

    def start(self, context: BaseContext) -> None:
        """Start the process; see :func:`~reactor_rl.runtime.launch.start_process`."""
        start_process(context, self._process)

    @property
    def pid(self) -> int | None:
        """Process id, ``None`` before it is started and after it is closed."""
        pid: int | None = None if self._process._closed else self._process.pid
        return pid

    @property
    def started(self) -> bool:
        """Whether the process was started, and is not closed."""
        return self.pid is not None

    @property
    def watch(self) -> Any:
        """Handle that becomes readable when the process has ended."""
        if self._watch is None:
            self._watch = self._process.sentinel
            if hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):  # it has ended already; the sentinel shows that too
                    self._watch = self._pidfd = os.pidfd_open(self._process.pid)
        return self._watch

    @property
    def ended(self) -> bool:
        """Whether the process was started and has ended."""
        return self.started and bool(connection.wait([self.watch], 0))

    def status(self) -> int | None:
        """Return the exit status of a process that has ended, ``-n`` for signal ``n``; ``None`` if other code has reaped it."""
        self._process.join(_STATUS)
        status: int | None = self._process.exitcode
        return status

    def end(self, *, kill: bool) -> None:
        """Terminate or kill the process, if it was started."""
        if not self.started:
            return
        with contextlib.suppress(ValueError):  # another thread has closed it just now
            if kill:
                self._process.kill()
            else:
                self._process.terminate()

    def close(self) -> None:
        """Release a process that was not started, or has ended. May be called again, if it was interrupted or failed."""
        if self.started:
            if self.status() is None:  # ``multiprocessing`` would take it for alive and keep it for ever
                self._process._popen.returncode = 255
            self._process.close()
        fd, self._pidfd = self._pidfd, -1
        if fd >= 0:
            os.close(fd)


def wait_for_all(children: Sequence[ChildProcess], seconds: float | None) -> list[ChildProcess]:
    """Wait until every process has ended, at most ``seconds``, and return those that have not."""
    end = None if seconds is None else time.monotonic() + seconds
    while alive := [child for child in children if child.started and not child.ended]:
        remaining = _LOOK if end is None else end - time.monotonic()
        if remaining <= 0.0:
            return alive
        connection.wait([child.watch for child in alive], min(remaining, _LOOK))
    return []


def end_all(children: Sequence[ChildProcess], grace: float | None) -> None:
    """Wait for processes to end; after ``grace`` seconds terminate them, and kill those that resist."""
    alive = wait_for_all(children, grace)
    for kill in (False, True):
        for child in alive:
            child.end(kill=kill)
        alive = wait_for_all(alive, 1.0 if kill else TERMINATED)


TERMINATED = 0.3
"""Seconds that a process gets to end after it was terminated, before it is killed. SIGTERM ends a worker at once unless the user's
code handles it; close() takes this longer then.
"""
_NAME = "reactor_rl worker"
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # a child has none of the threads that may hold it
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_server: Any = None
_preloaded = ["numpy", "cloudpickle", "reactor_rl.runtime.processes"]

LONGEST_ADDRESS = 100
"""Bytes of the path of a socket: Linux takes 107 (``sockaddr_un``), macOS 103; a few are left for its end."""

QUEUED, _AGAIN = 10.0, 0.01
"""Seconds for which connections to a fork server that has no room for more are tried, and between two tries. A fork takes
milliseconds, so a queue that does not move for ten seconds is no queue.
"""

_MPI = ("OMPI_", "PMI_", "PMIX_", "MPI_", "SLURM_MPI")


def preload(*modules: str) -> None:
    """Let the fork server import modules, if it has not started yet, so that workers start faster."""
    _preloaded.extend(module for module in modules if module not in _preloaded)


def context_named(name: str | None) -> BaseContext:
    """Return the context of a start method; by default ``forkserver`` if the system has it, else ``spawn``.

    Raises:
        ValueError: If this system does not have the method.
    """
    check_start_method("start_method", name)
    if name is None:
        name = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(name)


def may_start_processes() -> bool:
    """Whether this process may have children: a daemonic one, such as a worker of ``multiprocessing.Pool``, may not."""
    return not multiprocessing.current_process().daemon


def environment() -> dict[str, str]:
    """Make the environment of workers: numeric libraries single-threaded, and no variables that make MPI adopt them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_MPI)}
    return kept | dict.fromkeys(SINGLE_THREADED, "1")


def take_environment(wanted: dict[str, str]) -> None:
    """Replace the environment of this process, because a fork server has the one of the time when it was started."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        # Only what differs: setenv() is not safe beside threads of C libraries that read the environment.
        if os.environ.get(name) != value:
            os.environ[name] = value


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        take_environment(environment())
        yield
    finally:
        take_environment(before)


@contextlib.contextmanager
def _swapped(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    try:
        setattr(module, name, value)
        yield
    finally:
        setattr(module, name, before)


_preparation: Callable[[str], dict[str, Any]] = spawn.get_preparation_data


def _preparation_without_main(name: str) -> dict[str, Any]:
    """Prepare the data that a child gets before it starts; our workers are not told where ``__main__`` is."""
    data = _preparation(name)
    if name.startswith(_NAME):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


def begin(context: BaseContext) -> None:
    """Start what is needed to start processes.

    Raises:
        RunError: If the working directory, in which they begin, does not exist.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise RunError(
            "cannot start workers: the working directory of this process, in which they begin, has been deleted; os.chdir() to one "
            "that exists"
        ) from error
    if context.get_start_method() == "forkserver" and may_start_processes():
        _begin_server()


@holding(_lock)
def _begin_server() -> None:
    # ForkServer takes no address. To exchange the function that it asks for one is the only way.
    with _environment(), _swapped(connection, "arbitrary_address", _address):
        try:
            _own_server().ensure_running()
        except ChildProcessError:  # it has died, and other code has reaped it
            _forget_server()
            _own_server().ensure_running()


def new_process(context: BaseContext, worker: int, target: Callable[..., None], args: tuple[Any, ...]) -> Any:
    """Make a process for a worker, not started. It is not daemonic, because environments may have children of their own."""
    return context.Process(target=target, args=args, name=f"{_NAME} {worker}", daemon=False)  # type: ignore[attr-defined]


@holding(_lock)
def start_process(context: BaseContext, process: Any) -> None:
    """Start a process. A fork server that has just started imports its modules first, which this waits for."""
    with _swapped(spawn, "get_preparation_data", _preparation_without_main):
        if context.get_start_method() == "forkserver":
            from multiprocessing import forkserver

            with _swapped(forkserver, "connect_to_new_process", _connect):
                try:
                    process.start()
                except (OSError, EOFError):
                    end_server()  # which a connection that brings nothing ends in a moment: the next start is not to meet it
                    raise
        else:
            with _environment():
                process.start()


def _connect(descriptors: Sequence[int]) -> tuple[int, int]:
    """Ask the fork server for a process.

    Raises:
        RunError: If too many others wait for it already.
    """
    server = _own_server()
    server.ensure_running()
    end = time.monotonic() + QUEUED
    while True:
        try:
            pipes: tuple[int, int] = server.connect_to_new_process(descriptors)
            return pipes
        except BlockingIOError as error:  # a socket does not wait itself if socket.setdefaulttimeout() was called
            if time.monotonic() > end:
                raise RunError(
                    f"cannot start a worker: the fork server has taken no new connection for {QUEUED:.0f} s, because too many wait "
                    "for it. Start fewer runs at the same time"
                ) from error
        time.sleep(_AGAIN)


_arbitrary_address: Callable[[str], str] = connection.arbitrary_address  # type: ignore[attr-defined]


def _address(family: str) -> str:
    """Choose a path for the fork server's socket, in a temporary directory of its own if the usual one makes it too long."""
    # As long as the name that multiprocessing would choose there.
    if len(os.fsencode(os.path.join(util.get_temp_dir(), "listener-12345678"))) < LONGEST_ADDRESS:
        return _arbitrary_address(family)
    for parent in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            directory = tempfile.mkdtemp(prefix="rrl-", dir=parent)
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            if len(os.fsencode(directory)) + 2 < LONGEST_ADDRESS:
                return f"{directory}/s"
    raise RunError(
        f"cannot start workers: TMPDIR ({tempfile.gettempdir()!r}) is too long for a socket, and no shorter directory can be "
        f"written to. Set TMPDIR to a path of at most {LONGEST_ADDRESS - 40} characters"
    )


def end_server() -> None:
    """Kill a fork server that does not answer. A thread that waits for it gets an error, and the next start has another one."""
    if _server is not None and _server[0] == os.getpid() and _server[1]._forkserver_pid is not None:
        pid = _server[1]._forkserver_pid
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            if hasattr(os, "waitid"):  # the next start finds it dead
                # With WNOWAIT the exit status stays, for multiprocessing's own waitpid().
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _forget_server() -> None:
    global _server
    _server = None


def _own_server() -> Any:
    global _server
    # A forked child has a copy of the object, but the server is its parent's.
    if _server is None or _server[0] != os.getpid():
        from multiprocessing.forkserver import ForkServer

        server = ForkServer()
        loaded = [module for module in _preloaded if module.partition(".")[0] in sys.modules]
        server.set_forkserver_preload([*loaded, "threadpoolctl"])  # not loaded here, but in every worker
        _server = (os.getpid(), server)
    return _server[1]
