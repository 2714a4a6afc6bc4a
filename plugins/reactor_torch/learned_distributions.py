"""Distributions with their derivatives, see :meth:`reactor_torch.ActionDistribution.learned`: log-probabilities and entropies.

The extension computes them; without it autograd differentiates torch's.

Shapes: ``outputs`` are ``(rows, n)``, actions are as SB3's buffers have them, log-probabilities and entropies are arrays
``(rows,)``, float32. What an evaluation gives is valid until the next one with as many rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.dense import Dense
from reactor_torch.flat import FlatParameters
from reactor_torch.tangents import Tangents

__all__ = [
    "EPSILON",
    "HALF_LOG_2PI",
    "HIGHEST",
    "LOWEST",
    "Evaluated",
    "EvaluatedBernoulli",
    "EvaluatedCategorical",
    "EvaluatedGaussian",
    "EvaluatedGaussianByRow",
    "LearnedDistribution",
]

Array = npt.NDArray[Any]
EPSILON = 1e-6
"""SB3 adds this to the variances of gSDE, and to the slope of tanh: its logarithm is finite where an action is at its bound."""
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
"""Minus the log-density of the standard normal distribution at its mean."""
LOWEST, HIGHEST = -20.0, 2.0
"""Bounds that SB3 has for the logarithm of a squashed distribution's standard deviation; beyond them its gradient is 0."""


class Evaluated(ABC):
    """A distribution for one number of rows.

    Args:
        rows: How many rows.
        outputs: Numbers that the network gives for a row.

    Attributes:
        log_prob: Log-probabilities of the actions, ``(rows,)``.
        entropy: Entropies, ``(rows,)``.
        gradient: Gradient of the loss by the network's outputs, a tensor ``(rows, n)``; ``into`` is the same as an array.
    """

    def __init__(self, rows: int, outputs: int) -> None:
        self.kernels: Any = kernels.compiled
        self.log_prob, self.entropy = (np.zeros(rows, np.float32) for _ in range(2))
        self.gradient = torch.zeros(rows, outputs)
        self.into: Array = self.gradient.numpy()

    @abstractmethod
    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        """Fill in :attr:`log_prob` and :attr:`entropy`.

        Args:
            outputs: What the network gives, ``(rows, n)``.
            actions: The actions.
            masks: Which choices are allowed, ``(rows, n)``, bool; ``None`` if all are. Only of choices.
        """

    @abstractmethod
    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        """Fill in :attr:`gradient`, and the gradients of what the distribution has learned itself.

        Args:
            by_log_prob: Gradient of the loss by each log-probability, ``(rows,)``.
            by_entropy: Gradient of the loss by each entropy.
        """

    @abstractmethod
    def parameters(self) -> tuple[Array, ...]:
        """Copies of what says which distribution it is, as of the last :meth:`evaluate`."""

    @abstractmethod
    def divergence(self, old: tuple[Array, ...]) -> Array:
        """Kullback-Leibler divergence from what it was to what it is now, ``(rows,)``.

        Args:
            old: What :meth:`parameters` gave then.
        """

    @abstractmethod
    def fisher(self, change: Array, direction: Mapping[str, torch.Tensor], share: float) -> None:
        """Fill in :attr:`gradient` as :meth:`differentiate` does, by the Fisher matrix times a change of the distribution.

        That is the gradient of half the divergence's second derivative along the change.

        Args:
            change: Of the outputs, ``(rows, n)``.
            direction: Of what the distribution has learned itself, by name.
            share: Weight of a row.
        """


@dataclass(frozen=True)
class LearnedDistribution:
    """A distribution with its derivatives.

    Attributes:
        at: From a number of rows to what evaluates so many.
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
    """

    at: Callable[[int], Evaluated]
    adds_up: bool = True


