"""Constructions that fail, forked children, helpers that say much or die unseen: named errors, no hang, and nothing left behind."""

from __future__ import annotations

import copy
import errno
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from multiprocessing import connection, forkserver, spawn
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import ArenaError, Output, Program, Reactor, RunError, Timer, WorkerDiedError, reaction, startup
from reactor_rl.runtime import channel, launch, shared_memory
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.shared_memory import SharedMemory

pytestmark = [pytest.mark.faults, pytest.mark.timeout(60), pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")]


class Each(Reactor):
    each = Timer(period=1)
    pid = Output()

    def __init__(self, param: Any = None, bank_index: int = 0) -> None:
        self.param = param

    @reaction(each, effects=pid)
    def go(self) -> None:
        self.pid.set(os.getpid())


def program(param: Any = None, n: int = 3) -> Program:
    found = Program("each")
    bank = found.bank(Each, n, param)
    found.connect(bank.pid, found.output("pids").rows)
    found.connect(found.input("unused", (2,), np.float64), found.output("echo"))
    return found


def start(param: Any = None, **how: Any) -> Run:
    return program(param).start(**{"executor": "processes", "workers": 3, **how})


def memory_files() -> int:
    return sum("memfd:reactor_rl" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd))


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def names() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f"rrl-{os.getpid():x}-" in name]


# ---------------------------------------------------------------------- other users of multiprocessing


def test_multiprocessing_is_as_it_was_once_helpers_have_started() -> None:
    """Functions of its modules are others while ours are started."""
    places = (connection, "arbitrary_address"), (spawn, "get_preparation_data"), (forkserver, "connect_to_new_process")
    for method in ("forkserver", "spawn"):
        with start(start_method=method) as run:
            run.tick()
        for module, name in places:
            assert getattr(module, name).__module__ == module.__name__, (method, name)


# ---------------------------------------------------------------------- helpers that say much, or die unseen


class Unloadable:
    """Cannot be unpickled in another process, and says so at length."""

    def __init__(self, size: int) -> None:
        self.size, self.pid = size, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self.pid:
            raise ValueError("x" * self.size)


@pytest.mark.parametrize(("size", "context"), [(10, "forkserver"), (10, "spawn"), (2_000_000, "forkserver")])
def test_a_helper_that_cannot_unpickle_says_so_at_any_length(size: int, context: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"^x+") as caught:
        start(Unloadable(size), start_method=context)
    assert str(caught.value) == "x" * size
    assert capfd.readouterr().err == ""


def refuses() -> None:
    raise ValueError("not prepared")


def test_a_helper_that_cannot_be_prepared_says_so_once(capfd: pytest.CaptureFixture[str]) -> None:
    found = program()
    found.worker_setup(refuses)
    with pytest.raises(ValueError, match="not prepared"):
        found.start(executor="processes", workers=2, start_method="spawn")
    assert capfd.readouterr().err == ""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("context", ["forkserver", "fork", "spawn"])
def test_a_helper_whose_end_nobody_is_told_of(context: str) -> None:
    script = """
    import os, signal, sys
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are gone at once
    from reactor_rl import *

    class Each(Reactor):
        each = Timer(period=1)
        pid = Output()
        @reaction(each, effects=pid)
        def go(self): self.pid.set(os.getpid())

    program = Program("each")
    bank = program.bank(Each, 2)
    program.connect(bank.pid, program.output("pids").rows)
    for _ in range(2):
        run = program.start(executor="processes", workers=2, start_method=sys.argv[1])
        run.tick()
        os.kill(run.pids[1], signal.SIGKILL)
        try:
            run.tick()
        except WorkerDiedError as error:
            print(error.worker, error.reactors)
        run.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), context],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1 ('each[1]',)\n" * 2, "")


@pytest.mark.parametrize("reaped", [False, True])
def test_the_fork_server_may_die(reaped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with start() as run:
        run.tick()
        pid = launch._own_server()._forkserver_pid
        os.kill(pid, signal.SIGKILL)
        if reaped:  # as by a program that waits for all its children
            os.waitpid(pid, 0)
        run.tick()
        assert len(set(run.pids)) == 3
    with start() as run:
        run.tick()
        server = launch._own_server()._forkserver_pid
        assert server != pid and b"\0OPENBLAS_NUM_THREADS=1\0" in Path(f"/proc/{server}/environ").read_bytes()


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), EOFError("unexpected EOF"), ConnectionRefusedError()])
def test_what_dies_while_it_is_started_is_named(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, really_start = [], launch.start_process

    def start_process(context: Any, process: Any) -> None:
        begun.append(process)
        if len(begun) == 2:
            raise error
        really_start(context, process)

    monkeypatch.setattr("reactor_rl.runtime.launch.start_process", start_process)
    with pytest.raises(
        WorkerDiedError, match=r"worker 2, or the fork server.*was killed while it was started.*each\[2\]"
    ) as caught:
        start()
    assert (caught.value.worker, caught.value.reactors, caught.value.__cause__) == (2, ("each[2]",), error)


def test_of_a_pipe_the_caller_keeps_its_own_end() -> None:
    def sockets() -> int:
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(os.readlink(path).startswith("socket:") for path in paths if os.path.lexists(path))

    start().close()
    gc.collect()
    before = sockets()
    with start() as run:
        run.tick()
        assert sockets() == before + 2


def test_the_fork_server_has_loaded_what_plugins_name() -> None:
    script = """
    import sys, wsgiref
    from reactor_rl import Output, Program, Reactor, Timer, reaction
    from reactor_rl.plugin import preload

    class Each(Reactor):
        each, found = Timer(period=1), Output()
        @reaction(each, effects=found)
        def go(self):
            import sys
            self.found.set([name for name in ("wsgiref.util", "xmlrpc.client") if name in sys.modules])

    preload("wsgiref.util", "xmlrpc.client")  # of which the caller itself has loaded one package
    program = Program("each")
    program.connect(program.bank(Each, 2).found, program.output("found").rows)
    with program.start(executor="processes", workers=2, start_method="forkserver") as run:
        run.tick()
        print(run.found)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("[[], ['wsgiref.util']]\n", "")


