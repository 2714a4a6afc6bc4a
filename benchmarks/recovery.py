"""What does it cost that workers can be replaced, and how long does replacing one take?

A step with ``restarts=`` beside one without, interleaved: of vector environments, of trainers with their share of learning, of a
runner. And how long a step takes in which a helper is killed, from the kill to the results of that step, with the trajectory
compared to an undisturbed one's; ``kills.py`` compares whole runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared, rounds_of, summary
from showing import print_table, rate_rows

from reactor_gymnasium import AtariVectorEnv, make_vec

NEVER, OURS = "reactor_rl, restarts=0", "reactor_rl, restarts=1000"
STEPS = 1000
ENVIRONMENTS = {"CartPole-v1": ("CartPole-v1", 64), "16 CartPole-v1": ("CartPole-v1", 16), "HalfCheetah-v5": ("HalfCheetah-v5", 16)}
TRAINERS = {"SyncDQN": "DQN, 8 CartPole", "SyncPPO": "PPO, 16 CartPole"}
PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 2}


def make(name: str, **how: Any) -> Any:
    if name == "Pong":
        return AtariVectorEnv("pong", 16, **PROCESSES, **how)
    return make_vec(*ENVIRONMENTS[name], **PROCESSES, **how)


class Steps(Contender):
    """Steps with actions drawn beforehand."""

    def __init__(self, name: str, restarts: int) -> None:
        self.envs = make(name, restarts=restarts)
        self.envs.action_space.seed(0)
        self.actions = [self.envs.action_space.sample() for _ in range(100)]
        self.envs.reset(seed=0)

    def go(self, count: int) -> float:
        for number in range(count):
            self.envs.step(self.actions[number % 100])
        return count

    def close(self) -> None:
        self.envs.close()


def costing(name: str, restarts: int) -> Contender:
    """What is timed."""
    if name in TRAINERS:
        from training import CASES, Trains, ours_of

        case = CASES[TRAINERS[name]]()
        return Trains(partial(ours_of, case, restarts=restarts, **PROCESSES), case)
    if name == "MultiAgentRunner":
        from multi_agent import Ours, Work

        return Ours(Work("simple_spread", 10, 16), restarts=restarts, **PROCESSES)
    return Steps(name, restarts)


def trajectory(envs: Any, steps: int, kills: int) -> tuple[str, list[float]]:
    """A hash of everything that is seen, and the seconds of each step in which a helper was killed."""
    seen, seconds, draw = hashlib.blake2b(), [], random.Random(0)
    deadly = set(draw.sample(range(steps), kills))
    envs.action_space.seed(1)
    seen.update(envs.reset(seed=1)[0].tobytes())
    for step in range(steps):
        actions, begin = envs.action_space.sample(), time.perf_counter()
        if step in deadly:
            os.kill(draw.choice(envs._run._executor._processes).pid, signal.SIGKILL)
        for part in envs.step(actions)[:4]:
            seen.update(np.ascontiguousarray(part).tobytes())
        if step in deadly:
            seconds.append(time.perf_counter() - begin)
    return seen.hexdigest(), seconds


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    what, name = case.split(", ")
    if what == "cost":
        builders = {NEVER: partial(costing, name, 0), OURS: partial(costing, name, 1000)}
        figures = compared(builders, options, rounds=rounds_of(options))
        return figures.as_json(OURS)
    steps, kills = (100, 4) if options.quick else (STEPS, 100)
    with make(name) as envs:
        expected, _ = trajectory(envs, steps, 0)
    with warnings.catch_warnings(), make(name, restarts=1000) as envs:
        warnings.simplefilter("ignore")
        found, seconds = trajectory(envs, steps, kills)
    return {"kills": kills, "steps": steps, "identical": found == expected, "seconds": summary(seconds)}


def show(name: str, found: dict[str, Any]) -> None:
    if "rates" in found:
        print_table(name, ["contender", "per step", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))
        return
    median, most = found["seconds"]["median"], found["seconds"]["max"]
    same = "identical" if found["identical"] else "DIFFERENT"
    print(f"{name}: {found['kills']} kills in {found['steps']} steps, {same}; recovered in {median:.2f} s, at most {most:.2f} s")


def main() -> None:
    parser = arguments(__doc__, rounds=21)
    costs, recoveries = [*ENVIRONMENTS, "Pong", *TRAINERS, "MultiAgentRunner"], ["CartPole-v1", "HalfCheetah-v5", "Pong"]
    names = [*(f"cost, {name}" for name in costs), *(f"recovery, {name}" for name in recoveries)]
    label = "steps per second, longer is better"
    benchmark(__file__, parser.parse_args(), names, measure, show, "Replaceable workers", label)


if __name__ == "__main__":
    main()
