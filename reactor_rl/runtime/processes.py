"""Helpers as processes: the default for Python environments."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing import connection, parent_process
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import cloudpickle

from reactor_rl import pickling
from reactor_rl.errors import Failure, RunClosedError, WorkerDiedError, ordinary
from reactor_rl.pickling import loads
from reactor_rl.runtime import numeric_threads
from reactor_rl.runtime.arithmetic import Arithmetic, arithmetic, take
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.executor import ABORTED, Pair, Reactors, channels_of, signal_all
from reactor_rl.runtime.guards import holding
from reactor_rl.runtime.launch import (
    ChildProcess,
    begin,
    context_named,
    end_all,
    end_server,
    environment,
    new_process,
    take_environment,
    wait_for_all,
)
from reactor_rl.runtime.limits import shortages_named
from reactor_rl.runtime.line import Line
from reactor_rl.runtime.module_settings import ModuleSettings, settings_of
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.revival import WorkerRevival
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.main import note_differing, run_helper
from reactor_rl.runtime.worker.values import SideBlock

__all__ = ["LOST", "NO_HISTORY", "REPLAYING", "REVIVED", "ProcessStart", "ProcessesExecutor", "settle"]

REPLAYING = "replaying"
"""Message that a helper sends from time to time while it is being brought back and makes progress."""
REVIVED = "revived"
"""Message that a helper sends once it has taken the dead one's place and is ready."""

LOST = (ConnectionError, EOFError, ChildProcessError)
"""Errors by which a start fails if the new process, or the fork server, was killed."""

NO_HISTORY = "no history"
"""The history of a helper whose startup reactions have not ended: its successor begins as the first one did."""

LATEST = 5.0
"""Seconds that the interpreter waits at its exit for processes that are still being started, before they are ended. A start takes
tenths of a second, seconds if it imports torch on a busy machine.
"""
ENDED = 5.0
"""Most seconds until it is known that the fork server was killed. SIGKILL takes milliseconds; a process in an uninterruptible wait
of the kernel (a dead network disk) takes for ever, and the error says so after this.
"""


