"""``SyncMaskablePPO``: PPO without forbidden actions (Huang, Ontanon 2022), sb3-contrib's ``MaskablePPO`` on all cores."""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack, cast

import gymnasium
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule

from reactor_sb3.acting.behaviours import MASKS, Behaviour, OnPolicy
from reactor_sb3.algorithms.ppo import PPOTrainer
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.on_policy import Rollouts
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import MaskedBatch

__all__ = ["MaskedBatch", "SyncMaskablePPO"]


class SyncMaskablePPO(PPOTrainer, MaskablePPO):  # type: ignore[misc]
    """PPO with masks, whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncPPO` runs too. Each actor asks its environments for
    ``action_masks()`` where they live, before each action; so do an evaluator and who is watched.

    Args:
        policy: As for sb3-contrib's ``MaskablePPO``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`; it has a method ``action_masks()``, of its own or of a wrapper, as of
            sb3-contrib's ``ActionMasker``.
        n_steps, rollout_buffer_class, device: As for :class:`~reactor_sb3.SyncPPO`.
        **options: As for :class:`~reactor_sb3.SyncPPO`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is not a ``MaskableActorCriticPolicy``.
        AttributeError: By :meth:`learn`, if an environment has no ``action_masks()``.
        ValueError: If a number makes no sense; by :meth:`learn`, if masks forbid everything.

    Example:
        >>> from sb3_contrib.common.envs import InvalidActionEnvDiscrete
        >>> from reactor_sb3 import SyncMaskablePPO
        >>> with SyncMaskablePPO("MlpPolicy", InvalidActionEnvDiscrete, n_actors=4, n_steps=32, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "MaskablePPO"
    host: ClassVar[str] = "sb3-contrib"
    policy_base: ClassVar[type[Any]] = MaskableActorCriticPolicy

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[MaskableActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int | None = None,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[Options],
    ) -> None:
        self.use_masking = True
        self.check_buffer(MaskableRolloutBuffer, MaskableDictRolloutBuffer)
        self.construct(MaskablePPO)

    def learn(  # type: ignore[override]
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        use_masking: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """As :meth:`SyncPPO.learn <reactor_sb3.SyncSAC.learn>`; ``use_masking=False`` asks for no masks, as in sb3-contrib."""
        if use_masking != self.use_masking:
            self.close()  # actors are made anew
            self.use_masking = use_masking
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The policy, from whose distributions allowed actions are drawn."""
        source = read_policy(self.policy, masked=self.use_masking)
        return source.module, OnPolicy(source.policy, self.gamma, self.gae_lambda)

    def store(self, rollouts: Rollouts) -> None:
        """Keep a round in sb3-contrib's rollout buffer."""
        rollouts.fill(self.rollout_buffer, *([MASKS] if self.use_masking else []))

    def batch(self, rollouts: Rollouts) -> MaskedBatch:
        """A whole round, in the order of sb3-contrib's rollout buffer."""
        plain = super().batch(rollouts)
        if self.use_masking:
            return MaskedBatch(**vars(plain), action_masks=rollouts.rows(MASKS))
        choices = int(cast(Any, self.policy).action_net.out_features)
        return MaskedBatch(**vars(plain), action_masks=torch.ones(len(plain), choices, dtype=torch.bool, device=self.device))
