"""The static schedule: one list of WAIT, EXEC and SIGNAL for each worker, compiled before the first tick.

Placement keeps every reactor on one worker. Unless the caller has chosen which, the longest processing time comes first (Graham
1969). The order within a worker comes from simulating the tick on the expected costs. Then every edge between two workers
becomes a SIGNAL and a WAIT on the counting channel of that pair, unless the waiting worker already knows, directly or through
others, that the reaction is done; vector clocks keep what each worker knows. Static schedules with redundant waits removed are
the idea of PretVM (Lin et al., arXiv 2406.06253). Channels here only ever count upwards, so no tick needs a barrier or a reset.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reactor_rl.errors import ProgramError
from reactor_rl.graph import Graph
from reactor_rl.topology import ReactorSpec, Topology

__all__ = [
    "DEFAULT_COST", "Arrivals", "WaitForNode", "Exec", "Op", "Schedule", "Signal", "Wait", "check_names", "compile_schedule",
    "expected_ends", "longest_first",
]  # fmt: skip

DEFAULT_COST = 10e-6
"""Seconds that a reaction is expected to take if nothing is known. Only ratios matter, to costs that a user names: a reaction of
Python that does little takes some microseconds.
"""


@dataclass(frozen=True)
class Wait:
    """Wait for one token of the channel from ``worker``."""

    worker: int


@dataclass(frozen=True)
class Exec:
    """Execute a reaction if one of its triggers is present."""

    reaction: int


@dataclass(frozen=True)
class Signal:
    """Put one token into the channel to ``worker``."""

    worker: int


@dataclass(frozen=True)
class WaitForNode:
    """Wait until a gateway has received a link from another node."""

    gateway: int
    link: int


Op = Wait | Exec | Signal | WaitForNode


@dataclass(frozen=True)
class Arrivals:
    """Links that one node receives from others, through one reactor, its gateway.

    Attributes:
        gateway: Index of the gateway, the last reactor. It is on worker 0, whether or not that takes a share, and does not count
            as a share itself.
        due: For each reaction of the gateway that receives, its link, and after how many seconds of the tick that is expected.
        finally_: A link to wait for at the end of worker 0's list, or ``None``.
    """

    gateway: int
    due: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    finally_: int | None = None


@dataclass(frozen=True)
class Schedule:
    """A compiled tick.

    Attributes:
        workers: Number of workers, the caller (worker 0) included.
        placement: Worker of each reactor.
        lists: The list of each worker. Worker 0 starts with one SIGNAL per helper and ends with one WAIT per helper.
        makespan: Seconds that a tick is expected to take, by the given costs.
    """

    workers: int
    placement: tuple[int, ...]
    lists: tuple[tuple[Op, ...], ...]
    makespan: float

    def signals(self) -> Counter[tuple[int, int]]:
        """Tokens per tick by pair of workers."""
        return Counter((w, op.worker) for w, ops in enumerate(self.lists) for op in ops if isinstance(op, Signal))

    def waits(self) -> Counter[tuple[int, int]]:
        """Tokens that are consumed per tick by pair of workers."""
        return Counter((op.worker, w) for w, ops in enumerate(self.lists) for op in ops if isinstance(op, Wait))


def compile_schedule(
    topology: Topology,
    graph: Graph,
    workers: int,
    *,
    costs: Mapping[str, float] | None = None,
    caller_works: bool = True,
    placement: Mapping[str, int] | None = None,
    arrivals: Arrivals | None = None,
) -> Schedule:
    """Compile the lists of ``workers`` workers.

    Args:
        topology: The program.
        graph: Its dependency graph.
        workers: How many workers share the reactors: at most one for each reactor is used, and with a placement none after the
            last one that it names.
        costs: Seconds per tick by name of reactor, in place of declared costs.
        caller_works: Whether worker 0 takes a share; if not, one helper is added.
        placement: Worker by name of reactor, counted from 0 among those that share the reactors, in place of choosing by cost.
        arrivals: Links that arrive from other nodes.

    Raises:
        ProgramError: If ``workers < 1``, or the placement does not put every reactor on one of these workers.
    """
    if workers < 1:
        raise ProgramError(f"workers must be an integer >= 1, or None for the cores of this process, got {workers}")
    cost = _reaction_costs(topology, costs or {})
    sharing = topology.reactors if arrivals is None else topology.reactors[: arrivals.gateway]
    if placement is None:
        workers = max(1, min(workers, len(sharing)))
        worker_of = longest_first([sum(cost[i] for i in reactor.reactions) for reactor in sharing], workers)
    else:
        worker_of = _checked_placement(sharing, placement, workers)
        workers = max(worker_of, default=0) + 1
    if not caller_works and worker_of:
        worker_of, workers = [worker + 1 for worker in worker_of], workers + 1
    worker_of += [0] * (len(topology.reactors) - len(sharing))
    order, ends = _order(topology, graph, cost, worker_of, workers, {} if arrivals is None else arrivals.due)
    lists = _synchronise(topology, graph, worker_of, order, arrivals)
    schedule = Schedule(workers, tuple(worker_of), lists, max(ends, default=0.0))
    if schedule.signals() != schedule.waits():
        raise AssertionError(f"unbalanced channels: {schedule.signals()} produced, {schedule.waits()} consumed")
    return schedule


def expected_ends(
    topology: Topology, graph: Graph, nodes: Sequence[int], workers: Sequence[int], costs: Mapping[str, float] | None = None
) -> list[float]:
    """Expected end of each reaction of a program on several nodes, in seconds from the beginning of a tick.

    Args:
        topology: The program.
        graph: Its dependency graph.
        nodes: The node of each reactor.
        workers: How many workers each node has.
        costs: See :func:`compile_schedule`.

    Raises:
        ProgramError: If a cost names an unknown reactor.
    """
    cost = _reaction_costs(topology, costs or {})
    worker_of = [0] * len(nodes)
    for node, count in enumerate(workers):
        here = [reactor for reactor in topology.reactors if nodes[reactor.index] == node]
        placed = longest_first([sum(cost[i] for i in reactor.reactions) for reactor in here], count)
        for reactor, worker in zip(here, placed, strict=True):
            worker_of[reactor.index] = sum(workers[:node]) + worker
    return _order(topology, graph, cost, worker_of, max(worker_of, default=0) + 1, {})[1]


def _reaction_costs(topology: Topology, costs: Mapping[str, float]) -> list[float]:
    known = {reactor.name for reactor in topology.reactors}
    unknown = sorted(set(costs) - known)
    if unknown:
        raise ProgramError(f"costs name reactors that the program does not have: {', '.join(unknown)}")
    reaction_costs = [DEFAULT_COST if r.cost is None else max(float(r.cost), 0.0) for r in topology.reactions]
    for reactor in topology.reactors:
        # Startup and shutdown reactions are not part of a tick.
        per_tick = [i for i in reactor.reactions if not _once(topology, i)]
        for index in set(reactor.reactions) - set(per_tick):
            reaction_costs[index] = 0.0
        if reactor.name in costs and per_tick:
            total = sum(reaction_costs[i] for i in per_tick) or 1.0
            for index in per_tick:
                reaction_costs[index] *= costs[reactor.name] / total
    return reaction_costs


def _once(topology: Topology, index: int) -> bool:
    node = topology.reactions[index]
    return not (node.triggers or node.trigger_timers or node.trigger_actions)


def longest_first(costs: Sequence[float], workers: int) -> list[int]:
    """Assign a worker to each cost: the longest processing time first, onto the least loaded worker. Ties go by index."""
    load = [(0.0, 0, worker) for worker in range(workers)]  # a heap; equal loads are told apart by how many have been placed there
    worker_of = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        seconds, count, worker_of[index] = load[0]
        heapq.heapreplace(load, (seconds + costs[index], count + 1, worker_of[index]))
    return worker_of


def check_names(reactors: Sequence[ReactorSpec], placement: Mapping[str, int]) -> None:
    """Refuse a placement that names unknown reactors.

    Raises:
        ProgramError: Naming them.
    """
    unknown = sorted(set(placement) - {reactor.name for reactor in reactors})
    if unknown:
        raise ProgramError(f"placement names reactors that the program does not have: {', '.join(unknown)}")


def _checked_placement(reactors: Sequence[ReactorSpec], placement: Mapping[str, int], workers: int) -> list[int]:
    check_names(reactors, placement)
    names = [reactor.name for reactor in reactors]
    missing = [name for name in names if name not in placement]
    if missing:
        raise ProgramError(f"placement must name every reactor; missing: {', '.join(missing)}")
    for name, worker in placement.items():
        if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < workers:
            raise ProgramError(f"placement[{name!r}] must be a worker from 0 to {workers - 1}, got {worker!r}")
    return [placement[name] for name in names]


def _order(
    topology: Topology, graph: Graph, cost: Sequence[float], placement: Sequence[int], workers: int,
    due: Mapping[int, tuple[int, float]],
) -> tuple[list[int], list[float]]:  # fmt: skip
    """Simulate one tick: ready reactions in the order in which they become ready, longest remaining path first.

    Returns:
        The order in which reactions begin, and when each of them ends.
    """
    remaining = [0.0] * len(cost)
    for index in sorted(range(len(cost)), key=lambda i: -graph.level[i]):
        remaining[index] = cost[index] + max((remaining[n] for n in graph.after[index]), default=0.0)
    missing = [len(earlier) for earlier in graph.before]
    ready_at = [due[i][1] if i in due else 0.0 for i in range(len(cost))]
    # Ties go by index, so that a program has one schedule, wherever it is compiled.
    ready = [(ready_at[i], -remaining[i], i) for i in range(len(cost)) if not missing[i]]
    heapq.heapify(ready)
    free = [0.0] * workers
    ends = [0.0] * len(cost)
    order = []
    while ready:
        at, _, index = heapq.heappop(ready)
        worker = placement[topology.reactions[index].reactor]
        free[worker] = ends[index] = end = max(free[worker], at) + cost[index]
        order.append(index)
        for other in graph.after[index]:
            ready_at[other] = max(ready_at[other], end)
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (ready_at[other], -remaining[other], other))
    return order, ends


def _synchronise(
    topology: Topology, graph: Graph, placement: Sequence[int], order: Sequence[int], arrivals: Arrivals | None
) -> tuple[tuple[Op, ...], ...]:
    """Insert the WAITs and SIGNALs that are needed, and no others."""
    workers = max(placement, default=0) + 1
    home = [placement[topology.reactions[i].reactor] for i in range(len(graph.before))]
    position: dict[int, int] = {}  # reaction -> how many EXECs its worker has done when it is done
    done = [0] * workers
    for index in order:
        done[home[index]] += 1
        position[index] = done[home[index]]
    knows = [[0] * workers for _ in range(workers)]  # knows[w][u]: EXECs of u that w knows to be done
    known_at: dict[tuple[int, int], list[int]] = {}  # what worker u knew when it had done p EXECs
    waits: dict[int, list[int]] = {}  # reaction -> workers to wait for just before it
    signals: dict[tuple[int, int], list[int]] = {}  # (u, p) -> workers to signal once u has done p EXECs

    def clock(worker: int, at: int) -> list[int]:
        return known_at[worker, at]

    for index in order:
        worker = home[index]
        needed: dict[int, int] = {}
        for other in graph.before[index]:
            if home[other] != worker and position[other] > knows[worker][home[other]]:
                needed[home[other]] = max(needed.get(home[other], 0), position[other])
        for source in sorted(needed):
            if any(source != via and clock(via, needed[via])[source] >= needed[source] for via in needed):
                # Another wait implies this one. Two waits cannot imply each other, because one of the two reactions is done first.
                continue
            waits.setdefault(index, []).append(source)
            signals.setdefault((source, needed[source]), []).append(worker)
            knows[worker] = [max(a, b) for a, b in zip(knows[worker], clock(source, needed[source]), strict=True)]
        knows[worker][worker] = position[index]
        known_at[worker, position[index]] = list(knows[worker])
    lists: list[list[Op]] = [[] for _ in range(workers)]
    lists[0] += [Signal(w) for w in range(1, workers)]
    for worker in range(1, workers):
        lists[worker].append(Wait(0))
    for index in order:
        worker = home[index]
        lists[worker] += [Wait(source) for source in waits.get(index, ())]
        if arrivals is not None and index in arrivals.due:
            lists[worker].append(WaitForNode(arrivals.gateway, arrivals.due[index][0]))
        lists[worker].append(Exec(index))
        lists[worker] += [Signal(target) for target in signals.get((worker, position[index]), ())]
    # The caller must know that every helper is done before it reads outputs or begins the next pass.
    for worker in range(1, workers):
        if not (lists[worker] and lists[worker][-1] == Signal(0)):
            lists[worker].append(Signal(0))
            lists[0].append(Wait(worker))
    if arrivals is not None and arrivals.finally_ is not None:
        lists[0].append(WaitForNode(arrivals.gateway, arrivals.finally_))
    return tuple(tuple(ops) for ops in lists)
