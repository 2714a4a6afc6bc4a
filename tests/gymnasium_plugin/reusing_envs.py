"""Environments that use their arrays and dicts again, share them with others of their class, and keep or change their actions."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

HABITS = (
    "own observation", "class observation", "own parts", "view", "own reward", "class reward", "reward of one element", "flags",
    "own info", "class info", "keeps actions", "changes actions",
)  # fmt: skip
"""What such an environment does. With or without them, it gives the same numbers to whoever looks at once."""
SPACES: dict[str, gymnasium.Space[Any]] = {
    "small": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "large": spaces.Box(-np.inf, np.inf, (300, 3), np.float32),
    "dict": spaces.Dict(a=spaces.Box(-np.inf, np.inf, (3,), np.float32), b=spaces.Box(-np.inf, np.inf, (2, 2), np.float32)),
}
ACTIONS: dict[str, gymnasium.Space[Any]] = {
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "choices": spaces.MultiDiscrete([3, 4]),
    "choice": spaces.Discrete(3),
}


class Reusing(gymnasium.Env[Any, Any]):
    """A random walk whose rewards tell whether the actions that it has kept are still those that it was given.

    Args:
        habits: Which of :data:`HABITS` it has.
        space: Which of :data:`SPACES`.
        actions: Which of :data:`ACTIONS`.
        length: Steps of an episode.
    """

    shared: ClassVar[dict[Any, Any]] = {}
    """What all environments of a process write into."""

    def __init__(self, habits: tuple[str, ...] = (), space: str = "small", actions: str = "box", length: int = 9) -> None:
        self.habits, self.space, self.length = frozenset(habits), space, length
        self.observation_space, self.action_space = SPACES[space], ACTIONS[actions]
        self.mine: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def _place(self, what: str, key: Any, make: Any) -> Any:
        """The array or dict that is used again."""
        owner = self.shared if f"class {what}" in self.habits else self.mine
        return owner.setdefault((self.space, what, key), make())

    def _observation(self) -> Any:
        parts = self.observation_space.spaces if isinstance(self.observation_space, spaces.Dict) else {"": self.observation_space}
        given = {}
        for key, space in parts.items():
            fresh = self.np_random.standard_normal(space.shape).astype(np.float32)
            if "view" in self.habits:
                rows = self._place("observation", key, lambda shape=space.shape: np.zeros((2, *shape), np.float32))
                fresh, rows[0] = rows[0], fresh
            elif self.habits & {"own observation", "class observation", "own parts"}:
                kept = self._place("observation", key, lambda shape=space.shape: np.zeros(shape, np.float32))
                kept[...] = fresh
                fresh = kept
            given[key] = fresh
        if "" in given:
            return given[""]
        if self.habits & {"own observation", "class observation"}:
            kept = self._place("observation", "all", dict)
            kept.update(given)
            return kept
        return given

    def _info(self, **values: Any) -> dict[str, Any]:
        info = {"t": self.t, "place": np.full(2, float(self.t)), "nested": {"t": self.t}, **values}
        if not self.habits & {"own info", "class info"}:
            return info
        kept: dict[str, Any] = self._place("info", "all", lambda: {"place": np.zeros(2)})
        for key in kept.keys() - info.keys():
            del kept[key]
        for key, value in info.items():
            if isinstance(value, dict):
                kept[key] = self._place("info", key, dict)
                kept[key].update(value)
            elif isinstance(value, np.ndarray):
                kept[key][...] = value
            else:
                kept[key] = value
        return kept

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.kept: list[Any] = []
        self.copies: list[Any] = []
        self.total = 0.0
        return self._observation(), self._info(drawn=float(self.np_random.random()))

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.t += 1
        changed = sum(not np.array_equal(kept, copy) for kept, copy in zip(self.kept, self.copies, strict=True))
        reward: Any = float(np.sum(action)) + self.np_random.normal() + 1000 * changed
        self.total += reward
        if "keeps actions" in self.habits:
            self.kept.append(action)
            self.copies.append(np.array(action))
        elif "changes actions" in self.habits and isinstance(action, np.ndarray):
            action[...] = 0
        if self.habits & {"own reward", "class reward", "reward of one element"}:
            shape = (1,) if "reward of one element" in self.habits else ()
            kept = self._place("reward", shape, lambda: np.zeros(shape))
            kept[...] = reward
            reward = kept
        ended: Any = self.t >= self.length
        never: Any = False
        if "flags" in self.habits:
            flags = self._place("flags", "all", lambda: (np.zeros((), np.bool_), np.zeros((), np.bool_)))
            flags[0][...], flags[1][...] = ended, never
            ended, never = flags
        more = {}
        if self.t >= self.length:
            more = {"episode": {"r": self.total, "l": self.t, "t": 0.5}}
        return self._observation(), reward, ended, never, self._info(**more)
