"""Choose executor, number of workers and costs from a measured throw-away copy of a program. No live reactor ever moves.

The choice only changes how long a tick takes, never a result, so it is always safe. Programs, vector environments, runners,
evaluations and trainers reckon each with costs of their own, but decide by the same two functions: :func:`settled` where nothing
has to be measured, :func:`expected_gain` where it has.

The cost of a helper has to be tried here and now, by ticks of a program on one worker and on two, in turns. The time to wake a
worker and to wait for it differs more than tenfold between machines, between a quiet machine and a busy one, and between callers
that tick at once and callers that pause until the helpers are asleep. Tried with some work to do, it also includes what two workers
take from each other, and what other programs on the same cores take from both.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from reactor_rl.composition import Composition
from reactor_rl.fingerprint import global_random_state
from reactor_rl.flatten import flatten
from reactor_rl.graph import Graph
from reactor_rl.reactor import Reactor, Timer, reaction
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import RunSettings, start
from reactor_rl.schedule import compile_schedule
from reactor_rl.settings import ExecutorName, NamedExecutor
from reactor_rl.topology import Topology

__all__ = ["parallel_executor", "tick_cost", "Choice", "choose", "expected_gain", "fastest_choice", "measured", "settled"]

STALE = 10.0
"""Seconds for which a measurement is reused. Chosen: other programs come and go meanwhile, and one measurement takes part of a
second.
"""
WARM = 10
"""Ticks that are not timed. In the first ones memory is touched and branches are taken for the first time; a few would do."""
PAIRS, TURN = 9, 5e-3
"""How often either is tried, in turns, and seconds that a turn lasts, about a time slice: in a shorter time others go unnoticed.

