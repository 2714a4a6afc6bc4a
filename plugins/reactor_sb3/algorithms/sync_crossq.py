"""``SyncCrossQ``: batch normalisation in the place of targets (Bhatt et al. 2024), sb3-contrib's ``CrossQ`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

import gymnasium
import torch
from sb3_contrib import CrossQ
from sb3_contrib.common.torch_layers import BatchRenorm1d
from sb3_contrib.crossq.policies import Actor, CrossQCritic, CrossQPolicy
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule
from torch.nn.functional import mse_loss

from reactor_sb3.algorithms import sync_sac
from reactor_sb3.algorithms.sac import SACBatch, SACTrainer, entropy_network, learn_entropy, matrix_batch, present_coefficient
from reactor_sb3.learned import read_actor, read_critics
from reactor_sb3.trainers.learner import shares_of
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_torch import Loss, Network, Update, squashed_sample, td_loss

__all__ = ["CrossQActorLoss", "CrossQCriticLoss", "SyncCrossQ"]


@dataclass(frozen=True)
class CrossQCriticLoss(Loss):
    """Squared difference of critics and what they say themselves of the next observations, all in one pass."""

    learns, reads, statistics = "critic", ("actor",), ("critic_loss",)
    by_blocks = False

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss; what is normalised is the mixture of both halves."""
        nets["actor"].set_bn_training_mode(False)
        nets["critic"].set_bn_training_mode(True)
        with torch.no_grad():
            actions, log_prob = squashed_sample(nets["actor"], batch.next_observations, batch.next_noise)
        seen, done = torch.cat((batch.observations, batch.next_observations)), torch.cat((batch.actions, actions))
        values, following = torch.cat(nets["critic"](seen, done), 1).chunk(2)
        with torch.no_grad():
            following = following.amin(1, keepdim=True) - batch.ent_coef * log_prob[:, None]
            returns = batch.rewards + (1 - batch.dones) * batch.discounts * following
        losses = [mse_loss(one, returns) for one in values.chunk(values.shape[1], 1)]
        return (0.5 * torch.stack(losses).sum(),)

    def fast(self, nets: Mapping[str, Any], batch: SACBatch, share: float) -> tuple[float, ...]:
        """The same by the extension. A ratio and a shift of batch renormalisation (Ioffe 2017) are constants to gradients."""
        actions, log_prob = nets["actor"].act(batch.next_observations, batch.next_noise)
        seen, done = torch.cat((batch.observations, batch.next_observations)), torch.cat((batch.actions, actions))
        values, following = nets["critic"].outputs_of(torch.cat((seen, done), 1), training=True)[:, :, 0].chunk(2, 1)
        loss, by_values = td_loss(values, following, batch, 0.5 * share, log_prob, batch.ent_coef)
        nets["critic"].backward(torch.cat((by_values, torch.zeros(by_values.shape)), 1))
        return (loss,)


@dataclass(frozen=True)
class CrossQActorLoss(sync_sac.SACActorLoss):
    """That of SAC; the critics' running statistics stay as they are."""

    normalises = True
    by_blocks = False
    fast = sync_sac.SACActorLoss.fast

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss, and the mean log-probability, from which the entropy coefficient learns."""
        nets["actor"].set_bn_training_mode(True)
        nets["critic"].set_bn_training_mode(False)
        return super().__call__(nets, batch)


class SyncCrossQ(SACTrainer, CrossQ):
    """CrossQ whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncSAC` runs too. Each minibatch is normalised as a whole,
    so with ``n_learners`` its gradients are not shared out; with ``split=True`` the actor learns beside the critics. Gradients come
    from the compiled kernel where it computes dense layers; elsewhere, as on other devices, from autograd.

    Args:
        policy: As for sb3-contrib's ``CrossQ``, and so is every parameter that is not named here.
        env, train_freq, gradient_steps, action_noise, use_sde, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError, AssertionError, ValueError: As by :class:`~reactor_sb3.SyncSAC`.

    Example:
        >>> from reactor_sb3 import SyncCrossQ
        >>> with SyncCrossQ("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps
        128
    """

    default_log_name: ClassVar[str] = "CrossQ"
    host: ClassVar[str] = "sb3-contrib"
    actor_base: ClassVar[type[Any]] = Actor
    _read_actor: ClassVar[Any] = staticmethod(partial(read_actor, kind=Actor, renormalising=BatchRenorm1d))
    _read_critics: ClassVar[Any] = staticmethod(partial(read_critics, kind=CrossQCritic, renormalising=BatchRenorm1d))

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[CrossQPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 1e-3,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int | None = None,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_entropy: str | float = "auto",
        policy_delay: int = 3,
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
        self.construct(CrossQ)

    def networks(self) -> dict[str, Network]:
        """Critics, actor and, where it is learned, the entropy coefficient; no targets."""
        critic, actor = self.policy.critic, self.policy.actor
        return {
            "critic": Network(critic, critic.optimizer, excluding=actor, buffers=True, read=self._read_critics),
            "actor": Network(actor, actor.optimizer, buffers=True, read=self._read_actor),
            **entropy_network(self),
        }

    def losses(self) -> dict[str, Loss]:
        """The critics' and the actor's."""
        return {"critic": CrossQCriticLoss(), "actor": CrossQActorLoss()}

    def batch(self, transitions: dict[str, Any]) -> SACBatch:
        """Transitions with the noise of actions, drawn in sb3-contrib's order, and the actor's only when it learns."""
        if self.use_sde:
            return matrix_batch(self, transitions)
        actions = transitions["actions"]
        noise = next_noise = self.standard_normal(actions)
        if self._n_updates % self.policy_delay == 0:
            noise = self.standard_normal(actions)
        return SACBatch(**transitions, noise=noise, next_noise=next_noise, ent_coef=present_coefficient(self))

    def update(self, batch: SACBatch) -> Update:
        """The critics, and every ``policy_delay`` updates the actor and the coefficient."""
        if self._n_updates % self.policy_delay:
            return {**(yield from self.descend(critic=batch)), "ent_coef": batch.ent_coef}
        found = yield from self.descend(critic=batch, actor=batch)
        return found | learn_entropy(self, found.pop("log_prob"), batch.ent_coef)

    def shares(self) -> tuple[float, ...]:
        """The actor learns in every ``policy_delay``-th update only."""
        return shares_of(self.nets, self.policy_delay)
