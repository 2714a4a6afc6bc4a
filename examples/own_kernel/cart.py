"""A cart that is to be parked, with a motor that sticks, in Python."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class CartEnv(gymnasium.Env[Any, Any]):
    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, force: float = 2.0, friction: float = 0.3, render_mode: str | None = None) -> None:
        self.force, self.friction, self.render_mode = force, friction, render_mode
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.pos, self.speed, self.last = 0.0, 0.0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.pos, self.speed, self.last = float(self.np_random.uniform(-1.0, 1.0)), 0.0, 0.0
        return self._look(), {}

    def _look(self) -> Any:
        return np.array([self.pos, self.speed], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push = min(max(float(action[0]), -1.0), 1.0)
        if self.np_random.random() < 0.25:
            push = self.last  # it sticks
        self.last = push
        acceleration = self.force * push - self.friction * self.speed * abs(self.speed)
        self.speed += 0.05 * acceleration
        self.pos += 0.05 * self.speed
        lost = abs(self.pos) > 2.0
        reward = -self.pos * self.pos - 0.01 * push * push - (10.0 if lost else 0.0)
        return self._look(), reward, lost, False, {}