A pair says how they compare in the same moment. The median of the pairs, because a few may be hit by something that soon ends;
where somebody else wants the cores, most are.
"""
DOUBTFUL, PAUSE = 0.75, 0.2
"""Where two workers take more than this share of the time of one, they are tried again after so many seconds: other programs that
came in for a moment have gone then, and those that stay are still there."""
PROBE = 5_000
"""How far to count when the speed of counting is measured: a fraction of a millisecond, long beside the clock's own cost and short
beside a time slice.
"""
LONGEST = 4e-3
"""Most seconds of work in a tick that is tried: a time slice, so contention shows in that already."""

_known: dict[tuple[int, float | None, float, str | None, float], tuple[float, float]] = {}


class Counts(Reactor):
    """Count to a number at every tick.

    Args:
        number: How far to count; 0 does nothing.
    """

    beat = Timer(period=1)

    def __init__(self, number: int) -> None:
        self.number = number

    @reaction(beat)
    def count(self) -> None:
        """Count to ``number``."""
        count_to(self.number)


def count_to(number: int) -> None:
    """Keep a core busy."""
    for _ in range(number):
        pass


def parallel_executor(replaced: bool = False) -> NamedExecutor:
    """Name the executor for helpers that run Python: processes, or threads without a GIL.

    Args:
        replaced: Whether helpers that die are to be replaced; threads cannot be.
    """
    return "processes" if replaced or getattr(sys, "_is_gil_enabled", lambda: True)() else "threads"


def tick_cost(spin: float | None = None, away: float = 0.0, start_method: str | None = None, work: float = 0.0) -> float:
    """Try what a helper adds to a tick beyond its share of the reactions, in seconds; infinite if no helper can start.

    Ticks of one worker and of two are timed in turns. It takes about a tenth of a second if a fork server is up, and half a second
    where helpers seem to save little. A measurement is reused for ten seconds.

    Args:
        spin: Seconds that workers spin; see :meth:`Program.start`.
        away: Seconds that the caller may be busy with other things between two ticks. With ``work`` a caller who is in a hurry is
            tried as well, and what costs more counts: while others want the cores, helpers are best off where they may rest.
        start_method: How helper processes start, so that no fork server is started for one measurement.
        work: Seconds that each worker's share takes. It is rounded, to a power of the square root of two, and limited to 4 ms.
    """
    work = min(LONGEST, 2.0 ** (round(2.0 * math.log2(work)) / 2.0)) if work > 0.0 else 0.0
    key = (os.getpid(), spin, away, start_method, work)
    if key not in _known or time.monotonic() - _known[key][1] > STALE:
        _known[key] = (_measured(spin, away, start_method, work), time.monotonic())
    return _known[key][0]


def _measured(spin: float | None, away: float, start_method: str | None, work: float) -> float:
    executor = parallel_executor()
    if executor == "processes" and not may_start_processes():
        return math.inf
    number, doubtful, cost = _number(work), (2.0 * DOUBTFUL - 1.0) * work, 0.0
    # Whoever is away for less than the work takes is in a hurry all the same.
    callers = [0.0, away] if away > work > 0.0 else [0.0 if work else away]
    with contextlib.suppress(Exception):
        with _counting("inline", spin, None, number) as alone, _counting(executor, spin, start_method, number) as shared:
            for busy in callers:
                if number and cost > doubtful:
                    break
                tried = _tried(alone, shared, busy, bool(number))
                if number and tried > doubtful:
                    time.sleep(PAUSE)
                    tried = min(tried, _tried(alone, shared, busy, True))
                cost = max(cost, tried)
        return cost
    return math.inf


def _tried(alone: Run, shared: Run, away: float, halved: bool) -> float:
    """Seconds by which a tick of two workers takes longer than its share of a tick of one."""
    costs = []
    for _ in range(PAIRS):
        one = _turn(alone, 0.0)
        costs.append(_turn(shared, away) - (one / 2.0 if halved else one))
    return sorted(costs)[PAIRS // 2]


def _number(work: float) -> int:
    """Measure how far a worker with a core to itself counts in ``work`` seconds."""
    took = []
    for _ in range(5 if work else 0):
        begin = time.perf_counter()
        count_to(PROBE)
        took.append(time.perf_counter() - begin)
    return int(work * PROBE / min(took)) if took else 0


@contextlib.contextmanager
def _counting(executor: ExecutorName, spin: float | None, start_method: str | None, number: int) -> Iterator[Run]:
    """Two reactors that count to a number at every tick, on one worker or two."""
    program = Composition("what a helper costs")
    for name in ("here", "there"):
        program.add(Counts, name=name, number=number)
    pickled = program.pickled_reactors()
    settings = RunSettings(executor, 2, placement={"here": 0, "there": 1}, spin=spin, start_method=start_method, fingerprint="off")
    with start(flatten(program), lambda _: pickled, (), settings) as run:
        for _ in range(WARM):
            run.tick()
        yield run


def _turn(run: Run, away: float) -> float:
    """Mean seconds of a tick, over a few milliseconds."""
    clock = time.perf_counter
    ticks, spent, end = 0, 0.0, clock() + TURN
    while ticks == 0 or clock() < end:
        busy = clock() + away
        while clock() < busy:
            pass
        begin = clock()
        run.tick()
        spent += clock() - begin
        ticks += 1
    return spent / ticks


WORTH_IT = 0.9
"""Shared out, work must take less than this share of the time that it takes alone: costs are not known more precisely. Chosen, not
measured: nearer to 1, noise in the costs decides; further away, cores that would help stay idle.
"""
TICKS = 20
"""Ticks of the program that are timed at most. Costs are means over them, and single slow ticks count for a twentieth. Chosen."""
SECONDS = 0.05
"""Seconds after which no further tick is timed: a user waits for this whenever a program starts with ``auto``."""
DAEMONIC = "a daemonic process may not start others"

Costs = TypeVar("Costs")


@dataclass(frozen=True)
class Choice(Generic[Costs]):
    """The executor and the number of workers to run something with, what its parts cost if that is known, and why."""

    executor: ExecutorName
    workers: int
    costs: Costs | None
    why: str


def settled(executor: ExecutorName, workers: int, *, caller_works: bool = True, replaced: bool = False) -> Choice[Any] | None:
    """The choice where nothing has to be measured for it, else ``None``.

    Args:
        executor: What the user asked for.
        workers: The largest number of workers allowed.
        caller_works: Whether the caller's thread takes its share.
        replaced: Whether workers that die are to be replaced.
    """
    if executor == "inline":
        return Choice("inline", 1, None, "")
    if executor != "auto":
        return Choice(executor, workers, None, "")
    if workers == 1 and caller_works:
        return Choice("inline", 1, None, "one worker")
    if parallel_executor(replaced) == "processes" and not may_start_processes():
        return Choice("inline", 1, None, DAEMONIC)
    return None


def expected_gain(alone: float, shared: float) -> float:
    """Seconds by which work is certainly shorter where it is shared out; it pays if that costs less, see :func:`tick_cost`.

    Args:
        alone: Seconds that the work takes on one worker.
        shared: Seconds that it takes on several, but for what helpers cost.
    """
    return WORTH_IT * alone - shared


def choose(
    topology: Topology,
    graph: Graph,
    workers: int,
    measure: Callable[[], Mapping[str, float] | None],
    *,
    caller_works: bool = True,
    costs: Mapping[str, float] | None = None,
    replaced: bool = False,
) -> Choice[Mapping[str, float]]:
    """Choose executor, number of workers and costs for a program.

    Args:
        topology: The program.
        graph: Its dependency graph.
        workers: The largest number of workers allowed.
        measure: Returns the seconds per tick of each reactor, see :func:`measured`. Called only if they are unknown and matter.
        caller_works: Whether the caller's thread takes its share.
        costs: Seconds per tick by reactor, if they are known.
        replaced: Whether workers that die are to be replaced.
    """
    if len(topology.reactors) == 1 and caller_works:
        return Choice("inline", 1, costs, "one reactor")
    if choice := settled("auto", workers, caller_works=caller_works, replaced=replaced):
        return replace(choice, costs=costs)
    if costs is None and not any(node.cost is not None for node in topology.reactions):
        costs = measure()
    return fastest_choice(topology, graph, workers, costs, caller_works=caller_works, replaced=replaced)


def fastest_choice(
    topology: Topology,
    graph: Graph,
    workers: int,
    costs: Mapping[str, float] | None,
    *,
    caller_works: bool = True,
    replaced: bool = False,
) -> Choice[Mapping[str, float]]:
    """Find the number of workers, and the executor, with which a tick is expected to take the least time."""
    alone = compile_schedule(topology, graph, 1, costs=costs).makespan
    best, best_time = 1, alone
    shared = {
        count: compile_schedule(topology, graph, count, costs=costs).makespan
        for count in range(2, min(workers, len(topology.reactors)) + 1)
    }
    if expected_gain(alone, min(shared.values(), default=alone)) > 0.0:  # else nothing needs to be known of what helpers cost
        cost = tick_cost()
        for count, span in shared.items():
            if expected_gain(best_time, span) > cost:
                best, best_time = count, span + cost
    if best == 1 and caller_works:
        return Choice("inline", 1, costs, f"a tick takes {_us(alone)}, too little to share")
    why = f"a tick takes {_us(alone)} alone and about {_us(best_time)} on {best} workers"
    return Choice(parallel_executor(replaced), best, costs, why)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def measured(topology: Topology, start_inline: Callable[[], Run]) -> dict[str, float] | None:
    """Measure the mean seconds per tick of each reactor, in a throw-away run; None if that fails.

    The run lasts some ticks, at most about 50 ms, with no boundary inputs set. Its reactions really run: a program that must not
    run twice names its executor.
    """
    with global_random_state(), contextlib.suppress(Exception):
        with start_inline() as run:
            run.tick()  # the first tick warms up
            with run.recording() as recorded:
                begin, ticks = time.perf_counter(), 0
                while ticks < TICKS and time.perf_counter() - begin < SECONDS and not run.stopped:
                    run.tick()
                    ticks += 1
        costs = dict.fromkeys((node.name for node in topology.reactors), 0.0)
        owner = {topology.reaction_name(r.index): r.reactor for r in topology.reactions}
        for _, name, began, ended, _, _ in recorded[0]:
            costs[topology.reactors[owner[name]].name] += (ended - began) * 1e-9 / max(ticks, 1)
        return costs
    return None
