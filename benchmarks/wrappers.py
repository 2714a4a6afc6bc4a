"""What does a step cost in the wrappers that most scripts have, CleanRL's of continuous actions?

Ten levels: ``gymnasium.make``'s three, FlattenObservation, RecordEpisodeStatistics, ClipAction, NormalizeObservation, np.clip of
observations, NormalizeReward and np.clip of rewards. Blackjack has one wrapper of a user's own instead, an ``ObservationWrapper``.

Cases of one core count CPU seconds of the calling thread, which steps all rows: other programs on the machine do not count. Those
of all cores count seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from common import Contender, VectorSteps, arguments, benchmark, compared
from gymnasium import wrappers
from q_learning_rivals import blackjack
from showing import print_table, rate_rows

OURS = "reactor_rl ReactorVectorEnv"
IDS = {
    "Pendulum": ("Pendulum-v1", (16, 64)),
    "HalfCheetah": ("HalfCheetah-v5", (16, 64)),
    "LunarLanderContinuous": ("LunarLanderContinuous-v3", (16,)),
    "BipedalWalker": ("BipedalWalker-v3", (16,)),
    "Blackjack, a wrapper of one's own": ("", (16, 64)),
}
ROWS = {f"{name} x {rows}": (env_id, rows) for name, (env_id, numbers) in IDS.items() for rows in numbers}
CASES = {f"{name}, {cores}": (*of, cores) for cores in ("one core", "all cores") for name, of in ROWS.items()}


def cleanrl(env_id: str) -> Any:
    env: Any = wrappers.FlattenObservation(gymnasium.make(env_id))
    env = wrappers.RecordEpisodeStatistics(env)
    env = wrappers.ClipAction(env)
    env = wrappers.NormalizeObservation(env)
    env = wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
    env = wrappers.NormalizeReward(env, gamma=0.99)
    return wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))


def steps(envs: Any, clock: Callable[[], float]) -> Contender:
    """A vector environment and 64 batches of random actions."""
    envs.action_space.seed(0)
    random, shape = np.random.default_rng(0), envs.action_space.shape
    floats = envs.action_space.dtype == np.float32  # CleanRL's come from a normal distribution
    actions = [random.normal(size=shape).astype(np.float32) if floats else envs.action_space.sample() for _ in range(64)]
    return VectorSteps(envs, actions, clock)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from reactor_gymnasium import ReactorVectorEnv

    env_id, rows, cores = CASES[case]
    makes = [partial(cleanrl, env_id) if env_id else blackjack] * rows
    if cores == "one core":
        bare: Any = [partial(gymnasium.make, env_id)] * rows
        builders: dict[str, Callable[[], Contender]] = {
            OURS: lambda: steps(ReactorVectorEnv(makes, executor="inline"), time.thread_time),
            "reactor_rl, kernels=False": lambda: steps(ReactorVectorEnv(makes, executor="inline", kernels=False), time.thread_time),
            "SyncVectorEnv": lambda: steps(SyncVectorEnv(makes), time.thread_time),
        }
        if env_id:
            builders["SyncVectorEnv without wrappers"] = lambda: steps(SyncVectorEnv(bare), time.thread_time)
    else:
        builders = {
            OURS: lambda: steps(ReactorVectorEnv(makes), time.perf_counter),
            "AsyncVectorEnv": lambda: steps(AsyncVectorEnv(makes), time.perf_counter),
            "SyncVectorEnv": lambda: steps(SyncVectorEnv(makes), time.perf_counter),
        }
    return compared(builders, options, seconds=1.0).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    title = "CleanRL's wrappers"
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, title, panels=list(CASES)[:6])


if __name__ == "__main__":
    main()
