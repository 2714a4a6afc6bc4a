"""A vector environment and a training on several nodes: one call per node and tick, and the bits of one machine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium

from reactor_gymnasium import ReactorVectorEnv
from reactor_sb3 import SyncDQN

STEPS = 30


def trajectories(**how: Any) -> tuple[str, int | None]:
    """A hash of some steps, and how many calls they have taken."""
    with ReactorVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 6, **how) as envs:
        found, rng = hashlib.blake2b(digest_size=8), np.random.default_rng(0)
        found.update(envs.reset(seed=1)[0].tobytes())
        before = getattr(envs._run, "calls", 0)
        for _ in range(STEPS):
            for part in envs.step(rng.integers(0, 2, 6))[:4]:
                found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest(), getattr(envs._run, "calls", 0) - before


def test_a_vector_environment() -> None:
    expected, _ = trajectories(executor="inline")
    for nodes in (1, 2, 3):
        assert trajectories(executor="federated", nodes=nodes, workers=1) == (expected, STEPS * (nodes - 1))


@pytest.mark.parametrize("pipeline", [0, 1])
def test_a_training(pipeline: int) -> None:
    def trained(**how: Any) -> str:
        with SyncDQN(
            "MlpPolicy", "CartPole-v1", n_actors=3, rollout_steps=8, gradient_steps=2, learning_starts=48, batch_size=16,
            pipeline=pipeline, seed=3, **how,
        ) as model:  # fmt: skip
            model.learn(48 + 24 * 5)
            return model.fingerprint()

    expected = trained(executor="inline", workers=1)
    for nodes in (1, 2, 3):
        assert trained(executor="federated", nodes=nodes, workers=1) == expected
