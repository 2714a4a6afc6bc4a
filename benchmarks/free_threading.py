"""Threads or processes, where Python has no lock? ReactorVectorEnv on a free-threaded CPython, every executor in turn.

Environments are CartPole, and CartPole with a loop of plain Python in each step: a cheap one shows what a tick costs, a heavy one
what the cores do. Needs a free-threaded interpreter, Gymnasium and psutil; nothing else.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from common import Contender, arguments, compared, cores, run_cases, write_json
from showing import print_table, rate_rows

NUM_ENVS = 64
OURS = "ReactorVectorEnv, threads"
BATCHES = 256
CASES = {f"{NUM_ENVS} CartPole": 0, f"{NUM_ENVS} environments of plain Python, long steps": 2_000}
"""Additions in a step, besides CartPole's own."""


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with a loop of plain Python in each step."""

    def __init__(self, additions: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        self.additions, self.total = additions, 0

    def step(self, action: Any) -> Any:
        total = 0
        for number in range(self.additions):
            total += number
        self.total = total
        return self.env.step(action)


def make_env(additions: int) -> gymnasium.Env[Any, Any]:
    return Slow(additions) if additions else gymnasium.make("CartPole-v1", disable_env_checker=True)


class Stepped(Contender):
    """Anything with Gymnasium's vector API."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self.batches = np.random.default_rng(0).integers(0, 2, (BATCHES, NUM_ENVS))
        venv.reset(seed=0)

    def go(self, count: int) -> float:
        for number in range(count):
            self.venv.step(self.batches[number % BATCHES])
        return count * NUM_ENVS

    def close(self) -> None:
        self.venv.close()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    from reactor_gymnasium import ReactorVectorEnv

    env_fns = [partial(make_env, CASES[name])] * NUM_ENVS

    def ours(executor: Any, workers: int) -> Contender:
        return Stepped(ReactorVectorEnv(env_fns, executor=executor, workers=workers))

    builders = {
        OURS: lambda: ours("threads", cores()),
        "ReactorVectorEnv, processes": lambda: ours("processes", cores()),
        "ReactorVectorEnv, one core": lambda: ours("inline", 1),
        "SyncVectorEnv": lambda: Stepped(gymnasium.vector.SyncVectorEnv(env_fns)),
        "AsyncVectorEnv": lambda: Stepped(gymnasium.vector.AsyncVectorEnv(env_fns, context="fork")),
    }
    return compared(builders, options).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["", "steps", "threads are", "lowest-highest"], rate_rows(found, OURS))


def main() -> None:
    options = arguments(__doc__).parse_args()
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        raise SystemExit("this Python has its lock: run it with a free-threaded one, such as python3.14t, and without PYTHON_GIL=1")
    found = run_cases(__file__, options, list(CASES), measure, show=show)
    if found is not None:
        write_json(options, "free_threading", found)


if __name__ == "__main__":
    main()
