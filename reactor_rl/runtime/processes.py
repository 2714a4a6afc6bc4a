"""Helpers as processes: the default for Python environments."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection, parent_process
from typing import Any

import cloudpickle

from reactor_rl.failure import Failure
from reactor_rl.runtime.block import Block
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.executor import Pair, Reactors, channels_of
from reactor_rl.runtime.helper import serve
from reactor_rl.runtime.launch import SINGLE_THREADED, begin, context_named, start_process
from reactor_rl.runtime.objects import Side
from reactor_rl.runtime.plan import Plan
from reactor_rl.serialise import loads

__all__ = ["Processes"]


class Processes:
    """Runs a plan of several workers in processes of their own, over shared memory."""

    name = "processes"

    def __init__(self, plan: Plan, spin: float, context: str | None, setup: Sequence[Callable[[], None]]) -> None:
        self._plan, self._setup = plan, tuple(setup)
        self._context = context_named(context)
        self._processes: list[Any] = []
        self._starter: threading.Thread | None = None
        self._error: BaseException | None = None
        self._lines: list[Any] = []
        self._blocks: list[Block] = []
        self.channels: dict[Pair, Channel] = {}
        self.spin = spin
        try:
            arena = Block(plan.layout.size, f"the ports of program {plan.topology.name!r}")
            self._blocks.append(arena)
            self.memory = arena.view(plan.layout.size)
            writers = {plan.layout.owner[index] for index, offset in enumerate(plan.layout.cells) if offset >= 0}
            sides = [Block(0, f"objects of worker {w}") if w in writers else None for w in range(plan.schedule.workers)]
            self._blocks += [block for block in sides if block is not None]
            self._side_blocks = sides
            self.sides: Sequence[Side | None] = [None if block is None else Side(block) for block in sides]
            self.channels = channels_of(plan)
        except BaseException:
            self._release()
            raise

    def launch(self, reactors: Sequence[Reactors]) -> None:
        """Start the helpers, with a fork server behind the caller's back, who builds his own reactors meanwhile."""
        inherited = self._context.get_start_method() == "fork"
        jobs = []
        for worker in range(1, self._plan.schedule.workers):
            mine, theirs = self._context.Pipe()
            self._lines.append(mine)
            channels = {pair: channel for pair, channel in self.channels.items() if worker in pair}
            load: Any = (self._plan, reactors[worker], self._setup)
            if not inherited:
                load = cloudpickle.dumps(load)
            args = (worker, load, self._blocks[0], self._side_blocks, channels, theirs, self.spin, os.getpid())
            jobs.append((worker, args, theirs))
        if begin(self._context):
            self._starter = threading.Thread(target=self._start, args=(jobs,), name="reactor_rl start", daemon=True)
            self._starter.start()
        else:
            self._start(jobs)
            if self._error is not None:
                raise self._error

    def _start(self, jobs: Sequence[tuple[int, tuple[Any, ...], Any]]) -> None:
        try:
            for worker, args, theirs in jobs:
                self._processes.append(start_process(self._context, worker, _main, args))
                theirs.close()
        except BaseException as error:
            self._error = error

    def attached(self) -> None:
        if self._starter is not None:
            self._starter.join()
            self._starter = None
        for channel in self.channels.values():
            channel.unlink()
        for block in self._blocks:
            block.unlink()

    def send(self, worker: int, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # died() tells
            self._lines[worker - 1].send(message)

    def receive(self, worker: int, timeout: float) -> Any:
        line = self._lines[worker - 1]
        try:
            if line.poll(timeout):
                return line.recv()
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None
        raise TimeoutError

    def died(self) -> tuple[int, int | None] | None:
        if self._error is not None:
            raise self._error
        for index, process in enumerate(self._processes):
            if process.exitcode is not None:
                return index + 1, process.exitcode
        return None

    def stop(self, grace: float | None) -> None:
        """Wait for the processes to end; after ``grace`` seconds terminate them, and kill those that resist."""
        if self._starter is not None:
            self._starter.join()
            self._starter = None
        _join(self._processes, grace)
        for end in (lambda p: p.terminate(), lambda p: p.kill()):
            alive = [process for process in self._processes if process.exitcode is None]
            for process in alive:
                end(process)  # type: ignore[no-untyped-call]
            _join(alive, 1.0)
        for process in self._processes:
            if process.exitcode is not None:
                process.close()
        self._processes = []
        self._release()

    def _release(self) -> None:
        for line in self._lines:
            line.close()
        self._lines = []
        self.attached()
        for block in self._blocks:
            block.close()
        self._blocks = []


def _join(processes: Sequence[Any], seconds: float | None) -> None:
    end = None if seconds is None else time.monotonic() + seconds
    for process in processes:
        process.join(None if end is None else max(0.0, end - time.monotonic()))


def _main(
    worker: int,
    load: Any,
    arena: Block,
    side_blocks: Sequence[Block | None],
    channels: dict[Pair, Channel],
    line: Any,
    spin: float,
    caller: int,
) -> None:
    """A worker process."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's business
    _watch(caller)
    for name in SINGLE_THREADED:
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    for (source, target), channel in channels.items():
        if 0 in (source, target):  # nobody else needs its name
            channel.unlink_attached()
    try:
        plan, reactors, setup = loads(load) if isinstance(load, bytes) else load
        for function in setup:
            function()
    except Exception as error:
        line.send(Failure.of(-1, f"(starting worker {worker})", (0, 0), error))
        return
    sides = [None if block is None else Side(block) for block in side_blocks]
    with contextlib.suppress(BrokenPipeError):
        serve(plan, worker, arena.view(plan.layout.size), sides, reactors, channels, line, spin)


def _watch(caller: int) -> None:
    """End this process when the caller's process has ended, however that happened."""
    ended: Any = None
    if hasattr(os, "pidfd_open"):
        try:
            ended = os.pidfd_open(caller)
        except ProcessLookupError:
            os._exit(1)
        except OSError:
            ended = None
    parent = parent_process()
    if ended is None and parent is not None:
        ended = parent.sentinel
    if ended is None:
        return

    def watch() -> None:
        connection.wait([ended])
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()
        os._exit(1)

    threading.Thread(target=watch, name="reactor_rl watch", daemon=True).start()
