"""``SyncSAC``: soft actor-critic (Haarnoja et al. 2018), SB3's ``SAC`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.sac.policies import SACPolicy
from torch.nn.functional import mse_loss

from reactor_sb3.algorithms.sac import SACBatch, SACTrainer
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_torch import Loss, scaled, squashed_sample, td_loss, weighted_sum

__all__ = ["SACActorLoss", "SACCriticLoss", "SACBatch", "SyncSAC"]


@dataclass(frozen=True)
class SACCriticLoss(Loss):
    """Half the squared difference of critics and soft targets, added up over the critics."""

    learns, reads, statistics = "critic", ("critic_target", "actor"), ("critic_loss",)
    fields = ("observations", "next_observations", "dones", "rewards", "discounts", "next_noise", "ent_coef")

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        with torch.no_grad():
            actions, log_prob = squashed_sample(nets["actor"], batch.next_observations, batch.next_noise)
            following = torch.cat(nets["critic_target"](batch.next_observations, actions), 1).amin(1, keepdim=True)
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * (following - batch.ent_coef * log_prob[:, None])
        losses = [mse_loss(values, returns) for values in nets["critic"](batch.observations, batch.actions)]
        return (0.5 * torch.stack(losses).sum(),)

    def fast(self, nets: Mapping[str, Any], batch: SACBatch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        actions, log_prob = nets["actor"].act(batch.next_observations, batch.next_noise)
        following = nets["critic_target"].values(batch.next_observations, actions)
        values = nets["critic"].values(batch.observations, batch.actions)
        loss, by_values = td_loss(values, following, batch, 0.5 * share, log_prob, batch.ent_coef)
        nets["critic"].backward(by_values)
        return (loss,)


@dataclass(frozen=True)
class SACActorLoss(Loss):
    """Log-probability of the actor's own actions, weighted, less the least value that a critic gives them.

    Attributes:
        normalises: Whether :meth:`fast` has the actor normalise batches by their own statistics, if it normalises any.
    """

    normalises: ClassVar[bool] = False
    learns, reads, statistics, fields = "actor", ("critic",), ("actor_loss", "log_prob"), ("observations", "noise", "ent_coef")

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss, and the mean log-probability, from which the entropy coefficient learns."""
        actions, log_prob = squashed_sample(nets["actor"], batch.observations, batch.noise)
        return (batch.ent_coef * log_prob - self.value(nets["critic"], batch.observations, actions)).mean(), log_prob.mean()

    def value(self, critic: Any, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """The critics' values of actions, ``(rows,)``."""
        return torch.cat(critic(observations, actions), 1).amin(1)

    def fast(self, nets: Mapping[str, Any], batch: SACBatch, share: float) -> tuple[float, ...]:
        """The same by the extension; what critics value is up to them."""
        actions, log_prob = nets["actor"].act(batch.observations, batch.noise, self.normalises)
        values, by_actions = nets["critic"].action_gradient(batch.observations, actions)
        loss = weighted_sum(log_prob, batch.ent_coef * share, values, -share)
        mean_log_prob = weighted_sum(log_prob, share)
        nets["actor"].backward(scaled(by_actions, -share), batch.ent_coef * share)
        return loss, mean_log_prob


class SyncSAC(SACTrainer, SAC):
    """Soft actor-critic whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``train_freq`` steps
    in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps`` updates. ``workers``,
    ``executor`` and ``start_method`` only say how it is run, and never change a bit of the weights.

    Args:
        policy: As for SB3's ``SAC``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        train_freq: Steps of each environment in a round, as an int or ``(n, "step")``.
        gradient_steps: As for :class:`~reactor_sb3.SyncDQN`: ``None`` for as much learning from each step as by SB3 with one
            environment, an update a step with the default ``train_freq``.
        action_noise: Of one environment. Each environment has its own, drawn from its actor's random stream, and begins it anew
            with each episode.
        use_sde: Whether to explore by gSDE (Raffin et al. 2022). Each environment has a matrix of its own, drawn from its actor's
            random stream when a round begins, and every ``sde_sample_freq`` steps of it.
        device: As for :class:`~reactor_sb3.SyncDQN`: the processor by default.
        **options: ``split``, ``n_actors``, ``workers``, ``executor``, ``evaluate_every``, and others; see
            :class:`~reactor_sb3.RunOptions`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or ``action_noise`` is not an ``ActionNoise``.
        AssertionError: If its actions are not a ``Box`` with finite bounds (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a round or ``learning_starts``, or something
            is asked for that there is not: a device, episodic ``train_freq``; or two devices without ``split``.

    Example:
        >>> from reactor_sb3 import SyncSAC
        >>> with SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps, model.update_to_data
        (128, 0.125)
    """

    default_log_name: ClassVar[str] = "SAC"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[SACPolicy],
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
        self.construct(SAC)

    def losses(self) -> dict[str, Loss]:
        """The critics' and the actor's."""
        return {"critic": SACCriticLoss(), "actor": SACActorLoss()}
