"""Actions in whatever form: the environment is given what it would be given by SyncVectorEnv."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_like_sync, assert_same
from gymnasium import spaces

from reactor_gymnasium import ReactorVectorEnv


class Told(gymnasium.Env[Any, Any]):
    """Tells what it was given."""

    observation_space = spaces.Discrete(2)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        said = {"type": type(action).__name__, "dtype": str(getattr(action, "dtype", "")), "value": np.asarray(action).tolist()}
        return 0, 0.0, False, False, {"said": str(said)}


DISCRETE, BOX, MANY = spaces.Discrete(9), spaces.Box(-9, 9, (2,), np.float32), spaces.MultiDiscrete([4, 5])
FORMS: dict[str, tuple[Any, Any, bool]] = {
    "numpy scalars": (DISCRETE, [np.int64(3), np.int64(1), np.int64(4)], True),
    "a tuple of them": (DISCRETE, (np.int64(3), np.int64(1), np.int64(4)), True),
    "ints": (DISCRETE, [3, 1, 4], False),
    "both": (DISCRETE, [np.int64(3), 1, 4], False),
    "other scalars": (DISCRETE, [np.int32(3), np.int32(1), np.int32(4)], False),
    "bools": (DISCRETE, [True, False, True], False),
    "arrays of nothing": (DISCRETE, [np.array(3), np.array(1), np.array(4)], False),
    "arrays": (BOX, [np.float32([1, 2]), np.float32([3, 4]), np.float32([5, 6])], True),
    "views": (BOX, list(np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]), True),
    "wider arrays": (BOX, [np.array([1.1, 2]), np.array([3.1, 4]), np.array([5.1, 6])], False),
    "lists": (BOX, [[1.1, 2], [3.1, 4], [5.1, 6]], False),
    "rows of integers": (MANY, [np.array([1, 2]), np.array([3, 4]), np.array([0, 1])], True),
}


@pytest.mark.parametrize("place", [{"executor": "inline"}, {"executor": "threads", "workers": 2}], ids=str)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_environment_is_given_what_sync_gives_it(form: tuple[Any, Any, bool], place: dict[str, Any]) -> None:
    space, actions, _ = form

    def play(envs: Any) -> list[Any]:
        return [envs.reset(), envs.step(actions), envs.step(actions)]

    assert_like_sync([partial(Told, space)] * 3, play, **place)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_what_can_be_one_array_is_not_pickled(form: tuple[Any, Any, bool]) -> None:
    space, actions, as_array = form
    with ReactorVectorEnv([partial(Told, space)] * 3, executor="inline") as envs:
        inputs = envs._encode_actions(envs._batches[0], actions)
        assert isinstance(inputs, np.ndarray) is as_array
        if as_array:
            assert_same(inputs, np.array(actions))


@pytest.mark.parametrize("n", [2, 4])
def test_the_number_of_listed_actions_is_checked(n: int) -> None:
    with ReactorVectorEnv([partial(Told, DISCRETE)] * 3, executor="inline") as envs:
        envs.reset()
        with pytest.raises(ValueError, match=f"{n} actions were given for 3 environments"):
            envs.step([np.int64(0)] * n)
