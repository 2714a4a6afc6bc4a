"""The log of what crosses into helpers, pass by pass, and how a successor is brought back from it.

An output crosses if a reactor on a helper reads it and another worker writes it. At the end of a pass, what was written in it
is still in its slots, so one look at the stamps tells what to note. Applying the notes of a pass to a copy of the arena
restores what the helper found at that pass. The notes of a pass are one string of bytes, because the garbage collector would
spend its time on many small objects that live long.

A successor makes the reactors of the dead helper anew and runs them, alone, through what the dead one has seen. It works in a
private copy of the arena, because the other workers have gone on since. Once the copy is where the dead helper was after its
last whole pass, its pages are exchanged for the live arena's, at the same addresses: views that reactors have kept are views of
the live arena from then on. The pass in which the helper died begins anew there, and what had been written of it is written
again, with the same bits.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from reactor_rl import topology as topo
from reactor_rl.errors import RunError
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.plan import CELL, ArenaSlot, Plan, control_words
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.state import WorkerCheckpoint, WorkerState, load_checkpoint, load_state
from reactor_rl.runtime.worker.values import HEADER, SideBlock

__all__ = [
    "OVERHEAD",
    "Checkpoint",
    "InputLog",
    "WorkerMemory",
    "WorkerHistory",
    "begins_tick",
    "apply_notes",
    "BEAT",
    "WorkerRevival",
]  # fmt: skip

OVERHEAD = 48
"""Overhead of a bytes object in a list, in bytes, approximately: CPython's header of 33, rounded up to 40 or so, and the pointer to
it.
"""

_PASS = struct.Struct("=?qq")
"""Header of a pass's notes: whether the pass is the first one of its tick, its tick, its number."""
_SPOT = struct.Struct("=qqqq")
"""Header of one note: the worker that writes the bytes, the worker whose side block they lie in (-1: the arena), their offset
there, and their number.
"""
_Span = tuple[bytes, int, int]
"""A spot in the arena, packed, and where its bytes begin and end."""


WorkerMemory = WorkerCheckpoint | tuple[WorkerState, int]
"""The state of a helper: its checkpoint, or the arguments of the :func:`~reactor_rl.runtime.worker.state.load_state` before."""


class Checkpoint(NamedTuple):
    """The state of all workers between two ticks: bytes of the arena and of the side blocks, and the memory of each helper."""

    arena: bytes
    sides: tuple[bytes, ...]
    workers: dict[int, WorkerMemory]


@dataclass
class WorkerHistory:
    """All that is needed to bring a helper's reactors back.

    Attributes:
        startup: Notes of the pass of the startup reactions.
        checkpoint: The last checkpoint, if one was made.
        passes: Notes of the passes since.
    """

    startup: bytes = b""
    checkpoint: Checkpoint | None = None
    passes: list[bytes] = field(default_factory=list)

    def of(self, worker: int) -> WorkerHistory:
        """Select the part that one helper needs."""
        saved = self.checkpoint
        if saved is not None:
            saved = saved._replace(workers={worker: saved.workers[worker]})
        return WorkerHistory(self.startup, saved, self.passes)


