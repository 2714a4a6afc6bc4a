"""Runs whose helpers, or whose own process, are killed at random instants: some in tests, hundreds by ``benchmarks/kills.py``."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from reactor_gymnasium import make_vec
from reactor_rl import RecoveryWarning, WorkerDiedError
from reactor_rl.plugin import canonical, new_hash

PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 3}
INLINE: dict[str, Any] = {"executor": "inline"}
LATEST = 30.0
"""Seconds after which processes that have not ended do not end by themselves."""

Meanwhile = Callable[[Any], AbstractContextManager[Any]]
"""What is done to a run while it goes on."""
Case = Callable[[dict[str, Any], Meanwhile], str]
"""A hash of what came of a run: given how it is run, and what is done to it."""


# ---------------------------------------------------------------------- what is run


def vector_env(make: Callable[..., Any], steps: int, how: dict[str, Any], meanwhile: Meanwhile) -> str:
    """A hash of everything that so many steps give."""
    seen = new_hash()
    with make(**how) as envs:
        envs.action_space.seed(0)
        with meanwhile(envs._run):
            canonical(envs.reset(seed=0)[0], seen)
            for _ in range(steps):
                for part in envs.step(envs.action_space.sample())[:4]:
                    canonical(np.asarray(part), seen)
    return str(seen.hexdigest())


def trainer(name: str, env_id: str, steps: int, how: dict[str, Any], meanwhile: Meanwhile, **options: Any) -> str:
    """The fingerprint of all weights after so many steps."""
    import reactor_sb3

    cls = getattr(reactor_sb3, name)
    with cls("MlpPolicy", env_id, n_actors=4, seed=0, **options, **how) as model:
        with meanwhile(model.start()):
            model.learn(steps)
        return str(model.fingerprint())


def runner(steps: int, how: dict[str, Any], meanwhile: Meanwhile) -> str:
    from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

    with MultiAgentRunner(_spread, {"all": RandomPolicy()}, num_envs=6, **how) as played, meanwhile(played._run):
        return str(played.run(steps, seed=0, progress_bar=False).fingerprint)


def _spread() -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env()


def _pong(**how: Any) -> Any:
    import ale_py

    gymnasium.register_envs(ale_py)
    return make_vec("ALE/Pong-v5", 16, **how)


def _agents(**how: Any) -> Any:
    from reactor_pettingzoo import ParallelVectorEnv

    return ParallelVectorEnv(_spread, 6, **how)


DQN = {"learning_starts": 64, "train_freq": 16}
PPO = {"n_steps": 16, "batch_size": 32}
SAC = {"learning_starts": 64, "policy_kwargs": {"net_arch": [32]}}
CASES: dict[str, Case] = {
    "CartPole x 16": partial(vector_env, partial(make_vec, "CartPole-v1", 16), 2000),
    "HalfCheetah x 16": partial(vector_env, partial(make_vec, "HalfCheetah-v5", 16), 500),
    "ALE/Pong x 16": partial(vector_env, _pong, 200),
    "CartPole, 3 shards": partial(vector_env, partial(make_vec, "CartPole-v1", 192, shards=3), 3000),
    "ParallelVectorEnv x 6": partial(vector_env, _agents, 600),
    "SyncDQN": partial(trainer, "SyncDQN", "CartPole-v1", 5000, **DQN),
    "SyncPPO": partial(trainer, "SyncPPO", "CartPole-v1", 5000, **PPO),
    "SyncSAC": partial(trainer, "SyncSAC", "Pendulum-v1", 600, **SAC),
    "MultiAgentRunner x 6": partial(runner, 6000),
}


# ---------------------------------------------------------------------- helpers


@dataclass
class Outcome:
    """What became of one case.

    Attributes:
        kills: How many processes were killed.
        runs: In how many runs.
        different: Runs with other results than one that was left alone; or that have left something, or not reported a kill.
        twice: Runs that ended because the same tick was struck twice, as it should be; they are not among the others.
        seconds: For each kill, until it was made good, or reported, or everything was gone.
    """

    kills: int = 0
    runs: int = 0
    different: int = 0
    twice: int = 0
    seconds: list[float] = field(default_factory=list)


@contextlib.contextmanager
def killing(draw: random.Random, mean: float, replaced: Callable[[], int], run: Any) -> Iterator[None]:
    """Helpers of a run are killed again and again, ``mean`` seconds after the tick in which the last one was replaced."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(draw.expovariate(1.0 / mean)):
            before = replaced()
            if kill_one(draw, run):
                while replaced() == before and not over.wait(0.01):
                    pass
                struck = run._helpers.loop.time  # a tick that kills twice is an error
                while run._helpers.loop.time == struck and not over.wait(0.01):
                    pass

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def kill_one(draw: random.Random, run: Any) -> bool:
    """Kill a helper. Returns whether there was one."""
    with contextlib.suppress(ProcessLookupError, IndexError, ValueError):
        pid = draw.choice(run._executor._processes).pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def helpers_replaced(case: Case, kills: int, mean: float = 0.4, ends: float = math.inf) -> Outcome:
    """Kill helpers until so many were replaced, or until a time, and compare with a run that was left alone."""
    expected, draw, outcome = case(INLINE, contextlib.nullcontext), random.Random(0), Outcome()
    while outcome.kills < kills and time.time() < ends:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", RecoveryWarning)
            try:
                found = case({**PROCESSES, "restarts": 10_000}, partial(killing, draw, mean, said.__len__))
            except WorkerDiedError as error:
                if "being brought back" not in str(error) and "same tick" not in str(error):
                    raise
                outcome.twice += 1
                continue
        told = [str(one.message) for one in said if one.category is RecoveryWarning]
        outcome.kills, outcome.runs = outcome.kills + len(told), outcome.runs + 1
        outcome.different += found != expected
        outcome.seconds += [float(one.split(" s, ")[0].rpartition("after ")[2]) for one in told]
    return outcome


