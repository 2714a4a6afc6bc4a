"""The loss of PPO with its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.flat import array_of, functions_for, kernels_for, numbers
from reactor_torch.formulas.actor_critic import ActorCritic
from reactor_torch.kept import keep

__all__ = ["PPOFormula"]

Array = npt.NDArray[Any]


class PPOFormula:
    """Clipped surrogate, value loss and entropy, with the gradients of all.

    Args:
        loss: The loss: ``clip_range``, ``clip_range_vf``, ``ent_coef`` and ``vf_coef`` are as in SB3's ``PPO``.
        policy: Actor and critic.
    """

    def __init__(self, loss: Any, policy: ActorCritic) -> None:
        self.loss, self.policy, self.device = loss, policy, policy.flat.device
        self.kernels = kernels_for(self.device)
        self.block: int | None = self.kernels.LEAF if self.kernels is not None and policy.adds_up else None
        self._of_rows: dict[int, _Buffers] = {}

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss and its parts, under the names that SB3 logs them by, ``(6,)``."""
        rows = len(batch)
        share = 1.0 / (of or rows)
        masks = getattr(batch, "action_masks", None)
        values, log_prob, entropy = self.policy.evaluate(batch.observations, batch.actions, masks)
        buffers = self._of_rows.get(rows)
        if buffers is None:
            buffers = keep(self._of_rows, rows, _Buffers(rows, self.device))
        if self.kernels is not None:
            return self._by_kernels(self.kernels, buffers, batch, values, log_prob, entropy, share)
        policy_loss, kl, clipped = self._surrogate(buffers, array_of(log_prob), batch, share)
        value_loss = self._value_loss(buffers, array_of(values), batch, share)
        by_entropy = -self.loss.ent_coef * share
        if entropy is None:  # estimated by the log-probabilities
            entropy_loss = array_of(log_prob).sum() * share
            buffers.by_log_prob.add_(-by_entropy)
        else:
            entropy_loss = array_of(entropy).sum() * -share
        self.policy.backward(buffers.by_values, buffers.by_log_prob, by_entropy)
        loss = policy_loss + self.loss.ent_coef * entropy_loss + self.loss.vf_coef * value_loss
        return numbers([loss, policy_loss, value_loss, entropy_loss, kl, clipped])

    def _by_kernels(
        self,
        kernels: Any,
        buffers: _Buffers,
        batch: Any,
        values: torch.Tensor,
        log_prob: torch.Tensor,
        entropy: torch.Tensor | None,
        share: float,
    ) -> Array:
        loss, statistics = self.loss, np.empty(6, np.float32)
        clips = loss.clip_range_vf is not None
        given = (log_prob, entropy, batch.advantages, batch.returns, batch.old_log_prob, batch.old_values if clips else None)
        arrays = [None if one is None else np.ascontiguousarray(one.numpy()) for one in given]
        numbers_of_loss = (loss.clip_range, loss.clip_range_vf or 0.0, loss.ent_coef, loss.vf_coef, share)
        out = buffers.value_gradient, buffers.log_prob_gradient, statistics
        kernels.ppo_loss(values.numpy(), *arrays, *numbers_of_loss, *out)
        self.policy.backward(buffers.by_values, buffers.by_log_prob, 0.0 if entropy is None else -loss.ent_coef * share)
        return statistics

    def _surrogate(self, buffers: _Buffers, log_prob: Any, batch: Any, share: float) -> tuple[Any, Any, Any]:
        """The surrogate's loss, the divergence from the old policy, and the part of ratios that were clipped."""
        xp = functions_for(self.device)
        advantages, by_log_prob = array_of(batch.advantages), buffers.log_prob_gradient
        log_ratio, ratio, limited, free, bound = buffers.arrays
        xp.subtract(log_prob, array_of(batch.old_log_prob), out=log_ratio)
        xp.exp(log_ratio, out=ratio)
        xp.clip(ratio, 1 - self.loss.clip_range, 1 + self.loss.clip_range, out=limited)
        clipped = (limited != ratio).sum() * share
        xp.multiply(advantages, ratio, out=free)
        xp.multiply(advantages, limited, out=bound)
        xp.multiply(free, free <= bound, out=by_log_prob)  # where the clipped one is less, nothing depends on the ratio
        xp.multiply(by_log_prob, -share, out=by_log_prob)
        xp.minimum(free, bound, out=bound)
        xp.subtract(ratio, 1, out=ratio)
        xp.subtract(ratio, log_ratio, out=ratio)
        return bound.sum() * -share, ratio.sum() * share, clipped

    def _value_loss(self, buffers: _Buffers, values: Any, batch: Any, share: float) -> Any:
        xp = functions_for(self.device)
        by_values, returns = buffers.value_gradient, array_of(batch.returns)
        if self.loss.clip_range_vf is None:
            xp.subtract(values, returns, out=by_values)
            loss = xp.dot(by_values, by_values) * share
        else:
            old_values = array_of(batch.old_values)
            moved, limited = buffers.arrays[:2]
            xp.subtract(values, old_values, out=moved)
            xp.clip(moved, -self.loss.clip_range_vf, self.loss.clip_range_vf, out=limited)
            xp.add(old_values, limited, out=by_values)
            xp.subtract(by_values, returns, out=by_values)
            loss = xp.dot(by_values, by_values) * share
            xp.multiply(by_values, moved == limited, out=by_values)
        xp.multiply(by_values, 2 * self.loss.vf_coef * share, out=by_values)
        return loss


class _Buffers:
    """The arrays that a number of rows needs."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.by_values, self.by_log_prob = torch.zeros(rows, device=device), torch.zeros(rows, device=device)
        self.value_gradient, self.log_prob_gradient = array_of(self.by_values), array_of(self.by_log_prob)
        self.arrays: list[Any] = [array_of(torch.zeros(rows, device=device)) for _ in range(5)]
