"""Debug runs: array slots hold a pattern unless somebody has written them at this tag.

A slot is poisoned before its writer runs and, where nothing reads it later, at the beginning of the next tick, so that a
write that was skipped and a view that was kept too long both show.
"""

from __future__ import annotations

from reactor_rl.runtime.worker.kernel import Kernel, Observer
from reactor_rl.runtime.worker.outputs import ArrayOutput
from reactor_rl.topology import Topology

__all__ = ["PATTERN", "Poison"]

PATTERN = 0xA5
"""Every byte of a poisoned slot."""


class Poison(Observer):
    """Poisons the array outputs of one worker."""

    def __init__(self, kernel: Kernel, topology: Topology) -> None:
        self._kernel = kernel
        self._of_bit = {
            bit: [(o, kernel.outputs[o]) for o in topology.reactions[reaction].effects]
            for bit, reaction in kernel.reactions.items()
        }
        self._short = [o for o in topology.outputs if o.index in kernel.outputs and o.ring == 1]
        self._written: dict[int, int] = {}

    def before_reaction(self, bit: int) -> None:
        # What was written at an earlier microstep of this tick is still on its way to delayed readers and to the caller.
        words, since = self._kernel.words, self._kernel.tick_number
        for index, port in self._of_bit[bit]:
            written = self._written.get(index, 0) >= since or port._stamps.any_since(words, since)
            if isinstance(port, ArrayOutput) and not written:
                self._written[index] = since
                _poison(port, self._kernel.time)

    def before_pass(self) -> None:
        kernel = self._kernel
        if kernel.microstep == 0 and kernel.time > 0:
            for node in self._short:
                port = kernel.outputs[node.index]
                # A boundary input is written by the caller before the pass begins.
                if isinstance(port, ArrayOutput) and not port._stamps.any_since(kernel.words, kernel.number):
                    _poison(port, kernel.time)


def _poison(port: ArrayOutput, time: int) -> None:
    slot = port.slot(time)
    if slot.flags.c_contiguous:
        slot.reshape(-1).view("u1").fill(PATTERN)
    else:
        for row in slot:
            row.reshape(-1).view("u1").fill(PATTERN)
