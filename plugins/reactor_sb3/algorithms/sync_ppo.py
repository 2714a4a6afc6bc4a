"""``SyncPPO``: proximal policy optimisation (Schulman et al. 2017), SB3's ``PPO`` on all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from reactor_sb3 import formulas
from reactor_torch import Batch, Formula, Loss, Networks

__all__ = ["PPOBatch", "PPOLoss"]


@dataclass
class PPOBatch(Batch):
    """Transitions of a round, or some of them; ``(rows,)`` and float32 unless it says more.

    Attributes:
        observations: As the policy takes them, ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)`` or ``(rows, n)``.
        advantages: Advantages, normalised already if that is wanted.
        returns: What values are to become.
        old_log_prob: Log-probabilities with which the actions were chosen.
        old_values: Values when they were chosen.
    """

    observations: Any
    actions: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    old_log_prob: torch.Tensor
    old_values: torch.Tensor


@dataclass(frozen=True)
class PPOLoss(Loss):
    """Clipped surrogate, value loss and entropy; statistics have the names that SB3 logs them by.

    Attributes:
        clip_range: How far from 1 the ratio of probabilities counts.
        clip_range_vf: How far from what it was a value counts; ``None`` for as far as it is.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
        learns: Name of the policy's network.
    """

    clip_range: float
    clip_range_vf: float | None
    ent_coef: float
    vf_coef: float
    learns: str = "policy"
    statistics = ("loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")

    def __call__(self, nets: Mapping[str, Any], batch: PPOBatch) -> tuple[torch.Tensor, ...]:
        """The loss, and its parts."""
        values, log_prob, entropy = self.evaluate(nets[self.learns], batch)
        old_values, advantages = batch.old_values.flatten(), batch.advantages.flatten()
        log_ratio = log_prob - batch.old_log_prob.flatten()
        ratio = log_ratio.exp()
        clipped, values = ratio.clamp(1 - self.clip_range, 1 + self.clip_range), values.flatten()
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        if self.clip_range_vf is not None:
            values = old_values + (values - old_values).clamp(-self.clip_range_vf, self.clip_range_vf)
        value_loss = mse_loss(values, batch.returns.flatten())
        entropy_loss = (log_prob if entropy is None else -entropy).mean()
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        return loss, policy_loss, value_loss, entropy_loss, (ratio - 1 - log_ratio).mean(), (clipped != ratio).float().mean()

    def evaluate(self, policy: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Values, log-probabilities and entropies, ``(rows,)`` each; no entropies where nobody can compute them."""
        return policy.evaluate_actions(batch.observations, batch.actions)  # type: ignore[no-any-return]

    def formula(self, nets: Networks) -> Formula | None:
        """For dense layers."""
        return formulas.ppo(self, nets)
