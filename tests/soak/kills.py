"""Kill helpers at random instants, many times over, and compare with a run that was left alone.

``python tests/soak/kills.py --kills 100`` takes every case until so many workers were replaced in it, and prints a table; a
difference or something left behind ends it with status 1. ``--only NAME`` takes one case.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from reactor_gymnasium import make_vec
from reactor_rl import RecoveryWarning
from reactor_rl.plugin import canonical, new_hash

PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 3, "restarts": 10_000}


@dataclass
class Outcome:
    """What became of one case."""

    runs: int = 0
    replaced: int = 0
    different: int = 0
    seconds: list[float] = field(default_factory=list)

    def row(self, name: str) -> str:
        times = f"{statistics.median(self.seconds):.2f} s, at most {max(self.seconds):.2f} s" if self.seconds else "no time"
        return f"{name}: {self.runs} runs, {self.replaced} workers replaced in {times}, {self.different} runs with other results"


@contextlib.contextmanager
def killing(run: Any, mean: float, draw: random.Random) -> Iterator[None]:
    """Helpers of a run are killed again and again, ``mean`` seconds apart."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(draw.expovariate(1.0 / mean)):
            with contextlib.suppress(ProcessLookupError, IndexError, ValueError):
                pid = draw.choice(run._executor._processes).pid
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def vector_env(make: Callable[..., Any], steps: int, mean: float, draw: random.Random | None) -> str:
    """A hash of everything that so many steps give; with ``draw`` helpers are killed meanwhile."""
    seen = new_hash()
    with make(**(PROCESSES if draw else {"executor": "inline"})) as envs:
        envs.action_space.seed(0)
        with killing(envs._run, mean, draw) if draw else contextlib.nullcontext():
            canonical(envs.reset(seed=0)[0], seen)
            for _ in range(steps):
                for part in envs.step(envs.action_space.sample())[:4]:
                    canonical(np.asarray(part), seen)
    return str(seen.hexdigest())


def trainer(name: str, steps: int, mean: float, draw: random.Random | None) -> str:
    import reactor_sb3

    cls = getattr(reactor_sb3, name)
    how: dict[str, Any] = {"learning_starts": 64, "rollout_steps": 16} if name == "SyncDQN" else {"n_steps": 16, "batch_size": 32}
    with cls("MlpPolicy", "CartPole-v1", n_actors=4, seed=0, **how, **(PROCESSES if draw else {"executor": "inline"})) as model:
        with killing(model.start(), mean, draw) if draw else contextlib.nullcontext():
            model.learn(steps)
        return str(model.fingerprint())


def runner(steps: int, mean: float, draw: random.Random | None) -> str:
    from mpe2 import simple_spread_v3

    from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

    how = PROCESSES if draw else {"executor": "inline"}
    with MultiAgentRunner(simple_spread_v3.parallel_env, {"all": RandomPolicy()}, num_envs=6, **how) as played:
        with killing(played._run, mean, draw) if draw else contextlib.nullcontext():
            return str(played.run(steps, seed=0, progress_bar=False).fingerprint)


def pong(**how: Any) -> Any:
    import ale_py

    gymnasium.register_envs(ale_py)
    return make_vec("ALE/Pong-v5", 16, **how)


CASES: dict[str, tuple[Callable[[float, random.Random | None], str], float]] = {
    "CartPole x 16": (partial(vector_env, partial(make_vec, "CartPole-v1", 16), 3000), 0.5),
    "HalfCheetah x 16": (partial(vector_env, partial(make_vec, "HalfCheetah-v5", 16), 1000), 1.0),
    "ALE/Pong x 16": (partial(vector_env, pong, 600), 8.0),
    "SyncDQN": (partial(trainer, "SyncDQN", 20_000), 6.0),
    "SyncPPO": (partial(trainer, "SyncPPO", 20_000), 6.0),
    "MultiAgentRunner": (partial(runner, 20_000), 6.0),
}
"""For each case how it is run, and the mean seconds between two kills: more than a replacement takes."""


def soak(name: str, kills: int) -> Outcome:
    """Run a case until so many workers were replaced. A run that ends because the same tick was hit twice does not count."""
    from reactor_rl import WorkerDiedError

    case, mean = CASES[name]
    expected, draw, outcome = case(mean, None), random.Random(0), Outcome()
    while outcome.replaced < kills:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", RecoveryWarning)
            try:
                found = case(mean, draw)
            except WorkerDiedError as error:
                if "being brought back" not in str(error) and "same tick" not in str(error):
                    raise
                continue
        told = [str(one.message) for one in said if one.category is RecoveryWarning]
        outcome.runs, outcome.replaced = outcome.runs + 1, outcome.replaced + len(told)
        outcome.different += found != expected
        outcome.seconds += [float(one.split(" s, ")[0].rpartition("after ")[2]) for one in told]
    return outcome


def left_behind() -> list[str]:
    """What of ours lies in shared memory. Other programs may have something there too."""
    mine = f"rrl-{os.getpid():x}-"
    return [one for one in (os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []) if mine in one]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, help="workers to be replaced in each case")
    parser.add_argument("--only", default="", help="part of the name of the case to be taken")
    options = parser.parse_args()
    wrong = 0
    for name in CASES:
        if options.only in name:
            begin = time.monotonic()
            outcome = soak(name, options.kills)
            wrong += outcome.different
            sys.stdout.write(f"{outcome.row(name)}, {time.monotonic() - begin:.0f} s in all\n")
            sys.stdout.flush()
    if found := left_behind():
        sys.stdout.write(f"left behind: {', '.join(found)}\n")
    return int(wrong > 0 or bool(found))


if __name__ == "__main__":
    sys.exit(main())
