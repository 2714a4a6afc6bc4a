"""Trainings by sb3-contrib's algorithms as something that can be verified, drawn and traced from the command line."""

from __future__ import annotations

from functools import partial
from typing import Any

from reactor_sb3.contrib import SyncQRDQN
from reactor_sb3.trainers.verify_targets import Training

__all__ = ["sync_qrdqn"]

_shared: dict[str, Any] = {"n_actors": 4, "seed": 0, "pipeline": 1, "evaluate_every": 10, "evaluate_episodes": 3}
sync_qrdqn = partial(
    Training, SyncQRDQN, "CartPole-v1", rollout_steps=16, gradient_steps=4, policy_kwargs={"n_quantiles": 25}, **_shared
)
