"""Write the observations of a step into rows of a caller's arrays, which are bound once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["BoundRows", "Put", "RowLayout"]

Array = npt.NDArray[Any]
Put = Callable[[int, Any], None]
"""Writes an observation into a row."""
PutAll = Callable[[list[Any]], Any]


class RowLayout(Protocol):
    """How observations of one environment become rows of arrays."""

    def writer(self, rows: Any) -> Put:
        """A function that writes an observation into a row, and raises if it does not fit."""

    def batch_writer(self, rows: Any) -> PutAll | None:
        """A function that writes all rows at once, where that is cheaper, and raises if an observation does not fit."""


class BoundRows:
    """Where the observations of a step are written; to be made once for each memory that a port has.

    Args:
        layout: Of one observation.
        observations: What each environment shows after the step, and after an autoreset: rows as ``layout`` has them. ``None`` if
            nobody reads them.
        next_observations: What the step led to, before an autoreset: rows likewise, in arrays by name. ``None`` if nobody reads
            them.
    """

    __slots__ = ("copies", "kind", "led_to", "put", "put_all", "put_next", "shown")

    def __init__(self, layout: RowLayout, observations: Any, next_observations: Mapping[str, Array] | None = None) -> None:
        rows = next_observations if observations is None else observations
        self.put, self.put_all = layout.writer(rows), layout.batch_writer(rows)
        self.put_next = None if next_observations is None else layout.writer(next_observations)
        # For kernels: where all is one contiguous array of plain numbers.
        self.shown, self.led_to = _whole_array(observations), _whole_array(next_observations)
        arrays = [array for given, array in ((observations, self.shown), (next_observations, self.led_to)) if given is not None]
        kinds = {None if array is None else (array.dtype, array.shape) for array in arrays}
        self.kind = kinds.pop() if len(kinds) == 1 else None
        self.copies: tuple[tuple[Array, Array], ...] = ()
        if next_observations is not None and observations is not None:
            self.copies = tuple((part, observations[name]) for name, part in next_observations.items())

    def write_each(self, observations: Sequence[Any]) -> list[tuple[int, Exception]]:
        """Write observations one by one; no account is taken of those that are ``None``.

        Returns:
            Rows whose observations do not fit, and why.
        """
        failures: list[tuple[int, Exception]] = []
        for row, observation in enumerate(observations):
            if observation is not None:
                try:
                    self.put(row, observation)
                except Exception as error:
                    failures.append((row, error))
        return failures


def _whole_array(rows: Any) -> Array | None:
    if isinstance(rows, Mapping):
        rows = next(iter(rows.values())) if len(rows) == 1 else None
    if isinstance(rows, np.ndarray) and rows.dtype.fields and rows.flags.c_contiguous:
        kind, *others = {field[0] for field in rows.dtype.fields.values()}
        count = len(rows.dtype.fields)
        if not others and kind.names is None and kind.shape == () and kind.itemsize * count == rows.itemsize:
            rows = rows.view(kind).reshape(-1, count)  # numbers of one kind, side by side
    return rows if isinstance(rows, np.ndarray) and rows.dtype.names is None and rows.flags.c_contiguous else None
