"""``SyncTQC``: truncated quantile critics (Kuznetsov et al. 2020), sb3-contrib's ``TQC`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from sb3_contrib import TQC
from sb3_contrib.common.utils import quantile_huber_loss
from sb3_contrib.tqc.policies import Actor, Critic, TQCPolicy
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3.algorithms import sync_sac
from reactor_sb3.algorithms.sac import SACBatch, SACTrainer
from reactor_sb3.learned import read_actor, read_quantile_critics
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_torch import Loss, quantile_loss, quantile_targets, squashed_sample

__all__ = ["TQCActorLoss", "TQCCriticLoss", "SyncTQC"]


@dataclass(frozen=True)
class TQCCriticLoss(Loss):
    """Quantile regression on what is left of the targets' quantiles without the largest.

    Attributes:
        drop: How many of all critics' quantiles are left out.
    """

    drop: int
    learns, reads, statistics = "critic", ("critic_target", "actor"), ("critic_loss",)

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss; critics give ``(rows, critics, quantiles)``."""
        with torch.no_grad():
            actions, log_prob = squashed_sample(nets["actor"], batch.next_observations, batch.next_noise)
            following = nets["critic_target"](batch.next_observations, actions).flatten(1).sort(1).values
            kept = following[:, : following.shape[1] - self.drop] - batch.ent_coef * log_prob[:, None]
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * kept
        quantiles = nets["critic"](batch.observations, batch.actions)
        return (quantile_huber_loss(quantiles, returns[:, None], sum_over_quantiles=False),)

    def fast(self, nets: Mapping[str, Any], batch: SACBatch, share: float) -> tuple[float, ...]:
        """The same by the extension; critics give ``(critics, rows, quantiles)``."""
        actions, log_prob = nets["actor"].act(batch.next_observations, batch.next_noise)
        following = nets["critic_target"].quantiles(batch.next_observations, actions).numpy().swapaxes(0, 1)
        ascending = following.reshape(len(actions), -1)
        ascending.sort(1)
        kept = ascending[:, : ascending.shape[1] - self.drop] - batch.ent_coef * log_prob.numpy()[:, None]
        returns = quantile_targets(batch, torch.from_numpy(kept))
        quantiles = nets["critic"].quantiles(batch.observations, batch.actions)
        of_pair = share / (quantiles.shape[0] * quantiles.shape[2] * returns.shape[1])
        loss, by_quantiles = quantile_loss(quantiles, returns, of_pair)
        nets["critic"].backward(by_quantiles)
        return (loss,)


@dataclass(frozen=True)
class TQCActorLoss(sync_sac.SACActorLoss):
    """That of SAC, with the mean of all quantiles in the place of the least value."""

    def value(self, critic: Any, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """The critics' values of actions, ``(rows,)``."""
        quantiles: torch.Tensor = critic(observations, actions)
        return quantiles.mean(2).mean(1)

    fast = sync_sac.SACActorLoss.fast


class SyncTQC(SACTrainer, TQC):
    """TQC whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncSAC` runs too.

    Args:
        policy: As for sb3-contrib's ``TQC``, and so is every parameter that is not named here.
        env, train_freq, gradient_steps, action_noise, use_sde, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError, AssertionError, ValueError: As by :class:`~reactor_sb3.SyncSAC`.

    Example:
        >>> from reactor_sb3 import SyncTQC
        >>> with SyncTQC("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps
        128
    """

    default_log_name: ClassVar[str] = "TQC"
    host: ClassVar[str] = "sb3-contrib"
    actor_base: ClassVar[type[Any]] = Actor
    _read_actor: ClassVar[Any] = staticmethod(partial(read_actor, kind=Actor))
    _read_critics: ClassVar[Any] = staticmethod(partial(read_quantile_critics, kind=Critic))

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[TQCPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 3e-4,
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
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        top_quantiles_to_drop_per_net: int = 2,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[SplitOptions],
    ) -> None:
        self.construct(TQC)

    def losses(self) -> dict[str, Loss]:
        """The critics' and the actor's."""
        dropped, each = self.top_quantiles_to_drop_per_net, self.critic.n_quantiles
        if not 0 <= dropped < each:
            raise ValueError(
                f"top_quantiles_to_drop_per_net must be a whole number from 0 to {each - 1}, for each net has n_quantiles={each}, "
                f"got {dropped!r}"
            )
        return {"critic": TQCCriticLoss(dropped * self.critic.n_critics), "actor": TQCActorLoss()}
