"""A helper in the place of one that has died: its reactors are made anew and run, alone, through what the dead one has seen.

They run in a private copy of the arena, which others must not see, for they have gone on since. When the copy is where the dead
helper was after its last whole pass, its pages are exchanged for the live arena's, at the same addresses: whatever views reactors
have kept are views of the live arena from then on. The pass in which the helper died begins anew there; what it had written of it
is written again, with the same bits.
"""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from reactor_rl.errors import RunError
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.block import Block
from reactor_rl.runtime.crossing import Past, lay
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.words import Words
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.cells import Side
from reactor_rl.runtime.worker.checkpoint import WorkerCheckpoint, go_back
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.state import put_back

__all__ = ["BEAT", "Stand"]

BEAT = 1.0
"""Seconds after which a helper that is being brought back says again, before its next pass, that it gets on."""

Call = Callable[[int], None]
Tell = Callable[[], None]


class Stand:
    """Where a helper is brought back: a private copy of the arena and of the side blocks, until they are exchanged.

    Attributes:
        memory: The arena; private at first.
        sides: The side blocks; likewise.
    """

    def __init__(self, plan: Plan, worker: int, arena: Block, blocks: Sequence[Block | None]) -> None:
        self._plan, self._worker, self._arena, self._blocks = plan, worker, arena, blocks
        self._map = mmap.mmap(-1, arena.reserved)
        self.memory = memoryview(self._map)[: plan.layout.size]
        self.sides: list[Side | None] = [None if block is None else Side(Block(0, "values of the past")) for block in blocks]

    def revive(self, past: Past, reactors: Mapping[int, bytes | Reactor], wait: Call, signal: Call, tell: Tell) -> Kernel:
        """Run the reactors through the past, and give their kernel a place in the live arena.

        Args:
            past: What has crossed into them.
            reactors: The reactors as they were before the run.
            wait, signal: How to wait and to signal from then on.
            tell: Says that it gets on.

        Raises:
            RunError: If a reaction raises that has not raised then.
        """
        words = self.memory[: self._plan.layout.words * 8].cast("q")
        for stamps in self._plan.layout.stamps:
            stamps.clear(words)
        kernel, _, _ = bind(self._plan, self._worker, self.memory, self.sides, reactors, _wait, _signal)
        self._run(kernel, past, tell)
        self._arena.map_over(self._map)
        for side, block in zip(self.sides, self._blocks, strict=True):
            if side is not None and block is not None:
                side.move(block)
        words[Words.NEXT + self._worker] = kernel.next_time()
        live: dict[Any, Call] = {_wait: wait, _signal: signal}
        kernel.steps = [(live.get(step, step), argument) for step, argument in kernel.steps]
        return kernel

    def _run(self, kernel: Kernel, past: Past, tell: Tell) -> None:
        put = partial(lay, memory=self.memory, sides=self.sides, worker=self._worker)
        put(past.startup)
        kernel.start_pass()
        self._check(kernel)
        if past.checkpoint is not None:
            arena, asides, workers = past.checkpoint
            self.memory[:] = arena
            for side, data in zip(self.sides, asides, strict=True):
                if side is not None and data:
                    side.put(0, data)
            held = workers[self._worker]
            if isinstance(held, WorkerCheckpoint):
                go_back(kernel, held)
            else:
                put_back(kernel, *held)
        told = -math.inf
        for notes in past.passes:
            if time.monotonic() - told > BEAT:
                tell()
                told = time.monotonic()
            first, tick, number = put(notes)
            if first:
                self._check(kernel)  # but not within the last tick, whose failures the caller may still ask for
                kernel.first_pass(tick, number)
            else:
                kernel.next_pass(number)

    def _check(self, kernel: Kernel) -> None:
        if kernel.failures:
            failure = kernel.failures[0]
            raise RunError(f"reaction {failure.where} raised what it has not raised before: {failure.error!r}") from failure.error


def _wait(worker: int) -> None:
    """What is waited for is there already."""


def _signal(worker: int) -> None:
    """Nobody waits."""
