"""How fast does a robot of one's own step, a subclass of ``MujocoEnv``, and how far is that from MuJoCo's own speed?

The robot is ``examples/robot/spider.py``: 13 bodies' worth of XML, eight motors, sensors, four infos. Ours is its class as it is in
a process for each core; its rows (``MujocoRows``) on one core and in processes; and shards of mjbatch in threads. With mjbatch, a
library that steps all rows by one call in threads of its own, the class is rewritten (``spider_mjbatch.py``). All have the bits of
``SyncVectorEnv``. The bare loop calls ``mj_step`` and nothing else: the limit of one core. mjbatch (``pip install mjbatch``) wants
one release of MuJoCo, which is then everybody's here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import Contender, VectorSteps, arguments, benchmark, compared, cores
from showing import print_table, rate_rows

sys.path.append(str(Path(__file__).parent.parent / "examples"))

OURS = "reactor_rl, rows, processes"
LIMIT = "mj_step, one core"
SIZES = (16, 64)
BATCHES = 64
EPISODE = 50
"""Steps after which the bare loop begins anew, as random actions make the robot fall."""


def make_env() -> Any:
    import gymnasium
    from robot import spider  # noqa: F401  (registers it)

    return gymnasium.make("Spider-v0", disable_env_checker=True)


def steps(envs: Any) -> Contender:
    """A vector environment and batches of random actions."""
    return VectorSteps(envs, list(np.random.default_rng(0).uniform(-1, 1, (BATCHES, envs.num_envs, 8)).astype(np.float32)))


class Bare(Contender):
    """``frame_skip`` times ``mj_step`` for each robot, and nothing else."""

    def __init__(self, number: int) -> None:
        import mujoco

        self.step = mujoco.mj_step
        self.envs = [make_env().unwrapped for _ in range(number)]
        self.actions = np.random.default_rng(0).uniform(-1, 1, (BATCHES, number, 8)).astype(np.float32)
        self.taken = 0

    def go(self, count: int) -> float:
        step, rows = self.step, [(env.model, env.data, env.data.ctrl) for env in self.envs]
        for number in range(count):
            if self.taken % EPISODE == 0:
                for seed, env in enumerate(self.envs):
                    env.reset(seed=seed)
            self.taken += 1
            for (model, data, ctrl), action in zip(rows, self.actions[number % BATCHES], strict=True):
                ctrl[:] = action
                step(model, data, 5)
        return float(count * len(self.envs))


def batch(number: int, threads: int) -> Any:
    """Rows over mjbatch; ImportError where that is not installed."""
    from robot.spider_mjbatch import SpiderBatch

    return SpiderBatch(number, threads)


def builders_of(number: int) -> dict[str, Callable[[], Contender]]:
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from reactor_gymnasium import ReactorVectorEnv

    makes = [make_env] * number
    processes: dict[str, Any] = {"executor": "processes", "workers": cores()}

    def shards() -> Contender:
        import mjbatch  # noqa: F401  (says at once that it is missing)

        parts = [partial(batch, number // cores(), 1)] * cores()
        return steps(ReactorVectorEnv.of(parts, executor="threads", workers=cores()))

    return {
        "AsyncVectorEnv": lambda: steps(AsyncVectorEnv(makes)),
        OURS: lambda: steps(ReactorVectorEnv(makes, **processes)),
        "reactor_rl, rows, one core": lambda: steps(ReactorVectorEnv(makes, executor="inline")),
        "reactor_rl, the class, processes": lambda: steps(ReactorVectorEnv(makes, kernels=False, **processes)),
        "SyncVectorEnv": lambda: steps(SyncVectorEnv(makes)),
        LIMIT: lambda: Bare(number),
        "mjbatch, 1 thread": lambda: steps(batch(number, 1)),
        **({f"mjbatch, {cores()} threads": lambda: steps(batch(number, cores()))} if cores() > 1 else {}),
        "reactor_rl of mjbatch, threads": shards,
    }


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    figures = compared(builders_of(int(case.rpartition(" x ")[2])), options)
    found = figures.as_json(OURS)
    if LIMIT in figures.rates:
        found["of_limit"] = {key: value / cores() for key, value in figures.ratio(OURS, LIMIT).items()}
        found["of_one_core"] = figures.ratio("reactor_rl, rows, one core", LIMIT)
    if "SyncVectorEnv" in figures.rates:
        found["over_sync"] = {name: figures.ratio(name, "SyncVectorEnv") for name in figures.rates if name != "SyncVectorEnv"}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    for key, words in (("of_limit", f"ours / ({cores()} x mj_step)"), ("of_one_core", "rows on one core / mj_step")):
        if key in found:
            rows.append([words, "", f"{found[key]['median']:.2f}", f"{found[key]['min']:.2f}-{found[key]['max']:.2f}"])
    for other, ratio in found.get("over_sync", {}).items():
        rows.append([f"{other} / SyncVectorEnv", "", f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"])
    print_table(name, ["contender", "steps", "ours is", "min-max"], rows)


def main() -> None:
    names = [f"Spider x {number}" for number in SIZES]
    benchmark(__file__, arguments(__doc__).parse_args(), names, measure, show, "A robot of one's own", hidden=[LIMIT])


if __name__ == "__main__":
    main()
