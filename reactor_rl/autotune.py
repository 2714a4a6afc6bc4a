"""Measures a throw-away copy of a program, then chooses executor, workers and costs. No live reactor ever moves.

Results never depend on the choice, so choosing is safe; only the time that a tick takes does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reactor_rl.executor_names import ExecutorName
from reactor_rl.global_random import global_random_state
from reactor_rl.graph import Graph
from reactor_rl.helper_cost import parallel_executor, tick_cost
from reactor_rl.runtime.launch import may_start_processes
from reactor_rl.runtime.run import Run
from reactor_rl.schedule import compile_schedule
from reactor_rl.topology import Topology

__all__ = ["DAEMONIC", "Choice", "choose", "fastest", "measured"]

WORTH_IT = 0.95
"""With helpers a tick must take less than this share of the time: costs are not known any better."""
TICKS = 20
SECONDS = 0.05


DAEMONIC = "a daemonic process may not start others"


@dataclass(frozen=True)
class Choice:
    """What to run a program on, and why."""

    executor: ExecutorName
    workers: int
    costs: Mapping[str, float] | None
    why: str


def choose(
    topology: Topology,
    graph: Graph,
    workers: int,
    measure: Callable[[], Mapping[str, float] | None],
    *,
    caller_works: bool = True,
    costs: Mapping[str, float] | None = None,
    replaced: bool = False,
) -> Choice:
    """Choose for a whole program.

    Args:
        topology: The program.
        graph: What must happen before what in it.
        workers: The most that there may be.
        measure: Seconds per tick of each reactor, see :func:`measured`; called if nothing is known of them and it matters.
        caller_works: Whether the caller's thread takes its share.
        costs: Seconds per tick by reactor, if they are known.
        replaced: Whether workers that die are to be replaced.
    """
    if len(topology.reactors) == 1 and caller_works:
        return Choice("inline", 1, costs, "one reactor")
    if workers == 1 and caller_works:
        return Choice("inline", 1, costs, "one worker")
    if parallel_executor(replaced) == "processes" and not may_start_processes():
        return Choice("inline", 1, costs, DAEMONIC)
    if costs is None and not any(node.cost is not None for node in topology.reactions):
        costs = measure()
    return fastest(topology, graph, workers, costs, caller_works=caller_works, replaced=replaced)


def fastest(
    topology: Topology,
    graph: Graph,
    workers: int,
    costs: Mapping[str, float] | None,
    *,
    caller_works: bool = True,
    replaced: bool = False,
) -> Choice:
    """The number of workers, and the executor, with which a tick is expected to take the shortest time."""
    alone = compile_schedule(topology, graph, 1, costs=costs).makespan
    best, best_time = 1, alone
    shared = {
        count: compile_schedule(topology, graph, count, costs=costs).makespan
        for count in range(2, min(workers, len(topology.reactors)) + 1)
    }
    if min(shared.values(), default=alone) < alone * WORTH_IT:  # else nothing needs to be known of what helpers cost
        cost = tick_cost()
        for count, span in shared.items():
            if span + cost < best_time * WORTH_IT:
                best, best_time = count, span + cost
    if best == 1 and caller_works:
        return Choice("inline", 1, costs, f"a tick takes {_us(alone)}, too little to share")
    why = f"a tick takes {_us(alone)} alone and about {_us(best_time)} on {best} workers"
    return Choice(parallel_executor(replaced), best, costs, why)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def measured(topology: Topology, start_inline: Callable[[], Run]) -> dict[str, float] | None:
    """Mean seconds per tick of each reactor, from the timeline of a throw-away run; None if it fails.

    It runs for some ticks, at most about 50 ms, with no boundary inputs set. Its reactions do happen: a program that must not run
    twice names its executor.
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
