"""What crosses into the helpers' reactors, pass by pass: bytes of the arena and where they lie, noted by the caller.

An output crosses if a reactor on a helper reads it and another worker writes it. At the end of a pass all that was written in it is
still in its slots, so one look at the stamps tells what is to be noted. Who lays the notes of a pass into a copy of the arena finds
there what the helper found at that pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reactor_rl import topology as topo
from reactor_rl.runtime.arena import CELL, Place
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.worker.cells import HEADER, Side
from reactor_rl.runtime.worker.checkpoint import WorkerCheckpoint

__all__ = ["Checkpoint", "Crossings", "Note", "Pass", "Past", "lay"]

OVERHEAD = 150
"""Bytes that an object or two take besides what they hold, about."""


class Spot(NamedTuple):
    """Where bytes lie: in the arena (``side`` is -1) or in the side block of a worker. ``owner`` is the worker that writes them."""

    owner: int
    side: int
    offset: int


Note = tuple[Spot, bytes]


class Pass(NamedTuple):
    """One pass: whether it is the first one of its tick, its tick, its number, and what crossed in it."""

    first: bool
    time: int
    number: int
    notes: tuple[Note, ...]


class Checkpoint(NamedTuple):
    """All workers between two ticks: the bytes of the arena and of the side blocks, and what each helper holds."""

    arena: bytes
    sides: tuple[bytes, ...]
    workers: dict[int, WorkerCheckpoint]


@dataclass
class Past:
    """All that a helper's reactors can be brought back from.

    Attributes:
        startup: What crossed in the pass of the startup reactions.
        checkpoint: The last one, if there is one.
        passes: What has happened since.
    """

    startup: tuple[Note, ...] = ()
    checkpoint: Checkpoint | None = None
    passes: list[Pass] = field(default_factory=list)

    def of(self, worker: int) -> Past:
        """The part of it that one helper needs."""
        saved = self.checkpoint
        if saved is not None:
            saved = saved._replace(workers={worker: saved.workers[worker]})
        return Past(self.startup, saved, self.passes)


class Crossings:
    """What crosses into the helpers of a run.

    Args:
        plan: The compiled program.
        memory: The arena.
        sides: The side block of each worker.
    """

    def __init__(self, plan: Plan, memory: memoryview, sides: Sequence[Side | None]) -> None:
        self._memory, self._sides = memory[: plan.layout.size], sides
        self._words = memory[: plan.layout.words * 8].cast("q")
        places: dict[int, set[Place]] = {}
        for node in plan.topology.inputs:
            reader = plan.home(node.reactor)
            for part in node.parts:
                if reader == 0 or plan.layout.owner[part.output] == reader:
                    continue
                found = places.setdefault(part.output, set())
                if node.index in plan.layout.gathers:
                    found.update(one for one in plan.layout.places[part.output] if one.buffer == plan.layout.gathers[node.index])
                else:
                    found.update(plan.layout.places[part.output][:1])
        self._outputs = [
            _Crossing(plan, plan.topology.outputs[index], sorted(found, key=lambda place: place.buffer))
            for index, found in sorted(places.items())
        ]

    def note(self, number: int, time: int) -> tuple[tuple[Note, ...], int]:
        """What has crossed in pass ``number``, at ``time``; and how many bytes noting it takes."""
        words, memory, notes = self._words, self._memory, []
        for one in self._outputs:
            if words[one.whole] == number or words[one.any_row] == number:
                spot, begin, end = one.stamps
                notes.append((spot, bytes(memory[begin:end])))
                for slots in one.places:
                    spot, begin, end = slots[time % len(slots)]
                    notes.append((spot, bytes(memory[begin:end])))
                if one.cells:
                    for spot in one.cells[time % len(one.cells)]:
                        notes += self._object(spot)
        return tuple(notes), OVERHEAD + sum([OVERHEAD + len(data) for _, data in notes])

    def _object(self, spot: Spot) -> list[Note]:
        """What lies in a cell, and aside if it is too long for it."""
        at = spot.offset
        length, offset = HEADER.unpack_from(self._memory, at)
        if offset < 0:
            return [(spot, bytes(self._memory[at : at + HEADER.size + length]))]
        side = self._sides[spot.owner]
        assert side is not None
        aside = Spot(spot.owner, spot.owner, offset), bytes(side.read(offset, length))
        return [(spot, bytes(self._memory[at : at + HEADER.size])), aside]

    def everything(self) -> tuple[bytes, tuple[bytes, ...]]:
        """The bytes of the arena and of the side blocks."""
        return bytes(self._memory), tuple(b"" if side is None else side.all() for side in self._sides)


class _Crossing:
    """One output that crosses.

    Attributes:
        whole, any_row: The words that tell in which pass it was written.
        stamps: Where all its stamps lie.
        places: For each place that a helper reads, where its slots lie.
        cells: For each slot of an output of objects, where its cells lie.
    """

    def __init__(self, plan: Plan, output: topo.OutputNode, places: Sequence[Place]) -> None:
        stamps = plan.layout.stamps[output.index]
        owner = plan.layout.owner[output.index]
        self.whole, self.any_row = stamps.whole, stamps.any_row
        self.stamps = _span(owner, stamps.whole * 8, stamps.size * 8)
        self.places: list[list[tuple[Spot, int, int]]] = []
        for place in places:
            buffer = plan.layout.buffers[place.buffer]
            slot = length = buffer.nbytes // buffer.ring
            begin = 0
            if place.lo is not None:
                row = slot // buffer.shape[0]
                begin, length = row * place.lo, row * (1 if place.hi is None else place.hi - place.lo)
            self.places.append([_span(owner, buffer.offset + k * slot + begin, length) for k in range(buffer.ring)])
        self.cells: list[list[Spot]] = []
        if output.dtype is None:
            first, rows = plan.layout.cells[output.index], output.rows or 1
            self.cells = [[Spot(owner, -1, first + (k * rows + row) * CELL) for row in range(rows)] for k in range(output.ring)]


def _span(owner: int, begin: int, length: int) -> tuple[Spot, int, int]:
    return Spot(owner, -1, begin), begin, begin + length


def lay(notes: Sequence[Note], memory: memoryview, sides: Sequence[Side | None], worker: int) -> None:
    """Lay notes into a copy of the arena and of the side blocks; what the worker writes itself it will write again."""
    for (owner, side, offset), data in notes:
        if owner == worker:
            continue
        if side < 0:
            memory[offset : offset + len(data)] = data
        else:
            block = sides[side]
            assert block is not None
            block.put(offset, data)
