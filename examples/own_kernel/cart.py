"""A cart that is to be parked, with a motor that sticks, and its kernel in C."""

from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from reactor_gymnasium import CRows, register_kernel


class CartEnv(gymnasium.Env):
    def __init__(self, force=2.0, friction=0.3, render_mode=None):
        self.force, self.friction, self.render_mode = force, friction, render_mode
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.pos, self.speed, self.last = 0.0, 0.0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.speed, self.last = float(self.np_random.uniform(-1.0, 1.0)), 0.0, 0.0
        return self._look(), {}

    def _look(self):
        return np.array([self.pos, self.speed], np.float32)

    def step(self, action):
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


class FastCart(CRows):
    library, prefix = Path(__file__).parent / "libcart.so", "cart"
    state = {"pos": float, "speed": float, "last": float}
    constants = ("force", "friction")


register_kernel(CartEnv, FastCart)
