"""Times a throw-away environment."""

from __future__ import annotations

import contextlib
import time
from copy import deepcopy
from typing import Any

import gymnasium

from reactor_rl.plugin import global_random_state

__all__ = ["step_cost"]

STEPS, SECONDS = 20, 5e-3
FEWEST, LONGEST = 5, 0.1


def step_cost(env: gymnasium.Env[Any, Any]) -> float | None:
    """Median seconds of a step of an environment that is thrown away afterwards; ``None`` if it will not be stepped.

    It is reset and takes at most 20 random steps: no more after 5 ms if there are five of them, which a machine that is busy with
    other things may take that long for, and in any case no more after 0.1 s. Global random generators are put back.
    """
    times = []
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        space = deepcopy(env.action_space)
        space.seed(0)
        env.reset(seed=0)
        began = time.perf_counter()
        for _ in range(STEPS):
            action = space.sample()
            begin = time.perf_counter()
            *_, terminated, truncated, _ = env.step(action)
            end = time.perf_counter()
            times.append(end - begin)
            if terminated or truncated:
                env.reset()
            if end - began > (SECONDS if len(times) >= FEWEST else LONGEST):
                break
    return sorted(times)[len(times) // 2] if times else None
