"""Real Ctrl-C for the public classes: ``python tests/ctrl_c.py 200`` sends so many, evenly over the classes, and says what came.

A process does what people do, gets SIGINT at a random instant, closes, tells how long that took, and begins again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_BEGIN = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, gymnasium as gym
for _ in sys.argv[1:]:
"""
_END = """
    print("ready", flush=True)
    try:
        while True:
            go()
    except KeyboardInterrupt:
        pass
    began = time.monotonic()
    thing.close()
    print(time.monotonic() - began, flush=True)
"""
CLASSES = {
    "ReactorVectorEnv": """
from reactor_gymnasium import ReactorVectorEnv
thing = ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 8, executor="processes", workers=4)
thing.reset(seed=0)
actions = np.zeros(8, np.int64)
def go(): thing.step(actions)
""",
    "ReactorVectorEnv, batches": """
from reactor_gymnasium import ReactorVectorEnv
thing = ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 8, executor="processes", workers=3, batch_size=4)
thing.reset(seed=0)
actions = np.zeros(4, np.int64)
thing.send(actions)
def go():
    thing.recv()
    thing.send(actions)
""",
    "ReactorVecEnv": """
from reactor_sb3 import ReactorVecEnv
thing = ReactorVecEnv([lambda: gym.make("CartPole-v1")] * 8, executor="processes", workers=4)
thing.reset()
actions = np.zeros(8, np.int64)
def go(): thing.step(actions)
""",
    "SyncDQN": """
from reactor_sb3 import SyncDQN
thing = SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, workers=3, executor="processes", seed=0, learning_starts=64)
thing.start()
def go(): thing.learn(10**9)
""",
    "MultiAgentRunner": """
from pettingzoo.classic import rps_v2
from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
thing = MultiAgentRunner(rps_v2.parallel_env, {"all": RandomPolicy()}, num_envs=8, executor="processes", workers=4)
def go(): thing.run(steps=10**9, seed=0, progress_bar=False)
""",
}
PATIENCE = 20.0
"""Seconds for each interrupt, and for the start: after that, ``close()`` has not returned."""


@dataclass(frozen=True)
class Interrupted:
    """What came of a process that got Ctrl-C, again and again.

    Attributes:
        kind: Which class.
        seconds: That each ``close()`` took.
        ended: Whether it went on to the end, in time and without an error.
        left: Processes of the group that were still there, and shared memory with its name.
        errors: What was written to standard error.
    """

    kind: str
    seconds: list[float]
    ended: bool
    left: list[str]
    errors: str


def interrupt(kind: str, delays: Sequence[float]) -> Interrupted:
    """Send SIGINT to a process that uses a class, so many seconds after it has begun, and after it has begun again."""
    code = _BEGIN + textwrap.indent(CLASSES[kind], "    ") + _END
    command = [sys.executable, "-c", code, *map(str, delays)]
    seconds = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        # Whoever does not answer is killed, and its output ends.
        patience = threading.Timer(PATIENCE * (1 + len(delays)), os.killpg, (process.pid, signal.SIGKILL))
        patience.start()
        for delay in delays:
            if process.stdout.readline() != "ready\n":
                break
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGINT)
            if not (said := process.stdout.readline()):
                break
            seconds.append(float(said))
        ended = process.wait() == 0 and len(seconds) == len(delays)
        patience.cancel()
        errors.seek(0)
        return Interrupted(kind, seconds, ended, left_by(process.pid), errors.read())


def left_by(group: int) -> list[str]:
    """What a session leaves behind; its services get a moment to notice that it has ended."""
    end = time.monotonic() + 10.0
    while True:
        left = [name for name in os.listdir("/dev/shm") if f"rrl-{group:x}-" in name]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(session) == group and state not in "ZX":
                left.append(pid)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)


def main(total: int) -> int:
    """Interrupt all classes, ``total`` times together, and print a line for each."""
    rng = random.Random(0)
    failed = 0
    for kind in CLASSES:
        found = interrupt(kind, [0.05 + 0.4 * rng.random() for _ in range(-(-total // len(CLASSES)))])
        slow = [seconds for seconds in found.seconds if seconds > 1.0]
        bad = bool(slow or found.left or found.errors or not found.ended)
        failed += bad
        line = {
            "class": kind,
            "interrupts": len(found.seconds),
            "slow": len(slow),
            "median_s": statistics.median(found.seconds) if found.seconds else None,
            "longest_s": max(found.seconds, default=None),
        }
        sys.stdout.write("\n".join([json.dumps(line), *([str(found)] if bad else []), ""]))
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)))
