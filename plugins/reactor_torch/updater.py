"""What updates networks: losses with their gradients, and optimisers that step along them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy.typing as npt

from reactor_torch.batches import MinibatchSlicer
from reactor_torch.flat import FlatParameters
from reactor_torch.optimizing import FlatOptimizer

__all__ = ["UpdaterLoss", "UpdaterTask", "Updater", "Updates", "carry_out"]

Array = npt.NDArray[Any]
R = TypeVar("R")


class UpdaterTask(NamedTuple):
    """Gradients that an update needs.

    Attributes:
        loss: Number of the loss, of those that a learner has.
        batch: The batch that the minibatch is a part of.
        rows: Rows of the minibatch.
    """

    loss: int
    batch: Any
    rows: slice


Updates = Generator[tuple[UpdaterTask, ...], tuple[Array, ...], R]
"""Updates whose gradients somebody else computes.

Yields tasks that may be done at the same time, each of another loss. When it goes on, the gradients are in the losses' flat arrays,
and it is sent the statistics of each.
"""


def carry_out(updates: Updates[R], gradients: Callable[[int, Any], Array]) -> R:
    """Make all updates here and now.

    Args:
        updates: Them.
        gradients: Computes the gradients of a loss, given by its number, from a minibatch; see :meth:`UpdaterLoss.gradients`.

    Returns:
        What the updates end with.
    """
    statistics: Any = None
    cut = MinibatchSlicer()
    while True:
        try:
            tasks = updates.send(statistics)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        statistics = tuple([gradients(task.loss, cut(task.batch, task.rows)) for task in tasks])


class UpdaterLoss(ABC):
    """What a learner makes smaller.

    Attributes:
        statistics: Names of what :meth:`gradients` returns.
        settings: Names of those of its attributes that may be other ones in the next round.
        moving: Names of those that may be other ones in the next update, numbers: SAC's entropy coefficient.
        flat: The parameters.
        reads: Parameters that it only reads, and that stay as they are during a round: a target network's.
        follows: Parameters that it only reads, and that may be other ones in the next update: the critics', for an actor's loss.
        ignores: Names of fields of a minibatch that it does not look at, and that need not travel; never ``actions``.
    """

    statistics: ClassVar[tuple[str, ...]]
    settings: ClassVar[tuple[str, ...]] = ()
    moving: ClassVar[tuple[str, ...]] = ()
    flat: FlatParameters
    reads: tuple[FlatParameters, ...] = ()
    follows: tuple[FlatParameters, ...] = ()
    ignores: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """Overwrite ``flat.gradients`` by those of a minibatch, or of a slice of one that has ``of`` rows in all.

        Gradients and statistics of the slices of a minibatch add up to those of the whole.

        Returns:
            The statistics, float32.
        """


class Updater:
    """Updates a network from minibatches.

    Before a round of updates call :meth:`begin`; then :meth:`update` for each minibatch, or :meth:`gradients` and :meth:`step`
    where something comes between them: a stop, or gradients of other slices, added to ``updater.flat.gradients`` in order.

    Args:
        loss: With its network.
        optimizer: The optimiser of the network's parameters.
        max_grad_norm: What gradients are clipped to; ``None`` for never.
    """

    def __init__(self, loss: UpdaterLoss, optimizer: FlatOptimizer, max_grad_norm: float | None) -> None:
        self.loss, self.optimizer, self.max_grad_norm, self.flat = loss, optimizer, max_grad_norm, loss.flat

    def begin(self) -> None:
        """Take over what has been loaded or replaced since the last round."""
        self.optimizer.bind()
        for one in (*self.loss.reads, *self.loss.follows):
            one.bind()

    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`UpdaterLoss.gradients`."""
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
