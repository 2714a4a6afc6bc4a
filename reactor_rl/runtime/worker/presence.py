"""Presence: the stamps that say whether a value is there. Only this file knows how they lie in memory.

A stamp is a word with the number of the pass (a pass is one tag) in which something was written. A value is present exactly if
that is the running pass, so stamps never need clearing. An output has one stamp for all of it. If its rows are addressed, one
for any row and one for each row follow. An output that is read with a delay has as many words again for every slot of its ring,
which hold times instead. Hot paths keep the word numbers that :class:`Stamps` hands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reactor_rl.runtime.worker.clock import WorkerClock

__all__ = ["StampReader", "Stamps"]

ANY_ROW, FIRST_ROW = 1, 2  # offsets to the stamp of all of the output, and to the time of all of a slot
NO_TIME = -1
"""The time of a slot that nobody has written."""
LONG_AGO = -1
"""In place of an age in passes, of what is not present any more."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """The place of one output's stamps among the words that all workers share.


    Attributes:
        whole: The word that is the stamp of all of it.
        rows: Number of rows that may be written one by one; ``None`` if it is only written as a whole.
        ring: Number of slots; more than one if it is read with a delay.
    """

    whole: int
    rows: int | None
    ring: int

    @property
    def _stride(self) -> int:
        return 1 if self.rows is None else FIRST_ROW + self.rows

    @property
    def size(self) -> int:
        """Number of words, including those of the times."""
        return self._stride * (1 if self.ring == 1 else 1 + self.ring)

    @property
    def any_row(self) -> int:
        """The word that is the stamp of any row; of the whole output if rows are not written one by one."""
        return self.whole if self.rows is None else self.whole + ANY_ROW

    @property
    def times(self) -> tuple[int, ...]:
        """For each slot the word with the time at which all of it was written; empty unless it is read with a delay."""
        behind = self.whole + self._stride
        return tuple(range(behind, self.whole + self.size, self._stride))

    def clear(self, words: memoryview) -> None:
        """Mark every slot as never written."""
        for word in range(self.whole + self._stride, self.whole + self.size):
            words[word] = NO_TIME

    def forget(self, words: memoryview, number: int) -> None:
        """Mark what was written in pass ``number`` as written before any pass."""
        for word in range(self.whole, self.whole + self._stride):
            if words[word] == number:
                words[word] = 0

    def stamp_row(self, words: memoryview, row: int, number: int, time: int) -> None:
        """Stamp one row as written in pass ``number``, at ``time``."""
        words[self.whole + ANY_ROW] = words[self.whole + FIRST_ROW + row] = number
        if self.ring > 1:
            slot = self.whole + self._stride * (1 + time % self.ring)
            words[slot + ANY_ROW] = words[slot + FIRST_ROW + row] = time

    def written(self, words: memoryview, number: int) -> list[int] | None:
        """Rows that were written one by one in pass ``number``; empty if all of it was written, ``None`` if nothing was."""
        if words[self.whole] == number:
            return []
        if not self.rows or words[self.whole + ANY_ROW] != number:
            return None
        return [row for row in range(self.rows) if words[self.whole + FIRST_ROW + row] == number]

    def any_since(self, words: memoryview, since: int) -> bool:
        """Whether any of it was written in pass ``since`` or later."""
        return words[self.whole] >= since or (bool(self.rows) and words[self.whole + ANY_ROW] >= since)

    def in_slots(self, words: memoryview) -> Iterator[tuple[int | None, int]]:
        """Yield the content of the ring: each row that was written (``None``: all rows), and its time."""
        for slot in self.times:
            if words[slot] != NO_TIME:
                yield None, words[slot]
            for row in range(self.rows or 0):
                if words[slot + FIRST_ROW + row] != NO_TIME:
                    yield row, words[slot + FIRST_ROW + row]

    def save(self, words: memoryview, coming: int, oldest: int) -> list[int]:
        """Save the stamps in a form that fits into any run.

        Returns:
            For each stamp how many passes before ``coming`` it was written, -1 if that was before ``oldest``; then the times.
        """
        saved: list[int] = words[self.whole : self.whole + self.size].tolist()
        ages = [coming - stamp if stamp >= oldest else LONG_AGO for stamp in saved[: self._stride]]
        return ages + saved[self._stride :]

    def restore(self, words: memoryview, saved: list[int], coming: int) -> bool:
        """Restore the result of :meth:`save`, and return whether anything is present at the coming pass."""
        ages = saved[: self._stride]
        passes = [0 if age == LONG_AGO else coming - age for age in ages]
        for word, stamp in enumerate(passes + saved[self._stride :], self.whole):
            words[word] = stamp
        return self.is_present(saved)

    def is_present(self, saved: list[int]) -> bool:
        """Whether the result of :meth:`save` makes anything present at the coming pass."""
        return 0 in saved[: self._stride]


class StampReader:
    """The presence of one source of an input: a whole output, or rows of it.

    Args:
        clock: The worker that reads it.
        stamps: The stamps of the output.
        delay: Number of ticks after which it is read.
        lo, hi: The rows; ``None`` for all.

    Attributes:
        whole: The word that is the stamp of all of the output.
        times: For each slot the word with the time at which all of it was written, if it is read with a delay.
        undivided: Whether its rows are only written as a whole, so that these words decide.
    """

    __slots__ = ("_begin", "_clock", "_delay", "_end", "times", "undivided", "whole")

    def __init__(self, clock: WorkerClock, stamps: Stamps, delay: int = 0, lo: int | None = None, hi: int | None = None) -> None:
        self._clock, self._delay = clock, delay
        self.whole, self.times, self.undivided = stamps.whole, stamps.times, stamps.rows is None
        lo, hi = (0, stamps.rows or 0) if lo is None or hi is None else (lo, hi)
        self._begin, self._end = FIRST_ROW + lo, FIRST_ROW + hi

    def any_since(self, since: int) -> bool:
        """Whether any of it was written in pass ``since`` or later (without a delay)."""
        return self._clock.words[self.whole] >= since or (not self.undivided and bool(np.any(self.rows(since))))

    def any_row(self, number: int) -> bool:
        """Whether one of its rows was written by itself in pass ``number`` (without a delay)."""
        words = self._clock.words
        return words[self.whole + ANY_ROW] == number and number in words[self.whole + self._begin : self.whole + self._end]

    def rows(self, since: int) -> npt.NDArray[np.bool_] | bool:
        """Return its presence: a mask over its rows if some of them were written one by one, else one truth value.

        Args:
            since: The first pass that counts: the running one, or for the caller, which reads after a tick, the tick's first.
        """
        clock = self._clock
        words = clock.words
        if self._delay:
            time = clock.time - self._delay
            if time < 0 or since > clock.tick_number:  # delayed values arrive at microstep 0
                return False
            at = self.times[time % len(self.times)]
            since = upto = time
        else:
            at, upto = self.whole, clock.pass_number
        if since <= words[at] <= upto:
            return True
        if self.undivided or not since <= words[at + ANY_ROW] <= upto:
            return False
        # A comparison, so a new array: the words may change while somebody still has the mask.
        mask: npt.NDArray[np.bool_] = np.frombuffer(words, np.int64)[at + self._begin : at + self._end] >= since
        return mask  # no row is stamped later than "any row" is
