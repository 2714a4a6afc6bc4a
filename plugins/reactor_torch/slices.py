"""A minibatch cut into slices, always at the same rows, and such a slice as a fixed record, which an array port carries."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.parameters import FILLING, packed
from reactor_torch.updater import UpdaterLoss

__all__ = ["SliceLayout", "SliceView", "parts_of", "slice_of"]

Array = npt.NDArray[Any]
HEAD = "(loss, rows, of)"
"""Number of the loss, rows of the slice, and of its minibatch."""
MOVING = "(moving)"
"""Settings of the loss that change with every update."""


def slice_of(rows: slice, slices: int, index: int) -> slice:
    """The rows of one of ``slices`` slices; their lengths differ by one at most, and the first one is never empty.

    Args:
        rows: Of the minibatch, with a beginning and an end.
        slices: How many there are.
        index: Of the slice.
    """
    count = rows.stop - rows.start
    begin, end = -(-index * count // slices), -(-(index + 1) * count // slices)
    return slice(rows.start + begin, rows.start + end)


def parts_of(batch: Any, wanted: Container[str] | None = None) -> dict[str, Array]:
    """The parts of a minibatch as arrays, on the same memory if that is a processor's.

    Args:
        batch: The minibatch.
        wanted: Names of parts, those of a dict being called ``field/key``; ``None`` for all.
    """
    parts: dict[str, Array] = {}
    for field, value in vars(batch).items():
        for key, part in value.items() if isinstance(value, dict) else [(None, value)]:
            name = field if key is None else f"{field}/{key}"
            if wanted is None or name in wanted:
                parts[name] = part.cpu().numpy() if isinstance(part, torch.Tensor) else np.asarray(part, np.float64)
    return parts


class SliceLayout:
    """How a slice lies in a record: a block of memory for each part that one of some losses needs.

    Args:
        example: A minibatch; see :class:`~reactor_torch.batches.Batch`.
        rows: The most that a slice has.
        losses: The losses that slices are for, by number.

    Attributes:
        kind: The class of minibatches.
        fields: The names of its fields.
        rows: The most that a slice has.
        needed: Names of the parts that each loss needs.
        parts: Names of those that any of them needs.
        record: The type of the record.
    """

    def __init__(self, example: Any, rows: int, losses: Mapping[int, UpdaterLoss]) -> None:
        parts = parts_of(example)
        self.kind: type[Any] = type(example)
        self.fields, self.rows = tuple(vars(example)), rows
        self.keyed = tuple(name for name, part in vars(example).items() if isinstance(part, dict))
        self.needed = {
            number: tuple(name for name in parts if name.partition("/")[0] not in loss.ignores) for number, loss in losses.items()
        }
        some = {name: parts[name] for name in parts if any(name in names for names in self.needed.values())}
        self.parts = frozenset(some)
        blocks = [(name, part.dtype, (rows, *part.shape[1:]) if part.ndim else ()) for name, part in some.items()]
        if moving := max(len(loss.moving) for loss in losses.values()):
            blocks.append((MOVING, np.dtype(np.float64), (moving,)))
        self.record = packed([*blocks, (HEAD, np.dtype(np.int64), (3,))])


class SliceView:
    """A record on either side of a port.

    Args:
        layout: Of the record.
        record: It.

    Attributes:
        moving: Settings that change with every update, in the order of ``UpdaterLoss.moving``; there may be more than that.
    """

    def __init__(self, layout: SliceLayout, record: Array) -> None:
        self.layout = layout
        names = record.dtype.names or ()
        self._head: Array = record[HEAD]
        self.moving: Array = record[MOVING] if MOVING in names else np.zeros(0)
        self._blocks = {number: {name: record[name] for name in needed} for number, needed in layout.needed.items()}
        self._of_rows = {number: _with_rows(blocks, True) for number, blocks in self._blocks.items()}
        self._numbers = {number: _with_rows(blocks, False) for number, blocks in self._blocks.items()}
        self._batches: dict[tuple[int, int], Any] = {}
        if FILLING in names and record.flags.writeable:
            record[FILLING] = 0

    def write(self, loss: int, parts: Mapping[str, Array], rows: slice, of: int) -> None:
        """Copy a slice in.

        Args:
            loss: Number of the loss that it is for.
            parts: Of the whole minibatch, or of more: see :func:`parts_of`.
            rows: Of the slice.
            of: Rows of the minibatch.
        """
        head, count = self._head, rows.stop - rows.start
        head[0], head[1], head[2] = loss, count, of  # sooner done than all at once
        for name, block in self._of_rows[loss]:
            block[:count] = parts[name][rows]
        for name, block in self._numbers[loss]:
            block[...] = parts[name]

    def read(self) -> tuple[int, Any, int]:
        """Number of the loss, the slice, its tensors views of the record, and the rows of its minibatch."""
        loss, count, of = self._head.tolist()
        batch = self._batches.get((loss, count))
        if batch is None or self._numbers[loss]:
            batch = self._batches[loss, count] = self._batch(loss, count)
        return loss, batch, of

    def _batch(self, loss: int, count: int) -> Any:
        """Parts that the loss does not need are ``None``."""
        values: dict[str, Any] = {name: {} if name in self.layout.keyed else None for name in self.layout.fields}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            for name, block in self._blocks[loss].items():
                field, _, key = name.partition("/")
                if field in self.layout.keyed:
                    values[field][key] = torch.from_numpy(block[:count])
                else:
                    values[field] = torch.from_numpy(block[:count]) if block.ndim else float(block)
        return self.layout.kind(**values)


def _with_rows(blocks: Mapping[str, Array], some: bool) -> list[tuple[str, Array]]:
    """The blocks that have rows, or those that have none: numbers."""
    return [(name, block) for name, block in blocks.items() if bool(block.ndim) == some]
