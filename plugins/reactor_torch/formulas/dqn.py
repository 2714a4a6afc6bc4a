"""The losses of Q-learning with their gradients: values of the actions taken against returns, or against a target network's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.dense import Function
from reactor_torch.flat import array_of, functions_for, kernels_for, numbers

__all__ = ["DQNFormula", "QFormula"]

Array = npt.NDArray[Any]


class QFormula:
    """How far values of actions are from the returns of a minibatch, squared.

    Args:
        loss: The loss.
        q_net: What learns: values ``(rows, actions)``.
        weight: Weight of the loss: PQN takes half the squared error.
    """

    def __init__(self, loss: Any, q_net: Function, weight: float = 1.0) -> None:
        self.loss, self.q_net, self.weight = loss, q_net, weight
        self._by_values = torch.empty(0)
        self.kernels = kernels_for(q_net.flat.device)
        self.block: int | None = self.kernels.LEAF if self.kernels is not None and q_net.adds_up else None

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, ``(1,)``."""
        return self.towards(batch, batch.returns, "mse", of)

    def towards(self, batch: Any, returns: torch.Tensor, kind: str, of: int | None) -> Array:
        """The same with other returns.

        Args:
            batch: Observations and actions.
            returns: What the actions' values are to be, ``(rows,)`` or ``(rows, 1)``, float32.
            kind: ``"mse"``, or ``"huber"`` (squares up to 1, then linear).
            of: Rows of the whole minibatch.
        """
        values = self.q_net.forward(batch.observations)
        rows = values.shape[0]
        xp, share = functions_for(values.device), self.weight / (of or rows)
        if self._by_values.shape != values.shape:
            self._by_values = torch.empty_like(values)
        if self.kernels is not None:
            taken, wanted = (np.ascontiguousarray(one.numpy()) for one in (batch.actions, returns))
            loss = self.kernels.q_loss(values.numpy(), taken, wanted, kind == "huber", share, self._by_values.numpy())
            self.q_net.backward(self._by_values)
            return numbers([loss])
        actions = batch.actions.view(rows, 1)
        errors = values.gather(1, actions).sub_(returns.view(rows, 1))
        far = array_of(errors)[:, 0]
        if kind == "huber":
            by_errors = xp.clip(far, -1, 1)
            loss = xp.dot(by_errors, far - 0.5 * by_errors) * share
            xp.multiply(by_errors, share, out=far)
        else:
            loss = xp.dot(far, far) * share
            xp.multiply(far, 2 * share, out=far)
        self.q_net.backward(self._by_values.zero_().scatter_(1, actions, errors))
        return numbers([loss])


class DQNFormula:
    """DQN's loss: rewards and what a target network says of the next observation.

    Args:
        loss: The loss: ``double_q`` says whether ``q_net`` chooses the action that the target values, ``kind`` is as in
            :meth:`QFormula.towards`.
        q_net: What learns.
        target: The target network.
    """

    def __init__(self, loss: Any, q_net: Function, target: Function) -> None:
        self.loss, self.q_net, self.target = loss, q_net, target
        self._errors = QFormula(loss, q_net)
        self.kernels, self.block = self._errors.kernels, self._errors.block

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, ``(1,)``."""
        following = self.target.forward(batch.next_observations)
        if self.kernels is not None:
            return self._errors.towards(batch, self._returns(self.kernels, batch, following), self.loss.kind, of)
        if self.loss.double_q:
            best = self.q_net.forward(batch.next_observations).argmax(1, keepdim=True)
            q_values = following.gather(1, best)[:, 0]
        else:
            q_values = following.amax(1)
        rows = len(q_values)
        discounts = batch.discounts.view(rows) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
        returns = (1 - batch.dones.view(rows)).mul_(q_values).mul_(discounts).add_(batch.rewards.view(rows))
        return self._errors.towards(batch, returns, self.loss.kind, of)

    def _returns(self, kernels: Any, batch: Any, following: torch.Tensor) -> torch.Tensor:
        """The targets of the values of actions, by the extension."""
        choosing = self.q_net.forward(batch.next_observations).numpy() if self.loss.double_q else None
        per_row = isinstance(batch.discounts, torch.Tensor)
        given = (batch.dones, batch.rewards, batch.discounts if per_row else None)
        arrays = [None if one is None else np.ascontiguousarray(one.numpy()) for one in given]
        returns = torch.empty(following.shape[0])
        kernels.q_target(following.numpy(), choosing, *arrays, 0.0 if per_row else batch.discounts, returns.numpy())
        return returns
