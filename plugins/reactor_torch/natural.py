"""Natural gradients (Amari 1998): products of a policy's Fisher matrix with directions in its parameters, and conjugate gradients.

The matrix is never there. A product is a pass forwards, along the direction, from which follows how the distribution of actions
changes; and one backwards, from how much that is. The extension computes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters
from reactor_torch.kept import keep
from reactor_torch.learned_distributions import Evaluated, LearnedDistribution
from reactor_torch.losses import ppo_loss
from reactor_torch.tangents import Tangents

__all__ = ["NaturalActor", "conjugate_gradient"]

Array = npt.NDArray[Any]
SOLVED = 1e-10
"""Square of the residual that is left where conjugate gradients stop, as in sb3-contrib's TRPO."""


def conjugate_gradient(
    product: Callable[[torch.Tensor], torch.Tensor], wanted: torch.Tensor, start: torch.Tensor, steps: int
) -> torch.Tensor:
    """Solve ``A x = wanted`` for a matrix of which only products are known (Hestenes, Stiefel 1952).

    Args:
        product: From a vector to the product of the matrix, symmetric and positive, with it.
        wanted: ``(n,)``.
        start: Where the search begins, ``(n,)``.
        steps: How many steps it has, at most.

    Returns:
        ``x``, ``(n,)``.
    """
    # Copied, because the loop adds to it in place and the start is the caller's.
    found, left = start.clone(), wanted - product(start)
    size, along = left @ left, left.clone()
    for _ in range(steps):
        if size < SOLVED:
            break
        moved = product(along)
        far = size / (along @ moved)
        found += far * along
        left -= far * moved
        before, size = size, left @ left
        along = left + size / before * along
    return found


class NaturalActor:
    """An actor of dense layers that is changed within a distance from what it was.

    Args:
        layers: Layers that give the distribution's parameters; :meth:`Tangents.know` knows them.
        distribution: Distribution of actions.
        flat: The parameters of both.
        weight: What divergences are multiplied by, and with them the Fisher matrix.
    """

    adds_up = True

    def __init__(
        self, layers: Sequence[Layer], distribution: LearnedDistribution, flat: FlatParameters, weight: float = 1.0
    ) -> None:
        self.network, self.distribution, self.flat, self.weight = Dense(layers, flat), distribution, flat, weight
        self._of_rows: dict[int, tuple[Tangents, Evaluated]] = {}

    def begin(self, batch: Any) -> tuple[float, torch.Tensor]:
        """The surrogate objective, mean of ``advantage * ratio`` of probabilities, and the gradient of its negative, ``(size,)``.

        Args:
            batch: A :class:`~reactor_torch.PPOBatch`; :meth:`product` and :meth:`measure` are about it, and about what the actor
                is now.
        """
        rows = len(batch)
        if rows not in self._of_rows:
            keep(self._of_rows, rows, (Tangents(self.network.layers, self.flat, rows), self.distribution.at(rows)))
        self.batch, (self.tangents, self.evaluated) = batch, self._of_rows[rows]
        objective, by_log_prob = self._surrogate()
        self.old = self.evaluated.parameters()
        self.evaluated.differentiate(by_log_prob, 0.0)
        self.network.backward(self.evaluated.gradient)
        self.tangents.begin(batch.observations)
        # Every product goes through the same gradients, and would overwrite this one.
        return objective, self.flat.gradients.clone()

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        """The Fisher matrix of what the actor was, a mean over rows, times a direction, ``(size,)``; before any :meth:`measure`."""
        by_name = dict(zip(self.flat.names, self.flat.views(direction), strict=True))
        self.evaluated.fisher(self.tangents.along(by_name), by_name, self.weight / len(self.batch))
        self.network.backward(self.evaluated.gradient)
        return self.flat.gradients.clone()

    def measure(self) -> tuple[float, float]:
        """The surrogate objective of what the actor is now, and the mean divergence from what it was, KL(now, then)."""
        objective, _ = self._surrogate()
        return objective, self.weight * float(self.evaluated.divergence(self.old).mean())

    def _surrogate(self) -> tuple[float, Array]:
        """The objective, and the gradient of its negative by log-probabilities."""
        self.evaluated.evaluate(self.network.forward(self.batch.observations), self.batch.actions)
        said = np.zeros_like(self.evaluated.log_prob), self.evaluated.log_prob, self.evaluated.entropy
        # PPO's loss with an infinite clip range, and without values and entropy, is the negative surrogate objective.
        (_, loss, *_), _, by_log_prob = ppo_loss(said, self.batch, 1 / len(self.batch), float("inf"), None, 0.0, 0.0)
        return -loss, by_log_prob
