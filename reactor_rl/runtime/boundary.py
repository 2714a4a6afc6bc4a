"""The ports of the boundary, from the caller's side: inputs set before a tick, outputs read after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reactor_rl.errors import ProgramError, RunError
from reactor_rl.fingerprint import canonical, new_hash
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.ports import InputHandle, OutputHandle

__all__ = ["Boundary"]


class Boundary:
    """Boundary inputs and outputs of one run.

    Attributes:
        open: Whether inputs may be set now.
        shut: The reason, if they may not.
        fed: Whether an input was set for the coming tick.
        time: The time of the coming tick.
    """

    def __init__(
        self, program: str, loop: WorkerLoop, inputs: Mapping[str, OutputHandle], outputs: Mapping[str, InputHandle]
    ) -> None:
        self._program, self._loop, self._inputs, self.outputs = program, loop, inputs, outputs
        self._hashes = {name: new_hash() for name in outputs}
        self.open, self.fed, self.time = True, False, 0
        self.shut = "while a tick is going on or after the run is over"

    # ------------------------------------------------------------------ before a tick

    def writer(self, name: str) -> Callable[[Any], None]:
        """Return a function that sets one input for the coming tick.

        Raises:
            ProgramError: If the program has no such input.
        """
        port: Any = self._inputs.get(name)
        if port is None:
            known = ", ".join(sorted(self._inputs)) or "none"
            raise ProgramError(f"the program {self._program!r} has no boundary input {name!r}; it has: {known}")
        # In locals: the functions below are called before every tick.
        loop, words, put = self._loop, self._loop.words, port.set
        view, stamp, mask = port.plain_slot()

        def write_simple(value: Any) -> None:
            if not self.open or type(value) is not np.ndarray or value.dtype != view.dtype or value.shape != view.shape:
                write(value)
                return
            view[...] = value
            # Stamped with the coming pass, which is the next one; but startup and tick 0 are one pass, so nothing is added then.
            words[stamp] = loop.pass_number + (self.time > 0)
            loop.pending |= mask  # as an output's set() does, for reactions of the caller; helpers look at the stamp
            self.fed = True

        def write(value: Any) -> None:
            if not self.open:
                raise RunError(f"cannot set {name} {self.shut}")
            number, time = loop.pass_number, loop.time
            # What is written now belongs to the coming tick: set() stamps with the loop's pass and time, so they are lent to it.
            loop.pass_number, loop.time = number + (self.time > 0), self.time
            try:
                put(value)
            finally:
                loop.pass_number, loop.time = number, time
            self.fed = True

        return write if view is None else write_simple

    def take_back(self, number: int) -> None:
        """Have inputs that were set for a tick that never begins be absent.

        Args:
            number: Of the shutdown pass, which would have been the first one of that tick.
        """
        for port in self._inputs.values():
            port.forget(number)

    # ------------------------------------------------------------------ after a tick

    def read(self, name: str) -> Any:
        """Return the caller's own copy of an output; ``None`` if it was not written in the last tick."""
        loop, port = self._loop, self.outputs[name]
        if not self.time or loop.time != self.time - 1 or not np.all(port.mask(loop.tick_number)):
            return None
        value = port.get(loop.tick_number)
        return value.copy() if isinstance(value, np.ndarray) else value

    def view(self, name: str) -> np.ndarray[Any, Any]:
        """Return a read-only view of an output's slot.

        Raises:
            ProgramError: If it is not an array output, or is read with a delay.
        """
        port = self.outputs.get(name)
        slot = None if port is None else port.only_slot()
        if slot is None:
            raise ProgramError(f"{name!r} is not a boundary output with one array slot")
        return slot

    def reader(self, name: str) -> Callable[[], list[Any]]:
        """Return a function that returns :meth:`values` of an output."""
        loop, words, port = self._loop, self._loop.words, self.outputs[name]
        readers = port.stamped_readers()
        if readers is None:
            return lambda: port.present_values(loop.tick_number)

        def written() -> list[Any]:
            since = loop.tick_number
            return [read(loop.time) for stamp, read in readers if words[stamp] >= since]

        return written

    def values(self, name: str) -> list[Any]:
        """Return the rows of an output of objects that were written in the last tick, in order."""
        return self.outputs[name].present_values(self._loop.tick_number)

    # ------------------------------------------------------------------ fingerprints

    def hash(self, since: int) -> None:
        """Add values written in pass ``since`` or later to the outputs' hashes: time, presence of rows, content."""
        time = self._loop.time
        for name, port in self.outputs.items():
            mask: Any = port.mask(since)
            if mask is False or (mask is not True and not mask.any()):
                continue
            into = self._hashes[name]
            canonical(time if mask is True else (time, mask), into)
            canonical(port.get(since) if mask is True or mask.all() else port.written_rows(since), into)

    def restart(self) -> None:
        """Begin the hashes anew."""
        self._hashes = {name: new_hash() for name in self.outputs}

    def digests(self) -> dict[str, bytes]:
        """The digest of each output so far."""
        return {name: hasher.digest() for name, hasher in self._hashes.items()}
