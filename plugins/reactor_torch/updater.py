"""What updates a network: a loss with its gradients, and an optimiser that steps along them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from reactor_torch.flat import FlatParameters
from reactor_torch.optimizing import FlatOptimizer

__all__ = ["Updater", "Loss", "Updates", "carry_out"]

Array = npt.NDArray[Any]
R = TypeVar("R")

Updates = Generator[tuple[Any, slice], Array, R]
"""Updates whose gradients somebody else computes.

Yields a batch and which of its rows are the next minibatch. When it goes on, the gradients are in the flat array, and it is sent
the loss's statistics.
"""


def carry_out(updates: Updates[R], gradients: Callable[[Any], Array]) -> R:
    """Make all updates here and now, with a function that computes gradients; returns what they end with."""
    statistics: Any = None
    while True:
        try:
            batch, rows = updates.send(statistics)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        statistics = gradients(batch if rows.stop - rows.start == len(batch) else batch[rows])


class Loss(Protocol):
    """What a learner makes smaller.

    Attributes:
        statistics: Names of what :meth:`gradients` returns.
        settings: Names of those of its attributes that may be other ones in the next round.
        flat: The parameters.
        reads: Parameters that it reads only: a target network's.
    """

    @property
    def statistics(self) -> tuple[str, ...]: ...

    @property
    def settings(self) -> tuple[str, ...]: ...

    flat: FlatParameters
    reads: tuple[FlatParameters, ...]

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """Overwrite ``flat.gradients`` by those of a minibatch, or of a slice of one that has ``of`` rows in all.

        Gradients and statistics of the slices of a minibatch add up to those of the whole.

        Returns:
            The statistics, float32.
        """
        ...


class Updater:
    """Updates a network from minibatches.

    Before a round of updates call :meth:`begin`; then :meth:`update` for each minibatch, or :meth:`gradients` and :meth:`step`
    where something comes between them: a stop, or gradients of other slices, added to ``updater.flat.gradients`` in order.

    Args:
        loss: With its network.
        optimizer: The optimiser of the network's parameters.
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
