"""Hashing ports while a program runs: every port where it is written, or the boundary's outputs in the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactor_rl.fingerprint import canonical, new_hash
from reactor_rl.runtime.kernel import Kernel, Observer
from reactor_rl.runtime.ports import ArrayOutput, InputHandle, ObjectOutput, Output

__all__ = ["AllPorts", "BoundaryPorts"]


class AllPorts(Observer):
    """Hashes every output of one worker after each pass: its tag, its rows' presence, its content."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._hashes = {index: new_hash() for index in kernel.outputs}
        self._startup = True

    def after_pass(self) -> None:
        kernel = self._kernel
        if self._startup:  # what startup reactions write is present at tick 0, and hashed there
            self._startup = False
            return
        for index, port in kernel.outputs.items():
            rows = _present_rows(port, kernel)
            if rows is not None:
                into = self._hashes[index]
                canonical((kernel.time, kernel.microstep, rows), into)
                for part in _content(port, kernel.time, rows):
                    canonical(part, into)

    def digests(self) -> dict[int, bytes]:
        """The digest of each output so far."""
        return {index: found.copy().digest() for index, found in self._hashes.items()}


def _present_rows(port: Output, kernel: Kernel) -> list[int] | None:
    """Rows that were written one by one at this tag; [] for all of the port; None if it is absent."""
    words, number = kernel.words, kernel.number
    if words[port._stamp] == number:
        return []
    if port._row_masks and words[port._stamp + 1] == number:
        return [row for row in range(len(port._row_masks)) if words[port._stamp + 2 + row] == number]
    return None


def _content(port: Output, time: int, rows: list[int]) -> list[Any]:
    if isinstance(port, ArrayOutput):
        slot = port.slot(time)
        return [slot[row] for row in rows] if rows else [slot]
    assert isinstance(port, ObjectOutput)
    count = port._rows or 1
    first = time % port._ring * count
    return [port._cells.read(first + row) for row in (rows or range(count))]


class BoundaryPorts:
    """Hashes the boundary's outputs after each tick, in the caller."""

    def __init__(self, kernel: Kernel, outputs: Mapping[str, InputHandle]) -> None:
        self._kernel, self._outputs = kernel, outputs
        self._hashes = {name: new_hash() for name in outputs}

    def after_tick(self) -> None:
        kernel = self._kernel
        for name, port in self._outputs.items():
            mask: Any = port.mask(kernel.tick_number)
            if mask is True:
                canonical(kernel.time, self._hashes[name])
                canonical(port.get(kernel.tick_number), self._hashes[name])
            elif mask is not False and mask.any():
                canonical((kernel.time, mask), self._hashes[name])
                if mask.all():
                    canonical(port.get(kernel.tick_number), self._hashes[name])

    def digests(self) -> dict[str, bytes]:
        return {name: found.digest() for name, found in self._hashes.items()}
