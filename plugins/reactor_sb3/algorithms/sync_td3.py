"""``SyncTD3``: twin delayed deterministic policy gradients (Fujimoto et al. 2018), SB3's ``TD3`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from reactor_sb3 import formulas
from reactor_torch import Formula, Loss, Networks, TransitionBatch

__all__ = ["ActorLoss", "CriticLoss", "TD3Batch"]


@dataclass
class TD3Batch(TransitionBatch):
    """Transitions, and the noise that is added to next actions.

    Attributes:
        next_noise: Noise as it is added to the target actor's actions, ``(rows, n)``, float32: scaled and clipped already.
    """

    next_noise: torch.Tensor


@dataclass(frozen=True)
class CriticLoss(Loss):
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

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.td3_critics(self, nets)


@dataclass(frozen=True)
class ActorLoss(Loss):
    """What the first critic says of the actor's own actions, negative."""

    learns, reads, statistics, fields = "actor", ("critic",), ("actor_loss",), ("observations",)

    def __call__(self, nets: Mapping[str, Any], batch: TD3Batch) -> tuple[torch.Tensor, ...]:
        """The loss."""
        return (-nets["critic"].q1_forward(batch.observations, nets["actor"](batch.observations)).mean(),)

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.td3_actor(self, nets)
