"""The cart's kernel in numba."""

import numba
import numpy as np
from cart import CartEnv

from reactor_gymnasium import register_kernel

draw = np.random.PCG64().ctypes.next_double  # numpy's own, which has one address for all generators


@numba.njit(error_model="numpy")
def move(pos, speed, last, actions, moving, states, force, friction, rewards, lost):
    for i in range(len(pos)):
        if not moving[i]:
            continue
        push = min(max(np.float64(actions[i, 0]), -1.0), 1.0)
        if draw(states[i]) < 0.25:
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

    def __init__(self, rows):
        self.rows, self.force, self.friction = rows, rows.env.force, rows.env.friction

    def step(self, actions):
        r = self.rows
        move(r.pos, r.speed, r.last, actions, r.moving, r.states, self.force, self.friction, r.rewards, r.terminated)

    def reset(self, row, rng):
        self.rows.pos[row], self.rows.speed[row], self.rows.last[row] = rng.uniform(-1.0, 1.0), 0.0, 0.0

    def observe(self):
        self.rows.observations[:, 0], self.rows.observations[:, 1] = self.rows.pos, self.rows.speed


register_kernel(CartEnv, NumbaCart)