def helpers_reported(case: Case, kills: int, latest: float = 0.5, ends: float = math.inf) -> Outcome:
    """Kill one helper in each of so many runs without ``restarts``. Each is to be reported."""
    draw, outcome = random.Random(0), Outcome()
    while outcome.kills < kills and time.time() < ends:
        killed_at: list[float] = []

        @contextlib.contextmanager
        def meanwhile(run: Any, killed_at: list[float] = killed_at) -> Iterator[None]:
            def kill() -> None:
                if kill_one(draw, run):
                    killed_at.append(time.monotonic())

            timer = threading.Timer(draw.uniform(0.0, latest), kill)
            timer.start()
            try:
                yield
            except WorkerDiedError:
                outcome.seconds.append(time.monotonic() - killed_at[0])
                raise
            finally:
                timer.cancel()
                timer.join()

        with contextlib.suppress(WorkerDiedError):
            case(PROCESSES, meanwhile)
        outcome.runs += 1
        outcome.kills += len(killed_at)
    outcome.different = outcome.kills - len(outcome.seconds)  # a kill behind the last step goes without notice
    return outcome


# ---------------------------------------------------------------------- the process that has helpers


def parents_gone(name: str, kills: int, latest: float = 1.0, ends: float = math.inf) -> Outcome:
    """Kill the process that runs a case; its helpers are to end by themselves, and to leave nothing."""
    draw, outcome = random.Random(0), Outcome()
    while outcome.kills < kills and time.time() < ends:
        command = [sys.executable, __file__, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
            assert child.stdout is not None
            try:
                if not child.stdout.readline():
                    raise RuntimeError(f"{name} has not come up")
                time.sleep(draw.uniform(0.0, latest))
                child.kill()
                began = time.monotonic()
                while session(child.pid) and time.monotonic() - began < LATEST:
                    time.sleep(0.005)
                outcome.seconds.append(time.monotonic() - began)
            finally:
                left = session(child.pid)
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
        outcome.kills, outcome.runs = outcome.kills + 1, outcome.runs + 1
        outcome.different += bool(left or left_behind(child.pid))
    return outcome


def session(leader: int) -> list[int]:
    """The processes that live in the session of a process."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def left_behind(pid: int | None = None) -> list[str]:
    """What a process of ours, or this one, has in shared memory. Other programs may have something there too."""
    mine = f"rrl-{pid or os.getpid():x}-"
    return [one for one in (os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []) if mine in one]


def main(name: str) -> None:
    """Run a case again and again, until somebody kills this process; tell when its helpers are at work."""

    @contextlib.contextmanager
    def up(_: Any) -> Iterator[None]:
        sys.stdout.write("up\n")
        sys.stdout.flush()
        yield

    while True:
        CASES[name](PROCESSES, up)


if __name__ == "__main__":
    main(sys.argv[1])
