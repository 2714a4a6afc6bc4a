"""``SyncSAC``: soft actor-critic (Haarnoja et al. 2018), SB3's ``SAC`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from reactor_sb3 import formulas
from reactor_torch import Formula, Loss, Networks, TransitionBatch, squashed_sample

__all__ = ["ActorLoss", "CriticLoss", "SACBatch"]


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


@dataclass(frozen=True)
class CriticLoss(Loss):
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

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.sac_critics(self, nets)


@dataclass(frozen=True)
class ActorLoss(Loss):
    """Log-probability of the actor's own actions, weighted, less the least value that a critic gives them."""

    learns, reads, statistics, fields = "actor", ("critic",), ("actor_loss", "log_prob"), ("observations", "noise", "ent_coef")

    def __call__(self, nets: Mapping[str, Any], batch: SACBatch) -> tuple[torch.Tensor, ...]:
        """The loss, and the mean log-probability, from which the entropy coefficient learns."""
        actions, log_prob = squashed_sample(nets["actor"], batch.observations, batch.noise)
        return (batch.ent_coef * log_prob - self.value(nets["critic"], batch.observations, actions)).mean(), log_prob.mean()

    def value(self, critic: Any, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        """What the critics say of actions, ``(rows,)``."""
        return torch.cat(critic(observations, actions), 1).amin(1)

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.sac_actor(self, nets)
