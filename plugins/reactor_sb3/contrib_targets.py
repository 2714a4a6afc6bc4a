"""Trainings by sb3-contrib's algorithms as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from functools import partial
from typing import Any

from sb3_contrib.common.envs import InvalidActionEnvDiscrete

from reactor_sb3.contrib import SyncCrossQ, SyncMaskablePPO, SyncQRDQN, SyncRecurrentPPO, SyncTQC
from reactor_sb3.trainers.verify_targets import Training

__all__ = ["sync_crossq", "sync_ppo_lstm", "sync_ppo_mask", "sync_qrdqn", "sync_tqc"]

_shared: dict[str, Any] = {"n_actors": 4, "seed": 0, "pipeline": 1, "evaluate_every": 10, "evaluate_episodes": 3}
sync_qrdqn = partial(
    Training, SyncQRDQN, "CartPole-v1", rollout_steps=16, gradient_steps=4, policy_kwargs={"n_quantiles": 25}, **_shared
)
_pendulum: dict[str, Any] = {
    **_shared, "train_freq": 25, "gradient_steps": 3, "batch_size": 32, "learning_starts": 64, "evaluate_steps": 200,
    "policy_kwargs": {"net_arch": [32, 32]},
}  # fmt: skip
sync_tqc = partial(Training, SyncTQC, "Pendulum-v1", **_pendulum)
sync_crossq = partial(Training, SyncCrossQ, "Pendulum-v1", **_pendulum)
_rounds: dict[str, Any] = {**_shared, "n_steps": 32, "batch_size": 32, "n_epochs": 2}
sync_ppo_mask = partial(Training, SyncMaskablePPO, InvalidActionEnvDiscrete, **_rounds)
sync_ppo_lstm = partial(
    Training, SyncRecurrentPPO, "CartPole-v1", policy="MlpLstmPolicy", policy_kwargs={"lstm_hidden_size": 32}, **_rounds
)
