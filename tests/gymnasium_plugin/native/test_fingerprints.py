"""``verify`` finds one fingerprint, with kernels and without."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from reactor_gymnasium.cli.targets import cartpole, rollout
from reactor_rl.verify import verify

TICKS = 80


@pytest.mark.parametrize("target", [cartpole, partial(rollout, "FrozenLake-v1"), partial(rollout, "Hopper-v5", num_envs=4)])
def test_one_fingerprint(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if "Hopper" in str(target):
        pytest.importorskip("mujoco")
    found = set()
    for switch in ("1", "0"):
        monkeypatch.setenv("REACTOR_RL_KERNELS", switch)
        report = verify(target, ticks=TICKS, executors=("inline", "threads"), workers=(2,))
        assert report.ok
        found |= {row.fingerprint for row in report.rows}
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "HalfCheetah-v5", "Ant-v5"])
def test_one_fingerprint_in_processes(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_id[-1] == "5":
        pytest.importorskip("mujoco")
    found = set()
    for switch in ("1", "0"):
        monkeypatch.setenv("REACTOR_RL_KERNELS", switch)
        found.add(rollout(env_id).fingerprint("processes", 2, 200))
    assert len(found) == 1
