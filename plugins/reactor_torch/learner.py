"""A learner: a loss with its gradients, and an optimiser that steps along them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from reactor_torch.flat import FlatParameters
from reactor_torch.optimizing import FlatOptimizer

__all__ = ["Learner", "Loss"]

Array = npt.NDArray[Any]


class Loss(Protocol):
    """What a learner makes smaller.

    Attributes:
        statistics: Names of what :meth:`gradients` returns.
        flat: The parameters.
        reads: Parameters that it reads only: a target network's.
    """

    @property
    def statistics(self) -> tuple[str, ...]: ...

    flat: FlatParameters
    reads: tuple[FlatParameters, ...]

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """Overwrite ``flat.gradients`` by those of a minibatch, or of a slice of one that has ``of`` rows in all.

        Gradients and statistics of the slices of a minibatch add up to those of the whole.

        Returns:
            The statistics, float32.
        """
        ...


class Learner:
    """Updates a network from minibatches.

    Before a round of updates call :meth:`begin`; then :meth:`update` for each minibatch, or :meth:`gradients` and :meth:`step`
    where something comes between them: a stop, or gradients of other slices, added to ``learner.flat.gradients`` in order.

    Args:
        loss: With its network.
        optimizer: Of the network's parameters.
        max_grad_norm: What gradients are clipped to; ``None`` for never.
    """

    def __init__(self, loss: Loss, optimizer: FlatOptimizer, max_grad_norm: float | None) -> None:
        self.loss, self.optimizer, self.max_grad_norm, self.flat = loss, optimizer, max_grad_norm, loss.flat

    def begin(self) -> None:
        """Take over what has been loaded or replaced since the last round."""
        self.optimizer.bind()
        for one in self.loss.reads:
            one.bind()

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Loss.gradients`."""
        return self.loss.gradients(batch, of)

    def step(self) -> None:
        """Clip the gradients and step along them."""
        if self.max_grad_norm is not None:
            self.flat.clip(self.max_grad_norm)
        self.optimizer.step()

    def update(self, batch: Any) -> Array:
        """One update from a whole minibatch; returns the loss's statistics."""
        statistics = self.loss.gradients(batch)
        self.step()
        return statistics
