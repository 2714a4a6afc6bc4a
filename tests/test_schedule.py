"""Schedules: tokens balance, every edge is ordered, nothing is waited for twice, ties are deterministic."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from reactor_rl import Input, Output, Program, ProgramError, Reactor, Timer, reaction
from reactor_rl.graph import Graph, build
from reactor_rl.schedule import Exec, Schedule, Signal, Wait, compile_schedule, longest_first
from reactor_rl.topology import ReactionSpec, ReactorSpec, Topology


def plain(reactors: list[int], costs: list[float | None]) -> Topology:
    """A topology of reactors with so many reactions each; the graph is given separately."""
    nodes, reactions = [], []
    for index, count in enumerate(reactors):
        first = len(reactions)
        for number in range(count):
            place = first + number
            reactions.append(
                ReactionSpec(place, index, f"x{number}", costs[place % len(costs)], False, False, (0,), (), (), (), (), (), (), ())
            )
        nodes.append(ReactorSpec(index, f"r{index}", "R", None, tuple(range(first, first + count))))
    return Topology("plain", tuple(nodes), tuple(reactions), (), (), (), ())


def graph_of(topology: Topology, edges: set[tuple[int, int]]) -> Graph:
    for reactor in topology.reactors:
        edges |= set(zip(reactor.reactions, reactor.reactions[1:], strict=False))
    count = len(topology.reactions)
    before = [tuple(sorted(a for a, b in edges if b == i)) for i in range(count)]
    after = [tuple(sorted(b for a, b in edges if a == i)) for i in range(count)]
    level = [0] * count
    for index in range(count):  # edges run from lower to higher indices here
        level[index] = max((level[a] + 1 for a in before[index]), default=0)
    return Graph(tuple(before), tuple(after), tuple(level))


@st.composite
def random_graphs(draw: Any) -> tuple[Topology, Graph]:
    reactors = draw(st.lists(st.integers(1, 3), min_size=1, max_size=7))
    costs = draw(st.lists(st.sampled_from([None, 0.0, 1e-6, 1e-5, 1e-3]), min_size=1, max_size=7))
    topology = plain(reactors, costs)
    count = len(topology.reactions)
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] < p[1])
    edges = draw(st.sets(pairs, max_size=15)) if count > 1 else set()
    return topology, graph_of(topology, edges)


def happens_before(schedule: Schedule, drop: tuple[int, int] | None = None) -> list[set[int]]:
    """For each reaction, those that are surely done when it starts; from the lists alone, over two ticks' worth of tokens.

    The n-th WAIT on a channel comes after the n-th SIGNAL into it: each list is stepped as far as its tokens allow, and carries
    the set of reactions that it knows to be done. ``drop`` leaves one WAIT out (worker, position), to see what it was for.
    """
    at = [0] * schedule.workers
    knows: list[set[int]] = [set() for _ in at]
    channel: dict[tuple[int, int], list[set[int]]] = {}
    taken: dict[tuple[int, int], int] = {}
    found: dict[int, set[int]] = {}
    moved = True
    while moved:
        moved = False
        for worker, ops in enumerate(schedule.lists):
            while at[worker] < len(ops):
                op = ops[at[worker]]
                if isinstance(op, Wait):
                    pair = (op.worker, worker)
                    number = taken.get(pair, 0)
                    if len(channel.get(pair, [])) <= number:
                        break
                    taken[pair] = number + 1
                    if drop != (worker, at[worker]):
                        knows[worker] |= channel[pair][number]
                elif isinstance(op, Signal):
                    channel.setdefault((worker, op.worker), []).append(set(knows[worker]))
                else:
                    found[op.reaction] = set(knows[worker])
                    knows[worker].add(op.reaction)
                at[worker] += 1
                moved = True
    assert all(at[w] == len(ops) for w, ops in enumerate(schedule.lists)), "the workers wait for each other for ever"
    assert all(taken.get(pair, 0) == len(tokens) for pair, tokens in channel.items()), "tokens are left over"
    assert knows[0] == set(found) or drop is not None, "the caller does not know that the tick is over"
    return [found[index] for index in range(len(found))]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data(), random_graphs(), st.integers(1, 5), st.booleans(), st.booleans())
def test_random_graphs(data: Any, case: tuple[Topology, Graph], workers: int, caller_works: bool, placed: bool) -> None:
    topology, graph = case
    names, anywhere = [reactor.name for reactor in topology.reactors], st.integers(0, workers - 1)
    placement = {name: data.draw(anywhere) for name in names} if placed else None
    schedule = compile_schedule(topology, graph, workers, caller_works=caller_works, placement=placement)
    if placement:
        assert schedule.placement == tuple(placement[name] + (not caller_works) for name in names)
        assert schedule.workers == max(schedule.placement) + 1
    assert schedule.signals() == schedule.waits()
    done = happens_before(schedule)
    for index, before in enumerate(graph.before):
        assert set(before) <= done[index], (index, before, done[index], schedule.lists)
    homes: dict[int, int] = {}
    for worker, ops in enumerate(schedule.lists):
        for op in ops:
            if isinstance(op, Exec):
                assert homes.setdefault(topology.reactions[op.reaction].reactor, worker) == worker
    assert sorted(op.reaction for ops in schedule.lists for op in ops if isinstance(op, Exec)) == list(range(len(graph.before)))
    assert all(schedule.placement[reactor] == worker for reactor, worker in homes.items())
    assert schedule == compile_schedule(topology, graph, workers, caller_works=caller_works, placement=placement)
    # Nothing of the next tick starts before: every list of a helper begins with a WAIT for the caller.
    for worker in range(1, schedule.workers):
        assert schedule.lists[worker][0] == Wait(0)
        assert schedule.lists[0][worker - 1] == Signal(worker)


@settings(max_examples=100, deadline=None)
@given(random_graphs(), st.integers(2, 4))
def test_no_wait_is_redundant(case: tuple[Topology, Graph], workers: int) -> None:
    topology, graph = case
    schedule = compile_schedule(topology, graph, workers)
    for worker, ops in enumerate(schedule.lists):
        last_exec = max((i for i, op in enumerate(ops) if isinstance(op, Exec)), default=-1)
        for position, op in enumerate(ops):
            if not isinstance(op, Wait) or op.worker == 0 or position > last_exec:
                continue  # the start of the tick and its end
            done = happens_before(schedule, drop=(worker, position))
            assert any(not set(before) <= done[index] for index, before in enumerate(graph.before)), (worker, position)


class Fork(Reactor):
    each = Timer(period=1)
    out = Output((8,), "f4")

    @reaction(each, effects=out)
    def fork(self) -> None: ...


class Env(Reactor):
    inp = Input()
    out = Output((), "f4")

    @reaction(inp, effects=out)
    def step(self) -> None: ...


class Join(Reactor):
    inp = Input()

    @reaction(inp)
    def join(self) -> None: ...


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_a_fork_join_has_one_signal_and_one_wait_per_helper(workers: int) -> None:
    program = Program("vector")
    envs = program.bank(Env, 8)
    program.connect(program.input("actions", (8,), "f4").rows, envs.inp)
    program.connect(envs.out, program.output("observations").rows)
    topology = program.topology()
    schedule = compile_schedule(topology, build(topology), workers)
    helpers = range(1, workers)
    assert schedule.signals() == {(0, h): 1 for h in helpers} | {(h, 0): 1 for h in helpers}
    own = [op for op in schedule.lists[0] if isinstance(op, Exec)]
    assert schedule.lists[0] == (*(Signal(h) for h in helpers), *own, *(Wait(h) for h in helpers))
    for helper in helpers:
        assert schedule.lists[helper][0] == Wait(0)
        assert schedule.lists[helper][-1] == Signal(0)
        assert all(isinstance(op, Exec) for op in schedule.lists[helper][1:-1])


def test_a_fork_join_inside_the_program() -> None:
    program = Program("inner")
    fork, envs, join = program.add(Fork), program.bank(Env, 8), program.add(Join)
    program.connect(fork.out.rows, envs.inp)
    program.connect(envs.out, join.inp.rows)
    topology = program.topology()
    costs = {"fork": 3.0, "join": 3.0, **{f"env[{i}]": 2.0 for i in range(8)}}
    schedule = compile_schedule(topology, build(topology), 2, costs=costs)
    assert schedule.placement[0] != schedule.placement[-1]  # 3 + 4 * 2 on either side
    # The begin of the tick, what fork writes, what half of the environments write; and the end of the tick.
    assert schedule.signals() == {(0, 1): 3, (1, 0): 1}


def test_longest_processing_time_first() -> None:
    topology = plain([1, 1, 1, 1, 1], [1.0, 5.0, 3.0, 4.0, 2.0])
    schedule = compile_schedule(topology, graph_of(topology, set()), 2)
    loads = [sum((1.0, 5.0, 3.0, 4.0, 2.0)[r] for r, w in enumerate(schedule.placement) if w == worker) for worker in (0, 1)]
    assert sorted(loads) == [7.0, 8.0]
    assert schedule.placement[1] == 0  # the longest first, to the first worker
    assert schedule.makespan == pytest.approx(8.0)


def test_ties_go_by_index() -> None:
    topology = plain([1] * 6, [1.0])
    assert compile_schedule(topology, graph_of(topology, set()), 3).placement == (0, 1, 2, 0, 1, 2)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), max_size=30), st.integers(1, 6))
def test_longest_first(costs: list[float], workers: int) -> None:
    homes = longest_first(costs, workers)
    loads = [sum(cost for cost, home in zip(costs, homes, strict=True) if home == worker) for worker in range(workers)]
    assert sum(loads) == sum(costs)
    assert max(loads) <= sum(costs) / workers + max(costs, default=0.0)
    assert len(costs) < workers or set(homes) == set(range(workers))  # costs of nothing are spread too


def test_costs_and_workers() -> None:
    topology = plain([1, 1], [1.0])
    graph = graph_of(topology, set())
    assert compile_schedule(topology, graph, 99).workers == 2
    assert compile_schedule(topology, graph, 99, caller_works=False).placement == (1, 2)
    with pytest.raises(ProgramError, match="costs name reactors that the program does not have: zebra"):
        compile_schedule(topology, graph, 2, costs={"zebra": 1.0})
    with pytest.raises(ProgramError, match="workers must be an integer >= 1"):
        compile_schedule(topology, graph, 0)


@pytest.mark.parametrize(
    ("placement", "says"),
    [
        ({"r0": 0, "r1": 1, "zebra": 0}, "placement names reactors that the program does not have: zebra"),
        ({"r1": 1}, "placement must name every reactor; missing: r0"),
        ({"r0": 0, "r1": 2}, r"placement\['r1'\] must be a worker from 0 to 1, got 2"),
        ({"r0": -1, "r1": 0}, r"placement\['r0'\] must be a worker from 0 to 1, got -1"),
        ({"r0": True, "r1": 0}, r"placement\['r0'\] must be a worker from 0 to 1, got True"),
        ({"r0": 0.0, "r1": 0}, r"placement\['r0'\] must be a worker from 0 to 1, got 0.0"),
    ],
)
def test_a_placement_that_does_not_fit(placement: Any, says: str) -> None:
    topology = plain([1, 1], [1.0])
    with pytest.raises(ProgramError, match=says):
        compile_schedule(topology, graph_of(topology, set()), 2, placement=placement)


def test_a_placement_takes_as_many_workers_as_it_names() -> None:
    topology = plain([1, 1], [1.0, 5.0])
    graph = graph_of(topology, set())
    assert compile_schedule(topology, graph, 4, placement={"r0": 0, "r1": 0}).workers == 1
    idle = compile_schedule(topology, graph, 4, placement={"r1": 0, "r0": 3})  # more workers than reactors, and two with nothing
    assert (idle.workers, idle.placement) == (4, (3, 0))
    assert compile_schedule(topology, graph, 2, placement={"r0": 1, "r1": 0}, caller_works=False).placement == (2, 1)
