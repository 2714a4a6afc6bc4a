"""What helpers cost on this machine at this moment: ticks of a program that does nothing, or the same everywhere, on two workers
and on one.

One cost is the time of waking and waiting, which differs by more than tenfold between machines, between a quiet machine and a busy
one, and between callers that tick at once and callers that do something else for so long that helpers have gone to sleep. The other
is that cores slow each other down: two threads of one core, or virtual cores of a host that others use too, take longer for the
same when both are at work.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
import time

from reactor_rl.composition import Composition
from reactor_rl.executors import ExecutorName
from reactor_rl.flatten import flatten
from reactor_rl.reactor import Reactor, Timer, reaction
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import Settings, start

__all__ = ["parallel_executor", "slowdown", "tick_cost"]

STALE = 10.0
"""Seconds after which a measurement is made again."""
WARM = 10
"""Ticks that are not timed."""
BATCHES, FEWEST, SECONDS = 5, 3, 5e-3
"""Batches of ticks; the fewest ticks in each; seconds that each lasts, about a time slice: in a shorter time others go unnoticed.

The mean of a batch, because on a busy machine it is few ticks that take long; the second-longest batch, because on a quiet one
a single batch may be hit.
"""

WORK = 4000
"""Passes of a loop that does nothing: some 100 us."""

_known: dict[tuple[int, float | None, float], tuple[float, float]] = {}
_slowed: dict[int, tuple[float, float]] = {}


class Busy(Reactor):
    """Counts, at every tick."""

    beat = Timer(period=1)

    def __init__(self, passes: int) -> None:
        self.passes = passes

    @reaction(beat)
    def count(self) -> None:
        """Pass the time."""
        for _ in range(self.passes):
            pass


def parallel_executor() -> ExecutorName:
    """What carries helpers that run Python: processes, or threads where there is no GIL."""
    return "processes" if getattr(sys, "_is_gil_enabled", lambda: True)() else "threads"


def tick_cost(spin: float | None = None, away: float = 0.0) -> float:
    """Seconds that a tick with a helper costs beyond its share of the reactions; infinite where no helper can be started.

    Takes some tens of milliseconds where a fork server is up; what was found is good for ten seconds.

    Args:
        spin: Seconds that workers spin; see :meth:`Program.start`.
        away: Seconds that the caller is busy with other things between two ticks.
    """
    key = (os.getpid(), spin, away)
    if key not in _known or time.monotonic() - _known[key][1] > STALE:
        _known[key] = (_measured(spin, away), time.monotonic())
    return _known[key][0]


def slowdown() -> float:
    """How many times as long a worker takes for the same while another one is at work, too; 1 where cores are cores.

    Takes some tens of milliseconds where a fork server is up; what was found is good for ten seconds.
    """
    key = os.getpid()
    if key not in _slowed or time.monotonic() - _slowed[key][1] > STALE:
        _slowed[key] = (_slowed_down(), time.monotonic())
    return _slowed[key][0]


def _slowed_down() -> float:
    executor = parallel_executor()
    if executor == "processes" and not may_start_processes():
        return 1.0
    with contextlib.suppress(Exception), _started("inline", None, WORK) as alone, _started(executor, None, WORK) as shared:
        waking = tick_cost()
        # Taking turns, for a machine that others use changes from one moment to the next.
        pairs = [(_batch(alone, 0.0) / 2.0, _batch(shared, 0.0) - waking) for _ in range(BATCHES)]
        return max(1.0, statistics.median(beside / by_itself for by_itself, beside in pairs))
    return 1.0


def _measured(spin: float | None, away: float) -> float:
    executor = parallel_executor()
    if executor == "processes" and not may_start_processes():
        return math.inf
    with contextlib.suppress(Exception):
        alone = min(_ticks("inline", spin, 0.0, 2))  # whatever makes it longer is none of its own doing
        return max(0.0, sorted(_ticks(executor, spin, away, BATCHES))[-2] - alone)
    return math.inf


def _ticks(executor: ExecutorName, spin: float | None, away: float, batches: int) -> list[float]:
    with _started(executor, spin, 0) as run:
        return [_batch(run, away) for _ in range(batches)]


def _started(executor: ExecutorName, spin: float | None, passes: int) -> Run:
    """A run of two workers that count, warmed up."""
    program = Composition("what a helper costs")
    for name in ("here", "there"):
        program.add(Busy, passes, name=name)
    pickled = program.pickled_reactors()
    settings = Settings(executor, 2, placement={"here": 0, "there": 1}, spin=spin, fingerprint="off")
    run = start(flatten(program), lambda _: pickled, (), settings)
    for _ in range(WARM):
        run.tick()
    return run


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