class ProcessesExecutor:
    """The executor whose helpers are processes, over shared memory."""

    name = "processes"

    @shortages_named("start the workers")
    def __init__(self, plan: Plan, spin: float, start_method: str | None, setup: Sequence[Callable[[], None]]) -> None:
        self._plan, self._setup, self._variables = plan, tuple(setup), environment()
        self._arithmetic = arithmetic()
        self._context = context_named(start_method)
        self.settings = ModuleSettings()  # of the caller's modules, when it starts helpers
        self._processes: list[ChildProcess] = []
        self._start: ProcessStart | None = None
        self._lines: list[Line] = []
        self._changing = threading.RLock()  # held by a thread that puts processes in the place of others, or releases them
        self._stopped = False
        self.spin = spin
        arena = SharedMemory(plan.layout.size, f"the ports of program {plan.topology.name!r}")
        self._blocks: list[SharedMemory] = [arena]
        self.memory = arena.view(plan.layout.size)
        writers = {plan.layout.owner[index] for index, offset in enumerate(plan.layout.cells) if offset >= 0}
        sides = [SharedMemory(0, f"objects of worker {w}") if w in writers else None for w in range(plan.schedule.workers)]
        self._blocks += [block for block in sides if block is not None]
        self._side_blocks = sides
        self.sides: Sequence[SideBlock | None] = [None if block is None else SideBlock(block) for block in sides]
        self.channels = channels_of(plan)

    @shortages_named("start the workers")
    def launch(self, reactors: Sequence[Reactors]) -> None:
        """Start the helpers; with a fork server in the background, while the caller builds its own reactors."""
        method = self._context.get_start_method()
        jobs: list[_Job] = []
        if method != "fork":
            self.settings = settings_of(one for of_worker in reactors for one in of_worker.values())
        for worker in range(1, self._plan.schedule.workers):
            load: Any = (self._plan, reactors[worker], self._setup, self.settings, None)
            child, mine, theirs = self._new(worker, load if method == "fork" else cloudpickle.dumps(load), self.channels)
            self._lines.append(mine)
            self._processes.append(child)
            jobs.append((worker, child, theirs))
        self._start = start = ProcessStart(self._context, jobs)
        if method == "fork":  # the thread that forks is the child's main thread
            start.run()
        else:
            begin(self._context)
            start.in_background()
            if method == "spawn":  # meanwhile the environment is that of workers
                start.wait(None)

    def attached(self) -> None:
        # Every worker has what it needs by now. Without names, nothing is left behind if all are killed from here on.
        for channel in self.channels.values():
            channel.unlink()
        for block in self._blocks:
            block.unlink()

    def send(self, worker: int, message: Any) -> None:
        with contextlib.suppress(OSError):  # died() tells
            self._lines[worker - 1].send(message)

    def sent(self, worker: int, timeout: float) -> bool:
        try:
            return self._lines[worker - 1].sent(timeout)
        except OSError:
            return True

    def receive(self, worker: int, timeout: float) -> Any:
        try:
            return self._lines[worker - 1].receive(timeout)
        except TimeoutError:
            raise
        except OSError:  # reset, or in the middle of a message
            raise EOFError from None

    @shortages_named("start the workers")
    def died(self) -> tuple[int, int | None] | None:
        death = next(iter(self.ended()), None)
        if death is not None and (error := self.not_started(death[0])) is not None:
            raise self._named(death[0], error)
        return death

    @shortages_named("look for workers that have ended")
    def ended(self) -> list[tuple[int, int | None]]:
        """List the helpers that have ended, or whose start failed because a process was killed, with their exit status.

        Raises:
            Exception: If a start failed for any other reason.
        """
        # A copy, because the thread that starts processes adds to it meanwhile.
        failed = {} if self._start is None else self._start.failed.copy()
        for error in failed.values():
            if not isinstance(error, LOST):
                with shortages_named("start the workers"):
                    raise error
        return [
            (worker, None if worker in failed else child.status())
            for worker, child in enumerate(self._processes, 1)
            if worker in failed or child.ended
        ]

    def not_started(self, worker: int) -> BaseException | None:
        """Return the error by which the last start of a helper failed, or ``None``."""
        return None if self._start is None else self._start.failed.get(worker)

    def starting(self, timeout: float) -> bool:
        """Wait until all processes are started, and return whether some are still being started."""
        return self._start is not None and not self._start.wait(timeout)

    def give_up_start(self) -> bool:
        """Kill the fork server because starting makes no progress, and return whether that has ended the start."""
        end_server()
        return not self.starting(ENDED)

    @shortages_named("end workers")
    def kill(self, workers: Iterable[int]) -> None:
        """Kill helpers, wherever they are."""
        children = [self._processes[worker - 1] for worker in workers]
        for child in children:
            if not child.ended:
                child.end(kill=True)
        # Without a limit: SIGKILL cannot be ignored, and a dying helper must not write into the arena beside its successor.
        wait_for_all(children, None)

    @shortages_named("start the workers")
    def replace(self, histories: Mapping[int, Any], reactors: Sequence[Reactors]) -> None:
        """Put new processes in the place of helpers that have ended, with new channels to those that they signal.

        Returns before they are up; no others may be :meth:`starting`.

        Args:
            histories: The history of each of them, by worker; see :class:`reactor_rl.runtime.revival.WorkerRevival`.
            reactors: The reactors of every worker, as they were launched.

        Raises:
            RunClosedError: If another thread has stopped all of them meanwhile.
        """
        begin(self._context)
        loads = {
            worker: cloudpickle.dumps((self._plan, reactors[worker], self._setup, self.settings, history))
            for worker, history in histories.items()
        }
        holding(self._changing)(self._exchange)(loads)

    def _exchange(self, loads: Mapping[int, bytes]) -> None:
        """Put new channels and processes in the place of others, by worker what it is to load, and start these."""
        # Before anything is made: nobody would end new processes, or take away the names of new channels.
        if self._stopped:
            raise RunClosedError("the run was closed")
        anew = [pair for pair in self.channels if not loads.keys().isdisjoint(pair)]
        for pair in anew:  # a failed start may keep the channel, and its name, for a while
            self.channels[pair].unlink()
        channels = {pair: Channel() for pair in anew}
        made = {worker: self._new(worker, load, channels) for worker, load in loads.items()}
        self.channels |= channels
        for worker, (child, mine, _) in made.items():
            self._processes[worker - 1].close()
            self._lines[worker - 1].close()
            self._processes[worker - 1], self._lines[worker - 1] = child, mine
        self._start = start = ProcessStart(self._context, [(worker, child, theirs) for worker, (child, _, theirs) in made.items()])
        start.in_background()

    def _new(self, worker: int, load: Any, channels: Mapping[Pair, Channel]) -> tuple[ChildProcess, Line, Any]:
        """Make a process for a helper, not started, and both ends of the pipe to it."""
        mine, theirs = self._context.Pipe()
        line = Line(mine)
        arguments = self._arguments(worker, load, channels, theirs)
        return ChildProcess(new_process(self._context, worker, _main, arguments)), line, theirs

    def _arguments(self, worker: int, load: Any, channels: Mapping[Pair, Channel], line: Any) -> tuple[Any, ...]:
        """Collect the arguments of a helper's process."""
        channels = {pair: channel for pair, channel in channels.items() if worker in pair}
        settings = self._variables, self._arithmetic
        return (worker, load, self._blocks[0], self._side_blocks, channels, line, self.spin, os.getpid(), *settings)

    def _named(self, worker: int, error: BaseException) -> BaseException:
        """Make the error for a helper that could not be started."""
        names = self._plan.names_of(worker)
        named = WorkerDiedError(
            f"worker {worker}, or the fork server that starts workers, was killed while it was started ({type(error).__name__}), "
            "or there was no room for another process (ulimit -u, or the limit of the container); "
            f"it was to hold {', '.join(names)}. Start again; a new server is started if necessary",
            worker, names, None,
        )  # fmt: skip
        named.__cause__ = error
        return named

    def stopped(self, worker: int) -> bool:
        try:
            status = Path(f"/proc/{self._processes[worker - 1].pid}/stat").read_text()
        except OSError:  # no Linux, or no process any more
            return False
        # The name in parentheses may have spaces and parentheses in it, so the state is what follows the last one.
        return status.rpartition(")")[2].split()[0] in ("T", "t")

    @shortages_named("end the workers")
    def stop(self, grace: float | None) -> None:
        """Wait for the processes to end; after ``grace`` seconds terminate them, and kill those that resist.

        Processes that are still being started by then are ended by the thread that starts them. May be called while another
        thread is in it, too: whoever has less time ends the processes.
        """
        holding(self._changing)(self._refuse)()
        for line in self._lines.copy():  # a helper in the middle of a message gets an error
            line.hang_up()
        start = self._start
        if start is None or start.stop(lambda: self._end(0.0)):
            self._end(grace)

    def _refuse(self) -> None:
        """Start no process from now on, and tell those to quit that another thread has started just before."""
        self._stopped = True
        signal_all(self.channels)

    def _end(self, grace: float | None) -> None:
        end_all(self._processes.copy(), grace)
        holding(self._changing)(self._release)()

    def _release(self) -> None:
        self._start = None
        while self._processes:  # what is interrupted, or fails, is closed at the next call
            self._processes[-1].close()
            self._processes.pop()
        while self._lines:
            self._lines[-1].close()
            self._lines.pop()
        self.attached()
        while self._blocks:
            block = self._blocks.pop()
            block.close(readable=block in self._side_blocks)  # outputs are read when all is over, too


