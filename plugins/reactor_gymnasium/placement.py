"""Costs of steps, the executor that they make worth it, and which shard goes to which worker."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.arguments import kind_of, make_probe
from reactor_gymnasium.environments.infos import decode_infos, encode_infos, info_adder, info_columns, merge_infos, merged_at_once
from reactor_gymnasium.native.kernel import Taken
from reactor_gymnasium.native.kernels import choose_kernel, take_over, within
from reactor_gymnasium.traces import looked_at, without_films
from reactor_rl.plugin import (
    DEFAULT_COST,
    Choice,
    Pickled,
    decode,
    dumps,
    expected_gain,
    global_random_state,
    loads,
    longest_first,
    parallel_executor,
    settled,
    tick_cost,
)

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = [
    "random_actions",
    "info_cost",
    "median_step",
    "may_be_slow",
    "step_cost",
    "step_times",
    "StepCosts",
    "StepTimes",
    "env_costs",
    "Placed",
    "makespan",
    "place",
    "choose_executor",
    "late_helpers",
]

STEPS, SECONDS = 20, 5e-3
"""Steps that are timed at most, and seconds after which no further one is begun if there are ``FEWEST``. The median of 20 is steady
enough for a choice, and 5 ms for each kind of environment is not felt at the start.
"""
FEWEST, LONGEST = 5, 0.1
"""Least steps, and seconds after which even these are given up: a step of 100 ms pays for a helper whatever its exact cost."""
INFOS, TIMES = 8, 5
"""Infos that are timed together, and how often: the shortest time counts, for it is the one that nobody disturbed."""
FEW, MANY, LONG = 8, 64, 1000
"""Rows with which a user's kernel is timed, and steps of an episode that has no shorter limit. Two numbers, as a line through them
tells what a call costs and what a row does.
"""


class StepTimes(NamedTuple):
    """Seconds of a step of an environment that was thrown away.

    Attributes:
        python: In Python, of one row; ``None`` if it will not be stepped, or a kernel takes less time in any case.
        fixed: By a kernel, whatever the number of rows.
        row: By a kernel, of each row besides; ``None`` if none steps it.
    """

    python: float | None
    fixed: float = 0.0
    row: float | None = None

    def of_row(self, rows: int) -> float | None:
        """Seconds that one of so many rows takes, by a kernel or Python, whichever is faster."""
        if self.row is None or not self.pays(rows):
            return self.python
        return self.fixed / rows + self.row

    def pays(self, rows: int) -> bool:
        """Whether a kernel, if there is one, takes no longer for so many rows than Python."""
        return self.row is None or self.python is None or self.fixed + rows * self.row <= rows * self.python


def step_cost(env: gymnasium.Env[Any, Any], kernels: bool = True, rows: int = MANY) -> float | None:
    """Median seconds of a step of an environment that is thrown away afterwards; see :func:`median_step`.

    Args:
        env: The environment.
        kernels: Whether a kernel will step it, where there is one.
        rows: How many are stepped together.
    """
    return step_times(env, kernels).of_row(rows)


def step_times(env: gymnasium.Env[Any, Any], kernels: bool = True) -> StepTimes:
    """Time steps of an environment that is thrown away afterwards, in Python and by its kernel.

    Args:
        env: The environment.
        kernels: Whether a kernel will step it, where there is one.
    """

    def step(action: Any) -> bool:
        *_, terminated, truncated, _ = env.step(action)
        return bool(terminated or truncated)

    seconds = median_step(lambda seed: env.reset(seed=seed), random_actions(env.action_space).__next__, step)
    inner, _ = within(env)
    kind = choose_kernel(type(inner)) if kernels else ""
    if isinstance(kind, str):
        return StepTimes(seconds)
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        observation, _ = env.reset(seed=0)
        if not kind.judged:
            every, _ = _kernel_step(kind, inner, observation, kind.timed_rows, [STEPS] * kind.timed_rows, TIMES)
            return StepTimes(None, 0.0, every / kind.timed_rows)
        resets = _shortest(env.reset)
        limit = _limit(env)
        (few, _), (many, ends) = (
            _kernel_step(kind, inner, observation, n, [1 + limit * row // n for row in range(n)], STEPS) for n in (FEW, MANY)
        )
        row = max(0.0, (many - few) / (MANY - FEW))
        return StepTimes(None if seconds is None else seconds + ends * resets, max(0.0, few - FEW * row), row)
    return StepTimes(seconds)


def may_be_slow(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether a kernel may step an environment and take longer than Python, which :func:`step_times` finds out."""
    kind = choose_kernel(type(within(env)[0]))
    return not isinstance(kind, str) and kind.judged


