"""A grid world with wind, and its kernel in numpy."""

import gymnasium
import numpy as np
from gymnasium import spaces

from reactor_gymnasium import register_kernel

MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
FUEL = 40


class GridEnv(gymnasium.Env):
    def __init__(self, size=8, render_mode=None):
        self.size, self.render_mode = size, render_mode
        self.observation_space = spaces.Box(0, size, (3,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.x = self.y = self.fuel = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y = (int(number) for number in self.np_random.integers(0, self.size, 2))
        self.fuel = FUEL
        return self._look(), {}

    def _look(self):
        return np.array([self.x, self.y, self.fuel / FUEL], np.float32)

    def step(self, action):
        dx, dy = MOVES[action]
        if self.np_random.random() < 0.1:  # a gust
            dx, dy = -dx, -dy
        self.x = min(max(self.x + dx, 0), self.size - 1)
        self.y = min(max(self.y + dy, 0), self.size - 1)
        self.fuel -= 1
        there = self.x == self.y == self.size - 1
        reward = 1.0 if there else -0.01
        info = {"distance": abs(self.x - self.y)}
        return self._look(), reward, there or self.fuel == 0, False, info


class FastGrid:
    state = {"x": int, "y": int, "fuel": int}
    constants = ("size",)
    infos = {"distance": int}

    def __init__(self, rows):
        self.rows, self.most, self.moves = rows, rows.env.size - 1, np.array(MOVES)

    def step(self, actions):
        r = self.rows
        gusts = r.random() < 0.1
        dx, dy = np.where(gusts[:, None], -self.moves[actions], self.moves[actions]).T
        np.clip(r.x + dx, 0, self.most, out=r.x)
        np.clip(r.y + dy, 0, self.most, out=r.y)
        r.fuel -= 1
        there = (r.x == self.most) & (r.y == self.most)
        r.rewards[:] = np.where(there, 1.0, -0.01)
        np.logical_or(there, r.fuel == 0, out=r.terminated)
        np.abs(r.x - r.y, out=r.infos["distance"])

    def reset(self, row, rng):
        self.rows.x[row], self.rows.y[row] = rng.integers(0, self.most + 1, 2)
        self.rows.fuel[row] = FUEL

    def observe(self):
        o, r = self.rows.observations, self.rows
        o[:, 0], o[:, 1], o[:, 2] = r.x, r.y, r.fuel / FUEL


register_kernel(GridEnv, FastGrid)
