"""What an evaluation says is what SB3's ``evaluate_policy`` finds for the weights that it is about."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from every_other import every_other
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from trainers import ROWS, suited

from reactor_sb3 import PQN, SyncDQN, SyncSAC
from reactor_sb3.streams import Purpose, seed_of

_CONTINUOUS: dict[str, Any] = {
    "train_freq": 16, "gradient_steps": 8, "batch_size": 32, "learning_starts": 0, "learning_rate": 3e-3, "buffer_size": 5000,
}  # fmt: skip
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dqn": (
        SyncDQN,
        {
            "train_freq": 16, "gradient_steps": 8, "batch_size": 32, "learning_starts": 0, "learning_rate": 3e-3,
            "buffer_size": 5000, "target_update_interval": 64,
        },
    ),
    "sac": (SyncSAC, _CONTINUOUS),
    "td3": (ROWS["td3"].cls, _CONTINUOUS),
    "pqn": (PQN, {"n_steps": 16, "n_minibatches": 2, "learning_rate": 3e-3}),
}  # fmt: skip


class Table(gymnasium.Env[Any, Any]):
    """Every choice between its three actions counts, at each of a few steps; observations and rewards are drawn once for all.

    Args:
        turning: Whether episodes begin in one of three ways in turn, and not by chance.
    """

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(3)
    rng = np.random.default_rng(0)
    seen, paid = rng.uniform(-1, 1, (64, 4)).astype(np.float32), rng.integers(-9, 10, (64, 3)) / 8

    def __init__(self, turning: bool = False) -> None:
        self.turning, self.episodes = turning, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes += 1
        self.at = 20 * (self.episodes % 3) if self.turning else int(self.np_random.integers(64))
        self.end = self.at + (11 if self.turning else int(self.np_random.integers(5, 15)))
        return self.seen[self.at % 64], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(self.paid[self.at % 64, int(action)])
        self.at += 1
        return self.seen[self.at % 64], reward, self.at >= self.end, False, {}


class Weights(BaseCallback):
    """The policy as it was, by the number of steps that it has learned from."""

    def _on_training_start(self) -> None:
        self.found: dict[int, Any] = {}
        self._on_rollout_end()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        self.found[model.learned_timesteps] = deepcopy(model.policy)


def trained(algorithm: str, **changed: Any) -> tuple[list[Any], dict[int, Any]]:
    """The evaluations of a training, and the policies that they may be about."""
    cls, arguments = ALGORITHMS[algorithm]
    with cls(
        "MlpPolicy", suited(algorithm, Table), n_actors=4, seed=0, policy_kwargs={"net_arch": [32]}, **{**arguments, **changed}
    ) as model:  # fmt: skip
        model.learn(64 * 40, callback=(weights := Weights()))
        return model.evaluations, weights.found


@pytest.mark.slow
@every_other(
    algorithm=["dqn", "pqn"],
    how=[(1, 0, 10_000), (1, 0, 7), (1, 1, 10_000), (1, 1, 7), (2, 0, 7), (3, 1, 7)],  # all at once, or while the weights change
)
def test_evaluations_are_those_of_sb3(algorithm: str, how: tuple[int, int, int]) -> None:
    assert compared(algorithm, *how) > 3


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_evaluations_of_continuous_actions(algorithm: str) -> None:
    assert compared(algorithm, workers=2, pipeline=1, steps=7) > 1


def compared(algorithm: str, workers: int, pipeline: int, steps: int) -> int:
    """Evaluations, each held against SB3's; returns how many different ones there were: something is learned meanwhile."""
    where = suited(algorithm, partial(Table, True))
    evaluations, policies = trained(
        algorithm, evaluate_every=4, evaluate_episodes=3, evaluate_steps=steps, evaluate_env=where,
        pipeline=pipeline, workers=workers, executor="inline" if workers == 1 else "processes",
    )  # fmt: skip
    assert len(evaluations) > 5
    for one in evaluations:
        env = Monitor(suited(algorithm, Table(True)))
        returns, lengths = evaluate_policy(policies[one.timesteps], env, 3, return_episode_rewards=True)
        assert (list(one.returns), list(one.lengths)) == (returns, lengths)
        assert one.mean == np.mean(returns)
    return len({one.returns for one in evaluations})


def test_evaluations_of_several_seeds() -> None:
    """Each in an environment of its own, whose first reset in a round is seeded by (seed, environment, episode)."""
    evaluations, policies = trained("dqn", evaluate_every=5, evaluate_episodes=3, evaluate_steps=10_000, executor="inline")
    assert len(evaluations) == 8
    env, episode, seeded = Table(), 0, True
    observation, _ = env.reset(seed=seed_of(0, Purpose.EVALUATION, 0, 0))
    for one in evaluations:
        returns = []
        while len(returns) < 3:
            total, ended = 0.0, False
            while not ended:
                action, _ = policies[one.timesteps].predict(observation, deterministic=True)
                observation, reward, terminated, _, _ = env.step(int(action))
                total += float(reward)
                ended = terminated
            returns.append(total)
            episode += 1
            observation, _ = env.reset(seed=None if seeded else seed_of(0, Purpose.EVALUATION, 0, episode))
            seeded = True
        seeded = False  # in this round
        assert list(one.returns) == returns
