"""An environment whose step is a matrix product: its sums depend on how many threads compute them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["Linear"]

SIZE = 200
COLUMNS = 60


class Linear(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """``x <- tanh(A x)`` for a fixed ``A``, (200, 200) float32, and ``x``, (200, 60); one column is seen, the sum is the reward."""

    observation_space = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.a = (np.random.default_rng(0).standard_normal((SIZE, SIZE)) / np.sqrt(SIZE)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw ``x`` anew."""
        super().reset(seed=seed)
        self.x = self.np_random.standard_normal((SIZE, COLUMNS)).astype(np.float32)
        return self.x[:, 0], {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One product; action 1 negates it."""
        self.x = np.tanh(self.a @ self.x) * np.float32(1 - 2 * int(action))
        return self.x[:, 0], float(self.x.sum()), False, False, {}
