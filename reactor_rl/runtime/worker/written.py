"""What has been written of one output in one pass: which rows, and what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from reactor_rl.runtime.worker.cells import Cells
from reactor_rl.runtime.worker.presence import Stamps

__all__ = ["Written"]


class Written:
    """One output, as somebody sees it who looks at all of them: a fingerprint, a gateway.

    Args:
        stamps: Its stamps.
        slots: The slots of its ring, or its cells.
    """

    def __init__(self, stamps: Stamps, slots: Sequence[npt.NDArray[Any]] | Cells) -> None:
        self._stamps, self._slots = stamps, slots

    def rows(self, words: memoryview, number: int) -> list[int] | None:
        """The rows that were written one by one in pass ``number``, none of them if all of it was; ``None`` if nothing was."""
        return self._stamps.written(words, number)

    def parts(self, time: int, rows: Sequence[int]) -> list[Any]:
        """What was written at ``time``: views of these rows of an array, or of all of it; the encoded object of each row."""
        if isinstance(self._slots, Cells):
            count = self._stamps.rows or 1
            first = time % self._stamps.ring * count
            return [self._slots.encoded(first + row) for row in (rows or range(count))]
        slot = self._slots[time % len(self._slots)]
        return [slot[row] for row in rows] if rows else [slot]
