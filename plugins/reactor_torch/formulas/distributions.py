"""Distributions of actions with their derivatives: how likely actions are, how open the choice is, and both by a network's outputs.

Shapes: ``outputs`` are ``(rows, n)``, actions are as SB3's buffers have them, log-probabilities and entropies are ``(rows,)``. What
an evaluation gives is valid until the next one with as many rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from reactor_torch.flat import FlatParameters, kernels_for

__all__ = ["Bernoullis", "Categoricals", "Distribution", "Evaluated", "Gaussians"]

FORBIDDEN = -1e8
"""The logit of a choice that is masked, as sb3-contrib has it."""


class Evaluated(ABC):
    """A distribution for one number of rows.

    Args:
        rows: How many rows.
        outputs: Numbers that the network gives for a row.
        device: Where the buffers lie.

    Attributes:
        log_prob: Log-probabilities of the actions, ``(rows,)``.
        entropy: Entropies, ``(rows,)``.
        gradient: Gradient of the loss by the network's outputs, ``(rows, n)``.
    """

    def __init__(self, rows: int, outputs: int, device: torch.device) -> None:
        self.log_prob, self.entropy = torch.zeros(rows, device=device), torch.zeros(rows, device=device)
        self.gradient = torch.zeros(rows, outputs, device=device)

    @abstractmethod
    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        """Fill in :attr:`log_prob` and :attr:`entropy`.

        Args:
            outputs: What the network gives, ``(rows, n)``.
            actions: The actions.
            masks: Which choices are allowed, ``(rows, n)``, bool; ``None`` if all are. Only of :class:`Categoricals`.
        """

    @abstractmethod
    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
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
    def at(self, rows: int, device: torch.device) -> Evaluated:
        """Buffers for a number of rows."""


class Categoricals(Distribution):
    """One choice or several, each among ``sizes[i]``: spaces ``Discrete`` and ``MultiDiscrete``; outputs are logits."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(int(size) for size in sizes)

    def at(self, rows: int, device: torch.device) -> Evaluated:
        """See :class:`Distribution`."""
        if (kernels := kernels_for(device)) is not None:
            return _Choices(kernels, self.sizes, rows)
        return _Categoricals(self.sizes, rows, device) if len(self.sizes) > 1 else _Categorical(self.sizes[0], rows, device)


class _Categorical(Evaluated):
    def __init__(self, size: int, rows: int, device: torch.device) -> None:
        super().__init__(rows, size, device)
        self.logs, self.chosen = torch.zeros(rows, size, device=device), torch.zeros(rows, 1, device=device)
        self.probabilities, self.terms = torch.zeros_like(self.logs), torch.zeros_like(self.logs)
        self.taken = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        self.masks: torch.Tensor | None = None

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.taken.view(actions.shape).copy_(actions)
        self.masks = masks
        torch.log_softmax(outputs if masks is None else outputs.masked_fill(~masks, FORBIDDEN), 1, out=self.logs)
        torch.gather(self.logs, 1, self.taken, out=self.log_prob[:, None])
        torch.exp(self.logs, out=self.probabilities)
        torch.mul(self.probabilities, self.logs, out=self.terms)
        torch.sum(self.terms, 1, out=self.entropy).neg_()

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        column = by_log_prob[:, None]
        if by_entropy:  # an entropy falls by p (log p + entropy) for a logit that rises
            torch.add(self.logs, self.entropy[:, None], out=self.gradient).mul_(by_entropy).add_(column).mul_(self.probabilities)
        else:
            torch.mul(self.probabilities, column, out=self.gradient)
        self.gradient.neg_().scatter_add_(1, self.taken, column)
        if self.masks is not None:
            self.gradient.mul_(self.masks)


class _Categoricals(Evaluated):
    def __init__(self, sizes: Sequence[int], rows: int, device: torch.device) -> None:
        super().__init__(rows, sum(sizes), device)
        self.sizes, self.parts = list(sizes), [_Categorical(size, rows, device) for size in sizes]

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        allowed = [None] * len(self.parts) if masks is None else torch.split(masks, self.sizes, 1)
        given = zip(self.parts, torch.split(outputs, self.sizes, 1), actions.unbind(1), allowed, strict=True)
        for part, logits, taken, mask in given:
            part.evaluate(logits, taken, mask)
        torch.sum(torch.stack([part.log_prob for part in self.parts]), 0, out=self.log_prob)
        torch.sum(torch.stack([part.entropy for part in self.parts]), 0, out=self.entropy)

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        for part in self.parts:
            part.differentiate(by_log_prob, by_entropy)
        torch.cat([part.gradient for part in self.parts], 1, out=self.gradient)


class Bernoullis(Distribution):
    """``count`` yes or no: a ``MultiBinary`` space; outputs are logits."""

    def __init__(self, count: int) -> None:
        self.count = int(count)

    def at(self, rows: int, device: torch.device) -> Evaluated:
        """See :class:`Distribution`."""
        if (kernels := kernels_for(device)) is not None:
            return _Tosses(kernels, rows, self.count)
        return _Bernoullis(rows, self.count, device)


