"""Environments whose observations, rewards and infos are the very facts that the tests are about."""

from __future__ import annotations

import os
import re
import time
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FIRST = 1000
"""Steps of the first episode that an environment of index 0 would never reach."""


def label(value: object) -> str:
    """Names a parameter of a test, the same in every process: without addresses."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


class Facts(gymnasium.Env[Any, Any]):
    """Observes ``[index, seed of the last reset, resets so far, steps of the episode, steps so far]``.

    Environment ``i`` ends its episodes after ``i + 2`` steps, by termination and by truncation in turn.
    """

    observation_space = spaces.Box(-(2**31), 2**31, (5,), np.float64)
    action_space: Any = spaces.Discrete(5)

    def __init__(self, index: int, length: int | None = None, action_space: Any = None, infos: str = "none") -> None:
        self.index, self.length, self.kind = index, length or index + 2, infos
        self.resets = self.steps = self.total = 0
        self.seed: float = -1
        self.options: Any = None
        self.actions: list[Any] = []
        self.memory: dict[str, Any] = {}
        self.closed = False
        if action_space is not None:
            self.action_space = deepcopy(action_space)

    def observe(self) -> Any:
        return np.array([self.index, self.seed, self.resets, self.steps, self.total], np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = -1 if seed is None else seed
        self.options = options
        self.resets += 1
        self.steps = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.actions.append(action)  # kept, on purpose
        self.steps += 1
        self.total += 1
        ended = self.steps >= self.length
        return (
            self.observe(),
            self.index + self.steps / 8,
            ended and self.resets % 2 == 1,
            ended and self.resets % 2 == 0,
            self.info(),
        )

    def info(self) -> dict[str, Any]:
        return INFOS[self.kind](self)

    def kept(self) -> list[Any]:
        """The actions that it was given, and what they are."""
        return [(type(action).__name__, getattr(action, "dtype", None), action) for action in self.actions]

    def draw_number(self) -> float:
        return float(self.np_random.random())

    def grow(self, key: str, into: dict[str, Any]) -> dict[str, Any]:
        """Changes the argument that it is given."""
        into[key] = into.get(key, 0) + 1
        return into

    def grow_memory(self) -> dict[str, Any]:
        self.memory["calls"] = self.memory.get("calls", 0) + 1
        return self.memory

    def render(self) -> Any:
        return np.full((2, 2, 3), self.total % 256, np.uint8)

    def close(self) -> None:
        self.closed = True


class Thing:
    """A value that is not a number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return type(other) is Thing and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


def _changing(env: Facts) -> dict[str, Any]:
    if env.total % 3 == env.index % 3:
        return {}
    return {f"key{env.total % 2}": env.total, "sometimes": float(env.index)} if env.index % 2 else {"only_even": env.total}


INFOS: dict[str, Any] = {
    "none": lambda env: {},
    "int": lambda env: {"total": env.total},
    "float": lambda env: {"half": env.total / 2},
    "bool": lambda env: {"odd": env.total % 2 == 1},
    "numpy": lambda env: {"f32": np.float32(env.total), "i8": np.int8(env.index), "flag": np.bool_(env.index % 2)},
    "array": lambda env: {"row": np.arange(3, dtype=np.int16) + env.total, "image": np.full((2, 2), env.index, np.uint8)},
    "string": lambda env: {"name": f"env {env.index}", "bytes": b"x" * env.index},
    "object": lambda env: {"thing": Thing(env.total), "list": [env.index, [env.total]], "nothing": None, "pair": (1, 2)},
    "nested": lambda env: {"a": {"b": {"c": env.total, "d": np.ones(2) * env.index}, "name": "x"}, "e": env.index},
    "mixed": lambda env: {"value": env.total, "array": np.zeros(2), "thing": Thing(1), "inner": {"flag": True}},
    "changing": _changing,
    "long": lambda env: {"text": "x" * 5000 * (env.index + 1), "big": np.full(3000, env.total)},
}


class Samples(gymnasium.Env[Any, Any]):
    """Observations are drawn from any space, from the seed of the reset on."""

    def __init__(self, observation_space: Any, action_space: Any = None, length: int = 4) -> None:
        self.observation_space = deepcopy(observation_space)
        self.action_space = deepcopy(action_space) if action_space is not None else spaces.Discrete(3)
        self.length, self.steps = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observation_space.sample(), 0.5 * self.steps, self.steps >= self.length, False, {}


class Named(spaces.Space[str]):
    """A space of the user's own: names."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return f"name{self.np_random.integers(100)}"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Named()"


class Rewarded(Facts):
    """Rewards of any kind."""

    def __init__(self, index: int, kind: str) -> None:
        super().__init__(index)
        self.rewarded = kind

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        kinds: dict[str, Any] = {
            "float32": np.float32, "int": int, "array0": np.array, "bool": bool, "float16": np.float16,
        }  # fmt: skip
        return observation, kinds[self.rewarded](reward), terminated, truncated, info


class Sleeps(Facts):
    """Sleeps in its second step."""

    def step(self, action: Any) -> Any:
        if self.total == 1 and self.index == 3:
            time.sleep(30)
        return super().step(action)

    def pid(self) -> int:
        return os.getpid()