_Job = tuple[int, ChildProcess, Any]
"""A worker, its process, and its end of the pipe, which is closed here once the process has it."""


class ProcessStart:
    """Starts processes, if possible in a thread of its own.

    A KeyboardInterrupt strikes only in the main thread, so it cannot leave a process that was started but is not known.
    """

    def __init__(self, context: BaseContext, jobs: Sequence[_Job]) -> None:
        self._context, self._jobs = context, jobs
        # A daemon, for the interpreter must be able to exit while a fork server hangs.
        self._thread = threading.Thread(target=self.run, name="reactor_rl start", daemon=True)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._stopped = False
        self._then: Callable[[], None] | None = None
        self.failed: dict[int, BaseException] = {}

    def in_background(self) -> None:
        self._thread.start()

    def run(self) -> None:
        try:
            for worker, child, theirs in self._jobs:
                if self._stopped:
                    break
                try:
                    child.start(self._context)
                except LOST as error:  # the next one gets another fork server
                    self.failed[worker] = error
                except Exception as error:
                    self.failed[worker] = error
                    break
                # The process has it now. As long as this end were open here too, the line would not end with the process.
                theirs.close()
        finally:
            holding(self._lock)(self._over.set)()
            if self._then is not None:
                self._then()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the start to end, and return whether it has."""
        return self._over.wait(seconds)

    def stop(self, then: Callable[[], None]) -> bool:
        """Stop starting processes, and return whether the start has ended; if not, ``then`` is called when it has."""
        self._stopped = True
        late = self._thread.ident is not None and not self._over.wait(ABORTED)
        if late and holding(self._lock)(self._leave_to)(then):
            return False
        if self._thread.ident is not None:
            self._thread.join()
        return True

    def _leave_to(self, then: Callable[[], None]) -> bool:
        """Have ``then`` called when the start has ended, unless it has."""
        if self._over.is_set():
            return False
        self._then = then
        atexit.register(self._thread.join, LATEST)  # else multiprocessing, at exit, joins processes as they are closed
        return True


def _main(
    worker: int,
    load: Any,
    arena: SharedMemory,
    side_blocks: Sequence[SharedMemory | None],
    channels: dict[Pair, Channel],
    line: Any,
    spin: float,
    caller: int,
    variables: dict[str, str],
    arithmetic: Arithmetic,
) -> None:
    """Run a worker process."""
    for (source, target), channel in channels.items():
        if 0 in (source, target):  # only this helper needs its name
            channel.unlink_attached()
    try:
        settle(f"worker {worker}", caller, variables, arithmetic)
        plan, reactors, setup, settings, history = loads(load) if isinstance(load, bytes) else load
        for function in setup:
            function()
        note_differing(settings.differing())
        if history is None or history == NO_HISTORY:
            memory = arena.view(plan.layout.size)
            sides: Sequence[SideBlock | None] = [None if block is None else SideBlock(block) for block in side_blocks]
        else:
            with shortages_named(f"start worker {worker}"):
                revival = WorkerRevival(plan, worker, arena, side_blocks)
            memory, sides = revival.memory, revival.sides
    except BaseException as error:
        with contextlib.suppress(OSError):
            line.send(Failure.of(-1, f"(starting worker {worker})", (0, 0), ordinary(error)))
        return

    def say(what: str) -> None:
        with contextlib.suppress(ConnectionError):  # the caller has hung up: QUIT will come, and shutdown reactions are to run
            line.send(what)

    def revive(wait: Callable[[int], None], signal: Callable[[int], None]) -> WorkerLoop:
        if history == NO_HISTORY:
            loop, _, _ = bind(plan, worker, memory, sides, reactors, wait, signal)
        else:
            loop = revival.revive(history, reactors, wait, signal, partial(say, REPLAYING))
        say(REVIVED)
        return loop

    run_helper(plan, worker, memory, sides, reactors, channels, line, spin, None if history is None else revive)


def settle(who: str, caller: int, variables: dict[str, str], arithmetic: Arithmetic) -> None:
    """Put a new process into the condition of a worker, before any code of the user is loaded.

    Args:
        who: A name for it, for errors.
        caller: Process id of the caller, with which it ends.
        variables: The environment; see :func:`~reactor_rl.runtime.launch.environment`.
        arithmetic: Settings of the caller.
    """
    take_environment(variables)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    numeric_threads.for_good()
    pickling.for_good()
    with shortages_named(f"start {who}"):
        _watch(caller)
    take(arithmetic, alone=True)


def _watch(caller: int) -> None:
    """End this process when the caller's process has ended, for whatever reason."""
    end_of_caller: Any = parent_process().sentinel  # type: ignore[union-attr]
    if hasattr(os, "pidfd_open"):  # a forked child of the caller keeps the sentinel open
        try:
            end_of_caller = os.pidfd_open(caller)
        except ProcessLookupError:
            os._exit(1)
        except OSError:  # an old kernel, or one that allows nobody to
            pass

    def watch() -> None:
        connection.wait([end_of_caller])
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
        os._exit(1)

    threading.Thread(target=watch, name="reactor_rl watch", daemon=True).start()
