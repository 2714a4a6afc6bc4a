"""A minibatch cut into slices, always at the same rows, and such a slice as a fixed record, which an array port carries."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_torch.parameters import FILLING, packed

__all__ = ["SliceLayout", "SliceView", "parts_of", "slice_of"]

Array = npt.NDArray[Any]
SIZES = "(rows, of)"
"""Rows of the slice, and of its minibatch."""


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


class SliceLayout:
    """How a slice lies in a record: a block of memory for each part of it.

    Args:
        example: A minibatch; see :class:`~reactor_torch.batches.Batch`.
        rows: The most that a slice has.

    Attributes:
        kind: The class of minibatches.
        rows: The most that a slice has.
        record: The type of the record.
    """

    def __init__(self, example: Any, rows: int) -> None:
        self.kind: type[Any] = type(example)
        self.rows = rows
        self.keyed = tuple(name for name, part in vars(example).items() if isinstance(part, dict))
        self.numbers = tuple(name for name, part in parts_of(example).items() if not part.ndim)
        blocks = [(name, part.dtype, (rows, *part.shape[1:]) if part.ndim else ()) for name, part in parts_of(example).items()]
        self.record = packed([*blocks, (SIZES, np.dtype(np.int64), (2,))])


def parts_of(batch: Any) -> dict[str, Array]:
    """The parts of a minibatch as arrays on the same memory; those of a dict are called ``field/key``."""
    parts: dict[str, Array] = {}
    for field, value in vars(batch).items():
        for key, part in value.items() if isinstance(value, dict) else [(None, value)]:
            name = field if key is None else f"{field}/{key}"
            parts[name] = part.numpy() if isinstance(part, torch.Tensor) else np.asarray(part, np.float64)
    return parts


class SliceView:
    """A record on either side of a port.

    Args:
        layout: Of the record.
        record: It.
    """

    def __init__(self, layout: SliceLayout, record: Array) -> None:
        self.layout = layout
        self.sizes: Array = record[SIZES]
        self.blocks: dict[str, Array] = {name: record[name] for name in layout.record.names or () if name not in (SIZES, FILLING)}
        self._of_rows = [(name, block) for name, block in self.blocks.items() if block.ndim]
        self._batches: dict[int, Any] = {}
        if FILLING in (layout.record.names or ()) and record.flags.writeable:
            record[FILLING] = 0

    def write(self, parts: Mapping[str, Array], rows: slice, of: int) -> None:
        """Copy a slice in.

        Args:
            parts: Of the whole minibatch, or of more: see :func:`parts_of`.
            rows: Of the slice.
            of: Rows of the minibatch.
        """
        count = rows.stop - rows.start
        self.sizes[0], self.sizes[1] = count, of  # sooner done than both at once
        for name, block in self._of_rows:
            block[:count] = parts[name][rows]
        for name in self.layout.numbers:
            self.blocks[name][...] = parts[name]

    def read(self) -> tuple[Any, int]:
        """The slice, its tensors views of the record, and the rows of its minibatch."""
        count, of = self.sizes.tolist()
        if self.layout.numbers or count not in self._batches:
            self._batches[count] = self._batch(count)
        return self._batches[count], of

    def _batch(self, count: int) -> Any:
        values: dict[str, Any] = {name: {} for name in self.layout.keyed}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            for name, block in self.blocks.items():
                field, _, key = name.partition("/")
                if field in self.layout.keyed:
                    values[field][key] = torch.from_numpy(block[:count])
                else:
                    values[field] = torch.from_numpy(block[:count]) if block.ndim else float(block)
        return self.layout.kind(**values)
