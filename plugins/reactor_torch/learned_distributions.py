"""Distributions with their derivatives, see :meth:`reactor_torch.ActionDistribution.learned`: log-probabilities and entropies.

The extension computes them; without it autograd differentiates torch's.

Shapes: ``outputs`` are ``(rows, n)``, actions are as SB3's buffers have them, log-probabilities and entropies are arrays
``(rows,)``, float32. What an evaluation gives is valid until the next one with as many rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.dense import Dense
from reactor_torch.flat import FlatParameters

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
        out = self.log_prob, self.entropy
        self.kernels.gaussian(*given, self.log_std, self.inverse, self.distances, *out)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        of = self.inverse, self.distances, by_log_prob, by_entropy
        self.kernels.gaussian_backward(*of, self.into, self.terms, self.by_log_std)


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

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        means, seen = self.mean.forward(outputs), outputs.numpy()
        np.multiply(seen, seen, out=self.squares)
        self.kernels.exp_2x(self.log_std, self.of_elements)
        self.weights[...] = self.of_elements.T
        self.spread.run(self.squares)
        given = means.numpy(), np.ascontiguousarray(actions.numpy()), self.variances, EPSILON
        self.kernels.gaussian_by_row(*given, self.distances, self.inverse, self.log_prob, self.entropy)

    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        given = self.distances, self.inverse, by_log_prob, by_entropy
        self.kernels.gaussian_by_row_backward(*given, self.by_means.numpy(), self.by_variances)
        self.spread.back(self.by_variances)
        np.multiply(self.by_weights, self.weights, out=self.by_weights)
        by_elements = self.by_weights.T if self.log_std.shape[1] > 1 else self.by_weights.sum(0)[:, None]
        np.multiply(by_elements, np.float32(2), out=self.by_log_std)
        self.gradient = self.mean.through(self.by_means)
