"""Policies that remember earlier calls, or draw: one report for any ``num_envs``, or a word that names what they keep."""

from __future__ import annotations

import collections
import functools
import itertools
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from evaluated import Walk
from every_other import in_turn

from reactor_gymnasium import EvaluationReport, evaluate

torch = pytest.importorskip("torch")


class Scripted(Walk):
    """Takes three actions, and pays those that come in turn."""

    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)

    def _seen(self) -> Any:
        return np.array([self.at, self.np_random.normal()], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        seen, *_ = super().step(np.int64(1))
        self.steps += 1
        return seen, float(action == (self.steps - 1) % 3), self.steps == 6, False, {}


def all_of(observations: Any, action: int) -> Any:
    return np.full(len(observations), action)


# ---------------------------------------------------------------------- whose answers depend on what was asked before


def chunks() -> Any:
    queue: list[int] = []

    def policy(observations: Any) -> Any:
        if not queue:
            queue.extend([0, 1, 2])
        return all_of(observations, queue.pop(0))

    return policy


def nearly_constant_chunks() -> Any:
    queue = collections.deque([1] * 8)

    def policy(observations: Any) -> Any:
        if not queue:
            queue.extend([1] * 8 + [2])
        return all_of(observations, queue.popleft())

    return functools.partial(policy)


def counter() -> Any:
    calls = 0

    def policy(observations: Any) -> Any:
        nonlocal calls
        calls += 1
        return all_of(observations, calls // 10 % 3)

    return policy


def cycle() -> Any:
    turns = itertools.cycle([0, 1, 2])
    return lambda observations: all_of(observations, next(turns))


class BeganWhere:
    """Starts afresh where it is told so, and keeps the state of one episode only."""

    def __init__(self) -> None:
        self.steps = 0

    def predict(self, observations: Any, episode_start: Any = None, deterministic: bool = True) -> Any:
        self.steps = 0 if episode_start[0] else self.steps + 1
        return all_of(observations, self.steps % 3), None


class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, observations: Any) -> Any:
        self.calls += 1
        return (torch.arange(3) == self.calls % 3).float().expand(len(observations), 3)


def method() -> Any:
    policy = BeganWhere()
    return lambda observations: policy.predict(observations, [False])[0]


def clock() -> Any:
    return lambda observations: all_of(observations, time.perf_counter_ns() % 3)


def draws_and_counts() -> Any:
    calls = 0

    def policy(observations: Any) -> Any:
        nonlocal calls
        calls += 1
        return all_of(observations, (np.random.randint(2) + calls) % 3)

    return policy


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "chunks": (chunks, "`queue` changes"),
    "nearly constant chunks": (nearly_constant_chunks, "`queue` changes"),
    "counter": (counter, "`calls` changes"),
    "cycle": (cycle, "`turns` changes"),
    "episode start": (BeganWhere, "`steps` changes"),
    "method": (method, "`policy.steps` changes"),
    "module": (Counting, "`calls` changes"),
    "clock": (clock, "answers otherwise when it is asked the same again"),
    "draws and counts": (draws_and_counts, "`calls` changes"),
}


@pytest.mark.parametrize("num_envs", [1, 2, 5])
@in_turn("name", REFUSED, kept=3)
def test_who_remembers_earlier_calls_is_refused(name: str, num_envs: int) -> None:
    make, why = REFUSED[name]
    for batch_size in (None, 1):
        with pytest.raises(ValueError, match=why) as error:
            evaluate(make(), Scripted, 3, num_envs=num_envs, batch_size=batch_size, executor="inline")
        message = str(error.value)
        assert "predict(observations, state=...)" in message and "random" in message and "LeRobotPolicy" in message


# ---------------------------------------------------------------------- whose state was not seen in an answer


def long_queue() -> Any:
    queue = [1] * 300
    return lambda observations: all_of(observations, queue.pop() if queue else 2)


def late() -> Any:
    count = [0]

    def policy(observations: Any) -> Any:
        count[0] += 1
        return all_of(observations, int(count[0] > 1000))

    return policy