class EvaluatedCategorical(Evaluated):
    """One choice or several, each among ``sizes[i]``; outputs are logits."""

    def __init__(self, sizes: Sequence[int], rows: int) -> None:
        super().__init__(rows, sum(sizes))
        self.sizes = np.array(sizes, np.int64)
        self.taken = torch.zeros(rows, len(sizes), dtype=torch.int64)
        shapes = [(rows, sum(sizes)), (rows, sum(sizes)), (rows, len(sizes))]
        # log-probabilities, probabilities, and entropy of each choice
        self.made = [np.zeros(shape, np.float32) for shape in shapes]
        self.masks: Any = None

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.taken.view(actions.shape).copy_(actions)
        self.masks = None if masks is None else np.ascontiguousarray(masks.numpy())
        logits, out = np.ascontiguousarray(outputs.numpy()), (self.log_prob, self.entropy)
        self.kernels.categorical(self.sizes, logits, self.taken.numpy(), self.masks, *self.made, *out)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        of = self.sizes, self.taken.numpy(), self.masks, *self.made
        self.kernels.categorical_backward(*of, by_log_prob, by_entropy, self.into)

    def parameters(self) -> tuple[Array, ...]:
        return (self.made[0].copy(),)

    def divergence(self, old: tuple[Array, ...]) -> Array:
        found: Array = np.einsum("rn,rn->r", self.made[1], self.made[0] - old[0])
        return found

    def fisher(self, change: Array, direction: Mapping[str, torch.Tensor], share: float) -> None:
        weighted, first = self.made[1] * change, np.cumsum(self.sizes) - self.sizes
        means = np.repeat(np.add.reduceat(weighted, first, axis=1), self.sizes, axis=1)
        np.multiply(weighted - self.made[1] * means, np.float32(share), out=self.into)


class EvaluatedBernoulli(Evaluated):
    """``count`` yes or no; outputs are logits."""

    def __init__(self, count: int, rows: int) -> None:
        super().__init__(rows, count)
        self.taken = torch.zeros(rows, count)
        self.probabilities, self.terms = (np.zeros((rows, count), np.float32) for _ in range(2))

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.taken.view(actions.shape).copy_(actions)
        self.logits = np.ascontiguousarray(outputs.numpy())
        out = self.log_prob, self.entropy
        self.kernels.bernoulli(self.logits, self.taken.numpy(), self.probabilities, self.terms, *out)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        self.kernels.bernoulli_backward(self.logits, self.taken.numpy(), self.probabilities, by_log_prob, by_entropy, self.into)

    def parameters(self) -> tuple[Array, ...]:
        return (self.logits.copy(),)

    def divergence(self, old: tuple[Array, ...]) -> Array:
        logs = np.logaddexp(0, self.logits) - np.logaddexp(0, old[0])
        found: Array = (self.probabilities * (self.logits - old[0]) - logs).sum(1)
        return found

    def fisher(self, change: Array, direction: Mapping[str, torch.Tensor], share: float) -> None:
        np.multiply(self.probabilities * (1 - self.probabilities) * change, np.float32(share), out=self.into)


class EvaluatedGaussian(Evaluated):
    """Independent normal numbers whose standard deviations are the parameter ``log_std``; outputs are means."""

    def __init__(self, flat: FlatParameters, rows: int) -> None:
        log_std, log_std_gradient = flat.value("log_std"), flat.gradient("log_std")
        assert log_std is not None and log_std_gradient is not None
        super().__init__(rows, len(log_std))
        self.log_std, self.by_log_std = log_std.numpy(), log_std_gradient.numpy()
        self.inverse = np.zeros(len(log_std), np.float32)
        self.distances, self.terms = (np.zeros((rows, len(log_std)), np.float32) for _ in range(2))

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        given = [np.ascontiguousarray(one.numpy()) for one in (outputs, actions)]
        self.means, out = given[0], (self.log_prob, self.entropy)
        self.kernels.gaussian(*given, self.log_std, self.inverse, self.distances, *out)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        of = self.inverse, self.distances, by_log_prob, by_entropy
        self.kernels.gaussian_backward(*of, self.into, self.terms, self.by_log_std)

    def parameters(self) -> tuple[Array, ...]:
        return self.means.copy(), self.log_std.copy(), self.inverse.copy()

    def divergence(self, old: tuple[Array, ...]) -> Array:
        (means, log_std, inverse), of_now = old, np.exp(self.log_std)
        wider, apart = of_now * inverse, (self.means - means) * inverse
        found: Array = (log_std - self.log_std + (wider * wider + apart * apart - 1) / 2).sum(1)
        return found

    def fisher(self, change: Array, direction: Mapping[str, torch.Tensor], share: float) -> None:
        np.multiply(change * (self.inverse * self.inverse), np.float32(share), out=self.into)
        np.multiply(direction["log_std"].numpy(), np.float32(2 * share * len(change)), out=self.by_log_std)


