"""Placement of rows: contiguous, complete, deterministic, even where costs are, and near the limit where they are not."""

from __future__ import annotations

import random
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from reactor_gymnasium.placement import RUNS_PER_WORKER, SHARD_COST, SHORTEST, Placed, makespan, place

COSTS = st.lists(st.sampled_from([0.0, 2e-6, 2.1e-6, 15e-6, 250e-6, 700e-6, 5e-3]), min_size=1, max_size=80)


def even(seconds: list[float], workers: int) -> list[Placed]:
    n, count = len(seconds), min(workers, len(seconds))
    cuts = [n * w // count for w in range(count + 1)]
    return [Placed(lo, hi, worker, sum(seconds[lo:hi])) for worker, (lo, hi) in enumerate(pairwise(cuts))]


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(COSTS, st.integers(1, 12), st.data())
def test_any_costs(costs: list[float], workers: int, data: st.DataObject) -> None:
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    seconds = [1.0] * before + costs + [1e-9] * after  # rows of other batches have no say
    lo, hi = before, before + len(costs)
    shards = place(seconds, lo, hi, workers)
    assert (shards[0].lo, shards[-1].hi) == (lo, hi)
    assert all(a.hi == b.lo for a, b in pairwise(shards))
    assert all(a.worker != b.worker for a, b in pairwise(shards))  # or they would be one shard
    assert all(shard.lo < shard.hi and 0 <= shard.worker < workers for shard in shards)
    assert all(shard.cost == sum(seconds[shard.lo : shard.hi]) for shard in shards)
    assert shards == place(tuple(seconds), lo, hi, workers)
    assert makespan(shards) <= makespan(even(costs, workers)) * (1 + 1e-9)
    assert [shard[2:] for shard in shards] == [shard[2:] for shard in place(costs, 0, len(costs), workers)]
    # The worker that gets a run has at most the mean so far. What is not worth it comes on top.
    run = max(*costs, sum(costs) / (workers * RUNS_PER_WORKER), SHORTEST) + SHARD_COST
    runs = min(len(costs), 2 * RUNS_PER_WORKER * workers + 1)
    assert makespan(shards) <= (sum(costs) / workers + runs / workers * SHARD_COST + run) * (1 + 1e-9)


@given(st.integers(1, 70), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_alike_is_cut_evenly(n: int, workers: int, lo: int, known: bool) -> None:
    seconds = [1.0] * lo + [4e-5 + (row % 5) * 2.4e-6 for row in range(n)] if known else None  # within 1.25, but for other batches
    count = min(n, workers)
    shards = place(seconds, lo, lo + n, workers)
    assert [shard[:3] for shard in shards] == [(lo + n * w // count, lo + n * (w + 1) // count, w) for w in range(count)]
    assert all(shard.cost > 0 for shard in shards)


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("per_worker", [8, 16, 32])
def test_near_the_limit(workers: int, per_worker: int) -> None:
    """Costs of which none is large beside a worker's share: within a tenth of what no placement can beat, at any order."""
    source = random.Random(workers * per_worker)
    for _ in range(20):
        costs = [10 ** source.uniform(-4.5, -3.0) for _ in range(workers * per_worker)]
        limit = max(*costs, sum(costs) / workers)
        assert makespan(place(costs, 0, len(costs), workers)) <= 1.1 * limit


def test_blocks_of_unlike_environments() -> None:
    """Half of them Pong, half Montezuma's Revenge, then cheap ones: even shards would leave a worker with the expensive half."""
    costs = [250e-6] * 8 + [700e-6] * 8 + [5e-6] * 16
    for workers in (2, 3, 4):
        limit = sum(costs) / workers
        assert makespan(even(costs, workers)) > 1.3 * limit
        assert makespan(place(costs, 0, len(costs), workers)) < 1.1 * limit


def test_one_shard_for_each_worker_where_that_is_as_good() -> None:
    """Steps of a few microseconds are not worth more shards."""
    shards = place([15e-6] * 10 + [5e-6] * 30, 0, 40, 2)
    assert [shard[:3] for shard in shards] == [(0, 10, 0), (10, 40, 1)]
    shards = place([15e-6] * 10 + [5e-6] * 30, 0, 40, 3)
    assert [shard[:3] for shard in shards] == [(0, 7, 0), (7, 22, 1), (22, 40, 2)]


def test_the_expensive_one_has_a_worker_for_itself() -> None:
    assert place([2e-4, 2e-4, 1e-3, 3e-4, 2e-4], 0, 5, 2) == [Placed(0, 2, 1, 4e-4), Placed(2, 3, 0, 1e-3), Placed(3, 5, 1, 5e-4)]


def test_a_single_environment_and_more_workers_than_environments() -> None:
    assert place([3.0], 0, 1, 4) == [Placed(0, 1, 0, 3.0)]
    assert place([9.0, 3.0, 1.0], 1, 2, 4) == [Placed(1, 2, 0, 3.0)]
    assert len(place(None, 0, 3, 8)) == 3
    assert sorted(shard.worker for shard in place([1e-3, 5e-3], 0, 2, 8)) == [0, 1]


def test_makespan() -> None:
    shards = [Placed(0, 1, 0, 1e-3), Placed(1, 2, 1, 5e-3), Placed(2, 3, 0, 4.5e-3)]
    assert makespan(shards) == pytest.approx(5.5e-3 + 2 * SHARD_COST)
