"""One update of a policy from a minibatch: SB3's PPO, term by term, and nothing that is not needed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from torch.nn import functional

__all__ = ["PPOUpdate", "Statistics"]


class Statistics(NamedTuple):
    """What SB3 logs of an update, ``()``, float32 each."""

    policy_gradient_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy_loss: torch.Tensor
    clip_fraction: torch.Tensor
    approx_kl: torch.Tensor
    loss: torch.Tensor


@dataclass(frozen=True)
class PPOUpdate:
    """How the updates of a round are made.

    Attributes:
        clip_range: How far the ratio of probabilities may be from 1.
        clip_range_vf: How far values may be from what they were, ``None`` for as far as they like.
        normalize_advantage: Whether a minibatch's advantages are shifted and scaled to mean 0 and deviation 1.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
        max_grad_norm: What gradients are clipped to.
        target_kl: Two thirds of the divergence at which no update is made any more, ``None`` for any.
    """

    clip_range: float
    clip_range_vf: float | None
    normalize_advantage: bool
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float | None

    def __call__(self, policy: ActorCriticPolicy, batch: RolloutBufferSamples) -> tuple[Statistics, bool]:
        """Make an update, unless the policy is too far already from the one that has sampled.

        Returns:
            What is to be told of it, and whether it was made.
        """
        statistics = self._statistics(policy, batch)
        if self.target_kl is not None and float(statistics.approx_kl) > 1.5 * self.target_kl:
            return Statistics(*(one.detach() for one in statistics)), False
        optimizer = policy.optimizer
        optimizer.zero_grad()
        statistics.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), self.max_grad_norm)
        optimizer.step()
        return Statistics(*(one.detach() for one in statistics)), True

    def _statistics(self, policy: ActorCriticPolicy, batch: RolloutBufferSamples) -> Statistics:
        values, log_prob, entropy = policy.evaluate_actions(batch.observations, batch.actions)
        values = values.flatten()
        advantages = batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratio = log_prob - batch.old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip_range, 1 + self.clip_range)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        if self.clip_range_vf is not None:
            values = batch.old_values + (values - batch.old_values).clamp(-self.clip_range_vf, self.clip_range_vf)
        value_loss = functional.mse_loss(batch.returns, values)
        entropy_loss = log_prob.mean() if entropy is None else -entropy.mean()
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        with torch.no_grad():
            clip_fraction = ((ratio - 1).abs() > self.clip_range).float().mean()
            approx_kl = (ratio - 1 - log_ratio).mean()
        return Statistics(policy_loss, value_loss, entropy_loss, clip_fraction, approx_kl, loss)
