"""Losses about quantiles of returns with their gradients: those of QR-DQN and TQC.

A quantile is moved by quantile regression with Huber's loss: Dabney et al., "Distributional Reinforcement Learning with Quantile
Regression", 2018. TQC has critics that give quantiles, and leaves out the largest of what their targets say: Kuznetsov et al.,
"Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile Critics", 2020. Weights are those of
sb3-contrib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.batches import TransitionBatch
from reactor_torch.dense import Function, input_gradients
from reactor_torch.flat import kernels_for, numbers
from reactor_torch.formulas.continuous import DenseCritics, SquashedActor

__all__ = ["DenseQuantileCritics", "QRDQNFormula", "TQCCriticFormula"]

Array = npt.NDArray[Any]


def regression(kernels: Any, quantiles: torch.Tensor, returns: torch.Tensor, share: float) -> tuple[Any, torch.Tensor]:
    """How far quantiles are from returns, each return counting for each quantile of its row.

    Args:
        kernels: The extension, if it is to be used.
        quantiles: What each critic says, ``(critics, rows, n)``.
        returns: ``(rows, m)``.
        share: Weight of each pair.

    Returns:
        The loss, a scalar, and its gradient by the quantiles.
    """
    critics, rows, count = quantiles.shape
    if kernels is not None:
        gradient = torch.empty_like(quantiles, memory_format=torch.contiguous_format)
        given = (np.ascontiguousarray(one.numpy()) for one in (quantiles, returns))
        return kernels.quantile_loss(critics, rows, *given, share, gradient.numpy()), gradient
    above = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype)[:, None] + 0.5) / count
    errors = returns[:, None, :] - quantiles[..., None]
    near = errors.clamp(-1, 1)
    slopes = torch.where(errors < 0, 1 - above, above).mul_(near)
    return errors.sub_(near, alpha=0.5).mul_(slopes).sum().mul_(share), slopes.sum(3).mul_(-share)


def returns_of(batch: TransitionBatch, following: torch.Tensor) -> torch.Tensor:
    """Rewards, and what follows them as it is worth now.

    Args:
        batch: Transitions.
        following: What is said of what comes after them, ``(rows, n)``; overwritten.
    """
    rows = len(following)
    discounts = batch.discounts.view(rows, 1) if isinstance(batch.discounts, torch.Tensor) else batch.discounts
    return following.mul_(1 - batch.dones.view(rows, 1)).mul_(discounts).add_(batch.rewards.view(rows, 1))


class QRDQNFormula:
    """QR-DQN's loss: quantiles of the actions taken, on what a target network says of the best next action.

    Args:
        loss: The loss.
        net: What learns: quantiles ``(rows, n * actions)``, of all actions, then the next one of all actions.
        target: The target network.
        actions: How many actions there are.
    """

    def __init__(self, loss: Any, net: Function, target: Function, actions: int) -> None:
        self.loss, self.net, self.target, self.actions = loss, net, target, actions
        self.kernels = kernels_for(net.flat.device)
        self.block: int | None = self.kernels.LEAF if self.kernels is not None and net.adds_up else None

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the loss, ``(1,)``."""
        rows, shape = len(batch), (len(batch), -1, self.actions)
        following = self.target.forward(batch.next_observations).view(shape)
        best = _means(following, self.kernels).argmax(1)
        returns = returns_of(batch, _of_actions(following, best))
        quantiles = self.net.forward(batch.observations).view(shape)
        taken = batch.actions.view(rows)
        share = 1 / ((of or rows) * returns.shape[1])
        loss, by_taken = regression(self.kernels, _of_actions(quantiles, taken)[None], returns, share)
        index = taken.view(rows, 1, 1).expand(-1, quantiles.shape[1], 1)
        self.net.backward(torch.zeros_like(quantiles).scatter_(2, index, by_taken[0, :, :, None]).view(rows, -1))
        return numbers([loss])


def _of_actions(quantiles: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Quantiles of one action in each row, ``(rows, n)``: a copy."""
    index = actions.view(-1, 1, 1).expand(-1, quantiles.shape[1], 1)
    return quantiles.gather(2, index).squeeze(2)


def _means(quantiles: torch.Tensor, kernels: Any) -> torch.Tensor:
    """Mean quantiles, ``(rows, actions)``; beside the extension by numpy, whose sums are the same on any processor."""
    return quantiles.mean(1) if kernels is None else torch.from_numpy(quantiles.numpy().mean(1))


class DenseQuantileCritics(DenseCritics):
    """Critics of dense layers; the value of an action is the mean of all that they say, which is what an actor makes larger."""

    def quantiles(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Each critic's quantiles, ``(critics, rows, n)``, valid until the next call; observations are ``(rows, features)``."""
        return self.outputs_of(self.inputs_of(observations, actions))

    def action_gradient(
        self, observations: torch.Tensor, actions: torch.Tensor, first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`Critics.action_gradient <reactor_torch.Critics>`."""
        said, features = self.quantiles(observations, actions), observations.shape[1]
        weight = 1 / (said.shape[0] * said.shape[2])
        gradient = torch.zeros_like(actions)
        for found in input_gradients(self.networks, features, weight):
            gradient.add_(found)
        if self.kernels is None:
            return said.mean((0, 2)), gradient
        return torch.from_numpy(said.numpy().mean(2).mean(0)), gradient


class TQCCriticFormula:
    """Quantiles, on rewards and the smaller ones of what target critics say of the actor's next action.

    Args:
        loss: The loss: ``drop`` is how many of all critics' quantiles are left out.
        critics: What learns.
        target: Target critics.
        actor: What chooses next actions.
    """

    def __init__(self, loss: Any, critics: DenseQuantileCritics, target: DenseQuantileCritics, actor: SquashedActor) -> None:
        self.loss, self.critics, self.target, self.actor = loss, critics, target, actor
        self.kernels = kernels_for(critics.flat.device)
        self.block: int | None = None if self.kernels is None else self.kernels.LEAF

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`: the mean over all critics, quantiles and returns, ``(1,)``."""
        rows = len(batch)
        actions, log_prob = self.actor.act(batch.next_observations, batch.next_noise)
        following = self.target.quantiles(batch.next_observations, actions).transpose(0, 1).reshape(rows, -1)
        kept = _ascending(following)[:, : following.shape[1] - self.loss.drop]
        returns = returns_of(batch, kept - batch.ent_coef * log_prob[:, None])
        said = self.critics.quantiles(batch.observations, batch.actions)
        share = 1 / ((of or rows) * said.shape[0] * said.shape[2] * returns.shape[1])
        loss, gradient = regression(self.kernels, said, returns, share)
        self.critics.backward(gradient)
        return numbers([loss])


def _ascending(rows: torch.Tensor) -> torch.Tensor:
    """Each row in order."""
    return torch.from_numpy(np.sort(rows.numpy(), 1)) if rows.device.type == "cpu" else rows.sort(1).values
