"""The losses of Q-learning and their gradients: values of the actions taken against returns, or against a target network's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy.typing as npt
import torch

from reactor_torch.arrays import array_of, functions_for, numbers
from reactor_torch.batches import Batch, TransitionBatch
from reactor_torch.dense import Function
from reactor_torch.updater import UpdaterLoss

__all__ = ["DQNLoss", "QBatch", "QLoss"]

Array = npt.NDArray[Any]
LossKind = Literal["huber", "mse"]


@dataclass
class QBatch(Batch):
    """Observations ``(rows, ...)``, actions ``(rows,)`` or ``(rows, 1)``, int64, and what they are worth, ``(rows,)``, float32."""

    observations: Any
    actions: torch.Tensor
    returns: torch.Tensor


class QLoss(UpdaterLoss):
    """How far values of actions are from returns: PQN's loss.

    Args:
        q_net: Gives values ``(rows, actions)``.
        kind: ``"mse"``, or ``"huber"`` (squares up to 1, then linear).
        weight: Weight of the loss: PQN takes half the squared error.

    Raises:
        ValueError: If there is no such ``kind``.
    """

    statistics: ClassVar[tuple[str, ...]] = ("loss",)
    settings: ClassVar[tuple[str, ...]] = ("kind",)

    def __init__(self, q_net: Function, kind: LossKind = "mse", weight: float = 1.0) -> None:
        if kind not in ("huber", "mse"):
            raise ValueError(f"loss={kind!r} must be 'huber' or 'mse'")
        self.q_net, self.flat, self.weight = q_net, q_net.flat, weight
        self.kind: LossKind = kind
        self._slopes = torch.empty(0)

    def gradients(self, batch: QBatch, of: int | None = None) -> Array:
        """Overwrite the gradients of the parameters; see :meth:`PPOLoss.gradients`.

        Returns:
            The loss, ``(1,)``, float32.
        """
        values = self.q_net.forward(batch.observations)
        rows = len(values)
        xp, share = functions_for(self.flat.device), self.weight / (of or rows)
        actions = batch.actions.view(rows, 1)
        errors = values.gather(1, actions).sub_(batch.returns.view(rows, 1))
        far = array_of(errors)[:, 0]
        if self.kind == "huber":
            slopes = xp.clip(far, -1, 1)
            loss = xp.dot(slopes, far - 0.5 * slopes) * share
            xp.multiply(slopes, share, out=far)
        else:
            loss = xp.dot(far, far) * share
            xp.multiply(far, 2 * share, out=far)
        if self._slopes.shape != values.shape:
            self._slopes = torch.empty_like(values)
        self.q_net.backward(self._slopes.zero_().scatter_(1, actions, errors))
        return numbers([loss])


class DQNLoss(UpdaterLoss):
    """DQN's loss: rewards and what a target network says of the next observation.

    Args:
        q_net: The network that learns.
        target: The target network; nobody asks for its gradients.
        double_q: Whether ``q_net`` chooses the next action and ``target`` only values it.
        kind: See :class:`QLoss`.
    """

    statistics: ClassVar[tuple[str, ...]] = ("loss",)
    settings: ClassVar[tuple[str, ...]] = ("double_q", "kind")

    def __init__(self, q_net: Function, target: Function, double_q: bool = False, kind: LossKind = "huber") -> None:
        self.q_net, self.target, self.double_q, self.flat = q_net, target, double_q, q_net.flat
        self.reads = (target.flat,)
        self.errors = QLoss(q_net, kind)

    @property
    def kind(self) -> LossKind:
        """See :class:`QLoss`."""
        return self.errors.kind

    @kind.setter
    def kind(self, kind: LossKind) -> None:
        self.errors.kind = kind

    def gradients(self, batch: TransitionBatch, of: int | None = None) -> Array:
        """See :meth:`QLoss.gradients`."""
        following = self.target.forward(batch.next_observations)
        if self.double_q:
            best = self.q_net.forward(batch.next_observations).argmax(1, keepdim=True)
            worth = following.gather(1, best)[:, 0]
        else:
            worth = following.amax(1)
        rows = len(worth)
        discounts = batch.discounts.view(rows) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
        returns = (1 - batch.dones.view(rows)).mul_(worth).mul_(discounts).add_(batch.rewards.view(rows))
        return self.errors.gradients(QBatch(batch.observations, batch.actions, returns), of)
