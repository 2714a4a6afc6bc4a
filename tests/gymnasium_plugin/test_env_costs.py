"""Costs: one throw-away instance per kind, none where they are of no use, none after a second, and no traces left."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from reactor_gymnasium import placement as costs
from reactor_gymnasium import placement as measure
from reactor_gymnasium.arguments import encode_makers
from reactor_gymnasium.placement import StepCosts, env_costs


class Clock:
    """A clock that only moves when an environment is built or stepped."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Counting(gymnasium.Env[Any, Any]):
    """Takes a fixed time to build and to step, on a clock of its own. Nothing about it really takes time."""

    observation_space = spaces.Discrete(1)
    action_space: Any = spaces.Discrete(2)
    made: list[Any] = []
    closed: list[Any] = []
    clock = Clock()

    def __init__(self, cost: float, rank: int = 0, build: float = 0.0, wrong: str = "") -> None:
        self.cost, self.rank, self.wrong = cost, rank, wrong
        self.made.append(rank)
        type(self).clock.now += build
        random.random()
        np.random.random()
        if wrong == "build":
            raise OSError("no display")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        random.random()
        return 0, {}

    def step(self, action: Any) -> Any:
        np.random.random()
        if self.wrong == "step":
            raise OSError("no display")
        type(self).clock.now += self.cost
        return 0, 0.0, False, False, {}

    def close(self) -> None:
        self.closed.append(self.rank)
        random.random()
        if self.wrong == "close":
            raise OSError("no display")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "clock", Clock())
    for module in (costs, measure):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=Counting.clock.perf_counter))
    Counting.made, Counting.closed = [], []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments say what they cost instead of being stepped."""
    monkeypatch.setattr(costs, "step_cost", lambda env: env.cost)


def costs_of(env_fns: list[Callable[[], Any]], workers: int = 2) -> StepCosts:
    kept = encode_makers(tuple(env_fns))
    dummy = env_fns[0]()
    Counting.made, Counting.closed = [], []
    return env_costs(dummy, kept, workers)


def test_one_kind_makes_no_instance() -> None:
    make = partial(Counting, 4e-6)
    found = costs_of([make] * 3 + [partial(Counting, 4e-6)])  # equal pickles, though not the same function
    assert found.seconds == pytest.approx((4e-6,) * 4)
    assert found.why == "a step takes 4.0 us"
    assert Counting.made == []


def test_one_worker_times_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "step_cost", None)
    assert costs_of([partial(Counting, 1e-6, rank) for rank in range(3)], workers=1) == StepCosts(None, "one worker")
    assert Counting.made == []


@pytest.mark.usefixtures("told")
def test_each_kind_is_made_once_and_closed() -> None:
    cheap, dear, other = partial(Counting, 4e-6, 1), partial(Counting, 312e-6, 2), partial(Counting, 50e-6, 3)
    found = costs_of([cheap, dear, cheap, other, dear, cheap])
    assert found == StepCosts((4e-6, 312e-6, 4e-6, 50e-6, 312e-6, 4e-6), "a step takes 4.0 us to 312.0 us")
    assert Counting.made == Counting.closed == [2, 3]


@pytest.mark.usefixtures("told")
def test_kinds_that_cost_the_same_are_not_all_timed() -> None:
    found = costs_of([partial(Counting, 4e-6 + rank * 1e-8, rank) for rank in range(64)])
    assert Counting.made == Counting.closed == [32, 16, 48, 8, 24, 40, 56]
    assert found == StepCosts((4.28e-6,) * 64, "a step takes 4.0 us to 4.6 us, timed 8 of 64 kinds")


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("count", [8, 9, 64])
def test_kinds_that_differ_are_all_timed(count: int) -> None:
    seconds = tuple(1e-6 * (1 + rank) for rank in range(count))
    assert costs_of([partial(Counting, cost, rank) for rank, cost in enumerate(seconds)]).seconds == seconds
    assert sorted(Counting.made) == list(range(1, count))


@pytest.mark.usefixtures("told")
def test_a_few_kinds_count_as_they_are_timed() -> None:
    seconds = tuple(1e-6 + 1e-8 * rank for rank in range(7))
    assert costs_of([partial(Counting, cost, rank) for rank, cost in enumerate(seconds)]).seconds == seconds


@pytest.mark.usefixtures("told")
def test_none_is_begun_after_a_second() -> None:
    found = costs_of([partial(Counting, 1e-6 * (1 + rank), rank, build=0.4) for rank in range(64)])
    assert Counting.made == Counting.closed == [32, 16, 48]
    assert Counting.clock.now == pytest.approx(0.4 + 1.2)  # the dummy was there before
    median = (1 + (16 + 32) / 2) * 1e-6
    assert found.seconds == pytest.approx([1e-6 * (1 + r) if r in (0, 16, 32, 48) else median for r in range(64)])
    assert found.why == "a step takes 1.0 us to 49.0 us, timed 4 of 64 kinds"


@pytest.mark.usefixtures("told")
def test_one_that_takes_longer_than_a_second_ends_it() -> None:
    costs_of([partial(Counting, 1e-6 * (1 + rank), rank, build=5.0) for rank in range(3)])
    assert Counting.made == [1]


@pytest.mark.parametrize("wrong", ["build", "step"])
def test_what_cannot_be_timed_counts_as_the_median(wrong: str) -> None:
    others = [partial(Counting, cost, rank) for rank, cost in enumerate((1e-6, 3e-6, 50e-6))]
    found = costs_of([*others, partial(Counting, 7e-6, 3, wrong=wrong)])
    assert found.seconds == pytest.approx((1e-6, 3e-6, 50e-6, 3e-6))
    assert found.why == "a step takes 1.0 us to 50.0 us, timed 3 of 4 kinds"
    assert Counting.made == [2, 1, 3]
    assert Counting.closed == ([2, 1] if wrong == "build" else [2, 1, 3])


@pytest.mark.usefixtures("told")
def test_a_failing_close_takes_nothing_away() -> None:
    assert costs_of([partial(Counting, 1e-6), partial(Counting, 5e-6, 1, wrong="close")]).seconds == (1e-6, 5e-6)


def test_nothing_can_be_timed() -> None:
    found = env_costs(Counting(1e-6, wrong="step"), encode_makers((partial(Counting, 1e-6, wrong="build"),)), 2)
    assert found == StepCosts(None, "the environments could not be timed")


@pytest.mark.usefixtures("told")
def test_functions_that_cannot_be_pickled_are_not_called() -> None:
    lock, calls = threading.Lock(), []

    def unpicklable() -> Any:
        calls.append(lock)
        return Counting(9e-6)

    found = costs_of([partial(Counting, 1e-6), unpicklable, partial(Counting, 5e-6, 1), unpicklable])
    assert found == StepCosts((1e-6, 3e-6, 5e-6, 3e-6), "a step takes 1.0 us to 5.0 us, timed 2 of 3 kinds")
    assert calls == []


@pytest.mark.usefixtures("told")
def test_functions_keep_their_state() -> None:
    class Next:
        def __init__(self, cost: float) -> None:
            self.cost, self.calls = cost, 0

        def __call__(self) -> Any:
            self.calls += 1
            return Counting(self.cost)

    first, second = Next(1e-6), Next(2e-6)
    assert costs_of([first, second]).seconds == (1e-6, 2e-6)
    assert (first.calls, second.calls) == (1, 0)  # the one call made the dummy


def test_global_generators_are_put_back() -> None:
    env_fns = [partial(Counting, 1e-6, rank) for rank in range(4)]
    kept, dummy = encode_makers(tuple(env_fns)), env_fns[0]()
    ours, numpys = random.getstate(), repr(np.random.get_state())
    env_costs(dummy, kept, 2)
    assert Counting.made == [0, 2, 1, 3]
    assert random.getstate() == ours
    assert repr(np.random.get_state()) == numpys


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 64, 100])
def test_the_order_spreads(n: int) -> None:
    order = list(costs._spread(n))
    assert sorted(order) == list(range(n))
    assert order[0] == 0 and order[1:2] == ([n // 2] if n > 1 else [])
    for some in (2, 4, 8):
        if some <= n:
            assert max(np.diff([*sorted(order[:some]), n])) <= 2 * n / some


class Uneven(Counting):
    """Each step of an instance takes as long as the next number says; the last one counts for all that follow."""

    def __init__(self, *steps: float, ends: bool = False) -> None:
        super().__init__(steps[0])
        self.steps, self.taken, self.resets, self.ends = steps, 0, 0, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        type(self).clock.now += 1.0  # nobody's step
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.cost = self.steps[min(self.taken, len(self.steps) - 1)]
        self.taken += 1
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.ends, truncated, info


@pytest.mark.parametrize(
    ("steps", "taken", "cost"),
    [
        ((1e-6,), measure.STEPS, 1e-6),
        ((4e-3, *[2e-6] * 11, *[3e-6] * 8), measure.STEPS, 2e-6),  # the first one often builds what the others find
        ((1e-3, 2e-3, 3e-3, 4e-3, 5e-3), measure.FEWEST, 3e-3),
        ((60e-3,), 2, 60e-3),
        ((0.2, 1e-6), 1, 0.2),
    ],
)
def test_a_step_costs_what_it_takes(steps: tuple[float, ...], taken: int, cost: float) -> None:
    env = Uneven(*steps)
    assert measure.step_cost(env) == pytest.approx(cost)
    assert (env.taken, env.resets) == (taken, 1)


def test_what_resets_take_is_not_counted() -> None:
    env = Uneven(2e-6, ends=True)
    assert measure.step_cost(env) == pytest.approx(2e-6)
    assert env.resets > env.taken
