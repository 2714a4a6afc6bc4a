"""The loss of PPO and its gradients, for a minibatch or a slice of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import torch

from reactor_torch.arrays import array_of, functions_for, numbers
from reactor_torch.batches import Batch
from reactor_torch.formulas.actor_critic import ActorCritic
from reactor_torch.updater import UpdaterLoss

__all__ = ["PPOBatch", "PPOLoss", "normalized"]

Array = npt.NDArray[Any]


@dataclass
class PPOBatch(Batch):
    """Transitions of a round, or some of them.

    Attributes:
        observations: As the policy takes them, ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)`` or ``(rows, n)``.
        advantages: ``(rows,)``, float32, normalised already if that is wanted (:func:`normalized`).
        returns: What values are to become, ``(rows,)``, float32.
        old_log_prob: Log-probabilities with which the actions were chosen, ``(rows,)``, float32.
        old_values: Values when they were chosen, ``(rows,)``, float32.
    """

    observations: Any
    actions: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    old_log_prob: torch.Tensor
    old_values: torch.Tensor


def normalized(advantages: torch.Tensor, batch_size: int) -> torch.Tensor:
    """Advantages of each minibatch with mean 0 and standard deviation 1, as SB3 does it; those of a minibatch of one stay.

    Args:
        advantages: Advantages of minibatches that follow each other, ``(rows,)``; the last one may be shorter.
        batch_size: How many rows a minibatch has.
    """
    whole = len(advantages) // batch_size * batch_size
    parts = [advantages[:whole].view(-1, batch_size), advantages[whole:].view(1, -1)]
    done = []
    for part in parts:
        if part.shape[1] > 1 and part.numel():
            std, mean = torch.std_mean(part, 1, keepdim=True)
            part = (part - mean) / (std + 1e-8)
        done.append(part.flatten())
    return torch.cat(done)


class PPOLoss(UpdaterLoss):
    """Clipped surrogate, value loss and entropy, with the gradients of all.

    Args:
        policy: Actor and critic.

    Attributes:
        clip_range: How far from 1 the ratio of probabilities counts.
        clip_range_vf: How far from what it was a value counts; ``None`` for as far as it is.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
    """

    statistics: ClassVar[tuple[str, ...]] = (
        "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction", "loss",
    )  # fmt: skip
    """What :meth:`gradients` returns, under the names that SB3 logs them by."""
    settings: ClassVar[tuple[str, ...]] = ("clip_range", "clip_range_vf", "ent_coef", "vf_coef")

    def __init__(
        self,
        policy: ActorCritic,
        clip_range: float = 0.2,
        clip_range_vf: float | None = None,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
    ) -> None:
        self.policy, self.flat = policy, policy.flat
        self.clip_range, self.clip_range_vf, self.ent_coef, self.vf_coef = clip_range, clip_range_vf, ent_coef, vf_coef
        self._of_rows: dict[int, _Buffers] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_of_rows": {}}

    def gradients(self, batch: PPOBatch, of: int | None = None) -> Array:
        """Overwrite the gradients of the parameters.

        Args:
            batch: A minibatch, or a slice of one.
            of: Rows of the whole minibatch: gradients and statistics of its slices add up to those of the whole.

        Returns:
            :attr:`statistics`, float32.
        """
        rows = len(batch)
        share = 1.0 / (of or rows)
        values, log_prob, entropy = self.policy.evaluate(batch.observations, batch.actions)
        buffers = self._of_rows.get(rows)
        if buffers is None:
            buffers = self._of_rows[rows] = _Buffers(rows, self.flat.device)
        policy_loss, kl, clipped = self._surrogate(buffers, array_of(log_prob), batch, share)
        value_loss = self._value_loss(buffers, array_of(values), batch, share)
        by_entropy = -self.ent_coef * share
        if entropy is None:  # estimated by the log-probabilities
            entropy_loss = array_of(log_prob).sum() * share
            buffers.by_log_prob.add_(-by_entropy)
        else:
            entropy_loss = array_of(entropy).sum() * -share
        self.policy.backward(buffers.by_values, buffers.by_log_prob, by_entropy)
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        return numbers([policy_loss, value_loss, entropy_loss, kl, clipped, loss])

    def _surrogate(self, buffers: _Buffers, log_prob: Any, batch: PPOBatch, share: float) -> tuple[Any, Any, Any]:
        """The surrogate's loss, the divergence from the old policy, and the part of ratios that were clipped."""
        xp = functions_for(self.flat.device)
        advantages, by_log_prob = array_of(batch.advantages), buffers.slopes
        log_ratio, ratio, limited, free, bound = buffers.arrays
        xp.subtract(log_prob, array_of(batch.old_log_prob), out=log_ratio)
        xp.exp(log_ratio, out=ratio)
        xp.clip(ratio, 1 - self.clip_range, 1 + self.clip_range, out=limited)
        clipped = (limited != ratio).sum() * share
        xp.multiply(advantages, ratio, out=free)
        xp.multiply(advantages, limited, out=bound)
        xp.multiply(free, free <= bound, out=by_log_prob)  # where the clipped one is less, nothing depends on the ratio
        xp.multiply(by_log_prob, -share, out=by_log_prob)
        xp.minimum(free, bound, out=bound)
        xp.subtract(ratio, 1, out=ratio)
        xp.subtract(ratio, log_ratio, out=ratio)
        return bound.sum() * -share, ratio.sum() * share, clipped

    def _value_loss(self, buffers: _Buffers, values: Any, batch: PPOBatch, share: float) -> Any:
        xp = functions_for(self.flat.device)
        by_values, returns = buffers.errors, array_of(batch.returns)
        if self.clip_range_vf is None:
            xp.subtract(values, returns, out=by_values)
            loss = xp.dot(by_values, by_values) * share
        else:
            old_values = array_of(batch.old_values)
            moved, limited = buffers.arrays[:2]
            xp.subtract(values, old_values, out=moved)
            xp.clip(moved, -self.clip_range_vf, self.clip_range_vf, out=limited)
            xp.add(old_values, limited, out=by_values)
            xp.subtract(by_values, returns, out=by_values)
            loss = xp.dot(by_values, by_values) * share
            xp.multiply(by_values, moved == limited, out=by_values)
        xp.multiply(by_values, 2 * self.vf_coef * share, out=by_values)
        return loss


class _Buffers:
    """What a number of rows needs."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.by_values, self.by_log_prob = torch.zeros(rows, device=device), torch.zeros(rows, device=device)
        self.errors, self.slopes = array_of(self.by_values), array_of(self.by_log_prob)
        self.arrays: list[Any] = [array_of(torch.zeros(rows, device=device)) for _ in range(5)]
