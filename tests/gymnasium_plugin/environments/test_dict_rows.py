"""Observations of several arrays: written for all rows at once where they are small, and copied only if somebody else has them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.owning import parts_alone
from reactor_gymnasium.environments.storage import ObservationLayout

SPACES: dict[str, gymnasium.Space[Any]] = {
    "flat": spaces.Dict(a=spaces.Box(-1, 1, (3,), np.float32), b=spaces.Discrete(5), c=spaces.MultiBinary((2, 2))),
    "nested": spaces.Dict(a=spaces.Dict(b=spaces.Box(0, 255, (2, 3), np.uint8)), c=spaces.Box(-1, 1, (1,), np.float64)),
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3)]),
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("count", [1, 4])
def test_all_at_once_is_one_by_one(name: str, count: int) -> None:
    space = SPACES[name]
    space.seed(0)
    layout, seen = ObservationLayout(space), [space.sample() for _ in range(count)]
    memory = layout.memory(count), layout.memory(count)
    assert memory[0] is not None and memory[1] is not None
    put, put_all = layout.writer(memory[0]), layout.batch_writer(memory[1])
    assert put_all is not None
    for row, one in enumerate(seen):
        put(row, one)
    put_all(seen)
    assert memory[0].tobytes() == memory[1].tobytes()


def test_large_observations_and_objects_are_written_one_by_one() -> None:
    for part in (spaces.Box(-1, 1, (300,), np.float32), spaces.Text(3)):
        layout = ObservationLayout(spaces.Dict(a=part, b=spaces.Discrete(2)))
        memory = layout.memory(2)
        assert memory is not None and layout.batch_writer(memory) is None


WRONG: dict[str, tuple[Any, str]] = {
    "shape": ({"a": np.zeros(4, np.float32), "b": 1}, r"\['a'\] has shape \(4,\), its space says \(3,\)"),
    "rank": ({"a": np.zeros((3, 1), np.float32), "b": 1}, r"\['a'\] has shape \(3, 1\)"),
    "dtype": ({"a": np.zeros(3, np.complex64), "b": 1}, r"\['a'\] has dtype complex64, which does not cast"),
    "number": ({"a": np.zeros(3, np.float32), "b": [1, 2]}, r"\['b'\] has shape \(2,\)"),
    "missing": ({"a": np.zeros(3, np.float32)}, "'b'"),
    "none": ({"a": None, "b": 1}, r"\['a'\] is None"),
    "no dict": (3, "not subscriptable"),
    "nothing": (None, "returned None|is None"),
}


class Told(gymnasium.Env[Any, Any]):
    observation_space = spaces.Dict(a=spaces.Box(-1, 1, (3,), np.float32), b=spaces.Discrete(5))
    action_space = spaces.Discrete(2)

    def __init__(self, told: Any = None) -> None:
        self.told = told

    def good(self) -> Any:
        return {"a": np.full(3, 0.5, np.float32), "b": 2}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.good(), {}

    def step(self, action: Any) -> Any:
        return (self.told if action else self.good()), 1.0, False, False, {}


@pytest.mark.filterwarnings("ignore:.*raised")
@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_named_with_its_row(case: str) -> None:
    told, says = WRONG[case]
    with ReactorVectorEnv([Told, lambda: Told(told), Told], executor="inline") as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(3, np.int64))
        with pytest.raises((TypeError, ValueError, KeyError), match=says) as raised:
            envs.step(np.ones(3, np.int64) if case == "nothing" else np.array([0, 1, 0]))
    assert any("environment 1" in note or "environment 2" in note for note in raised.value.__notes__)


class Keeping(gymnasium.Env[Any, Any]):
    """Its observations have arrays that it keeps, and writes into again, in a dict of their own each time.

    Args:
        how: What it gives of them.
    """

    observation_space = spaces.Dict(a=spaces.Box(-99, 99, (3,), np.float32), b=spaces.Dict(c=spaces.Box(-99, 99, (2,), np.float32)))
    action_space = spaces.Discrete(2)

    def __init__(self, how: str) -> None:
        self.how, self.kept, self.inner = how, np.zeros(3, np.float32), {"c": np.zeros(2, np.float32)}

    def seen(self) -> Any:
        self.kept += 1
        self.inner["c"] += 2
        if self.how == "arrays":
            return {"a": self.kept, "b": {"c": self.inner["c"].copy()}}
        if self.how == "views":
            return {"a": self.kept[:], "b": {"c": self.inner["c"].copy()}}
        if self.how == "a dict within":
            return {"a": self.kept.copy(), "b": self.inner}
        return {"a": self.kept.copy(), "b": {"c": self.inner["c"]}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, False, False, {}


@pytest.mark.parametrize("how", ["arrays", "views", "a dict within", "arrays within"])
def test_arrays_that_somebody_keeps_are_copied(how: str) -> None:
    """A row is shown again when another one is reset, or when all are looked at."""
    with ReactorVectorEnv([lambda: Keeping(how)] * 2, executor="inline", autoreset_mode="Disabled") as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
        envs.call("seen")  # which writes into the arrays
        shown, _ = envs.reset(options={"reset_mask": np.array([True, False])})
        assert shown["a"].tolist() == [[4, 4, 4], [2, 2, 2]] and shown["b"]["c"].tolist() == [[8, 8], [4, 4]]


def test_who_else_has_an_array_of_a_dict_is_counted() -> None:
    kept = np.zeros(2)
    assert parts_alone({"a": np.zeros(2), "b": 1, "c": None, "d": np.float32(1)})
    assert not parts_alone({"a": np.zeros(2), "b": kept})
    assert not parts_alone({"a": np.zeros(4)[:2]})
    assert not parts_alone({"a": np.array([[]], object)})
    assert not parts_alone({"a": [1]}) and not parts_alone({"a": {}})
