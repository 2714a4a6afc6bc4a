"""Environments and policies for tests of ``evaluate``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[Any]


class Walk(gymnasium.Env[Array, np.int64]):
    """A random walk to one of two ends; its last info says whether it was the right one."""

    observation_space = spaces.Box(-10, 10, (3,), np.float32)
    action_space = spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at = float(self.np_random.normal())
        return self._seen(), {"at": self.at}

    def _seen(self) -> Array:
        return np.array([self.at, self.at**2, self.np_random.normal()], np.float32)

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.at += float(self.np_random.normal()) + (0.3 if action else -0.3)
        over = abs(self.at) > 4
        info = {"is_success": self.at > 0, "at": self.at, "name": "walk"} if over else {}
        return self._seen(), self.at, over, False, info

    def render(self) -> Any:
        picture = np.zeros((32, 32, 3), np.uint8)
        picture[:, int(np.clip(self.at * 3 + 16, 0, 31))] = 255
        return picture


class Keyed(gymnasium.Env[dict[str, Any], Array]):
    """Dict observations with a text in them, and a Tuple of actions."""

    observation_space = spaces.Dict(a=spaces.Box(-5, 5, (2,), np.float64), b=spaces.Discrete(3), word=spaces.Text(3))
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.left = int(self.np_random.integers(3, 9))
        return self._seen(), {}

    def _seen(self) -> dict[str, Any]:
        return {"a": self.np_random.normal(size=2), "b": self.np_random.integers(3), "word": "abc"[: 1 + self.left % 3]}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.left -= 1
        reward = float(action[0]) + float(action[1][0])
        return self._seen(), reward, self.left == 0, False, {}


class Endless(Walk):
    """No episode of it ends."""

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return (*super().step(action)[:2], False, False, {})


class Mortal(Walk):
    """Kills the helper process that first steps into its 40th step, or lets it hang.

    Args:
        marker: A file that is there once that has happened.
        hang: Whether it hangs.
    """

    def __init__(self, marker: str, hang: bool = False) -> None:
        super().__init__()
        self.marker, self.hang, self.steps = Path(marker), hang, 0

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 40 and multiprocessing.parent_process() is not None:
            try:
                self.marker.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                if self.hang:
                    time.sleep(60)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Failing(Walk):
    """Raises in the first step of every episode whose start is far to the right."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        seen = super().reset(seed=seed, options=options)
        self.start = self.at
        return seen

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self.start > 1.5:
            raise ArithmeticError("too far")
        return super().step(action)


def rightwards(observations: Array) -> Array:
    """To the right where it is at the left."""
    return (observations[:, 0] < 0.5).astype(np.int64)


def drawing(observations: Array, random: list[np.random.Generator]) -> Array:
    """Draws from the generators that it is given."""
    return np.array([int(one.random() < 0.6) for one in random])


def careless(observations: Array) -> Array:
    """Draws from numpy's generator."""
    return np.random.randint(0, 2, len(observations))


def neighbourly(observations: Array) -> Array:
    """Looks at the other rows."""
    return (observations[:, 2] < observations[:, 2].mean()).astype(np.int64)


def in_words(observations: dict[str, Any]) -> list[Any]:
    """Actions of a Tuple by observations of a Dict."""
    return [
        (int(b > 0), np.array([0.1 * len(word)], np.float32))
        for b, word in zip(observations["b"], observations["word"], strict=True)
    ]


class Remembering:
    """Counts the steps of an episode, as recurrent policies do."""

    def predict(
        self, observations: Array, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Array, Any]:
        count = 0 if state is None or episode_start[0] else state[0]
        return np.full(len(observations), int(count % 3 == 0)), (count + 1,)
