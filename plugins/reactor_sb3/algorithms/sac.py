"""Every kind of soft actor-critic: its batches, and the entropy coefficient, what a unit of log-probability costs.

It is fixed or learned (Haarnoja et al. 2018, section 5), as SB3's SAC and its kin keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from stable_baselines3.sac.policies import Actor

from reactor_sb3.acting.behaviours import Behaviour, Exploring
from reactor_sb3.learned import read_actor, read_critics
from reactor_sb3.policies import check_squashed, read_policy
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_torch import Network, TransitionBatch, Update

__all__ = ["MatrixBatch", "SACBatch", "SACTrainer", "entropy_network", "learn_entropy", "matrix_batch", "present_coefficient"]


@dataclass
class SACBatch(TransitionBatch):
    """Transitions, the noise of the actions that are chosen for them, and what a unit of log-probability costs.

    Attributes:
        noise: Noise of the actions chosen for observations: standard normal, ``(rows, n)``, float32.
        next_noise: The same for next observations.
        ent_coef: The entropy coefficient before this update.
    """

    noise: torch.Tensor
    next_noise: torch.Tensor
    ent_coef: float


class MatrixBatch(SACBatch):
    """The same with gSDE: the noise of one matrix, ``(features, n)``, is that of all actions."""

    shared = ("noise", "next_noise")


def matrix_batch(model: Any, transitions: dict[str, Any]) -> MatrixBatch:
    """Transitions with the noise of gSDE (Raffin et al. 2022), drawn in SB3's order.

    Args:
        model: A trainer with the attributes of SB3's ``SAC``.
        transitions: Fields of :class:`~reactor_torch.TransitionBatch`.
    """
    distribution = model.actor.action_dist
    like = transitions["actions"].new_empty(distribution.latent_sde_dim, distribution.action_dim)
    noise, _ = (model.standard_normal(like) for _ in range(2))  # SB3 draws one for environments, too, which no update asks for
    return MatrixBatch(**transitions, noise=noise, next_noise=noise, ent_coef=present_coefficient(model))


def entropy_network(model: Any) -> dict[str, Network]:
    """The coefficient's logarithm as something that learns; nothing if it is fixed."""
    optimizer = model.ent_coef_optimizer
    return {} if optimizer is None else {"ent_coef": Network({"log_ent_coef": model.log_ent_coef}, optimizer)}


def present_coefficient(model: Any) -> float:
    """The coefficient, as the coming update has it."""
    if model.ent_coef_optimizer is None:
        return float(model.ent_coef_tensor)
    logarithm, kernels = model.nets.flat("ent_coef").data, model.nets.kernels("ent_coef")
    return float(kernels.exp(float(logarithm)) if kernels else logarithm.exp())


def learn_entropy(model: Any, log_prob: float, coefficient: float) -> dict[str, float]:
    """Step the logarithm so that the entropy of the policy comes near its target.

    Args:
        model: A trainer with the attributes of SB3's ``SAC``.
        log_prob: Mean log-probability of the actor's actions in this update.
        coefficient: The coefficient that the update had.

    Returns:
        What is to be logged.
    """
    if model.ent_coef_optimizer is None:
        return {"ent_coef": coefficient}
    gradient = -(log_prob + float(model.target_entropy))
    loss = float(model.nets.flat("ent_coef").data) * gradient
    model.nets.step("ent_coef", gradient)
    return {"ent_coef": coefficient, "ent_coef_loss": loss}


class SACTrainer(OffPolicyTrainer):
    """Every kind of soft actor-critic, with the attributes of SB3's ``SAC``."""

    actor_base: ClassVar[type[Any]] = Actor
    """The class that actors derive from."""
    _read_actor: ClassVar[Any] = staticmethod(read_actor)
    _read_critics: ClassVar[Any] = staticmethod(read_critics)
    target_update_interval: int
    tau: float

    def networks(self) -> dict[str, Network]:
        """Critics, actor, the critics' target and, where it is learned, the entropy coefficient."""
        policy: Any = self.policy
        return {
            "critic": Network(policy.critic, policy.critic.optimizer, excluding=policy.actor, read=self._read_critics),
            "actor": Network(policy.actor, policy.actor.optimizer, read=self._read_actor),
            "critic_target": Network(policy.critic_target, read=self._read_critics),
            **entropy_network(self),
        }

    def check_settings(self) -> None:
        """Refuse a ``use_sde`` that is not the actor's."""
        super().check_settings()
        actor: Any = self.policy.actor
        if self.use_sde != actor.use_sde:
            raise ValueError(
                f"use_sde must be that of the policy's actor, {actor.use_sde}, got {self.use_sde!r}: pass it to "
                f"{type(self).__name__}(), which makes the policy"
            )

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The actor, and how actions are drawn.

        Raises:
            ValueError: If the actor has another distribution than SB3's.
        """
        policy: Any = self.policy
        check_squashed(policy.actor, self.actor_base)
        source = read_policy(policy, self.sde_sample_freq)
        return source.module, Exploring(source.policy, self.action_noise)

    def batch(self, transitions: dict[str, Any]) -> SACBatch:
        """Transitions with the noise of actions, drawn in SB3's order."""
        if self.use_sde:
            return matrix_batch(self, transitions)
        actions = transitions["actions"]
        noise, next_noise = (self.standard_normal(actions) for _ in range(2))
        return SACBatch(**transitions, noise=noise, next_noise=next_noise, ent_coef=present_coefficient(self))

    def update(self, batch: SACBatch) -> Update:
        """The critics, the actor, the coefficient, the target."""
        found = yield from self.descend(critic=batch, actor=batch)
        found |= learn_entropy(self, found.pop("log_prob"), batch.ent_coef)
        if self.update_in_round % self.target_update_interval == 0:  # the first update of a round ends with one, as in SB3
            self.nets.follow("critic_target", "critic", self.tau)
        return found

    def log_round(self, found: list[dict[str, float]]) -> None:
        """Log what the updates of a round have returned and, with gSDE, the mean of the matrix' deviations."""
        super().log_round(found)
        if self.use_sde:
            self.logger.record("train/std", float(self.policy.actor.get_std().detach().mean()))
