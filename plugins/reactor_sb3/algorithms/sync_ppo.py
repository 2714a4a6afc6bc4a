"""``SyncPPO``: proximal policy optimisation (Schulman et al. 2017), SB3's ``PPO`` on all cores."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3.algorithms.ppo import PPOTrainer
from reactor_sb3.trainers.options import Options, keeps_arguments

__all__ = ["SyncPPO"]


class SyncPPO(PPOTrainer, PPO):
    """PPO whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncDQN` runs too: the parameters are broadcast, each of
    ``n_actors`` actors takes ``n_steps`` steps in its own environments and computes values and advantages of what it has seen, and
    the learner makes ``n_epochs`` passes over all of it in shuffled minibatches, by SB3's loss. Given the same rollout and the same
    order, the weights are SB3's but for rounding. ``workers``, ``executor`` and ``start_method`` never change a bit of them.

    Args:
        policy: As for SB3's ``PPO``, and so is every parameter that is not named here.
        env: As for ``SyncDQN``.
        n_steps: Steps of each environment in a round. ``None``: those of SB3's rollout, 2048, shared out among the environments; a
            few less where they cannot be, in whole minibatches. A number means what it means in SB3 with that many environments.
        rollout_buffer_class: Only SB3's own.
        device: The processor by default, where SB3 takes a GPU if there is one (``"auto"``).
        **options: Keywords of every trainer: ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others; see
            :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is not an ``ActorCriticPolicy``.
        AssertionError: If SB3 has no distribution of its actions.
        ValueError: If a number makes no sense, or there is a rollout buffer of another class.

    Example:
        >>> from reactor_sb3 import SyncPPO
        >>> with SyncPPO("MlpPolicy", "CartPole-v1", n_actors=4, n_steps=32, seed=0, workers=2) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "PPO"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
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
        use_sde: bool = False,
        sde_sample_freq: int = -1,
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
        self.check_buffer(RolloutBuffer, DictRolloutBuffer)
        self.construct(PPO)
