"""Minibatches cut from batches, again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_rl.plugin import aligned_zeros

__all__ = ["Cutter"]

Array = npt.NDArray[Any]
MOST = 2**17
"""Bytes of rows that are copied in less time than it takes to make tensors of where they lie."""


class Cutter:
    """Cuts minibatches from batches of a kind: small ones into tensors that are made once, large ones as views.

    What it gives is valid until it is asked for as many rows again.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._parts: list[Array] = []
        self._kept: dict[int, tuple[Any, list[Array]]] = {}

    def __call__(self, batch: Any, rows: slice) -> Any:
        """Some rows of a batch; see :class:`~reactor_torch.batches.Batch`."""
        count = rows.stop - rows.start
        if count == len(batch):
            return batch
        if batch is not self._batch:
            self._batch, self._parts = batch, _arrays(batch)
        if not self._parts:
            return batch[rows]
        kept = self._kept.get(count)
        if kept is None:
            kept = self._kept[count] = self._room(batch, count)
        minibatch, blocks = kept
        if not blocks:
            return batch[rows]
        for block, part in zip(blocks, self._parts, strict=True):
            block[...] = part[rows]
        return minibatch

    def _room(self, batch: Any, count: int) -> tuple[Any, list[Array]]:
        """A minibatch of so many rows, and its arrays; none if it is a large one."""
        if sum(part.nbytes // len(part) for part in self._parts) * count > MOST:
            return None, []
        blocks = [aligned_zeros((count, *part.shape[1:]), part.dtype) for part in self._parts]
        return type(batch)(*map(torch.from_numpy, blocks)), blocks


def _arrays(batch: Any) -> list[Array]:
    """The parts of a batch as arrays; none unless all of them are tensors in a processor's memory."""
    parts = list(vars(batch).values())
    if all(isinstance(part, torch.Tensor) and part.device.type == "cpu" for part in parts):
        return [np.asarray(part) for part in parts]
    return []
