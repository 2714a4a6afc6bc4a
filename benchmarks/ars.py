"""How many steps a second does augmented random search take, beside sb3-contrib's ARS, alone and with its processes?

``LinearPolicy`` and contrib's defaults: 16 candidates of an episode each in an update. Episodes of CartPole become longer while it
is learned, those of the others have one length. ``AsyncEval`` is contrib's own way to evaluate candidates in processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Contender, arguments, benchmark, compared, cores
from showing import print_table, rate_rows

CASES = {"CartPole": "CartPole-v1", "Pendulum": "Pendulum-v1", "HalfCheetah": "HalfCheetah-v5"}
OURS = "reactor_rl"


class Learning(Contender):
    """A model that learns, update by update."""

    model: Any
    how: dict[str, Any] = {}

    def go(self, count: int) -> float:
        before = self.model.num_timesteps
        for _ in range(count):
            self.model.learn(1, reset_num_timesteps=False, log_interval=None, **self.how)
        return float(self.model.num_timesteps - before)


class Ours(Learning):
    """``SyncARS``."""

    def __init__(self, env: str, **how: Any) -> None:
        from reactor_sb3.algorithms.sync_ars import SyncARS

        self.model = SyncARS("LinearPolicy", env, seed=0, **how)

    def close(self) -> None:
        self.model.close()


class Contrib(Learning):
    """sb3-contrib's ``ARS``.

    Args:
        env: The environment's id.
        processes: How many evaluate candidates; 0 for the calling one alone.
    """

    def __init__(self, env: str, processes: int = 0) -> None:
        from sb3_contrib import ARS
        from sb3_contrib.common.vec_env import AsyncEval
        from stable_baselines3.common.env_util import make_vec_env

        self.model, self.processes = ARS("LinearPolicy", env, seed=0), None
        if processes:
            made = [partial(make_vec_env, env, n_envs=1, seed=number) for number in range(processes)]
            self.processes = AsyncEval(made, self.model.policy)
            close, self.processes.close = self.processes.close, lambda: None  # each learn() would end them
            self.end, self.how = close, {"async_eval": self.processes}

    def close(self) -> None:
        if self.processes is not None:
            self.end()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    env = CASES[case]
    builders: dict[str, Callable[[], Contender]] = {
        OURS: lambda: Ours(env),
        "reactor_rl, one core": lambda: Ours(env, executor="inline"),
        "sb3-contrib": lambda: Contrib(env),
        f"sb3-contrib, {cores()} processes": lambda: Contrib(env, cores()),
    }
    return compared(builders, options, seconds=3.0, warm_up=3.0).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "Augmented random search")


if __name__ == "__main__":
    main()
