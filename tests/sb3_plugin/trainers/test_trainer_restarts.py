"""A training whose workers are killed ends with the weights of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from killing import Killing
from stable_baselines3.common.vec_env import DummyVecEnv
from stalling import check_named_or_replaced, stall

from reactor_rl import RecoveryWarning
from reactor_sb3 import ReactorVecEnv, SyncDQN, SyncPPO

pytestmark = pytest.mark.faults


TRAINERS: dict[str, Any] = {
    "SyncDQN": lambda **how: SyncDQN(
        "MlpPolicy", "CartPole-v1", n_actors=4, train_freq=16, learning_starts=64, seed=0, pipeline=1, **how
    ),
    "SyncPPO": lambda **how: SyncPPO("MlpPolicy", "CartPole-v1", n_actors=4, n_steps=16, batch_size=32, n_epochs=2, seed=0, **how),
    "slices": lambda **how: SyncPPO(
        "MlpPolicy", "CartPole-v1", n_actors=4, n_steps=16, batch_size=32, n_epochs=2, n_learners=3, seed=0, **how
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TRAINERS)
def test_killed_workers_change_no_weight(name: str) -> None:
    with TRAINERS[name](executor="inline") as model:
        expected = model.learn(1100).fingerprint()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with TRAINERS[name](executor="processes", workers=3, restarts=9) as model:
            assert model.learn(1100, callback=Killing({3, 13})).fingerprint() == expected
    assert sum(one.category is RecoveryWarning for one in said) == 2


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws rewards from the process's generator."""

    def step(self, action: Any) -> Any:
        observation, _, *others = self.env.step(action)
        return observation, random.random(), *others


def cartpole(unruly: bool = False) -> Any:
    env = gymnasium.make("CartPole-v1")
    return Unruly(env) if unruly else env


def test_every_environment_is_tried() -> None:
    how: dict[str, Any] = {"executor": "processes", "workers": 2, "restarts": 1}
    unruly = partial(cartpole, unruly=True)
    with (
        SyncDQN("MlpPolicy", DummyVecEnv([cartpole, unruly]), **how) as model,
        pytest.raises(ValueError, match=r"restarts=1: environment 1 could not be brought back"),
    ):
        model.start()
    with (
        SyncDQN("MlpPolicy", "CartPole-v1", n_actors=2, evaluate_every=1, evaluate_env=unruly, **how) as model,
        pytest.raises(ValueError, match=r"restarts=1: evaluation environment 0 could not be brought back"),
    ):
        model.start()


class Sleepy(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Does not return from a step of a helper's once there is a file, which is gone then."""

    def __init__(self, path: Path) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.path = path

    def step(self, action: Any) -> Any:
        stall(self.path)
        return super().step(action)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("restarts", [0, 1])
def test_an_actor_that_does_not_return_is_named_or_replaced(tmp_path: Path, restarts: int) -> None:
    path = tmp_path / "sleep"

    def trained(**how: Any) -> str:
        path.unlink(missing_ok=True)
        with SyncPPO("MlpPolicy", partial(Sleepy, path), n_actors=4, n_steps=16, batch_size=64, n_epochs=1, seed=0, **how) as model:
            model.learn(64)
            path.touch()
            return model.learn(128, reset_num_timesteps=False).fingerprint()

    check_named_or_replaced(trained, restarts, r"actor\[1\]", timeout=2.0)


def test_a_vec_env_takes_restarts() -> None:
    env = ReactorVecEnv([cartpole] * 2, executor="processes", workers=2, restarts=1)
    try:
        env.reset()
        os.kill(env._envs._run._executor._processes[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.warns(RecoveryWarning, match="worker 1"):
            assert env.get_attr("render_mode") == [None, None]
    finally:
        env.close()
