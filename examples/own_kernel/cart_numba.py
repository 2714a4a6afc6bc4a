"""The cart's kernel, in numba."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from cart import CartEnv

from reactor_gymnasium import KernelRows, register_kernel

draw = np.random.PCG64().ctypes.next_double  # numpy's own; its address is the same for all generators


@numba.njit(error_model="numpy")
def step_all(
    pos: Any,
    speed: Any,
    last: Any,
    actions: Any,
    moving: Any,
    generators: Any,
    force: float,
    friction: float,
    rewards: Any,
    lost: Any,
) -> None:
    for i in range(len(pos)):
        if not moving[i]:
            continue
        push = min(max(np.float64(actions[i, 0]), -1.0), 1.0)
        if draw(generators[i]) < 0.25:
            push = last[i]
        last[i] = push
        acceleration = force * push - friction * speed[i] * abs(speed[i])
        speed[i] += 0.05 * acceleration
        pos[i] += 0.05 * speed[i]
        lost[i] = abs(pos[i]) > 2.0
        rewards[i] = -pos[i] * pos[i] - 0.01 * push * push - (10.0 if lost[i] else 0.0)


class NumbaCart:
    state = {"pos": float, "speed": float, "last": float}
    constants = ("force", "friction")

    def __init__(self, rows: KernelRows) -> None:
        self.rows, self.force, self.friction = rows, rows.env.force, rows.env.friction

    def step(self, actions: Any) -> None:
        r = self.rows
        step_all(r.pos, r.speed, r.last, actions, r.moving, r.states, self.force, self.friction, r.rewards, r.terminated)

    def reset(self, row: int, rng: np.random.Generator) -> None:
        r = self.rows
        r.pos[row], r.speed[row], r.last[row] = rng.uniform(-1.0, 1.0), 0.0, 0.0

    def observe(self) -> None:
        r = self.rows
        r.observations[:, 0], r.observations[:, 1] = r.pos, r.speed


register_kernel(CartEnv, NumbaCart)
