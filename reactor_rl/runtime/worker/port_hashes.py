"""Hashing every port, where it is written, while a program runs."""

from __future__ import annotations

from typing import Any

from reactor_rl.fingerprint import canonical, new_hash
from reactor_rl.runtime.worker.kernel import Kernel, Observer
from reactor_rl.runtime.worker.outputs import ArrayOutput, ObjectOutput, OutputHandle

__all__ = ["AllPorts"]


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
            rows = port._stamps.written(kernel.words, kernel.number)
            if rows is not None:
                into = self._hashes[index]
                canonical((kernel.time, kernel.microstep, rows), into)
                for part in _content(port, kernel.time, rows):
                    canonical(part, into)

    def restart(self) -> None:
        """Forget what was hashed so far."""
        self._hashes = {index: new_hash() for index in self._hashes}

    def digests(self) -> dict[int, bytes]:
        """The digest of each output so far."""
        return {index: hasher.copy().digest() for index, hasher in self._hashes.items()}


def _content(port: OutputHandle, time: int, rows: list[int]) -> list[Any]:
    if isinstance(port, ArrayOutput):
        slot = port.slot(time)
        return [slot[row] for row in rows] if rows else [slot]
    assert isinstance(port, ObjectOutput)
    count = port._rows or 1
    first = time % port._ring * count
    return [port._cells.read(first + row) for row in (rows or range(count))]
