"""A robot of one's own in 16 copies, stepped by its class in Python and by its rows: the same bits, in less time.

    python examples/step_a_robot.py --steps 2000

`examples/robot/spider.py` is the robot, `examples/robot/spider_rows.py` its rows. Needs the extra `[gymnasium]` with MuJoCo.
"""

import argparse
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

from reactor_gymnasium import ReactorVectorEnv

sys.path.insert(0, str(Path(__file__).parent))  # wherever it is run from

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200, help="of each copy")
parser.add_argument("--copies", type=int, default=16)
parser.add_argument("--workers", type=int, default=1, help="changes the time that it takes, and nothing else")
options = parser.parse_args()


def make() -> gymnasium.Env:
    """One of them, in whatever process."""
    from robot import spider  # noqa: F401  (registers it, and its rows)

    return gymnasium.make("Spider-v0")


sums = []
for kernels in (False, True):
    with ReactorVectorEnv([make] * options.copies, workers=options.workers, kernels=kernels) as envs:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        total, begin = np.zeros(options.copies), time.perf_counter()
        for _ in range(options.steps):
            observations, rewards, *_ = envs.step(envs.action_space.sample())
            total += rewards + observations.sum(axis=1)
        took = (time.perf_counter() - begin) / options.steps / options.copies
        print(f"{took * 1e6:.0f} us a step: {envs}")
        sums.append(total.tobytes())
print(f"the same bits: {sums[0] == sums[1]}")
