"""``SyncDDPG``: deep deterministic policy gradients (Lillicrap et al. 2016), SB3's ``DDPG`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from stable_baselines3 import DDPG
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.td3.policies import TD3Policy

from reactor_sb3.algorithms.sync_td3 import SyncTD3
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments

__all__ = ["SyncDDPG"]


class SyncDDPG(SyncTD3, DDPG):
    """Deterministic policy gradients whose actors sample in parallel and whose results do not depend on how many cores do it.

    As in SB3, it is :class:`~reactor_sb3.SyncTD3` with one critic, without noise on the target actor's actions, and with an actor
    that learns in every update.

    Args:
        policy: As for SB3's ``DDPG``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        train_freq, gradient_steps, action_noise, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError, AssertionError, ValueError: As by :class:`~reactor_sb3.SyncTD3`.

    Example:
        >>> from reactor_sb3 import SyncDDPG
        >>> with SyncDDPG("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps, model.update_to_data
        (128, 0.125)
    """

    default_log_name: ClassVar[str] = "DDPG"
    usual_policy_kwargs: ClassVar[Mapping[str, Any]] = {"n_critics": 1}

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[TD3Policy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 1e-3,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int | None = None,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[SplitOptions],
    ) -> None:
        self.construct(DDPG)