class _Bernoullis(Evaluated):
    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.logits = outputs
        self.probabilities = torch.sigmoid(outputs)
        self.taken = actions.view(outputs.shape).to(outputs.dtype)
        softplus = torch.nn.functional.softplus(outputs)
        torch.sum(self.taken * outputs - softplus, 1, out=self.log_prob)
        torch.sum(softplus - self.probabilities * outputs, 1, out=self.entropy)

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        torch.sub(self.taken, self.probabilities, out=self.gradient).mul_(by_log_prob[:, None])
        if by_entropy:
            spread = self.probabilities * (1 - self.probabilities)
            self.gradient.addcmul_(self.logits, spread, value=-by_entropy)


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

    def at(self, rows: int, device: torch.device) -> Evaluated:
        """See :class:`Distribution`."""
        log_std, gradient = self.flat.value(self.name), self.flat.gradient(self.name)
        assert log_std is not None and gradient is not None
        if (kernels := kernels_for(device)) is not None:
            return _Draws(kernels, log_std, gradient, rows)
        return _Gaussian(log_std, gradient, rows, device)


class _Gaussian(Evaluated):
    def __init__(self, log_std: torch.Tensor, log_std_gradient: torch.Tensor, rows: int, device: torch.device) -> None:
        super().__init__(rows, len(log_std), device)
        self.log_std, self.log_std_gradient, self.rows = log_std, log_std_gradient, rows
        self.inverse, self.distances = torch.zeros_like(log_std), torch.zeros_like(self.gradient)
        self.squares = torch.zeros_like(self.gradient)

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        torch.neg(self.log_std, out=self.inverse).exp_()
        torch.sub(actions.view(outputs.shape), outputs, out=self.distances).mul_(self.inverse)  # in standard deviations
        torch.mul(self.distances, self.distances, out=self.squares)
        widths, half = self.log_std.sum(), 0.5 * math.log(2 * math.pi) * len(self.log_std)
        torch.sum(self.squares, 1, out=self.log_prob).mul_(-0.5).sub_(widths).sub_(half)
        self.entropy.copy_(widths).add_(half + 0.5 * len(self.log_std))

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        torch.mul(self.distances, self.inverse, out=self.gradient).mul_(by_log_prob[:, None])
        torch.mv(self.squares.sub_(1).t(), by_log_prob, out=self.log_std_gradient)
        if by_entropy:
            self.log_std_gradient.add_(self.rows * by_entropy)


# ---------------------------------------------------------------------- by the extension


class _Choices(Evaluated):
    def __init__(self, kernels: Any, sizes: Sequence[int], rows: int) -> None:
        super().__init__(rows, sum(sizes), torch.device("cpu"))
        self.kernels, self.sizes = kernels, np.array(sizes, np.int64)
        self.taken = torch.zeros(rows, len(sizes), dtype=torch.int64)
        shapes = [(rows, sum(sizes)), (rows, sum(sizes)), (rows, len(sizes))]
        self.made = [
            np.zeros(shape, np.float32) for shape in shapes
        ]  # log-probabilities, probabilities, and entropy of each choice
        self.masks: Any = None

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.taken.view(actions.shape).copy_(actions)
        self.masks = None if masks is None else np.ascontiguousarray(masks.numpy())
        logits, out = np.ascontiguousarray(outputs.numpy()), (self.log_prob.numpy(), self.entropy.numpy())
        self.kernels.categorical(self.sizes, logits, self.taken.numpy(), self.masks, *self.made, *out)

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        by = np.ascontiguousarray(by_log_prob.numpy())
        taken, into = self.taken.numpy(), self.gradient.numpy()
        self.kernels.categorical_backward(self.sizes, taken, self.masks, *self.made, by, by_entropy, into)


class _Tosses(Evaluated):
    def __init__(self, kernels: Any, rows: int, count: int) -> None:
        super().__init__(rows, count, torch.device("cpu"))
        self.kernels = kernels
        self.taken = torch.zeros(rows, count)
        self.probabilities, self.terms = (np.zeros((rows, count), np.float32) for _ in range(2))

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        self.taken.view(actions.shape).copy_(actions)
        self.logits = np.ascontiguousarray(outputs.numpy())
        out = self.log_prob.numpy(), self.entropy.numpy()
        self.kernels.bernoulli(self.logits, self.taken.numpy(), self.probabilities, self.terms, *out)

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        by, into = np.ascontiguousarray(by_log_prob.numpy()), self.gradient.numpy()
        self.kernels.bernoulli_backward(self.logits, self.taken.numpy(), self.probabilities, by, by_entropy, into)


class _Draws(Evaluated):
    def __init__(self, kernels: Any, log_std: torch.Tensor, log_std_gradient: torch.Tensor, rows: int) -> None:
        super().__init__(rows, len(log_std), torch.device("cpu"))
        self.kernels, self.log_std, self.by_log_std = kernels, log_std.numpy(), log_std_gradient.numpy()
        self.inverse = np.zeros(len(log_std), np.float32)
        self.distances, self.terms = (np.zeros((rows, len(log_std)), np.float32) for _ in range(2))

    def evaluate(self, outputs: torch.Tensor, actions: torch.Tensor, masks: torch.Tensor | None = None) -> None:
        given = [np.ascontiguousarray(one.numpy()) for one in (outputs, actions)]
        out = self.log_prob.numpy(), self.entropy.numpy()
        self.kernels.gaussian(*given, self.log_std, self.inverse, self.distances, *out)

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        by, into = np.ascontiguousarray(by_log_prob.numpy()), self.gradient.numpy()
        self.kernels.gaussian_backward(self.inverse, self.distances, by, by_entropy, into, self.terms, self.by_log_std)
