"""A training whose workers are killed ends with the weights of one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import warnings
from typing import Any

import pytest
from stable_baselines3.common.callbacks import BaseCallback

from reactor_rl import RecoveryWarning
from reactor_sb3 import ReactorVecEnv, SyncDQN, SyncPPO


class Killing(BaseCallback):
    """Kills a helper when some rounds begin."""

    def __init__(self, rounds: set[int]) -> None:
        super().__init__()
        self.rounds, self.round = rounds, 0

    def _on_rollout_start(self) -> None:
        self.round += 1
        if self.round in self.rounds:
            draw = random.Random(self.round)
            run: Any = self.model._run  # type: ignore[attr-defined]
            os.kill(draw.choice(run._executor._processes).pid, signal.SIGKILL)

    def _on_step(self) -> bool:
        return True


TRAINERS: dict[str, Any] = {
    "SyncDQN": lambda **how: SyncDQN(
        "MlpPolicy", "CartPole-v1", n_actors=4, rollout_steps=16, learning_starts=64, seed=0, pipeline=1, **how
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


def test_a_vec_env_takes_restarts() -> None:
    import gymnasium

    env = ReactorVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, executor="processes", workers=2, restarts=1)
    try:
        env.reset()
        os.kill(env._envs._run._executor._processes[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.warns(RecoveryWarning, match="worker 1"):
            assert env.get_attr("render_mode") == [None, None]
    finally:
        env.close()
