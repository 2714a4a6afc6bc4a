"""Times a throw-away environment."""

from __future__ import annotations

import contextlib
import time
from copy import deepcopy
from typing import Any

import gymnasium

from reactor_rl.autotune import global_random_state

__all__ = ["step_cost"]

STEPS = 20
SECONDS = 5e-3


def step_cost(env: gymnasium.Env[Any, Any]) -> float | None:
    """Median seconds of a step of an environment that is thrown away afterwards; ``None`` if it will not be stepped.

    It is reset and takes at most 20 random steps, no more after 5 ms. Global random generators are put back.
    """
    times = []
    with global_random_state(), contextlib.suppress(Exception):
        space = deepcopy(env.action_space)
        space.seed(0)
        env.reset(seed=0)
        until = time.perf_counter() + SECONDS
        for _ in range(STEPS):
            action = space.sample()
            begin = time.perf_counter()
            *_, terminated, truncated, _ = env.step(action)
            end = time.perf_counter()
            times.append(end - begin)
            if terminated or truncated:
                env.reset()
            if end > until:
                break
    return sorted(times)[len(times) // 2] if times else None
