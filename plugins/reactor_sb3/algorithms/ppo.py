"""Every kind of PPO (Schulman et al. 2017): its loss, and its way with a round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from stable_baselines3.common.utils import FloatSchedule
from torch.nn.functional import mse_loss

from reactor_sb3.algorithms.actor_critic import ActorCriticTrainer
from reactor_sb3.trainers.learner import Minibatch, cut
from reactor_sb3.trainers.on_policy import mean_of
from reactor_torch import Loss, PPOBatch, Update, normalized, ppo_loss

__all__ = ["PPOBatch", "PPOLoss", "PPOTrainer"]


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
        ratio = (log_ratio := log_prob - batch.old_log_prob.flatten()).exp()
        clipped, values = ratio.clamp(1 - self.clip_range, 1 + self.clip_range), values.flatten()
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        if self.clip_range_vf is not None:
            values = old_values + (values - old_values).clamp(-self.clip_range_vf, self.clip_range_vf)
        value_loss, entropy_loss = mse_loss(values, batch.returns.flatten()), (log_prob if entropy is None else -entropy).mean()
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        return loss, policy_loss, value_loss, entropy_loss, (ratio - 1 - log_ratio).mean(), (clipped != ratio).float().mean()

    def evaluate(self, policy: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Values, log-probabilities and entropies, ``(rows,)`` each; no entropies where nobody can compute them."""
        masks = {"action_masks": batch.action_masks} if hasattr(batch, "action_masks") else {}
        return policy.evaluate_actions(batch.observations, batch.actions, **masks)  # type: ignore[no-any-return]

    def fast(self, nets: Mapping[str, Any], batch: PPOBatch, share: float) -> tuple[float, ...]:
        """The same by the extension; with masks, if there are any."""
        policy, numbers = nets[self.learns], (self.clip_range, self.clip_range_vf, self.ent_coef, self.vf_coef)
        said = policy.evaluate(batch.observations, batch.actions, getattr(batch, "action_masks", None))
        statistics, by_values, by_log_prob = ppo_loss(said, batch, share, *numbers)
        policy.backward(by_values, by_log_prob, -self.ent_coef * share)
        return statistics


class PPOTrainer(ActorCriticTrainer):
    """Every kind of PPO: its way with a round."""

    loss_class: ClassVar[type[PPOLoss]] = PPOLoss
    _stopped: frozenset[str] = frozenset()  # losses whose divergence has become too large in this round
    # the attributes of SB3's PPO
    clip_range: Any
    clip_range_vf: Any
    target_kl: float | None

    def losses(self) -> dict[str, Loss]:
        """The loss, with the numbers that its schedules have come to."""
        left, vf = self._current_progress_remaining, self.clip_range_vf
        return {"policy": self.loss_class(self.clip_range(left), None if vf is None else vf(left), self.ent_coef, self.vf_coef)}

    def check_settings(self) -> None:
        """Take over numbers for schedules."""
        super().check_settings()
        for name in ("clip_range", "clip_range_vf"):
            if (schedule := getattr(self, name)) is not None and not isinstance(schedule, FloatSchedule):
                setattr(self, name, FloatSchedule(schedule))

    def minibatches(self, batch: PPOBatch, network: str = "policy") -> Iterator[Minibatch]:
        """A pass: all rows in a new order, with advantages that are normalised minibatch by minibatch."""
        shuffled = batch[self.permutation(len(batch))]
        if self.normalize_advantage:
            shuffled.advantages = normalized(shuffled.advantages, self.batch_size, self.nets.kernels(network))
        yield from cut(shuffled, self.batch_size)

    def update(self, minibatch: Minibatch) -> Update:
        """A step, unless the divergence has become too large."""
        return self.descend(policy=minibatch)

    def step_along(self, loss: str, statistics: Mapping[str, float]) -> None:
        """A step, unless the divergence has become too large: then SB3 makes none, and no more in this round."""
        if statistics["approx_kl"] > (math.inf if self.target_kl is None else 1.5 * self.target_kl):
            self._stopped = self._stopped | {loss}
            if len(self._stopped) == len(self.nets.losses):
                self.end_round_early(f"the divergence is {statistics['approx_kl']:.2f}")
        else:
            super().step_along(loss, statistics)

    def log_round(self, passes: list[list[dict[str, float]]]) -> None:
        """Log means over the round, but for the divergence, which is the last pass's, and the loss, which is the last one."""
        super().log_round(passes)
        record, loss = self.logger.record, self.nets.loss("policy")
        record("train/approx_kl", mean_of(passes[-1], "approx_kl"))
        record("train/loss", passes[-1][-1]["loss"])
        record("train/clip_range", loss.clip_range)
        if loss.clip_range_vf is not None:
            record("train/clip_range_vf", loss.clip_range_vf)
