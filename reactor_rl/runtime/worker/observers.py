"""Observers of a worker: its timeline, hashes of its ports, and poisoned values for debug runs.

In a debug run, array slots hold a pattern unless they were written at this tag. A slot is poisoned before its writer runs and,
if nothing reads it later, at the beginning of the next tick, so that a write that was skipped and a view that was kept too long
both show.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns

from reactor_rl.fingerprint import canonical, new_hash
from reactor_rl.pickling import decode
from reactor_rl.runtime.worker.loop import Observer, WorkerLoop
from reactor_rl.runtime.worker.ports import ArrayOutput
from reactor_rl.runtime.worker.values import OutputReader
from reactor_rl.topology import Topology
from reactor_rl.trace import Slice

__all__ = ["Timeline", "PortHashes", "PATTERN", "Poison"]


class Timeline(Observer):
    """Records the slices of one worker from now on: reactions and waits."""

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop
        self.slices: list[Slice] = []

    def before_reaction(self, bit: int) -> None:
        self._began = perf_counter_ns()

    def after_reaction(self, bit: int) -> None:
        end, loop = perf_counter_ns(), self._loop
        self.slices.append(("reaction", loop.names[bit], self._began, end, loop.time, loop.microstep))

    def before_wait(self) -> None:
        self._began = perf_counter_ns()

    def after_wait(self, whom: str) -> None:
        end, loop = perf_counter_ns(), self._loop
        self.slices.append(("wait", f"wait for {whom}", self._began, end, loop.time, loop.microstep))


class PortHashes(Observer):
    """Hashes every output of one worker after each pass: tag, presence of its rows, content."""

    def __init__(self, loop: WorkerLoop, outputs: Mapping[int, OutputReader]) -> None:
        self._loop, self._outputs = loop, outputs
        self._hashes = {index: new_hash() for index in outputs}
        self._startup = True

    def after_pass(self) -> None:
        loop = self._loop
        if self._startup:  # outputs of startup reactions are present at tick 0, and hashed there
            self._startup = False
            return
        for index, output in self._outputs.items():
            rows = output.rows(loop.words, loop.pass_number)
            if rows is not None:
                into = self._hashes[index]
                canonical((loop.time, loop.microstep, rows), into)
                for piece in output.pieces(loop.time, rows):
                    canonical(decode(piece), into)

    def restart(self) -> None:
        """Begin the hashes anew."""
        self._hashes = {index: new_hash() for index in self._hashes}

    def digests(self) -> dict[int, bytes]:
        """The digest of each output so far."""
        return {index: hasher.copy().digest() for index, hasher in self._hashes.items()}


PATTERN = 0xA5
"""The value of every byte of a poisoned slot (0xA5). As a float64 it is about -2.5e-127: no NaN, which a reaction might expect, and
nothing that one would write.
"""


class Poison(Observer):
    """Poisons the array outputs of one worker."""

    def __init__(self, loop: WorkerLoop, topology: Topology) -> None:
        self._loop = loop
        self._of_bit = {
            bit: [(o, loop.outputs[o]) for o in topology.reactions[reaction].effects] for bit, reaction in loop.reactions.items()
        }
        self._short = [o for o in topology.outputs if o.index in loop.outputs and o.ring == 1]
        self._written: dict[int, int] = {}

    def before_reaction(self, bit: int) -> None:
        # A value written at an earlier microstep of this tick is still on its way to delayed readers and to the caller.
        words, since = self._loop.words, self._loop.tick_number
        for index, port in self._of_bit[bit]:
            written = self._written.get(index, 0) >= since or port._stamps.any_since(words, since)
            if isinstance(port, ArrayOutput) and not written:
                self._written[index] = since
                _poison(port, self._loop.time)

    def before_pass(self) -> None:
        loop = self._loop
        if loop.microstep == 0 and loop.time > 0:
            for node in self._short:
                port = loop.outputs[node.index]
                # A boundary input is written by the caller before the pass begins.
                if isinstance(port, ArrayOutput) and not port._stamps.any_since(loop.words, loop.pass_number):
                    _poison(port, loop.time)


def _poison(port: ArrayOutput, time: int) -> None:
    port.slot(time).reshape(-1).view("u1").fill(PATTERN)  # a slot is a whole array, or rows of one: contiguous
