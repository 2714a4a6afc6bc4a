"""Times a throw-away environment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from reactor_gymnasium.environments.infos import merge, pack, together
from reactor_rl.plugin import dumps, global_random_state, loads

__all__ = ["drawn", "info_cost", "median_step", "step_cost"]

STEPS, SECONDS = 20, 5e-3
FEWEST, LONGEST = 5, 0.1
INFOS, TIMES = 8, 5
"""Infos that are timed together, and how often."""


def step_cost(env: gymnasium.Env[Any, Any]) -> float | None:
    """Median seconds of a step of an environment that is thrown away afterwards; see :func:`median_step`."""

    def step(action: Any) -> bool:
        *_, terminated, truncated, _ = env.step(action)
        return bool(terminated or truncated)

    return median_step(lambda seed: env.reset(seed=seed), drawn(env.action_space).__next__, step)


def median_step(reset: Callable[[int | None], object], sample: Callable[[], Any], step: Callable[[Any], bool]) -> float | None:
    """Median seconds of a step of something that is thrown away afterwards; ``None`` if it will not be stepped.

    It is reset and takes at most 20 random steps: no more after 5 ms if there are five of them, which a machine that is busy with
    other things may take that long for, and in any case no more after 0.1 s. Global random generators are put back.

    Args:
        reset: Begins an episode, with a seed or without.
        sample: Draws an action; not timed.
        step: Takes it, and returns whether the episode is over.
    """
    times: list[float] = []
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        reset(0)
        began = time.perf_counter()
        for _ in range(STEPS):
            action = sample()
            begin = time.perf_counter()
            over = step(action)
            end = time.perf_counter()
            times.append(end - begin)
            if over:
                reset(None)
            if end - began > (SECONDS if len(times) >= FEWEST else LONGEST):
                break
    return sorted(times)[len(times) // 2] if times else None


def info_cost(env: gymnasium.Env[Any, Any]) -> float:
    """How many seconds longer the infos of an environment take from a helper than in the caller's own process.

    Args:
        env: One that is thrown away afterwards. It is reset and takes a step.
    """
    with global_random_state(), contextlib.suppress(Exception, SystemExit):
        env.reset(seed=0)
        *_, info = env.step(next(drawn(env.action_space)))
        if info:
            infos, vector = dict.fromkeys(range(INFOS), info), VectorEnv[Any, Any, Any]()
            vector.num_envs = INFOS
            there = _shortest(lambda: merge([loads(dumps(pack(0, {}, infos)))], vector))
            return max(0.0, there - _shortest(lambda: together(infos, INFOS))) / INFOS
    return 0.0


def _shortest(call: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def drawn(space: spaces.Space[Any]) -> Iterator[Any]:
    """Random actions, the same every time, from a copy that is made when the first one is asked for."""
    space = deepcopy(space)
    space.seed(0)
    while True:
        yield space.sample()
