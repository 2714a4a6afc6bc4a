"""A grid world with wind, in Python."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
FUEL = 40


class GridEnv(gymnasium.Env[Any, Any]):
    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, size: int = 8, render_mode: str | None = None) -> None:
        self.size, self.render_mode = size, render_mode
        self.observation_space = spaces.Box(0, size, (3,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.x = self.y = self.fuel = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.y = (int(number) for number in self.np_random.integers(0, self.size, 2))
        self.fuel = FUEL
        return self._look(), {}

    def _look(self) -> Any:
        return np.array([self.x, self.y, self.fuel / FUEL], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dx, dy = MOVES[action]
        if self.np_random.random() < 0.1:  # a gust
            dx, dy = -dx, -dy
        self.x = min(max(self.x + dx, 0), self.size - 1)
        self.y = min(max(self.y + dy, 0), self.size - 1)
        self.fuel -= 1
        there = self.x == self.y == self.size - 1
        reward = 1.0 if there else -0.01
        return self._look(), reward, there or self.fuel == 0, False, {"distance": abs(self.x - self.y)}
