"""A ``ParallelVectorEnv`` whose workers are killed or hang: the same trajectories, and a word of warning."""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_envs import Crowd
from mpe2 import simple_spread_v3

from reactor_pettingzoo import ParallelVectorEnv
from reactor_rl import RecoveryWarning, RunError, WorkerHungError
from reactor_rl.plugin import canonical, new_hash
from reactor_rl.runtime import recovery

pytestmark = pytest.mark.faults

spread = partial(simple_spread_v3.parallel_env, N=3, max_cycles=7)
STEPS = 30


def trajectory(envs: ParallelVectorEnv, kills: set[int]) -> str:
    """A hash of everything that some steps give; before some of them a helper dies."""
    seen = new_hash()
    envs.action_space.seed(0)
    canonical(envs.reset(seed=1)[0], seen)
    for step in range(STEPS):
        if step in kills:
            child = random.Random(step).choice(envs._run._executor._processes)
            os.kill(child.pid, signal.SIGKILL)
        for part in envs.step(envs.action_space.sample())[:4]:
            canonical(part, seen)
    return str(seen.hexdigest())


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("make", "saved"), [(Crowd, False), (spread, True)], ids=["replayed", "saved"])
def test_killed_workers_change_nothing(make: Any, saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if saved:  # after every tick
        monkeypatch.setattr(recovery, "SHORTEST_PAUSE", 0.0)
        monkeypatch.setattr(recovery, "PAUSE_FACTOR", 0)
    with ParallelVectorEnv(make, 4, executor="inline") as envs:
        expected = trajectory(envs, set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with ParallelVectorEnv(make, 4, executor="processes", workers=3, restarts=2) as envs:
            assert trajectory(envs, {9, 25}) == expected
    told = [str(one.message) for one in said if one.category is RecoveryWarning]
    assert len(told) == 2 and (", 0 tick(s) were replayed" in told[1]) == saved


class Unruly(Crowd):
    """Draws from the process's generator."""

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, *others = super().step(actions)
        return observations, dict.fromkeys(rewards, random.random()), *others


def test_copies_that_do_otherwise_are_refused() -> None:
    with pytest.raises(ValueError, match=r"restarts=1: environment 0 could not be brought back, .*the same seed and actions"):
        ParallelVectorEnv(Unruly, 2, executor="processes", workers=2, restarts=1)


class Locked(Crowd):
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = (one for one in ())


def test_snapshots_are_exact_or_refused() -> None:
    ones = np.ones(8, np.int64)
    with ParallelVectorEnv(Crowd, 2, executor="inline") as envs:
        trajectory(envs, set())
        saved = envs._run.snapshot()
        expected = [envs.step(ones) for _ in range(STEPS)]
        envs._run.restore(saved)
        for seen in [envs.step(ones) for _ in range(STEPS)]:
            assert all(map(np.array_equal, seen[:4], expected.pop(0)[:4]))
    with ParallelVectorEnv(Locked, 2, executor="inline") as envs:
        envs.reset(seed=0)
        with pytest.raises(RunError, match=r"environment 0 of ParallelVectorEnv .*cannot be saved and restored exactly"):
            envs._run.snapshot()


class Sleepy(Crowd):
    """Does not return from a step of which the file speaks, which is gone then."""

    def __init__(self, path: Path) -> None:
        super().__init__("together")
        self.path = path

    def step(self, actions: dict[str, Any]) -> Any:
        if self.path.exists() and 4 in actions.values():
            self.path.unlink()
            time.sleep(100)
        return super().step(actions)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_copy_that_does_not_return_is_named(tmp_path: Path, restarts: int) -> None:
    make = partial(Sleepy, tmp_path / "sleep")
    actions = np.zeros(24, np.int64)
    actions[16:20] = 4  # of copy 4
    with ParallelVectorEnv(make, 6, executor="processes", workers=2, timeout=0.5, restarts=restarts) as envs:
        envs.reset(seed=0)
        (tmp_path / "sleep").touch()
        if restarts:
            with pytest.warns(RecoveryWarning, match=r"did not return for 0.5 s \(it is in environment 4\)"):
                envs.step(actions)
        else:
            with pytest.raises(WorkerHungError, match=r"worker 1 has not ended its part of tick 1 .*; it is in environment 4\."):
                envs.step(actions)
