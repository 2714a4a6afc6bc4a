"""Infos of vector environments, which are columns already, put one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Block", "stack"]

Block = tuple[int, int, dict[str, Any]]
"""The first row, how many rows, and their batched infos: columns of so many values, and masks ``_key`` for some of them."""

_Column = npt.NDArray[Any]


def stack(blocks: Sequence[Block], rows: int) -> dict[str, Any]:
    """The infos of all rows, in the form that Gymnasium's vector environments give them: each key with its mask ``_key``.

    A key without a mask counts for all rows of its block; rows of which a key says nothing are zero, or ``None``. What is neither
    a dict nor a column is the value of every row of its block. ``env_id`` counts on from block to block.

    Args:
        blocks: What there is, in order of rows.
        rows: How many rows there are.
    """
    keys = dict.fromkeys(key for _, _, infos in blocks for key in infos if not (key[:1] == "_" and key[1:] in infos))
    stacked: dict[str, Any] = {}
    for key in keys:
        having = [(first, count, infos) for first, count, infos in blocks if key in infos]
        values = [infos[key] for _, _, infos in having]
        if all(isinstance(value, dict) for value in values):
            stacked[key] = stack([(first, count, infos[key]) for first, count, infos in having], rows)
        else:
            columns = [(first, _column(value, count)) for (first, count, _), value in zip(having, values, strict=True)]
            if key == "env_id":
                columns = [(first, column + first if column.dtype.kind in "iu" else column) for first, column in columns]
            stacked[key] = _joined(columns, rows)
        mask = stacked[f"_{key}"] = np.zeros(rows, np.bool_)
        for first, count, infos in having:
            mask[first : first + count] = infos.get(f"_{key}", True)
    return stacked


def _column(value: Any, count: int) -> _Column:
    """The values of ``count`` rows."""
    if isinstance(value, np.ndarray) and value.ndim and len(value) == count:
        return value
    if isinstance(value, (bool, int, float, np.bool_, np.number)):
        return np.full(count, value)
    of_rows = value if isinstance(value, (list, tuple)) and len(value) == count else [value] * count
    column = np.empty(count, object)
    for row, one in enumerate(of_rows):  # one by one, for they may be sequences themselves
        column[row] = one
    return column


def _joined(columns: Sequence[tuple[int, _Column]], rows: int) -> _Column:
    """One column of all rows; of objects, where blocks have values of different shapes or no common dtype."""
    shape = columns[0][1].shape[1:]
    try:
        dtype = np.result_type(*[column.dtype for _, column in columns])
    except TypeError:
        dtype = np.dtype(object)
    if dtype.hasobject or any(column.shape[1:] != shape for _, column in columns):
        joined = np.full(rows, None, object)
        for first, column in columns:
            for row, one in enumerate(column, first):
                joined[row] = one
        return joined
    joined = np.zeros((rows, *shape), dtype)
    for first, column in columns:
        joined[first : first + len(column)] = column
    return joined
