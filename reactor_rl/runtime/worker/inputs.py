"""Handles of inputs: what a reaction reads, and whether it is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.errors import AbsentError
from reactor_rl.runtime.worker.handle import Handle
from reactor_rl.runtime.worker.moment import Moment
from reactor_rl.runtime.worker.presence import Source
from reactor_rl.runtime.worker.values import Read, Reading
from reactor_rl.serialise import decode, encode
from reactor_rl.topology import BOUNDARY, MISSING, InputNode

__all__ = ["InputHandle", "input_handle"]


class InputHandle(Handle):
    """An input port: one source, or the rows that it gathers.

    ``read(time)`` gives the value that was written at a time, ``spans`` are the rows of the input that each source fills.
    """

    __slots__ = ("_decides", "_delay", "_initial", "_parts", "_quick", "_read", "_rows", "_slot", "_sources", "_spans")

    def __init__(
        self, kernel: Moment, name: str, allowed: int, node: InputNode, sources: Sequence[Source], reading: Reading
    ) -> None:
        super().__init__(kernel, name, allowed)
        self._read, self._slot, self._parts = reading
        self._sources, self._rows, self._delay = tuple(sources), node.rows, node.delay
        self._spans = tuple((part.at, part.at + part.width) for part in node.parts if part.at is not None)
        self._initial = _unchanging(node.initial)
        # The stamp of the one source that is read at the same tag; -1 for inputs that are not that simple. Unless single
        # rows of that source may be written by themselves, it decides.
        self._quick = sources[0].whole if _single(node) and not node.delay else -1
        self._decides = self._quick >= 0 and sources[0].undivided

    @property
    def present(self) -> Any:
        """Whether there is a value at this tag; for an input that gathers, a mask of shape ``(rows,)``, bool."""
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if self._quick >= 0:
            if kernel.words[self._quick] == kernel.number:
                return True
            if self._decides:
                return False
        mask = self.mask(kernel.number)
        return mask if self._spans else bool(np.any(mask))

    def mask(self, since: int) -> npt.NDArray[np.bool_] | bool:
        """Presence by row (an input that gathers) or by part."""
        if self._initial is not MISSING and self._kernel.time < self._delay:
            now = since <= self._kernel.tick_number
            return np.full(self._rows or 0, now) if self._spans else now
        if not self._spans:
            return self._sources[0].rows(since) if self._sources else False
        mask = np.zeros(self._rows or 0, np.bool_)
        for source, (lo, hi) in zip(self._sources, self._spans, strict=True):
            part = source.rows(since)
            mask[lo:hi] = part if isinstance(part, bool) or hi - lo > 1 else part.all()
        return mask

    @property
    def value(self) -> Any:
        """The value at this tag: a read-only view (array ports), or this reactor's own copy (object ports).

        Raises:
            AbsentError: If there is none, or if any row is absent.
        """
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if self._quick >= 0 and kernel.words[self._quick] == kernel.number:
            return self._read(kernel.time)
        return self.get(kernel.number)

    def get(self, since: int) -> Any:
        """The value, if it was written in pass ``since`` or after."""
        if not self._whole(since):
            raise self._absent()
        time = self._kernel.time - self._delay
        return self._initial_value() if time < 0 else self._read(time)

    def _whole(self, since: int) -> bool:
        """Whether every row of every part is present."""
        if self._initial is not MISSING and self._kernel.time < self._delay:
            return since <= self._kernel.tick_number
        for source in self._sources:
            part = source.rows(since)
            if part is not True and (part is False or not part.all()):
                return False
        return bool(self._sources)

    def any_since(self, since: int) -> bool:
        """Whether any part was written in pass ``since`` or after (undelayed inputs)."""
        for source in self._sources:
            if source.any_since(since):
                return True
        return False

    def stamped_parts(self) -> list[tuple[int, Read]] | None:
        """Its parts, each with the word of its stamp, if that alone tells when anything of it was written (undelayed inputs)."""
        if not all(source.undivided for source in self._sources):
            return None
        return [(source.whole, read) for source, read in zip(self._sources, self._parts, strict=True)]

    def present_values(self, since: int) -> list[Any]:
        """The values of those rows that were written in pass ``since`` or after (undelayed inputs of objects)."""
        time = self._kernel.time
        return [read(time) for source, read in zip(self._sources, self._parts, strict=True) if source.any_since(since)]

    def only_slot(self) -> npt.NDArray[Any] | None:
        """The view that is the value at every tick, if the input is an array with one slot."""
        return self._slot

    def _initial_value(self) -> Any:
        initial = self._initial
        if isinstance(initial, np.ndarray):
            return initial
        copy = decode(initial)
        return [decode(initial) for _ in range(self._rows)] if self._rows is not None else copy

    def _absent(self) -> AbsentError:
        return AbsentError(
            f"{self.name} is absent at tag {self._kernel.time, self._kernel.microstep}; ask .present before reading .value"
        )


class PlainInput(InputHandle):
    """An input with one source, read at the same tag, whose rows nobody writes one by one: one stamp decides."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """As of any input."""
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if kernel.words[self._quick] != kernel.number:
            raise self._absent()
        return self._read(kernel.time)


class LateInput(InputHandle):
    """An input with one source, read with a delay, whose rows nobody writes one by one."""

    __slots__ = ("_ring", "_times")

    def __init__(
        self, kernel: Moment, name: str, allowed: int, node: InputNode, sources: Sequence[Source], reading: Reading
    ) -> None:
        super().__init__(kernel, name, allowed, node, sources, reading)
        self._times, self._ring = sources[0].times, len(sources[0].times)

    @property
    def value(self) -> Any:
        """As of any input."""
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("triggers or uses")
        time = kernel.time - self._delay
        if time >= 0 and kernel.microstep == 0 and kernel.words[self._times[time % self._ring]] == time:
            return self._read(time)
        return self.get(kernel.number)


def input_handle(
    kernel: Moment, name: str, allowed: int, node: InputNode, sources: Sequence[Source], reading: Reading
) -> InputHandle:
    """The handle of an input: of the class that takes the least time for it.

    Args:
        kernel: The worker that reads it.
        name: Its name, for messages.
        allowed: Bits of the reactions that may read it.
        node: The input.
        sources: The presence of each of its parts.
        reading: How its value is read.
    """
    kind = InputHandle
    if _single(node) and sources[0].undivided:
        kind = LateInput if node.delay else PlainInput
    return kind(kernel, name, allowed, node, sources, reading)


def _single(node: InputNode) -> bool:
    """Whether a reaction reads it, and all of it comes from one source."""
    return len(node.parts) == 1 and node.parts[0].at is None and node.reactor != BOUNDARY


def _unchanging(initial: Any) -> Any:
    """An initial value in a form in which no reader can change it."""
    if isinstance(initial, np.ndarray):
        initial = initial.copy()
        initial.flags.writeable = False
        return initial
    return initial if initial is MISSING else encode(initial)
