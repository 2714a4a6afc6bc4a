"""Distributions of actions with their derivatives: how likely actions are, how open the choice is, and both by a network's outputs.

The extension computes them; without it autograd differentiates torch's.

Shapes: ``outputs`` are ``(rows, n)``, actions are as SB3's buffers have them, log-probabilities and entropies are arrays
``(rows,)``, float32. What an evaluation gives is valid until the next one with as many rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch import kernels
from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters

__all__ = ["Bernoullis", "Categoricals", "Distribution", "Evaluated", "Gaussians", "StateDependent"]

Array = npt.NDArray[Any]
EPSILON = 1e-6
"""Added to the variances of :class:`StateDependent`, as in SB3."""


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
            masks: Which choices are allowed, ``(rows, n)``, bool; ``None`` if all are. Only of :class:`Categoricals`.
        """

    @abstractmethod
    def differentiate(self, by_log_prob: Array, by_entropy: float) -> None:
        """Fill in :attr:`gradient`, and the gradients of what the distribution has learned itself.

        Args:
            by_log_prob: Gradient of the loss by each log-probability, ``(rows,)``.
            by_entropy: Gradient of the loss by each entropy.
        """


class Distribution(ABC):
    """A kind of distribution; see :class:`Evaluated`.

    Attributes:
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
    """

    adds_up: ClassVar[bool] = True

    @abstractmethod
    def at(self, rows: int) -> Evaluated:
        """Buffers for a number of rows."""


class Categoricals(Distribution):
    """One choice or several, each among ``sizes[i]``: spaces ``Discrete`` and ``MultiDiscrete``; outputs are logits."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(int(size) for size in sizes)

    def at(self, rows: int) -> Evaluated:
        """See :class:`Distribution`."""
        return _Choices(self.sizes, rows)


class Bernoullis(Distribution):
    """``count`` yes or no: a ``MultiBinary`` space; outputs are logits."""

    def __init__(self, count: int) -> None:
        self.count = int(count)

    def at(self, rows: int) -> Evaluated:
        """See :class:`Distribution`."""
        return _Tosses(rows, self.count)


class Gaussians(Distribution):
    """Independent normal distributions whose standard deviations are parameters of their own: a ``Box`` space; outputs are means.

    Args:
        flat: The parameters.
        name: Name of the logarithms of the standard deviations, ``(actions,)``.

    Raises:
        ValueError: If there is no such parameter among those that are learned.
    """

    def __init__(self, flat: FlatParameters, name: str = "log_std") -> None:
        if flat.gradient(name) is None:
            raise ValueError(f"{name!r} is not among the parameters that are learned: let autograd do it")
        self.flat, self.name = flat, name

    def at(self, rows: int) -> Evaluated:
        """See :class:`Distribution`."""
        log_std, gradient = self.flat.value(self.name), self.flat.gradient(self.name)
        assert log_std is not None and gradient is not None
        return _Draws(log_std, gradient, rows)


class StateDependent(Distribution):
    """Generalised state-dependent exploration (gSDE, Raffin et al. 2021): a ``Box`` space; outputs are what the means' layer sees.

    An action's noise is a product of what the actor's last layer sees and of a random matrix, whose elements have standard
    deviations that are learned. So the actions for an observation are normal, with variances that depend on it. No gradient goes
    from variances to outputs: SB3's default.

    Args:
        mean: The layer that gives means.
        flat: The parameters; ``log_std`` is ``(outputs, actions)``, or ``(outputs, 1)`` for all actions.
    """

    adds_up: ClassVar[bool] = False  # the derivative of an exponential is a factor of what is added up over rows

    def __init__(self, mean: Layer, flat: FlatParameters) -> None:
        log_std, gradient = flat.value("log_std"), flat.gradient("log_std")
        assert log_std is not None and gradient is not None
        self.layer, self.mean, self.log_std, self.gradient = mean, Dense([mean], flat, passes_on=True), log_std, gradient

    def at(self, rows: int) -> Evaluated:
        """See :class:`Distribution`."""
        return _StateDependent(self, rows)


# ---------------------------------------------------------------------- for one number of rows


class _Choices(Evaluated):
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


class _Tosses(Evaluated):
    def __init__(self, rows: int, count: int) -> None:
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


class _Draws(Evaluated):
    def __init__(self, log_std: torch.Tensor, log_std_gradient: torch.Tensor, rows: int) -> None:
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


class _StateDependent(Evaluated):
    def __init__(self, of: StateDependent, rows: int) -> None:
        inputs, actions = of.layer.inputs, of.layer.outputs
        super().__init__(rows, inputs)
        self.mean, self.log_std, self.by_log_std = of.mean, of.log_std.numpy(), of.gradient.numpy()
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
