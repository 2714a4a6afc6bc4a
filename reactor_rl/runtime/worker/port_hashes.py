"""Hashing every port, where it is written, while a program runs."""

from __future__ import annotations

from collections.abc import Mapping

from reactor_rl.fingerprint import canonical, new_hash
from reactor_rl.runtime.worker.kernel import Kernel, Observer
from reactor_rl.runtime.worker.written import Written
from reactor_rl.serialise import decode

__all__ = ["AllPorts"]


class AllPorts(Observer):
    """Hashes every output of one worker after each pass: its tag, its rows' presence, its content."""

    def __init__(self, kernel: Kernel, outputs: Mapping[int, Written]) -> None:
        self._kernel, self._outputs = kernel, outputs
        self._hashes = {index: new_hash() for index in outputs}
        self._startup = True

    def after_pass(self) -> None:
        kernel = self._kernel
        if self._startup:  # what startup reactions write is present at tick 0, and hashed there
            self._startup = False
            return
        for index, output in self._outputs.items():
            rows = output.rows(kernel.words, kernel.number)
            if rows is not None:
                into = self._hashes[index]
                canonical((kernel.time, kernel.microstep, rows), into)
                for part in output.parts(kernel.time, rows):
                    canonical(decode(part), into)

    def restart(self) -> None:
        """Forget what was hashed so far."""
        self._hashes = {index: new_hash() for index in self._hashes}

    def digests(self) -> dict[int, bytes]:
        """The digest of each output so far."""
        return {index: hasher.copy().digest() for index, hasher in self._hashes.items()}
