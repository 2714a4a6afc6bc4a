"""Where a worker finds the values of ports: views of the arena's slots, and the cells of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reactor_rl.runtime.arena import ArenaLayout
from reactor_rl.runtime.worker.cells import Cells, Side
from reactor_rl.topology import InputNode, Part, Topology

__all__ = ["Read", "Reading", "Values"]

View = npt.NDArray[Any]
Read = Callable[[int], Any]
"""Gives the value that was written at a time."""


class Reading(NamedTuple):
    """How the value of an input is read.

    Attributes:
        read: All of it.
        slot: The view that is the value at every tick, if it is an array with one slot.
        parts: Each part of an input of objects.
    """

    read: Read
    slot: View | None = None
    parts: tuple[Read, ...] = ()


class Values:
    """The values of all ports, as one worker sees them.

    Args:
        topology: The program.
        layout: Where everything lies.
        worker: Number of the worker.
        memory: The arena.
        sides: The side block of each worker.
    """

    def __init__(
        self, topology: Topology, layout: ArenaLayout, worker: int, memory: memoryview, sides: Sequence[Side | None]
    ) -> None:
        self._topology, self._layout, self._memory = topology, layout, memory
        self.cells: dict[int, Cells] = {}  # of outputs of objects
        for node in topology.outputs:
            if node.dtype is None:
                offset, writer = layout.cells[node.index], layout.owner[node.index]
                self.cells[node.index] = Cells(
                    node.ring * (node.rows or 1), None if offset < 0 else memory, offset, sides[writer], writer == worker
                )

    def views(self, output: int) -> list[list[View]]:
        """Writable views of every place of an array output, by slot of its ring; its own place first."""
        views = []
        for place in self._layout.places[output]:
            slots = self._buffer(place.buffer)
            if place.lo is None:
                views.append(slots)
            elif place.hi is None:
                views.append([slot[place.lo, ...] for slot in slots])
            else:
                views.append([slot[place.lo : place.hi] for slot in slots])
        return views

    def reading(self, node: InputNode) -> Reading:
        """How an input is read."""
        if not node.parts:
            return Reading(_nothing)
        if node.dtype is None:
            return Reading(self._read_objects(node), parts=tuple(self._read_part(part) for part in node.parts))
        slots = self._input_views(node)
        if len(slots) > 1:
            return Reading(lambda time: slots[time % len(slots)])
        (only,) = slots
        return Reading(lambda time: only, None if node.delay else only)

    def _buffer(self, index: int) -> list[View]:
        """The slots of a buffer, as fresh views."""
        buffer = self._layout.buffers[index]
        count = buffer.nbytes // buffer.dtype.itemsize if buffer.dtype.itemsize else 0
        flat = np.frombuffer(self._memory, buffer.dtype, count, buffer.offset)
        ring = flat.reshape(buffer.ring, *buffer.shape)
        return [ring[slot, ...] for slot in range(buffer.ring)]

    def _input_views(self, node: InputNode) -> list[View]:
        if node.index in self._layout.gathers:
            slots = self._buffer(self._layout.gathers[node.index])
        else:
            (part,) = node.parts
            slots = self.views(part.output)[0]
            if part.lo is not None:
                slots = [slot[part.lo, ...] if part.single else slot[part.lo : part.hi] for slot in slots]
        for slot in slots:
            slot.flags.writeable = False
        return slots

    def _read_objects(self, node: InputNode) -> Read:
        """What reads all of an input: the value of its one source, or a list with one value for each row that it gathers."""
        if node.parts[0].at is None:
            return self._read_part(node.parts[0])
        if any(part.block or self._topology.outputs[part.output].rows is not None for part in node.parts):
            readers = [(self._read_part(part), part.block) for part in node.parts]
            return lambda time: [value for read, block in readers for value in (read(time) if block else (read(time),))]
        cells_of_parts = [(self.cells[part.output], self._topology.outputs[part.output].ring) for part in node.parts]
        return lambda time: [cells.read(time % ring) for cells, ring in cells_of_parts]

    def _read_part(self, part: Part) -> Read:
        """What reads one part of an input: one value, or the list of the rows that it selects of a port with rows."""
        output, cells = self._topology.outputs[part.output], self.cells[part.output]
        ring, rows = output.ring, output.rows
        if rows is None:
            return (lambda time: cells.read(0)) if ring == 1 else (lambda time: cells.read(time % ring))
        if part.single:
            row = part.lo or 0
            return lambda time: cells.read(time % ring * rows + row)
        span = range(part.lo or 0, rows if part.hi is None else part.hi)
        return lambda time: [cells.read(time % ring * rows + row) for row in span]


def _nothing(time: int) -> Any:
    raise AssertionError("an input without a source is never present")
