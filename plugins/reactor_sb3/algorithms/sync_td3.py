"""``SyncTD3``: twin delayed deterministic policy gradients (Fujimoto et al. 2018), SB3's ``TD3`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.td3.policies import TD3Policy
from torch.nn.functional import mse_loss

from reactor_sb3.acting.behaviours import Behaviour, Exploring
from reactor_sb3.learned import read_actor, read_critics
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.learner import shares_of
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_torch import Loss, Network, TransitionBatch, Update, scaled, td_loss, weighted_sum

__all__ = ["TD3ActorLoss", "TD3CriticLoss", "SyncTD3", "TD3Batch"]


@dataclass
class TD3Batch(TransitionBatch):
    """Transitions, and the noise that is added to next actions.

    Attributes:
        next_noise: Noise as it is added to the target actor's actions, ``(rows, n)``, float32: scaled and clipped already.
    """

    next_noise: torch.Tensor


@dataclass(frozen=True)
class TD3CriticLoss(Loss):
    """Squared difference of critics and targets, added up over the critics."""

    learns, reads, statistics = "critic", ("critic_target", "actor_target"), ("critic_loss",)

    def __call__(self, nets: Mapping[str, Any], batch: TD3Batch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        with torch.no_grad():
            actions = (nets["actor_target"](batch.next_observations) + batch.next_noise).clamp(-1, 1)
            following = torch.cat(nets["critic_target"](batch.next_observations, actions), 1).amin(1, keepdim=True)
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * following
        losses = [mse_loss(values, returns) for values in nets["critic"](batch.observations, batch.actions)]
        return (torch.stack(losses).sum(),)

    def fast(self, nets: Mapping[str, Any], batch: TD3Batch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        actions = (nets["actor_target"].forward(batch.next_observations) + batch.next_noise).clamp_(-1, 1)
        following = nets["critic_target"].values(batch.next_observations, actions)
        loss, by_values = td_loss(nets["critic"].values(batch.observations, batch.actions), following, batch, share)
        nets["critic"].backward(by_values)
        return (loss,)


@dataclass(frozen=True)
class TD3ActorLoss(Loss):
    """The first critic's value of the actor's own actions, negative."""

    learns, reads, statistics, fields = "actor", ("critic",), ("actor_loss",), ("observations",)

    def __call__(self, nets: Mapping[str, Any], batch: TD3Batch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        return (-nets["critic"].q1_forward(batch.observations, nets["actor"](batch.observations)).mean(),)

    def fast(self, nets: Mapping[str, Any], batch: TD3Batch, share: float) -> tuple[float, ...]:
        """The same by the extension."""
        actions = nets["actor"].forward(batch.observations)
        values, by_actions = nets["critic"].action_gradient(batch.observations, actions, first=True)
        loss = weighted_sum(values, -share)
        nets["actor"].backward(scaled(by_actions, -share))
        return (loss,)


class SyncTD3(OffPolicyTrainer, TD3):
    """Twin delayed DDPG whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of a reactor program: the parameters are broadcast, each of ``n_actors`` actors takes ``train_freq`` steps
    in its own environments, the learner stores all transitions in actor order and makes ``gradient_steps`` updates. ``workers``,
    ``executor`` and ``start_method`` only say how it is run, and never change a bit of the weights.

    Args:
        policy: As for SB3's ``TD3``, and so is every parameter that is not named here.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        train_freq, gradient_steps, action_noise, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError: If no environments like ``env`` can be made, or ``action_noise`` is not an ``ActionNoise``.
        AssertionError: If its actions are not a ``Box`` with finite bounds (SB3's own check).
        ValueError: If a number makes no sense, the replay buffer is smaller than a round or ``learning_starts``, or something
            is asked for that there is not: a device, episodic ``train_freq``; or two devices without ``split``.

    Example:
        >>> from reactor_sb3 import SyncTD3
        >>> with SyncTD3("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps, model.update_to_data
        (128, 0.125)
    """

    default_log_name: ClassVar[str] = "TD3"

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
        policy_delay: int = 2,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[SplitOptions],
    ) -> None:
        self.construct(TD3)

    def networks(self) -> dict[str, Network]:
        """Critics, actor, and their targets."""
        policy: Any = self.policy
        return {
            "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor, read=read_critics),
            "actor": Network(policy.actor, policy.actor.optimizer, read=read_actor),
            "critic_target": Network(policy.critic_target, excluding=policy.actor_target, read=read_critics),
            "actor_target": Network(policy.actor_target, read=read_actor),
        }

    def losses(self) -> dict[str, Loss]:
        """The critics' and the actor's."""
        return {"critic": TD3CriticLoss(), "actor": TD3ActorLoss()}

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The actor, and the noise that is added to its actions."""
        source = read_policy(self.policy)
        return source.module, Exploring(source.policy, self.action_noise)

    def batch(self, transitions: dict[str, Any]) -> TD3Batch:
        """Transitions with the noise of next actions, drawn as SB3 does."""
        actions, clip = transitions["actions"], self.target_noise_clip
        noise = torch.empty(actions.shape).normal_(0, self.target_policy_noise, generator=self.generator).clamp_(-clip, clip)
        return TD3Batch(**transitions, next_noise=noise.to(actions.device))

    def update(self, batch: TD3Batch) -> Update:
        """The critics, and every ``policy_delay`` updates the actor and the targets."""
        if self._n_updates % self.policy_delay:
            return (yield from self.descend(critic=batch))
        found = yield from self.descend(critic=batch, actor=batch)
        self.nets.follow("critic_target", "critic", self.tau)
        self.nets.follow("actor_target", "actor", self.tau)
        return found

    def shares(self) -> tuple[float, ...]:
        """The actor learns in every ``policy_delay``-th update only."""
        return shares_of(self.nets, self.policy_delay)
