"""Helpers as threads, for reactions that release the GIL and for free-threaded builds."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.runtime import numeric_threads
from reactor_rl.runtime.arithmetic import Arithmetic, arithmetic, take
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.executor import Pair, Reactors, channels_of
from reactor_rl.runtime.limits import shortages_named
from reactor_rl.runtime.plan import Plan, aligned_zeros
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker.main import run_helper
from reactor_rl.runtime.worker.values import SideBlock

__all__ = ["ThreadsExecutor"]


AT_ONCE = 0.1
"""Least seconds that threads get to end: those that wait need only some microseconds. A thread cannot be killed, so with no time at
all each close would leave some behind.
"""

_HUNG_UP = object()


class _ThreadPipe:
    """One end of a pipe between two threads; the other end is ``mate``."""

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.mate: _ThreadPipe

    @classmethod
    def pair(cls) -> tuple[_ThreadPipe, _ThreadPipe]:
        one, other = cls(), cls()
        one.mate, other.mate = other, one
        return one, other

    def send(self, obj: Any) -> None:
        self.mate._inbox.put(obj)

    def recv(self, timeout: float | None = None) -> Any:
        message = self._inbox.get(timeout=timeout)
        if message is _HUNG_UP:
            raise EOFError
        return message

    def hang_up(self) -> None:
        """Tell the other end that nothing more will come."""
        self.mate._inbox.put(_HUNG_UP)


class ThreadsExecutor:
    """The executor whose helpers are threads of this process."""

    name = "threads"

    @shortages_named("make room for the workers")
    def __init__(self, plan: Plan, spin: float) -> None:
        self._plan = plan
        self._arena = aligned_zeros((plan.layout.size,), np.uint8)
        self.memory = self._arena.data
        self._blocks = [SharedMemory(0, f"objects of worker {w}") for w in range(plan.schedule.workers)]
        self.sides: Sequence[SideBlock | None] = [SideBlock(block) for block in self._blocks]
        self.channels = channels_of(plan)
        for channel in self.channels.values():
            channel.unlink()
        # With the GIL, a worker that spins only keeps the others from running.
        free = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self.spin = spin if free else 0.0
        self._threads: list[threading.Thread] = []
        self._lines: list[_ThreadPipe] = []

    def launch(self, reactors: Sequence[Reactors]) -> None:
        for worker in range(1, self._plan.schedule.workers):
            mine, theirs = _ThreadPipe.pair()
            inbound: dict[Pair, Channel] = {pair: c for pair, c in self.channels.items() if worker in pair}
            thread = threading.Thread(
                target=_serve,
                args=(arithmetic(), self._plan, worker, self._arena, self.sides, reactors[worker], inbound, theirs, self.spin),
                name=f"reactor_rl worker {worker}",
                daemon=True,  # a reaction that never returns must not keep the interpreter from exiting
            )
            self._lines.append(mine)
            with shortages_named(f"start worker {worker}"):
                thread.start()
            self._threads.append(thread)

    def attached(self) -> None:
        pass

    def send(self, worker: int, message: Any) -> None:
        self._lines[worker - 1].send(message)

    def sent(self, worker: int, timeout: float) -> bool:
        return True

    def receive(self, worker: int, timeout: float) -> Any:
        try:
            return self._lines[worker - 1].recv(timeout)
        except queue.Empty:
            raise TimeoutError from None

    def died(self) -> tuple[int, int | None] | None:
        return next(((worker, None) for worker, thread in enumerate(self._threads, 1) if not thread.is_alive()), None)

    def stopped(self, worker: int) -> bool:
        return False

    def stop(self, grace: float | None) -> None:
        """Join the threads; one that does not end within ``grace`` is abandoned, because a thread cannot be ended from outside."""
        for line in self._lines:
            line.hang_up()
        end = None if grace is None else time.monotonic() + max(grace, AT_ONCE)
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            with contextlib.suppress(IndexError):  # another thread may be here, too
                while True:
                    self._blocks.pop().close(readable=True)  # outputs are read when all is over, too
        # Otherwise the last reference frees the memory.
        numeric_threads.ended(id(self._arena))


def _serve(settings: Arithmetic, plan: Plan, worker: int, arena: npt.NDArray[np.uint8], *arguments: Any) -> None:
    """Run a worker in its thread."""
    take(settings)
    # A view of its own: without the GIL, threads that slice one view lose count of its slices, and CPython releases it under them.
    run_helper(plan, worker, arena.data, *arguments)
