"""What do shards of a batched environment gain? ``CartPoleVectorEnv`` in shards on all cores, against the one object and EnvPool.

Gymnasium's ``CartPoleVectorEnv`` steps all its rows with numpy, on one core. ``ReactorVectorEnv.of`` steps shards of as many
rows in all, one process for each core. EnvPool steps each row in C++, with one thread or one for each core: the better counts. The
same rows, NEXT_STEP resets, limits of 500 steps; actions are drawn before anything is timed. "reactor_rl of EnvPools" is what
``ReactorVectorEnv.of`` makes of EnvPools with a thread each, in threads: what it costs where there is nothing to gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared, cores, summary
from showing import print_table, rate_rows

OURS = f"reactor_rl {cores()} shards"
CASES = {"CartPole x 1,024": 1024, "CartPole x 8,192": 8192}
SHARDS = sorted({1, 2, 4, 8, cores()})
BATCHES = 64


class Stepped(Contender):
    """A vector environment with the interface of Gymnasium's."""

    def __init__(self, venv: Any, rows: int, dtype: Any = np.int64) -> None:
        self.venv, self.rows = venv, rows
        self.actions = np.random.default_rng(0).integers(0, 2, (BATCHES, rows)).astype(dtype)
        venv.reset()

    def go(self, count: int) -> float:
        step, actions = self.venv.step, self.actions
        for k in range(count):
            step(actions[k % BATCHES])
        return count * self.rows

    def close(self) -> None:
        self.venv.close()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    rows = CASES[case]

    def ours(shards: int) -> Contender:
        from reactor_gymnasium import make_vec

        return Stepped(make_vec("CartPole-v1", rows, shards=shards, executor="processes", workers=cores()), rows)

    def alone() -> Contender:
        import gymnasium

        return Stepped(gymnasium.make_vec("CartPole-v1", rows, "vector_entry_point"), rows)

    def pool(threads: int) -> Contender:
        import envpool

        return Stepped(envpool.make_gymnasium("CartPole-v1", num_envs=rows, num_threads=threads, seed=0), rows, np.int32)

    def pools() -> Contender:
        import envpool

        from reactor_gymnasium import ReactorVectorEnv

        count = rows // cores()
        makers = [
            partial(envpool.make_gymnasium, "CartPole-v1", num_envs=count, num_threads=1, seed=count * shard)
            for shard in range(cores())
        ]
        return Stepped(ReactorVectorEnv.of(makers, executor="threads", workers=cores()), count * cores(), np.int32)

    threads = sorted({1, cores()})
    builders: dict[str, Callable[[], Contender]] = {
        **{f"reactor_rl {shards} {'shards' if shards > 1 else 'shard'}": partial(ours, shards) for shards in SHARDS},
        "CartPoleVectorEnv alone": alone,
        **{f"EnvPool, {number} {'threads' if number > 1 else 'thread'}": partial(pool, number) for number in threads},
        f"reactor_rl of {cores()} EnvPools": pools,
    }
    figures = compared(builders, options, seconds=0.6)
    found = figures.as_json(OURS)
    of_pools = {name: summary(rates)["median"] for name, rates in figures.rates.items() if name.startswith("EnvPool")}
    if of_pools:
        best = max(of_pools, key=of_pools.__getitem__)
        found["best_envpool"] = {"name": best, "ratio": figures.ratio(OURS, best)}
        if (shared := f"reactor_rl of {cores()} EnvPools") in figures.rates:
            found["best_envpool"]["shared"] = figures.ratio(shared, best)
    return found


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "rows stepped", f"{OURS} is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "Batched environments", "rows per second")


if __name__ == "__main__":
    main()