def _limit(env: Any) -> int:
    """Steps of an episode at the most."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            return max(1, min(int(env._max_episode_steps), LONG))
        env = env.env
    return LONG


def _kernel_step(kind: Any, env: Any, observation: Any, n: int, left: list[int], steps: int) -> tuple[float, float]:
    """Seconds that a kernel takes for a step of ``n`` rows, all of one environment: they draw from its generator, in the same time.

    Returns:
        The mean, and how many episodes end in a step of one row.
    """
    limits = [max(left)] * n
    kernel = take_over(Taken([env] * n, left, limits, [False] * n, [observation] * n, AutoresetMode.SAME_STEP), tried=True)
    if isinstance(kernel, str):
        raise ValueError(kernel)
    actions, ends = kind.draw(env, np.random.default_rng(0), n), 0

    def step() -> None:
        nonlocal ends
        ends += max(0, kernel.step(actions, None, None))

    if not kind.judged:
        return _shortest(step), 0.0
    step()
    ends, begin = 0, time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps, ends / (steps * n)


def median_step(reset: Callable[[int | None], object], sample: Callable[[], Any], step: Callable[[Any], bool]) -> float | None:
    """Median seconds of a step of something that is thrown away afterwards; ``None`` if it will not be stepped.

    It is reset and takes at most 20 random steps: no more after 5 ms if there are five of them, which a machine that is busy with
    other things may take that long for, and in any case no more after 0.1 s. Global random generators are put back.

    Args:
        reset: Begins an episode, with a seed or without.
        sample: Draws an action; not timed.
        step: Takes it, and returns whether the episode is over.
    """
    times: list[float] = []
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        reset(0)
        began = time.perf_counter()
        for _ in range(STEPS):
            action = sample()
            begin = time.perf_counter()
            over = step(action)
            end = time.perf_counter()
            times.append(end - begin)
            if over:
                reset(None)
            if end - began > (SECONDS if len(times) >= FEWEST else LONGEST):
                break
    return sorted(times)[len(times) // 2] if times else None


def info_cost(env: gymnasium.Env[Any, Any]) -> float:
    """How many seconds longer the infos of an environment take from a helper than in the caller's own process.

    Args:
        env: One that is thrown away afterwards. It is reset and takes a step.
    """
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        env.reset(seed=0)
        *_, info = env.step(next(random_actions(env.action_space)))
        if info:
            infos, adder = dict.fromkeys(range(INFOS), info), info_adder(INFOS)
            here = _shortest(lambda: merged_at_once({}, infos, INFOS) or merge_infos([info_columns(0, {}, infos)], adder))
            there = _shortest(lambda: merge_infos([decode_infos(loads(dumps(encode_infos(info_columns(0, {}, infos)))))], adder))
            return max(0.0, there - here) / INFOS
    return 0.0


def _shortest(call: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def random_actions(space: spaces.Space[Any]) -> Iterator[Any]:
    """Random actions, the same every time, from a copy that is made when the first one is asked for."""
    space = deepcopy(space)
    space.seed(0)
    while True:
        yield space.sample()


MEASURED_SECONDS = 1.0
"""Seconds for all kinds of environments together, after which the others are taken to cost what those did that were timed. A user
waits for it. Chosen.
"""
ENOUGH = 8
"""Kinds of environments that are timed if they cost the same: with more, hundreds of makers that only differ in a seed would delay
the start.
"""
ALIKE_COSTS = 1.5
"""``ENOUGH`` kinds stand for all if they cost the same within this ratio."""


@dataclass(frozen=True)
class StepCosts:
    """Seconds that a step of each environment takes, ``None`` if they are not known, and where they come from.

    ``infos`` is how much longer the infos of an environment take from a helper than in the caller's own process.
    """

    seconds: tuple[float, ...] | None
    why: str
    infos: float = 0.0

    @classmethod
    def alike(cls, cost: float | None, count: int) -> StepCosts:
        """Costs of environments that take the same time, if they can be timed."""
        if cost is None:
            return cls(None, "the environment could not be timed")
        return cls((cost,) * count, f"a step takes {_microseconds(cost)}")


def env_costs(
    dummy: Any,
    encoded: Sequence[Any],
    workers: int,
    cost: Callable[[Any], float | None] | None = None,
    infos: Callable[[Any], float] | None = None,
) -> StepCosts:
    """Time one environment of each kind; none is begun after a second. Global random generators are put back.

    What has not been timed counts as the median of what has been: kinds that there was no time for, those that cannot be made or
    stepped (which is for their construction proper to say), and functions that cannot be pickled. Those are never called,
    because a call may change what the next one makes; of the others it is a copy that is called.

    Args:
        dummy: A throw-away instance of environment 0.
        encoded: What makes each environment; see :func:`~reactor_gymnasium.arguments.encode_makers`.
        workers: How many workers there are. For a single one nothing is timed.
        cost: Times one that is thrown away; seconds, or ``None`` if it will not be stepped. By default
            :func:`~reactor_gymnasium.placement.step_cost`.
        infos: Times the infos of one that is thrown away; by default they are taken to cost nothing.
    """
    if workers == 1:
        return StepCosts(None, "one worker")
    kinds = [*map(kind_of, encoded)]
    makers = dict(zip(kinds, encoded, strict=True))
    costs = _timed(dummy, list(makers.values()), cost or step_cost)
    if not costs:
        return StepCosts(None, "the environments could not be timed")
    low, median, high = min(costs.values()), statistics.median(costs.values()), max(costs.values())
    why = f"a step takes {_microseconds(low)}" + (f" to {_microseconds(high)}" if len(costs) > 1 else "")
    if len(costs) < len(makers):
        why += f", timed {len(costs)} of {len(makers)} kinds"
    if _enough(costs):
        costs = {}
    by_kind = {kind: costs.get(number, median) for number, kind in enumerate(makers)}
    return StepCosts(tuple(by_kind[kind] for kind in kinds), why, infos(dummy) if infos else 0.0)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds > 1e-7 else f"{seconds * 1e6:.2g} us"


def _timed(dummy: Any, makers: Sequence[Any], cost: Callable[[Any], float | None]) -> dict[int, float]:
    """Seconds by number of the kind, of those that could be timed; ``dummy`` is of kind 0."""
    costs: dict[int, float] = {}
    until = time.perf_counter() + MEASURED_SECONDS
    for number in _spread(len(makers)):
        if time.perf_counter() > until or _enough(costs):
            break
        seconds = cost(dummy) if number == 0 else _cost_of_another(makers[number], cost)
        if seconds is not None:
            costs[number] = seconds
    return costs


def _cost_of_another(maker: Any, cost: Callable[[Any], float | None]) -> float | None:
    found: list[float | None] = []  # which closing may fail after
    if type(maker) is Pickled:
        with contextlib.suppress(Exception, SystemExit):
            looked_at(partial(make_probe, decode(maker)), lambda env: found.append(cost(without_films(env))))
    return found[0] if found else None


def _enough(costs: Mapping[int, float]) -> bool:
    return len(costs) >= ENOUGH and max(costs.values()) <= ALIKE_COSTS * min(costs.values())


def _spread(n: int) -> Iterator[int]:
    """Every index below ``n``: 0, the middle, the quarters, the eighths, ..."""
    parts, seen = 1, set[int]()
    while len(seen) < n:
        for part in range(parts):
            index = n * part // parts
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2


SHARD_COST = 3e-6
"""Seconds that a shard costs at every tick besides its environments. Chosen before it was measured:
docs/benchmarks/scaling-model-check.md has 6 us for a shard's reaction. It only decides between cuts whose costs are nearly the
same.
"""
SHORTEST = 30e-6
"""Seconds that a run of neighbours lasts, if that can be had, so that shards do not cost more than they gain."""
RUNS_PER_WORKER = 16
"""Into how many pieces a worker's share is cut to be shared out longest first. The last piece is what workers may differ by: a
sixteenth; more pieces cost more shards. Chosen.
"""
ALIKE = 1.25
"""Costs within this ratio are equal as far as a few steps can tell."""


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
    return min(best, _one_each(seconds, lo, hi, workers), _longest_first(seconds, lo, hi, workers), key=makespan)


def makespan(shards: Sequence[Placed]) -> float:
    """Seconds until the last worker has stepped its shards once."""
    load: dict[int, float] = {}
    for shard in shards:
        load[shard.worker] = load.get(shard.worker, 0.0) + shard.cost + SHARD_COST
    return max(load.values())


def _shards(seconds: Sequence[float], cuts: Sequence[int], worker_of: Sequence[int]) -> list[Placed]:
    """Shards between the cuts; neighbours on one worker are one shard."""
    merged = [*(i for i in range(len(worker_of)) if i == 0 or worker_of[i] != worker_of[i - 1]), len(worker_of)]
    rows = [(cuts[i], cuts[j], worker_of[i]) for i, j in pairwise(merged)]
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


LEAST, CERTAIN = 40e-6, 20e-3
"""Helpers are not tried where they would save fewer seconds of a step than the first, or more than the second: to wake a helper
takes longer than the first, and beside other programs a step may take some time slices longer. In between it is measured
(:func:`reactor_rl.autotune.tick_cost`).
"""
CALM = 200e-6
"""Helpers cost less than so many seconds of a step while nobody else wants the cores. Only chooses the words of the reason: a round
trip of parked workers takes 13 us at rest, a time slice milliseconds.
"""
AWAY = 1.5e-3
"""Seconds for which a policy may well be evaluated between two steps: helpers have gone to sleep meanwhile."""


def late_helpers(start_method: str | None, spin: float | None = None) -> Callable[[float], float]:
    """Tries what helpers cost in a step, of a caller who was away before it or in a hurry, by the seconds that a share takes.

    Args:
        start_method: How helper processes start.
        spin: Seconds that they wait awake.
    """
    return lambda work: tick_cost(spin, away=AWAY, start_method=start_method, work=work)


def choose_executor(
    costs: Callable[[], StepCosts],
    batch_size: int,
    workers: int,
    executor: ExecutorName,
    caller_works: bool,
    helper_cost: Callable[[float], float],
    restarts: int = 0,
    least: float = LEAST,
) -> Choice[tuple[float, ...]]:
    """Decide what to run on. With the GIL, threads are only used on request: Python environments hold it.

    Who names an executor has no throw-away instances stepped, and environments placed evenly.

    Args:
        costs: Times throw-away instances.
        batch_size: How many environments step together.
        workers: How many workers there may be.
        executor: What the user asked for.
        caller_works: Whether the calling thread takes its share.
        helper_cost: Measures the seconds that a step with helpers costs beyond its share of the environments, which takes so many
            seconds; see :func:`late_helpers`.
        restarts: How often workers may be replaced.
        least: Seconds of a step that helpers cost in any case.
    """
    choice = settled(executor, workers, caller_works=caller_works, replaced=bool(restarts))
    if choice is not None:
        return choice
    parallel, measured = parallel_executor(replaced=bool(restarts)), costs()
    seconds = measured.seconds
    if seconds is None:
        return Choice(parallel, workers, None, measured.why)
    batches = [(lo, lo + batch_size) for lo in range(0, len(seconds), batch_size)]
    alone = sum(makespan(place(seconds, lo, hi, 1)) for lo, hi in batches)
    shared = sum(makespan(place(seconds, lo, hi, workers)) for lo, hi in batches)
    gain = expected_gain(alone, shared) / len(batches) - measured.infos * batch_size  # of a step
    if caller_works and gain < least:
        return Choice("inline", 1, None, f"{measured.why}, too little to share")
    if caller_works and gain < CERTAIN and gain < (cost := helper_cost(shared / len(batches))):
        busy = "too little to share" if cost < CALM else "helpers cannot be started" if cost == math.inf else "the cores are busy"
        return Choice("inline", 1, None, f"{measured.why}, {busy}")
    return Choice(parallel, workers, seconds, measured.why)