class EvaluatedGaussianByRow(Evaluated):
    """Generalised state-dependent exploration (gSDE, Raffin et al. 2021); outputs are what the means' layer sees.

    An action's noise is a product of what the actor's last layer sees and of a random matrix, whose elements have standard
    deviations that are learned. So the actions for an observation are normal, with variances that depend on it. No gradient goes
    from variances to outputs: SB3's default.

    Args:
        mean: The layer that gives means, by itself.
        flat: The parameters; ``log_std`` is ``(outputs, actions)``, or ``(outputs, 1)`` for all actions.
        rows: How many rows.
    """

    def __init__(self, mean: Dense, flat: FlatParameters, rows: int) -> None:
        (of_means,), log_std, log_std_gradient = mean.layers, flat.value("log_std"), flat.gradient("log_std")
        assert log_std is not None and log_std_gradient is not None
        inputs, actions = of_means.inputs, of_means.outputs
        super().__init__(rows, inputs)
        self.mean, self.log_std, self.by_log_std = mean, log_std.numpy(), log_std_gradient.numpy()
        self.of_elements = np.zeros_like(self.log_std)  # variances of the matrix's elements
        self.weights, self.by_weights = (np.zeros((actions, inputs), np.float32) for _ in range(2))
        self.squares = np.zeros((rows, inputs), np.float32)
        self.variances, self.distances, self.inverse, self.by_variances = (np.zeros((rows, actions), np.float32) for _ in range(4))
        self.by_means = torch.zeros(rows, actions)
        layer = ("linear", 0, inputs, actions, 0.0, self.weights, None, self.by_weights, None, self.variances, None, None)
        self.spread = self.kernels.Network(rows, (layer,))
        self.tangents: _NoiseTangents | None = None

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.outputs, self.means = outputs, self.mean.forward(outputs).numpy()
        seen = outputs.numpy()
        np.multiply(seen, seen, out=self.squares)
        self.kernels.exp_2x(self.log_std, self.of_elements)
        self.weights[...] = self.of_elements.T
        self.spread.run(self.squares)
        given = self.means, np.ascontiguousarray(actions.numpy()), self.variances, EPSILON
        self.kernels.gaussian_by_row(*given, self.distances, self.inverse, self.log_prob, self.entropy)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        given = self.distances, self.inverse, by_log_prob, by_entropy
        self.kernels.gaussian_by_row_backward(*given, self.by_means.numpy(), self.by_variances)
        self._back()

    def _back(self) -> None:
        """From the gradients by means and variances."""
        self.spread.back(self.by_variances)
        np.multiply(self.by_weights, self.weights, out=self.by_weights)
        by_elements = self.by_weights.T if self.log_std.shape[1] > 1 else self.by_weights.sum(0)[:, None]
        np.multiply(by_elements, np.float32(2), out=self.by_log_std)
        self.gradient = self.mean.through(self.by_means)

    def parameters(self) -> tuple[Array, ...]:
        return self.means.copy(), self.inverse.copy()

    def divergence(self, old: tuple[Array, ...]) -> Array:
        means, inverse = old
        wider, apart = inverse / self.inverse, self.means - means
        found: Array = ((wider - 1 - np.log(wider) + apart * apart * inverse) / 2).sum(1)
        return found

    def fisher(self, change: Array, direction: Mapping[str, torch.Tensor], share: float) -> None:
        if self.tangents is None:
            self.tangents = _NoiseTangents(self, len(change))
        tangents, weighted = self.tangents, self.inverse * np.float32(share)
        tangents.of_means.begin(self.outputs)
        tangents.weights[...] = (2 * self.of_elements * direction["log_std"].numpy()).T
        tangents.spread.run(self.squares)
        np.multiply(tangents.of_means.along(direction, change), weighted, out=self.by_means.numpy())
        np.multiply(tangents.of_variances, self.inverse * weighted / 2, out=self.by_variances)
        self._back()


class _NoiseTangents:
    """How means and variances of gSDE change along a direction in the parameters."""

    def __init__(self, of: EvaluatedGaussianByRow, rows: int) -> None:
        self.of_means = Tangents(of.mean.layers, of.mean.flat, rows, moves=True)
        self.weights, self.of_variances = np.zeros_like(of.weights), np.zeros_like(of.variances)
        head = "linear", 0, *of.weights.shape[::-1], 0.0
        self.spread = of.kernels.Network(rows, ((*head, self.weights, None, None, None, self.of_variances, None, None),))
