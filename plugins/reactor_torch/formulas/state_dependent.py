"""Generalised state-dependent exploration (gSDE, Raffin et al. 2021) with its derivatives, as SB3's on-policy algorithms have it.

An action's noise is a product of what the actor's last layer sees and of a random matrix, whose elements have standard deviations
that are learned. So the actions for an observation are normal, with variances that depend on it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters, kernels_for
from reactor_torch.formulas.distributions import Distribution, Evaluated

__all__ = ["StateDependent"]

EPSILON = 1e-6
"""Added to variances, as in SB3."""


class StateDependent(Distribution):
    """A ``Box`` space, by the extension alone; outputs are what the layer of the means sees.

    No gradient goes from variances to outputs: SB3's default.

    Args:
        mean: The layer that gives means.
        flat: The parameters; ``log_std`` is ``(outputs, actions)``, or ``(outputs, 1)`` for all actions.
    """

    adds_up: ClassVar[bool] = False  # the derivative of an exponential is a factor of what is added up over rows

    def __init__(self, mean: Layer, flat: FlatParameters) -> None:
        log_std, gradient = flat.value("log_std"), flat.gradient("log_std")
        assert log_std is not None and gradient is not None
        self.layer, self.mean, self.log_std, self.gradient = mean, Dense([mean], flat, passes_on=True), log_std, gradient

    def at(self, rows: int, device: torch.device) -> Evaluated:
        """See :class:`Distribution`."""
        return _StateDependent(self, rows, device)


class _StateDependent(Evaluated):
    def __init__(self, of: StateDependent, rows: int, device: torch.device) -> None:
        inputs, actions = of.layer.inputs, of.layer.outputs
        super().__init__(rows, inputs, device)
        self.kernels: Any = kernels_for(device)
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
        self.kernels.gaussian_by_row(*given, self.distances, self.inverse, self.log_prob.numpy(), self.entropy.numpy())

    def differentiate(self, by_log_prob: torch.Tensor, by_entropy: float) -> None:
        given = self.distances, self.inverse, np.ascontiguousarray(by_log_prob.numpy()), by_entropy
        self.kernels.gaussian_by_row_backward(*given, self.by_means.numpy(), self.by_variances)
        self.spread.back(self.by_variances)
        np.multiply(self.by_weights, self.weights, out=self.by_weights)
        by_elements = self.by_weights.T if self.log_std.shape[1] > 1 else self.by_weights.sum(0)[:, None]
        np.multiply(by_elements, np.float32(2), out=self.by_log_std)
        self.gradient = self.mean.through(self.by_means)
