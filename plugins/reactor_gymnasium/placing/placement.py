"""Cuts rows of environments into shards and gives each a worker. Never changes a result.

Environments that cost about the same are cut evenly, one shard for each worker. For others there are two more ways, and what is
expected to take the shortest time is taken: one shard for each worker, cut where the costs are even, or short runs of
neighbours, of which the longest goes first to the least loaded worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from reactor_rl.plugin import DEFAULT_COST, longest_first

__all__ = ["Placed", "makespan", "place"]

SHARD_COST = 3e-6
"""Seconds that a shard costs at every tick besides its environments."""
SHORTEST = 30e-6
"""Seconds that a run of neighbours lasts, if that can be had, so that shards do not cost more than they gain."""
RUNS_PER_WORKER = 16
ALIKE = 1.25
"""Costs within this ratio are equal as far as a few steps can tell."""
WORTH_IT = 0.97
"""A way with more shards must take less than this share of the time: costs are not known any better."""


class Placed(NamedTuple):
    """Environments ``lo`` to ``hi - 1`` on one worker, and the seconds that their steps take."""

    lo: int
    hi: int
    worker: int
    cost: float


def place(seconds: Sequence[float] | None, lo: int, hi: int, workers: int) -> list[Placed]:
    """Cut rows ``lo`` to ``hi - 1``, which are stepped together, into contiguous shards, each on one of ``workers`` workers.

    Args:
        seconds: What a step of each environment costs, by index over all of them; ``None`` if they cost the same.
        lo: The first row.
        hi: The row after the last one.
        workers: How many workers there are.
    """
    if seconds is None:
        seconds = [DEFAULT_COST] * hi
    n, even = hi - lo, min(workers, hi - lo)
    best = _shards(seconds, [lo + n * w // even for w in range(even + 1)], range(even))
    if max(seconds[lo:hi]) <= ALIKE * min(seconds[lo:hi]):
        return best
    for other in (_one_each(seconds, lo, hi, workers), _longest_first(seconds, lo, hi, workers)):
        if makespan(other) < WORTH_IT * makespan(best):
            best = other
    return best


def makespan(shards: Sequence[Placed]) -> float:
    """Seconds until the last worker has stepped its shards once."""
    load: dict[int, float] = {}
    for shard in shards:
        load[shard.worker] = load.get(shard.worker, 0.0) + shard.cost + SHARD_COST
    return max(load.values())


def _shards(seconds: Sequence[float], cuts: Sequence[int], homes: Sequence[int]) -> list[Placed]:
    """Shards between the cuts; neighbours on one worker are one shard."""
    merged = [*(i for i in range(len(homes)) if i == 0 or homes[i] != homes[i - 1]), len(homes)]
    rows = [(cuts[i], cuts[j], homes[i]) for i, j in pairwise(merged)]
    return [Placed(lo, hi, worker, sum(seconds[lo:hi])) for lo, hi, worker in rows]


def _cut(seconds: Sequence[float], lo: int, hi: int, longest: float) -> list[int]:
    """Cut into runs that last for ``longest`` seconds at most, but for single environments that last longer."""
    cuts, cost = [lo], 0.0
    for row in range(lo, hi):
        if row > cuts[-1] and cost + seconds[row] > longest:
            cuts.append(row)
            cost = 0.0
        cost += seconds[row]
    return [*cuts, hi]


def _one_each(seconds: Sequence[float], lo: int, hi: int, workers: int) -> list[Placed]:
    """One run of neighbours for each worker, the longest of them as short as can be (to a thousandth)."""
    too_short, longest = 0.0, sum(seconds[lo:hi])
    cuts = [lo, hi]
    for _ in range(10):
        middle = (too_short + longest) / 2
        shorter = _cut(seconds, lo, hi, middle)
        if len(shorter) - 1 <= workers:
            longest, cuts = middle, shorter
        else:
            too_short = middle
    return _shards(seconds, cuts, range(len(cuts) - 1))


def _longest_first(seconds: Sequence[float], lo: int, hi: int, workers: int) -> list[Placed]:
    cuts = _cut(seconds, lo, hi, max(sum(seconds[lo:hi]) / (workers * RUNS_PER_WORKER), SHORTEST))
    costs = [sum(seconds[a:b]) + SHARD_COST for a, b in pairwise(cuts)]
    return _shards(seconds, cuts, longest_first(costs, workers))
