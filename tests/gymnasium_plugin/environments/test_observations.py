"""Observations that do not fit their space are an error that names the environment, and nobody else's row; empty ones are fine."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_like_sync, rollout
from every_other import in_turn
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from places import INLINE, PROCESSES, THREADS

from reactor_gymnasium import ReactorVectorEnv

pytestmark = pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")

PLACES = [INLINE, THREADS, PROCESSES | {"workers": 3}]
SMALL = spaces.Box(-99, 99, (3,), np.float32)
LARGE = spaces.Box(-99, 99, (400, 3), np.float32)


class Said(gymnasium.Env[Any, Any]):
    """Returns ``good`` but for call number ``when``, when it returns ``bad``; a reset is a call, too."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, good: Any, bad: Any, when: int) -> None:
        self.observation_space, self.good, self.bad, self.when = space, good, bad, when
        self.calls = 0

    def said(self) -> Any:
        self.calls += 1
        return self.bad if self.calls - 1 == self.when else self.good

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.said(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.said(), 0.0, False, False, {}


def limited(*args: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(Said(*args), 99)


def first_error(constructor: Any, makers: list[Any], **kwargs: Any) -> Any:
    """What is raised, and after how many calls."""
    envs = constructor(makers, **kwargs)
    calls = 0
    try:
        envs.reset()
        while calls < 5:
            calls += 1
            envs.step(np.zeros(len(makers), np.int64))
    except Exception as error:
        return error, calls
    finally:
        envs.close()
    raise AssertionError("nothing was raised")


@in_turn("place", PLACES, ids=str, kept=1)
@pytest.mark.parametrize("make", [Said, limited])
@pytest.mark.parametrize("when", [0, 4])
def test_lengths_that_add_up_do_not_spill_into_the_neighbours(when: int, make: Any, place: dict[str, Any]) -> None:
    # A shard's rows: two of three, four of four.
    for lengths in ((3, 2, 4, 3), (2, 4, 2, 4), (6, 3, 3, 0)):
        makers = [partial(make, SMALL, np.zeros(3, np.float32), np.full(n, 7, np.float32), when) for n in lengths]
        error, calls = first_error(ReactorVectorEnv, makers, **place)
        last = max(row for row, n in enumerate(lengths) if n != 3)
        assert isinstance(error, ValueError) and calls == when
        assert f"shape ({lengths[last]},), its space says (3,)" in str(error)
        assert any(f"environment {last} of ReactorVectorEnv" in note for note in error.__notes__)


CASES: dict[str, tuple[Any, Any, Any]] = {
    "too long": (SMALL, np.zeros(3, np.float32), np.zeros(4, np.float32)),
    "too short": (SMALL, np.zeros(3, np.float32), np.zeros(1, np.float32)),
    "one more dimension": (SMALL, np.zeros(3, np.float32), np.zeros((1, 3), np.float32)),
    "a number": (SMALL, np.zeros(3, np.float32), 0.0),
    "a text": (SMALL, np.zeros(3, np.float32), "text"),
    "large, to be broadcast": (LARGE, np.zeros((400, 3), np.float32), np.zeros(3, np.float32)),
    "large, floats": (spaces.Box(0, 255, (40, 40), np.uint8), np.zeros((40, 40), np.uint8), np.full((40, 40), 0.5)),
    "large, signed": (spaces.Box(0, 255, (40, 40), np.uint8), np.zeros((40, 40), np.uint8), np.zeros((40, 40), np.int64)),
    "floats": (spaces.Box(-9, 9, (3,), np.int64), np.zeros(3, np.int64), np.full(3, 1.5)),
    "a fraction": (spaces.Discrete(9), 1, 1.5),
    "an array of a number": (spaces.Discrete(9), np.int64(1), np.ones(1, np.int64)),
    "floats in a Dict": (spaces.Dict(a=spaces.MultiDiscrete([3, 3])), {"a": np.zeros(2, np.int64)}, {"a": np.ones(2)}),
    "a fraction in a Tuple": (spaces.Tuple((spaces.Discrete(4), spaces.Text(3))), (1, "a"), (1.0, "a")),
    "to be broadcast in a Dict": (spaces.Dict(a=SMALL), {"a": np.zeros(3, np.float32)}, {"a": np.zeros(1, np.float32)}),
    "not empty": (spaces.Box(0, 1, (0,)), np.zeros(0, np.float32), np.zeros(1, np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES[:2], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_does_not_fit_is_refused_as_sync_refuses_it(case: tuple[Any, Any, Any], place: dict[str, Any]) -> None:
    space, good, bad = case
    for when in (0, 3):
        makers = [partial(Said, space, good, bad if row == 1 else good, when) for row in range(4)]
        theirs, their_calls = first_error(SyncVectorEnv, makers)
        ours, calls = first_error(ReactorVectorEnv, makers, **place)
        assert (type(ours), calls) == (type(theirs), their_calls)
        assert any("environment 1 of ReactorVectorEnv" in note for note in ours.__notes__)


EMPTY: list[Any] = [
    spaces.Box(0, 1, (2, 0)),
    spaces.Box(0, 1, (0,), np.int32),
    spaces.Dict(a=spaces.Box(0, 1, (0,))),
    spaces.Dict(a=spaces.Box(0, 1, (0,)), b=spaces.Discrete(3), c=spaces.Box(0, 1, (0, 3), np.uint8)),
    spaces.Tuple((spaces.Box(0, 1, (0,)), spaces.Text(3))),
    spaces.MultiDiscrete(np.zeros(0, np.int64)),
]


class Samples(gymnasium.Env[Any, Any]):
    """Its observations are samples of its space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = deepcopy(space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.observation_space.sample(), 0.5, self.t % 4 == 0, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("space", EMPTY, ids=range(len(EMPTY)))
def test_empty_leaves_are_batched_as_sync_batches_them(space: Any, place: dict[str, Any]) -> None:
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        copy = mode is AutoresetMode.NEXT_STEP
        assert_like_sync([partial(Samples, space)] * 4, rollout(0, partly=False), autoreset_mode=mode, copy=copy, **place)
