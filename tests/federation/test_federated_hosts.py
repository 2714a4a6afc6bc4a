"""A vector environment and a training on several nodes: one call per node and tick, and the bits of one machine."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium

from reactor_gymnasium import ReactorVectorEnv
from reactor_rl import RecoveryWarning, WorkerHungError
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


class Sleepy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Does not return from the next step to the right after it has been told so, until it is let go."""

    asleep, let_go = threading.Event(), threading.Event()

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        if action == 1 and self.asleep.is_set():
            self.asleep.clear()
            self.let_go.wait(30)
        return super().step(action)


@pytest.mark.parametrize("restarts", [0, 1])
def test_an_environment_that_does_not_return(restarts: int) -> None:
    def stepped(restarts: int = 0, **how: Any) -> list[bytes]:
        with ReactorVectorEnv([partial(Sleepy)] * 4, restarts=restarts, **how) as envs:
            envs.reset(seed=1)
            envs.step(np.zeros(4, np.int64))
            if how["executor"] != "inline":
                Sleepy.asleep.set()
            return [envs.step(np.array([0, 0, step == 0, 0]))[0].tobytes() for step in range(3)]

    expected = stepped(executor="inline")
    try:
        how = {"executor": "federated", "nodes": 2, "workers": 1, "timeout": 1.0}
        if restarts == 0:
            with pytest.raises(WorkerHungError, match=r"node 1 has not answered for 1.0 s in tick 2; it holds environments\[2:4\]"):
                stepped(**how)
        else:
            with pytest.warns(RecoveryWarning, match=r"node 1 has not answered for 1.0 s in tick 2. It was replaced"):
                assert stepped(restarts, **how) == expected
    finally:
        Sleepy.asleep.clear()
        Sleepy.let_go.set()
        Sleepy.let_go.clear()


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
def test_a_training(pipeline: int) -> None:
    def trained(**how: Any) -> str:
        with SyncDQN(
            "MlpPolicy", "CartPole-v1", n_actors=3, train_freq=8, gradient_steps=2, learning_starts=48, batch_size=16,
            pipeline=pipeline, seed=3, **how,
        ) as model:  # fmt: skip
            model.learn(48 + 24 * 5)
            return model.fingerprint()

    expected = trained(executor="inline", workers=1)
    for nodes in (1, 2, 3):
        assert trained(executor="federated", nodes=nodes, workers=1) == expected
