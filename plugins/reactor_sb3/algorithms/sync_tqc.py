"""``SyncTQC``: truncated quantile critics (Kuznetsov et al. 2020), sb3-contrib's ``TQC`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, cast

import gymnasium
import torch
from sb3_contrib import TQC
from sb3_contrib.common.utils import quantile_huber_loss
from sb3_contrib.tqc.policies import Actor, TQCPolicy
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3 import formulas
from reactor_sb3.acting.policy import Policy
from reactor_sb3.acting.squashed import SquashedPolicy
from reactor_sb3.algorithms import sync_sac
from reactor_sb3.algorithms.entropy import entropy_network, learn_entropy, present_coefficient
from reactor_sb3.algorithms.sync_sac import SACBatch
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_sb3.trainers.options import SplitOptions, keeps_arguments
from reactor_torch import Loss, Network, Update, squashed_sample

__all__ = ["ActorLoss", "CriticLoss", "SyncTQC"]


@dataclass(frozen=True)
class CriticLoss(Loss):
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


@dataclass(frozen=True)
class ActorLoss(sync_sac.ActorLoss):
    """That of SAC, with the mean of all quantiles in the place of the least value."""

    def value(self, critic: Any, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """What the critics say of actions, ``(rows,)``."""
        quantiles: torch.Tensor = critic(observations, actions)
        return quantiles.mean(2).mean(1)

    formula = Loss.formula


class SyncTQC(OffPolicyTrainer, TQC):
    """TQC whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncSAC` runs too.

    Args:
        policy: As for sb3-contrib's ``TQC``, and so is every parameter that is not named here.
        env, train_freq, gradient_steps, action_noise, use_sde, device: As for :class:`~reactor_sb3.SyncSAC`.
        **options: As for :class:`~reactor_sb3.SyncSAC`.

    Raises:
        TypeError, AssertionError, ValueError: As by :class:`~reactor_sb3.SyncSAC`.

    Example:
        >>> from reactor_sb3.contrib import SyncTQC
        >>> with SyncTQC("MlpPolicy", "Pendulum-v1", n_actors=2, train_freq=16, gradient_steps=4, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     model.num_timesteps
        128
    """

    default_log_name: ClassVar[str] = "TQC"

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
        if use_sde:
            raise ValueError(
                "use_sde=True: the noise of an update's actions is drawn by the trainer, and state-dependent noise belongs to the "
                "policy; use sb3-contrib's TQC, with ReactorVecEnv"
            )
        self.construct(TQC)

    def networks(self) -> dict[str, Network]:
        """Critics, actor, the critics' target and, where it is learned, the entropy coefficient."""
        policy: Any = self.policy
        return {
            "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor),
            "actor": Network(policy.actor, policy.actor.optimizer),
            "critic_target": Network(policy.critic_target),
            **entropy_network(self),
        }

    def losses(self) -> dict[str, Loss]:
        """The critics' and the actor's."""
        return {"critic": CriticLoss(self.top_quantiles_to_drop_per_net * self.critic.n_critics), "actor": ActorLoss()}

    def acting(self) -> tuple[torch.nn.Module, Policy]:
        """The actor, and how actions are drawn."""
        formulas.check_squashed(cast(Any, self.policy).actor, Actor)
        return SquashedPolicy.of(self.policy, TQCPolicy, self.action_noise, Actor)

    def batch(self, transitions: dict[str, Any]) -> SACBatch:
        """Transitions with the noise of actions, drawn in SB3's order."""
        actions = transitions["actions"]
        noise, next_noise = (torch.randn(actions.shape).to(actions.device) for _ in range(2))
        return SACBatch(**transitions, noise=noise, next_noise=next_noise, ent_coef=present_coefficient(self))

    def update(self, batch: SACBatch) -> Update:
        """The critics, the actor, the coefficient, the target."""
        found = yield from self.descend(critic=batch, actor=batch)
        found |= learn_entropy(self, found.pop("log_prob"), batch.ent_coef)
        if self.update_in_round % self.target_update_interval == 0:  # the first update of a round ends with one, as in SB3
            self.nets.follow("critic_target", "critic", self.tau)
        return found
