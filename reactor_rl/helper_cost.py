"""What helpers cost on this machine at this moment: ticks of a program that does nothing, on two workers and on one.

It is the time of waking and waiting, which differs by more than tenfold between machines, between a quiet machine and a busy one,
and between callers that tick at once and callers that do something else for so long that helpers have gone to sleep.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time

from reactor_rl.composition import Composition
from reactor_rl.executor_names import ExecutorName, NamedExecutor
from reactor_rl.flatten import flatten
from reactor_rl.reactor import Reactor, Timer, reaction
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import Settings, start

__all__ = ["parallel_executor", "tick_cost"]

STALE = 10.0
"""Seconds after which a measurement is made again."""
WARM = 10
"""Ticks that are not timed."""
BATCHES, FEWEST, SECONDS = 5, 3, 5e-3
"""Batches of ticks; the fewest ticks in each; seconds that each lasts, about a time slice: in a shorter time others go unnoticed.

The mean of a batch, because on a busy machine it is few ticks that take long; the second-longest batch, because on a quiet one
a single batch may be hit.
"""

_known: dict[tuple[int, float | None, float, str | None], tuple[float, float]] = {}


class Idle(Reactor):
    """Does nothing, at every tick."""

    beat = Timer(period=1)

    @reaction(beat)
    def nothing(self) -> None:
        """Do nothing."""


def parallel_executor(replaced: bool = False) -> NamedExecutor:
    """What carries helpers that run Python: processes, or threads where there is no GIL.

    Args:
        replaced: Whether those that die are to be replaced, which threads cannot be.
    """
    return "processes" if replaced or getattr(sys, "_is_gil_enabled", lambda: True)() else "threads"


def tick_cost(spin: float | None = None, away: float = 0.0, context: str | None = None) -> float:
    """Seconds that a tick with a helper costs beyond its share of the reactions; infinite where no helper can be started.

    Takes some tens of milliseconds where a fork server is up; what was found is good for ten seconds.

    Args:
        spin: Seconds that workers spin; see :meth:`Program.start`.
        away: Seconds that the caller is busy with other things between two ticks.
        context: How helper processes are to start, so that no fork server is started for one measurement.
    """
    key = (os.getpid(), spin, away, context)
    if key not in _known or time.monotonic() - _known[key][1] > STALE:
        _known[key] = (_measured(spin, away, context), time.monotonic())
    return _known[key][0]


def _measured(spin: float | None, away: float, context: str | None) -> float:
    executor = parallel_executor()
    if executor == "processes" and not may_start_processes():
        return math.inf
    with contextlib.suppress(Exception):
        alone = min(_ticks("inline", spin, 0.0, None, 2))  # whatever makes it longer is none of its own doing
        return max(0.0, sorted(_ticks(executor, spin, away, context, BATCHES))[-2] - alone)
    return math.inf


def _ticks(executor: ExecutorName, spin: float | None, away: float, context: str | None, batches: int) -> list[float]:
    program = Composition("what a helper costs")
    for name in ("here", "there"):
        program.add(Idle, name=name)
    pickled = program.pickled_reactors()
    settings = Settings(executor, 2, placement={"here": 0, "there": 1}, spin=spin, context=context, fingerprint="off")
    with start(flatten(program), lambda _: pickled, (), settings) as run:
        for _ in range(WARM):
            run.tick()
        return [_batch(run, away) for _ in range(batches)]


def _batch(run: Run, away: float) -> float:
    clock = time.perf_counter
    ticks, spent, end = 0, 0.0, clock() + SECONDS
    while ticks < FEWEST or clock() < end:
        busy = clock() + away
        while clock() < busy:
            pass
        begin = clock()
        run.tick()
        spent += clock() - begin
        ticks += 1
    return spent / ticks
