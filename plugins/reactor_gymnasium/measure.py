"""Times a throw-away environment, then chooses executor and number of workers. Never changes a result."""

from __future__ import annotations

import contextlib
import sys
import time
from copy import deepcopy
from typing import Any

import gymnasium

from reactor_rl.autotune import SYNC_COST, Choice, global_random_state

__all__ = ["choose", "step_cost"]

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


def choose(env: gymnasium.Env[Any, Any], num_envs: int, workers: int, executor: Any, caller_works: bool) -> Choice:
    """Choose for ``num_envs`` copies of an environment and at most ``workers`` workers.

    With the GIL, threads are only used on request: Python environments hold it.
    """
    if executor not in ("auto", "inline", "threads", "processes"):
        raise ValueError(f"executor={executor!r}: choose 'auto', 'inline', 'threads' or 'processes'")
    if executor == "inline":
        return Choice("inline", 1, None, "")
    if executor != "auto":
        return Choice(executor, workers, None, "")
    if workers == 1 and caller_works:
        return Choice("inline", 1, None, "one worker")
    parallel: Any = "processes" if getattr(sys, "_is_gil_enabled", lambda: True)() else "threads"
    cost = step_cost(env)
    if cost is None:
        return Choice(parallel, workers, None, "the environment could not be timed")
    alone, shared = num_envs * cost, -(-num_envs // workers) * cost + SYNC_COST
    step = f"a step takes {cost * 1e6:.1f} us"
    if caller_works and shared > 0.9 * alone:
        return Choice("inline", 1, None, f"{step}, too little to share")
    return Choice(parallel, workers, None, step)