class InputLog:
    """The outputs that cross into the helpers of a run, and how to log them.

    Args:
        plan: The compiled program.
        memory: The arena.
        sides: The side block of each worker.
    """

    def __init__(self, plan: Plan, memory: memoryview, sides: Sequence[SideBlock | None]) -> None:
        self._memory, self._sides = memory[: plan.layout.size], sides
        self._words = control_words(memory, plan.layout)
        places: dict[int, set[ArenaSlot]] = {}
        for node in plan.topology.inputs:
            reader = plan.worker_of(node.reactor)
            for piece in node.sources:
                if reader == 0 or plan.layout.owner[piece.output] == reader:
                    continue
                found = places.setdefault(piece.output, set())
                if node.index in plan.layout.gathers:
                    found.update(one for one in plan.layout.places[piece.output] if one.buffer == plan.layout.gathers[node.index])
                else:
                    found.update(plan.layout.places[piece.output][:1])
        self._outputs = [
            _LoggedOutput(plan, plan.topology.outputs[index], sorted(found, key=lambda place: place.buffer))
            for index, found in sorted(places.items())
        ]

    def note(self, first: bool, time: int, number: int) -> bytes:
        """Pack what has crossed in a pass.

        Args:
            first: Whether the pass is the first one of its tick.
            time: Its tick.
            number: Its number.
        """
        words, memory = self._words, self._memory
        notes: list[Any] = [_PASS.pack(first, time, number)]
        for one in self._outputs:
            if words[one.whole] == number or words[one.any_row] == number:
                for slots in one.slots:
                    spot, begin, end = slots[time % len(slots)]
                    notes += spot, memory[begin:end]
                if one.cells:
                    for at in one.cells[time % len(one.cells)]:
                        notes += self._object(one.owner, at)
        return b"".join(notes)

    def _object(self, owner: int, at: int) -> list[Any]:
        """Pack the content of a cell, and of the side block if the cell was too small."""
        length, offset = HEADER.unpack_from(self._memory, at)
        if offset < 0 or not length:  # it is in the cell, or nobody has written to this row yet
            return _noted(owner, -1, at, self._memory[at : at + HEADER.size + length])
        side = self._sides[owner]
        assert side is not None
        aside = _noted(owner, owner, offset, side.read(offset, length))
        return _noted(owner, -1, at, self._memory[at : at + HEADER.size]) + aside

    def everything(self) -> tuple[bytes, tuple[bytes, ...]]:
        """Copy the bytes of the arena and of the side blocks."""
        return bytes(self._memory), tuple(b"" if side is None else side.all() for side in self._sides)


class _LoggedOutput:
    """One output that crosses.

    Attributes:
        owner: The worker that writes it.
        whole, any_row: The words that hold the pass in which it was written.
        slots: Where its stamps lie; and for each place that a helper reads, where each of its slots lies.
        cells: For each slot of an output of objects, where its cells lie.
    """

    def __init__(self, plan: Plan, output: topo.OutputSpec, places: Sequence[ArenaSlot]) -> None:
        stamps = plan.layout.stamps[output.index]
        self.owner = owner = plan.layout.owner[output.index]
        self.whole, self.any_row = stamps.whole, stamps.any_row
        self.slots: list[list[_Span]] = [[_span(owner, stamps.whole * 8, stamps.size * 8)]]
        for place in places:
            buffer = plan.layout.buffers[place.buffer]
            slot = length = buffer.nbytes // buffer.ring
            begin = 0
            if place.lo is not None:
                row = slot // buffer.shape[0]
                begin, length = row * place.lo, row * (1 if place.hi is None else place.hi - place.lo)
            self.slots.append([_span(owner, buffer.offset + k * slot + begin, length) for k in range(buffer.ring)])
        self.cells: list[list[int]] = []
        if output.dtype is None:
            first, rows = plan.layout.cells[output.index], output.rows or 1
            self.cells = [[first + (k * rows + row) * CELL for row in range(rows)] for k in range(output.ring)]


def _span(owner: int, begin: int, length: int) -> _Span:
    return _SPOT.pack(owner, -1, begin, length), begin, begin + length


def _noted(owner: int, side: int, offset: int, data: memoryview) -> list[Any]:
    return [_SPOT.pack(owner, side, offset, len(data)), data]


def begins_tick(notes: bytes) -> bool:
    """Whether notes are of the first pass of a tick."""
    return bool(notes[0])


def apply_notes(notes: bytes, memory: memoryview, sides: Sequence[SideBlock | None], worker: int) -> tuple[bool, int, int]:
    """Apply notes to a copy of the arena and of the side blocks, except for outputs of the worker, which it will write again.

    Returns:
        Whether their pass is the first one of its tick, its tick, its number.
    """
    first, time, number = _PASS.unpack_from(notes)
    at, end = _PASS.size, len(notes)
    while at < end:
        owner, side, offset, length = _SPOT.unpack_from(notes, at)
        at += _SPOT.size + length
        if owner == worker:  # its reactions write it again; applied now, it would seem present before it is written
            continue
        data = notes[at - length : at]
        if side < 0:
            memory[offset : offset + length] = data
        else:
            block = sides[side]
            assert block is not None
            block.put(offset, data)
    return first, time, number