# ---------------------------------------------------------------------- what failed constructions leave


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "cannot create a semaphore .*: No space left on device.*fewer workers"),
        (errno.EMFILE, "cannot start the workers: Too many open files.*ulimit -n"),
    ],
)
def test_too_few_semaphores(number: int, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = channel._multiprocessing.SemLock

    class Scarce:
        _rebuild = real._rebuild

        def __new__(cls, *args: Any) -> Any:
            made.append(args)
            if len(made) == 3:
                raise OSError(number, os.strerror(number))
            return real(*args)

    monkeypatch.setattr(channel._multiprocessing, "SemLock", Scarce)
    with pytest.raises(ArenaError if number == errno.ENOSPC else RunError, match=says):
        start()
    gc.collect()
    assert (names(), memory_files()) == ([], 0)


def left_by(script: str) -> tuple[int, str, list[Path]]:
    """The status of a script, what it complains about, and its semaphores that are still there."""
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = process.communicate(timeout=50)[1]
    return process.returncode, said, list(Path("/dev/shm").glob(f"sem.rrl-{process.pid:x}-*"))


def test_killed_while_the_resource_tracker_is_started() -> None:
    """That takes milliseconds, in the first start of a process."""
    assert left_by("""
        import os, signal
        from multiprocessing import util
        from reactor_rl.runtime.channel import Channel

        util.spawnv_passfds = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
        Channel()
    """) == (-signal.SIGKILL, "", [])


@pytest.mark.parametrize("error", ["FileExistsError(17, 'File exists')", "OSError(28, 'No space left on device')"])
def test_the_resource_tracker_forgets_what_was_not_made(error: str) -> None:
    """It would complain when the process ends."""
    assert left_by(f"""
        from reactor_rl.runtime import channel

        def refused_once(*arguments):
            channel._multiprocessing.SemLock = real
            raise {error}

        real, channel._multiprocessing.SemLock = channel._multiprocessing.SemLock, refused_once
        try:
            channel.Channel()
        except channel.ArenaError:
            channel.Channel()
    """) == (0, "", [])


def test_too_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = os.memfd_create, []

    def scarce(*args: Any) -> int:
        made.append(args)
        if len(made) == 3:
            raise OSError(24, "Too many open files")
        return real(*args)

    monkeypatch.setattr(shared_memory.os, "memfd_create", scarce)
    with pytest.raises(RunError, match=r"cannot start the workers: Too many open files.*ulimit -n, here \d+\); raise it"):
        start()
    gc.collect()
    assert (names(), memory_files()) == ([], 0)


class Begins(Each):
    @reaction(startup)
    def begin(self) -> None:
        pass


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_descriptors_that_run_out_while_the_caller_starts_up(executor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers that are still being started may have the last ones; the caller looks for numeric libraries meanwhile."""

    def look() -> None:
        raise OSError(24, "Too many open files", "/proc/self/maps")

    monkeypatch.setattr("threadpoolctl.ThreadpoolController", look)
    program = Program("begins")
    program.connect(program.bank(Begins, 2).pid, program.output("pids").rows)
    with pytest.raises(RunError, match=r"cannot start the workers: Too many open files.*ulimit -n, here \d+\); raise it"):
        program.start(executor=executor, workers=2)
    gc.collect()
    assert (names(), memory_files()) == ([], 0)


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_too_few_threads(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with start():  # the services of the interpreter have threads, too
        pass
    real = threading.Thread.start

    def scarce(self: threading.Thread) -> None:
        if self.name.startswith("reactor_rl"):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with pytest.raises(RunError, match=r"cannot start .*can't start new thread.*ulimit -u"):
        start(executor=executor)
    gc.collect()
    assert (names(), memory_files()) == ([], 0)


@pytest.mark.parametrize("end", ["dropped", "terminated"])
def test_threads_leave_no_memory_files(end: str) -> None:
    run = start(executor="threads")
    run.tick()
    assert (memory_files(), names()) == (3, [])
    if end == "terminated":
        run.close(terminate=True)
    else:
        del run
    assert memory_files() == 0


def test_a_temporary_directory_with_a_long_name(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    script = (
        "import tempfile, os; from reactor_rl.runtime import launch; "
        "from multiprocessing.context import ForkServerContext; launch.begin(ForkServerContext()); "
        "address = launch._own_server()._forkserver_address; print(len(address) < 100, os.path.dirname(address))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(long)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stderr == ""
    short, directory = done.stdout.split()
    assert short == "True"
    assert not Path(directory).exists()


def test_nowhere_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LONGEST_ADDRESS", 3)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path))
    with pytest.raises(RunError, match=r"TMPDIR .* is too long for a socket.*Set TMPDIR"):
        launch._address("AF_UNIX")


def test_a_file_that_cannot_be_removed_while_it_is_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As on Windows: the file is left to the system, which deletes it with its last handle.
    monkeypatch.setattr(shared_memory, "_LINUX", False)
    monkeypatch.setattr(shared_memory, "_POSIX", False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    removed: list[Path] = []
    monkeypatch.setattr(Path, "unlink", lambda self, **_: removed.append(self))
    made = SharedMemory(100, "a test")
    made.view(100)[:3] = b"abc"
    made.unlink()
    view = made.view(100)
    made.close()
    assert (removed, bytes(view[:3]), len(list(tmp_path.iterdir()))) == ([], b"abc", 1)


# ---------------------------------------------------------------------- copies and forks


def test_a_run_cannot_be_copied() -> None:
    with start() as run:
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="a run cannot be copied or pickled"):
                make(run)
        gc.collect()
        run.tick()


CALLS = {
    "tick": lambda run, write, snapshot: run.tick(),
    "tick_async": lambda run, write, snapshot: run.tick_async(),
    "tick_wait": lambda run, write, snapshot: run.tick_wait(),
    "run": lambda run, write, snapshot: run.run(3),
    "set": lambda run, write, snapshot: run.set(unused=np.zeros(2)),
    "writer": lambda run, write, snapshot: write(np.zeros(2)),
    "read": lambda run, write, snapshot: run.pids,
    "values": lambda run, write, snapshot: run.values("pids"),
    "view": lambda run, write, snapshot: run.view("echo"),
    "fingerprint": lambda run, write, snapshot: run.fingerprint(),
    "snapshot": lambda run, write, snapshot: run.snapshot(),
    "restore": lambda run, write, snapshot: run.restore(snapshot),
    "trace": lambda run, write, snapshot: run.trace("trace.json").__enter__(),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("begun", [False, True])
def test_a_forked_child_is_refused_by_every_method(begun: bool) -> None:
    with start() as run:
        run.tick()
        write, snapshot = run.writer("unused"), run.snapshot()
        if begun:
            run.tick_async()
        read, said = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for name, call in CALLS.items():
                    try:
                        call(run, write, snapshot)
                    except RunError as error:
                        if "forked child" in str(error):
                            continue
                        name += f": {error}"
                    except Exception as error:
                        name += f": {error!r}"
                    os.write(said, f"{name}; ".encode())
                repr(run)
                run.close()
                run.__del__()
            finally:
                os.close(said)
                os._exit(0)
        os.close(said)
        with os.fdopen(read, "rb") as answers:
            assert answers.read() == b""
        os.waitpid(child, 0)
        if begun:
            run.tick_wait()
        run.tick()
        assert len(set(run.pids)) == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors as Linux shows them")
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_close_gives_everything_back_at_once_and_outputs_can_still_be_read(executor: Any) -> None:
    program().start(executor=executor, workers=2).close()  # starts what stays
    gc.collect()
    gc.disable()
    try:
        before, closed = len(os.listdir("/proc/self/fd")), []
        for _ in range(5):
            run = program().start(executor=executor, workers=2)
            run.run(2)
            pids = run.pids
            run.close()
            assert run.pids == pids
            closed.append(run)
        assert len(os.listdir("/proc/self/fd")) == before
        assert "memfd:reactor_rl" not in Path("/proc/self/maps").read_text()
    finally:
        gc.enable()
