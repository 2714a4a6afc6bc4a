"""The grid world's kernel, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from grid import FUEL, MOVES, GridEnv

from reactor_gymnasium import KernelRows, register_kernel


class FastGrid:
    state = {"x": int, "y": int, "fuel": int}
    constants = ("size",)
    infos = {"distance": int}

    def __init__(self, rows: KernelRows) -> None:
        self.rows, self.most, self.moves = rows, rows.env.size - 1, np.array(MOVES)

    def step(self, actions: Any) -> None:
        r = self.rows
        gusts = (r.random() < 0.1)[:, None]
        dx, dy = np.where(gusts, -self.moves[actions], self.moves[actions]).T
        np.clip(r.x + dx, 0, self.most, out=r.x)
        np.clip(r.y + dy, 0, self.most, out=r.y)
        r.fuel -= 1
        there = (r.x == self.most) & (r.y == self.most)
        r.rewards[:] = np.where(there, 1.0, -0.01)
        np.logical_or(there, r.fuel == 0, out=r.terminated)
        np.abs(r.x - r.y, out=r.infos["distance"])

    def reset(self, row: int, rng: np.random.Generator) -> None:
        r = self.rows
        r.x[row], r.y[row] = rng.integers(0, self.most + 1, 2)
        r.fuel[row] = FUEL

    def observe(self) -> None:
        r = self.rows
        r.observations[:, 0], r.observations[:, 1], r.observations[:, 2] = r.x, r.y, r.fuel / FUEL


register_kernel(GridEnv, FastGrid)
