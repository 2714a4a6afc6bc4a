"""The simulator behind the scaling model: small cases by hand, and what must hold for every schedule."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from test_schedule import graph_of, plain, random_graphs

from reactor_rl.graph import Graph
from reactor_rl.schedule import DEFAULT_COST, Exec, Signal, Wait, compile_schedule
from reactor_rl.topology import Topology

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from simulated_rivals import Actors, Pipes, actors_step, pipes_step
from simulation import Costs, Work, tree, walk, with_work

FREE = Costs(signal=0, wake=0, wait=0, hop=0, rise=0, begin=0, spin=1)
DEAR = Costs(signal=1e-7, wake=3e-6, wait=2e-7, hop=5e-7, rise=8e-6, begin=2e-6, spin=2e-4)
TOKENS = st.builds(
    Costs, *(st.sampled_from([0.0, 1e-7, 3e-6, 5e-5]) for _ in range(6)), spin=st.sampled_from([0.0, 1e-5, 2e-4])
)  # fmt: skip


def cost_of(topology: Topology) -> Any:
    costs = [DEFAULT_COST if node.cost is None else node.cost for node in topology.reactions]
    return costs.__getitem__


def bank(members: int, workers: int, seconds: float) -> tuple[Any, Any]:
    """The lists of a bank whose members depend on nothing, and what a member costs."""
    topology = plain([1] * members, [seconds])
    lists = compile_schedule(topology, graph_of(topology, set()), workers).lists
    return lists, lambda _: seconds


def longest_path(graph: Graph, cost: Any) -> float:
    ends = [0.0] * len(graph.before)
    for index in sorted(range(len(ends)), key=lambda i: graph.level[i]):
        ends[index] = cost(index) + max((ends[other] for other in graph.before[index]), default=0.0)
    return max(ends)


@settings(max_examples=100, deadline=None)
@given(random_graphs(), st.integers(1, 5))
def test_where_tokens_are_free_a_tick_takes_what_the_compiler_expects(made: tuple[Topology, Graph], workers: int) -> None:
    schedule = compile_schedule(*made, workers)
    tick = walk(with_work(schedule.lists, FREE), cost_of(made[0]), FREE)
    assert tick.seconds == pytest.approx(schedule.makespan)
    assert tick.own == 0


@settings(max_examples=100, deadline=None)
@given(random_graphs(), st.integers(1, 5), TOKENS)
def test_no_tick_is_shorter_than_the_critical_path_or_the_work_by_the_cores(
    made: tuple[Topology, Graph], workers: int, costs: Costs
) -> None:
    cost = cost_of(made[0])
    schedule = compile_schedule(*made, workers)
    tick = walk(with_work(schedule.lists, costs, before=1e-6, after=2e-6), cost, costs)
    least = max(longest_path(made[1], cost), sum(map(cost, range(len(made[1].before)))) / schedule.workers)
    assert tick.seconds >= least + 3e-6 - 1e-12
    assert 3e-6 <= tick.own + 1e-12 <= tick.seconds + 2e-12


@settings(max_examples=50, deadline=None)
@given(random_graphs(), TOKENS)
def test_one_worker_takes_the_sum_of_all_costs(made: tuple[Topology, Graph], costs: Costs) -> None:
    cost = cost_of(made[0])
    lists = with_work(compile_schedule(*made, 1).lists, costs, before=1e-6, within=4e-6, after=2e-6)
    tick = walk(lists, cost, costs)
    assert tick.seconds == pytest.approx(7e-6 + sum(map(cost, range(len(made[1].before)))))
    assert tick.own == pytest.approx(7e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 11), st.sampled_from([1e-6, 1e-4, 1e-2]), TOKENS)
def test_another_worker_for_a_bank_costs_no_more_than_its_tokens(members: int, workers: int, seconds: float, costs: Costs) -> None:
    fewer, more = (
        walk(with_work(lists, costs), cost, costs).seconds
        for lists, cost in (bank(members, count, seconds) for count in (workers, workers + 1))
    )
    # One more SIGNAL of the caller's, and a way there and back where there was none; who comes late may have parked. And a WAIT for
    # each helper: who has more to do than before comes when all are ready, and before some of its WAITs were over by then.
    token = max(costs.signal, costs.wake) + max(costs.hop, costs.rise)
    assert more <= fewer + 2 * token + workers * (costs.wait + abs(costs.wake - costs.signal)) + costs.begin + 1e-12


def test_two_workers_by_hand() -> None:
    lists = [[Signal(1), Exec(0), Wait(1)], [Wait(0), Exec(1), Signal(0)]]
    costs = Costs(signal=1, wake=4, wait=1, hop=2, rise=7, begin=3, spin=100)
    seconds = {0: 10.0, 1: 20.0}.__getitem__
    # signal 1, hop 2, begin 3, the helper's reaction 20, signal 1, hop 2
    assert walk(with_work(lists, costs), seconds, costs).seconds == 29
    # who waits for more than 5 parks: wake 4, rise 7, begin 3, 20, wake 4, rise 7
    parked = walk(with_work(lists, costs), seconds, replace(costs, spin=5))
    assert (parked.seconds, parked.own) == (45, 4)
    # a caller with more to do finds the token: signal 1, work 40, wait 1; the helper never waits for more than spin
    late = walk(with_work(lists, costs, within=30), seconds, costs)
    assert (late.seconds, late.own) == (1 + 30 + 10 + 1, 32)


def test_work_stands_where_it_is_done() -> None:
    lists = [[Signal(1), Signal(2), Exec(0), Wait(1), Wait(2)], [Wait(0), Exec(1), Signal(0)], [Wait(0), Exec(2), Signal(0)]]
    made = with_work(lists, DEAR, before=1, within=2, after=3)
    assert made[0] == [Work(1), Signal(1), Signal(2), Work(2), Exec(0), Wait(1), Wait(2), Work(3)]
    assert made[1] == [Wait(0), Work(DEAR.begin), Exec(1), Signal(0)]


@pytest.mark.parametrize("fan", [1, 2, 4])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_a_tree_does_the_same_work_with_balanced_tokens(workers: int, fan: int) -> None:
    lists, cost = bank(workers, workers, 1e-5)
    made = tree(lists, fan)
    signals = Counter((w, op.worker) for w, ops in enumerate(made) for op in ops if isinstance(op, Signal))
    waits = Counter((op.worker, w) for w, ops in enumerate(made) for op in ops if isinstance(op, Wait))
    assert signals == waits
    assert [[op for op in ops if isinstance(op, Exec)] for ops in made] == [
        [op for op in ops if isinstance(op, Exec)] for ops in lists
    ]
    assert max(sum(isinstance(op, Signal) for op in ops) for ops in made) <= fan + 1
    assert walk(with_work(made, DEAR), cost, DEAR).seconds >= 1e-5 - 1e-15


def test_a_tree_pays_where_there_are_many() -> None:
    for workers, pays in ((4, False), (256, True)):
        lists, cost = bank(workers, workers, 1e-6)
        flat, made = (walk(with_work(one, DEAR), cost, DEAR).seconds for one in (lists, tree(lists, 4)))
        assert (made < flat) is pays
    with pytest.raises(ValueError, match="others in this schedule"):
        tree([[Signal(1), Wait(1)], [Wait(0), Signal(0), Wait(0), Signal(0)]], 2)


PIPES = Pipes(fixed=10.0, send=2.0, take=3.0, child=5.0, rise=4.0)


def test_pipes_by_hand() -> None:
    # one core: everything, one after the other
    assert pipes_step(PIPES, 100.0, 3, 1).seconds == 10 + 3 * (2 + 3 + 5 + 100)
    # a core for each and one for the caller: the first message is sent at 12, read at 16, answered at 121, and taken at 128; by
    # then the others are there
    assert pipes_step(PIPES, 100.0, 3, 4).seconds == 12 + 4 + 105 + 4 + 3 * 3
    assert pipes_step(PIPES, 100.0, 3, 4).own == 10 + 3 * 5
    # the caller is the bottleneck: when the last answer is there, the others are still to be taken
    assert pipes_step(PIPES, 0.0, 100, 256).seconds >= 10 + 100 * 5


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 64), st.sampled_from([0.0, 1.0, 500.0]))
def test_rivals_are_held_to_the_same_bounds(num_envs: int, cores: int, environment: float) -> None:
    pipes = pipes_step(PIPES, environment, num_envs, cores)
    assert pipes.seconds >= (num_envs * (2 + 3 + 5 + environment) + 10) / cores - 1e-9
    assert pipes.seconds >= max(pipes.own, PIPES.child + environment)
    assert pipes.seconds <= pipes_step(PIPES, environment, num_envs, 1).seconds + num_envs * 2 * PIPES.rise
    actors = Actors(call=2.0, take=3.0, answer=50.0, row=1.0)
    step = actors_step(actors, environment, num_envs, cores)
    assert step.seconds >= max(step.own, num_envs * (1 + environment) / cores, 50 + 1 + environment)
    assert actors_step(actors, environment, num_envs, 1).seconds == 2 + 50 + num_envs * (1 + environment) + 3