class LateObject:
    calls = 0

    def __call__(self, observations: Any) -> Any:
        LateObject.calls += 1
        return all_of(observations, int(LateObject.calls > 1000))


def by_default() -> Any:
    def policy(observations: Any, box: list[int] = [0]) -> Any:  # noqa: B006
        box[0] += 1
        return all_of(observations, int(box[0] > 1000))

    return policy


def generated() -> Any:
    def actions() -> Any:
        for _ in range(1000):
            yield 1
        yield from itertools.repeat(2)

    turns = actions()
    return lambda observations: all_of(observations, next(turns))


class Recurrent(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Keeps a hidden state, which does not show in its first actions."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.scores, self.hidden = torch.nn.LSTMCell(2, 4), torch.nn.Linear(4, 3), None
        torch.nn.init.constant_(self.scores.bias, 0.0)
        self.scores.bias.data[1] = 9

    def forward(self, observations: Any) -> Any:
        self.hidden = self.cell(observations)
        return self.scores(self.hidden[0])


WARNED: dict[str, tuple[Callable[[], Any], str]] = {
    "long queue": (long_queue, "`queue`"),
    "late": (late, "`count`"),
    "class attribute": (LateObject, "`calls`"),
    "default": (by_default, "`box`"),
    "generator": (generated, "`turns"),
    "module": (Recurrent, "`hidden`"),
}


@in_turn("name", WARNED, kept=3)
def test_what_a_policy_keeps_is_told_though_no_answer_was_seen_to_depend_on_it(name: str) -> None:
    make, what = WARNED[name]
    with pytest.warns(UserWarning, match=f"changes {what}.* when it is asked, though no answer"):
        report = evaluate(make(), Scripted, 3, num_envs=2, executor="inline")
    assert not report.row_independent and "though no answer was seen to depend on it" in str(report)


# ---------------------------------------------------------------------- who may keep what it likes, and who draws


def logging() -> Any:
    seen: list[int] = []
    notes: dict[str, Any] = {"calls": 0}

    def policy(observations: Any) -> Any:
        seen.append(len(observations))
        notes["calls"] += 1
        notes["last"] = observations
        return all_of(observations, 1)

    return policy


class Timed:
    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0

    def predict(self, observations: Any, deterministic: bool = True) -> Any:
        began = time.perf_counter()
        actions = (observations[:, 1] > 0.5).astype(np.int64)
        self.calls += 1
        self.seconds += time.perf_counter() - began
        return actions, None


def cached() -> Any:
    choose = functools.lru_cache(lambda number: int(number > 0.5))
    known: dict[bytes, Any] = {}

    def policy(observations: Any) -> Any:
        key = observations.tobytes()
        if key not in known:
            known[key] = np.array([choose(float(number)) for number in observations[:, 1]])
        return known[key]

    return policy


def of_numpy() -> Any:
    rng = np.random.default_rng(0)
    return lambda observations: rng.integers(0, 3, len(observations))


def of_python() -> Any:
    draw = random.Random(0).randrange
    return lambda observations: np.array([draw(3) for _ in observations])


class OfTorch:
    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __call__(self, observations: Any) -> Any:
        return torch.randint(0, 3, (len(observations),), generator=self.generator)


def seldom() -> Any:
    state = np.random.RandomState(0)
    return lambda observations: all_of(observations, 2 if state.random_sample() < 0.01 else 1)


def of_a_space() -> Any:
    space = gymnasium.spaces.Discrete(3, seed=0)
    return lambda observations: np.array([space.sample() for _ in observations])


ALLOWED: dict[str, Callable[[], Any]] = {
    "logging": logging, "timed": Timed, "cached": cached, "numpy": of_numpy, "python": of_python, "torch": OfTorch,
    "seldom": seldom, "space": of_a_space,
}  # fmt: skip


@in_turn("name", ALLOWED, kept=4)
def test_one_report_for_any_number_of_environments(name: str) -> None:
    reports = [evaluate(ALLOWED[name](), Scripted, 8, seed=3, num_envs=n, executor="inline") for n in (1, 2, 5)]
    assert len({report.fingerprint() for report in reports}) == 1 and all(report.row_independent for report in reports)


def test_generators_of_a_policy_have_their_state_back() -> None:
    rng = np.random.default_rng(0)
    report = evaluate(lambda observations: rng.integers(0, 3, len(observations)), Scripted, 4, executor="inline")
    assert "it draws from generators of its own" in report.policy
    assert len({*report.digests}) == 4  # no episode has the actions of another one


class Nearly:
    """Its last bits are other ones each time, as those of some accelerators are."""

    def predict(self, observations: Any, deterministic: bool = True) -> Any:
        return np.full((len(observations), 1), 0.5, np.float32) + np.float32(6e-8 * (time.perf_counter_ns() % 7)), None


class Steered(Scripted):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        return super().step(1)


def test_last_bits_that_differ_are_owned_up_to() -> None:
    with pytest.warns(UserWarning, match="answers otherwise in the last bits"):
        report = evaluate(Nearly(), Steered, 2, executor="inline")
    assert not report.row_independent


def told(policy: Any, env: Any, **more: Any) -> list[EvaluationReport]:
    return [evaluate(policy, env, 6, seed=3, num_envs=n, executor="inline", **more) for n in (1, 3)]


class Sensitive(Steered):
    """Pays by the last bits of an action."""

    def step(self, action: Any) -> Any:
        seen, _, *others = super().step(action)
        return seen, float(action[0] * action[0] * type(action[0])(0.1)), *others


def two_dtypes(observations: Any) -> Any:
    """An array, single or double, by what is observed."""
    double = observations[:, :1].astype(np.float64)
    return np.cos(double) if observations[0, 1] < 0 else np.tanh(observations[:, :1])


def two_kinds(observations: Any) -> list[Any]:
    """A list, with whole numbers here and there."""
    return [[1] if second < 0 else [float(np.tanh(first))] for first, second in observations.tolist()]


def two_widths(observations: Any) -> list[Any]:
    """A list of numpy's numbers, single or double."""
    return [[np.float32(0.3) if second < 0 else np.float64(0.3)] for _, second in observations.tolist()]


@pytest.mark.parametrize("policy", [two_dtypes, two_kinds, two_widths])
@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_row_has_the_dtype_of_its_own_answer(policy: Any, batch_size: int | None) -> None:
    reports = told(policy, Sensitive, batch_size=batch_size)
    assert reports[0].fingerprint() == reports[1].fingerprint() and reports[0].row_independent


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda seen: None, "returned None of dtype object for 1 observations; it must return as many actions of Discrete"),
        (lambda seen: [None] * len(seen), r"returned \[None\]"),
        (lambda seen: ["left"] * len(seen), r"returned \['left'\] of dtype <U4"),
        (lambda seen: "left", "returned 'left' of dtype"),
        (lambda seen: [[0, 1], [1]], r"returned \[\[0, 1\], \[1\]\]"),
        (lambda seen: [[0], [1, 2]][: len(seen)], "shape"),
        (lambda seen: {"action": 1}, "returned {'action': 1}"),
        (lambda seen: (1 for _ in seen), "returned <generator"),
        (lambda seen: [1] * (len(seen) + 1), r"actions of shape \(2,\) for 1 observations"),
        (lambda seen: [], r"actions of shape \(0,\) for 1 observations"),
        (lambda seen: [np.nan] * len(seen), "not finite numbers"),
        (lambda seen: [2**70], "of dtype object"),
    ],
)
def test_what_is_no_action_is_put_down_to_the_policy(answer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        evaluate(answer, Scripted, 2, executor="inline")
    assert "the policy <lambda>" in str(error.value)


def test_asking_does_not_change_what_is_played() -> None:
    """A log of calls is longer by those that tried the policy, and that is all."""
    seen: list[int] = []

    def policy(observations: Any) -> Any:
        seen.append(len(observations))
        return (observations[:, 1] > 0).astype(np.int64)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (evaluate(policy, Scripted, 4, executor="inline") for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
