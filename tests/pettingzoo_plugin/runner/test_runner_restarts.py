"""A runner whose workers are killed reports what one does that was left alone."""

from __future__ import annotations

import os
import random
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpe2 import simple_spread_v3
from pettingzoo.classic.connect_four import connect_four
from runner_envs import Herd, Table, mlp
from stalling import check_named_or_replaced, stall

from reactor_gymnasium.environments.saving import repeats_itself
from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.runner.probe import RecordProbe
from reactor_rl import RecoveryWarning

pytestmark = pytest.mark.faults

spread = partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)
POLICIES: dict[str, Any] = {"by row": lambda: {"all": RandomPolicy()}, "together": lambda: {"all": mlp(0, 18, 5)}}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", POLICIES)
def test_killed_workers_change_no_result(name: str) -> None:
    how: dict[str, Any] = {"num_envs": 6}
    with MultiAgentRunner(spread, POLICIES[name](), executor="inline", **how) as runner:
        expected = [runner.run(600, seed=seed, progress_bar=False).fingerprint for seed in range(2)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with MultiAgentRunner(spread, POLICIES[name](), executor="processes", workers=3, restarts=9, **how) as runner:
            seen = []
            for seed in range(2):
                child = random.Random(seed).choice(runner._run._executor._processes)  # type: ignore[union-attr,attr-defined]
                os.kill(child.pid, signal.SIGKILL)
                seen.append(runner.run(600, seed=seed, progress_bar=False).fingerprint)
    assert seen == expected
    assert sum(one.category is RecoveryWarning for one in said) == 2


class UnrulyHerd(Herd):
    """Draws rewards from the process's generator."""

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, *others = super().step(actions)
        return observations, dict.fromkeys(rewards, random.random()), *others


class UnrulyTable(Table):
    """Shows what no seed can bring back."""

    def observe(self, agent: str) -> Any:
        return np.full(4, random.random(), np.float32)


@pytest.mark.parametrize("env_fn", [UnrulyHerd, UnrulyTable])
def test_environments_that_do_otherwise_are_refused(env_fn: Any) -> None:
    with pytest.raises(ValueError, match=r"restarts=1: environment 0 could not be brought back, .*the same seed and actions"):
        MultiAgentRunner(env_fn, RandomPolicy(), num_envs=2, executor="processes", workers=2, restarts=1)


@pytest.mark.parametrize(
    "env_fn",
    [
        Herd,
        partial(Herd, masks="observation"),
        partial(Herd, masks="info"),
        Table,
        partial(Table, early=True),
        connect_four.env,
        spread,
    ],
)
def test_environments_that_do_the_same_again_are_tried_with_legal_actions(env_fn: Any) -> None:
    assert repeats_itself(partial(RecordProbe.of, env_fn, probe_agents(env_fn)))


class Sleepy(Herd):
    """Does not return from a step of a helper's once there is a file, which is gone then."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def step(self, actions: dict[str, Any]) -> Any:
        stall(self.path)
        return super().step(actions)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("restarts", [0, 1])
def test_copies_that_do_not_return_are_named_or_replaced(tmp_path: Path, restarts: int) -> None:
    path = tmp_path / "sleep"

    def played(**how: Any) -> str:
        path.unlink(missing_ok=True)
        with MultiAgentRunner(partial(Sleepy, path), RandomPolicy(), num_envs=4, **how) as runner:
            runner.run(10, seed=0, progress_bar=False)
            path.touch()
            return runner.run(100, seed=1, progress_bar=False).fingerprint

    check_named_or_replaced(played, restarts, r"environments\[2:4\]", timeout=2.0)