BEAT = 1.0
"""Seconds after which a helper that is being brought back reports its progress again, before its next pass. Whoever waits for it
adds as much to the limit of a tick, so it must be short beside usual limits, and a report costs little.
"""

Call = Callable[[int], None]
Tell = Callable[[], None]


class WorkerRevival:
    """A helper that is being brought back, in a private copy of the arena and of the side blocks until these are exchanged.

    Attributes:
        memory: The arena; private at first.
        sides: The side blocks; private at first.
    """

    def __init__(self, plan: Plan, worker: int, arena: SharedMemory, blocks: Sequence[SharedMemory | None]) -> None:
        self._plan, self._worker, self._arena, self._blocks = plan, worker, arena, blocks
        self._map = mmap.mmap(-1, arena.reserved)
        self.memory = memoryview(self._map)[: plan.layout.size]
        self.sides: list[SideBlock | None] = [
            None if block is None else SideBlock(SharedMemory(0, "values of a history")) for block in blocks
        ]

    def revive(
        self, history: WorkerHistory, reactors: Mapping[int, bytes | Reactor], wait: Call, signal: Call, tell: Tell
    ) -> WorkerLoop:
        """Run the reactors through their history, and move their loop to the live arena.

        Args:
            history: The log of what has crossed into them.
            reactors: The reactors as they were before the run.
            wait, signal: Functions to wait and to signal from then on.
            tell: Called from time to time, to report progress.

        Raises:
            RunError: If a reaction raises that did not raise before.
        """
        words = control_words(self.memory, self._plan.layout)
        for stamps in self._plan.layout.stamps:
            stamps.clear(words)
        loop, _, _ = bind(self._plan, self._worker, self.memory, self.sides, reactors, _wait, _signal)
        self._run(loop, history, tell)
        # From here on views that reactors have kept are views of the live arena, so no other worker may see the steps before.
        self._arena.map_over(self._map)
        for side, block in zip(self.sides, self._blocks, strict=True):
            if side is not None and block is not None:
                side.move(block)
        loop.tell_next()
        live: dict[Any, Call] = {_wait: wait, _signal: signal}
        # From here on it waits and signals; its history was whole, so within that there was nobody to wait for.
        loop.steps = [(live.get(step, step), argument) for step, argument in loop.steps]
        return loop

    def _run(self, loop: WorkerLoop, history: WorkerHistory, tell: Tell) -> None:
        put = partial(apply_notes, memory=self.memory, sides=self.sides, worker=self._worker)
        put(history.startup)
        loop.start_pass()
        self._check(loop)
        if history.checkpoint is not None:
            arena, asides, workers = history.checkpoint
            self.memory[:] = arena
            for side, data in zip(self.sides, asides, strict=True):
                if side is not None and data:
                    side.put(0, data)
            held = workers[self._worker]
            if isinstance(held, WorkerCheckpoint):
                load_checkpoint(loop, held)
            else:
                load_state(loop, *held)
        told = -math.inf
        for notes in history.passes:
            if time.monotonic() - told > BEAT:
                tell()
                told = time.monotonic()
            first, tick, number = put(notes)
            if first:
                self._check(loop)  # not within the last tick, whose failures the caller may still ask for
                loop.first_pass(tick, number)
            else:
                loop.next_pass(number)

    def _check(self, loop: WorkerLoop) -> None:
        if loop.failures:
            failure = loop.failures[0]
            raise RunError(
                f"reaction {failure.where} raised an error that it did not raise before: {failure.error!r}"
            ) from failure.error


def _wait(worker: int) -> None:
    """Do not wait: the log holds everything already."""


def _signal(worker: int) -> None:
    """Do nothing: no worker waits."""
