"""The values of ports as one worker finds them: views of the arena's array slots, and cells of objects.

No two reactors ever share an object: a cell holds its value serialised. Between workers the pickle lies in a cell of the arena,
or, if it is too long for a cell, in the side block of the worker that wrote it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from reactor_rl.pickling import Pickled, decode, encode, loads
from reactor_rl.runtime.plan import CELL, ArenaLayout
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker.presence import Stamps
from reactor_rl.topology import BOUNDARY, InputSpec, PortRows, Topology

__all__ = ["HEADER", "ObjectCells", "SideBlock", "OutputReader", "Read", "Reading", "PortValues"]

HEADER = struct.Struct("=qq")
_INLINE = CELL - HEADER.size


class SideBlock:
    """The side block of one worker: room for pickles that are longer than a cell.

    Every cell keeps its region until it outgrows it. A new region has twice the length needed, so at most half is wasted.
    """

    def __init__(self, block: SharedMemory) -> None:
        self._block = block
        self._used = 0
        self._regions: dict[int, tuple[int, int]] = {}

    def write(self, cell: int, data: bytes) -> int:
        """Store ``data`` for a cell and return its offset in the block."""
        offset, room = self._regions.get(cell, (0, 0))
        if len(data) > room:
            offset, room = self._used, 2 * len(data)
            self._block.grow(offset + room)
            self._used += room
            self._regions[cell] = offset, room
        self._block.view(offset + len(data))[offset : offset + len(data)] = data
        return offset

    def move(self, block: SharedMemory) -> None:
        """Go on in another block, whose content stays as it is."""
        self._block, self._used, self._regions = block, block.reserved, {}

    def put(self, offset: int, data: bytes) -> None:
        """Store data at the offset that it had in another block."""
        self._block.grow(offset + len(data))
        self._block.view(offset + len(data))[offset : offset + len(data)] = data

    def all(self) -> bytes:
        """Copy the whole content of the block."""
        size = self._block.reserved
        return bytes(self._block.view(size)) if size else b""

    def read(self, offset: int, length: int) -> memoryview:
        return self._block.view(offset + length)[offset : offset + length]


class ObjectCells:
    """The cells of one object output: its slots, and its rows within each slot.

    Args:
        count: Number of cells, ring times rows.
        memory: The arena, if another worker reads this output; else None.
        offset: Byte offset of the first cell in the arena.
        side: The side block of the worker that writes.
        local: Whether this is the worker that writes; its own readers read the value from here.
    """

    def __init__(self, count: int, memory: memoryview | None, offset: int, side: SideBlock | None, local: bool) -> None:
        self._kept: list[Any] = [None] * count
        self._memory, self._offset, self._local = memory, offset, local
        self._side = cast(SideBlock, side)  # there is one wherever there is memory

    def write(self, cell: int, value: Any) -> None:
        self.keep(cell, encode(value))

    def keep(self, cell: int, kept: Any) -> None:
        """Store an encoded value."""
        self._kept[cell] = kept
        if self._memory is not None:
            data = kept.data if type(kept) is Pickled else pickle.dumps(kept, protocol=5)
            at = self._offset + cell * CELL
            if len(data) <= _INLINE:
                HEADER.pack_into(self._memory, at, len(data), -1)
                self._memory[at + HEADER.size : at + HEADER.size + len(data)] = data
            else:
                HEADER.pack_into(self._memory, at, len(data), self._side.write(self._offset + cell, data))

    def read(self, cell: int) -> Any:
        return decode(self._kept[cell]) if self._local else loads(self._pickled(cell))

    def encoded(self, cell: int) -> Any:
        """Return the encoded value of a cell, to be stored or sent elsewhere."""
        return self._kept[cell] if self._local else Pickled(bytes(self._pickled(cell)))

    def _pickled(self, cell: int) -> memoryview:
        """Return the memory of a pickle that another worker wrote."""
        memory = cast(memoryview, self._memory)
        at = self._offset + cell * CELL
        length, offset = HEADER.unpack_from(memory, at)
        if offset >= 0:
            return self._side.read(offset, length)
        at += HEADER.size
        return memory[at : at + length]

    def local(self) -> list[Any]:
        """Return the list of encoded values itself, for a port that only this worker reads."""
        return self._kept

    def kept(self) -> list[Any]:
        """Copy the encoded values, for a snapshot."""
        return list(self._kept)

    def keep_all(self, kept: list[Any]) -> None:
        """Restore the result of :meth:`kept`, except for the arena, which holds the values already."""
        self._kept[:] = kept


class OutputReader:
    """The reader of one output for code that reads all of them, such as a fingerprint or a gateway.

    Args:
        stamps: Its stamps.
        slots: The slots of its ring, or its cells.
    """

    def __init__(self, stamps: Stamps, slots: Sequence[npt.NDArray[Any]] | ObjectCells) -> None:
        self._stamps, self._slots = stamps, slots

    def rows(self, words: memoryview, number: int) -> list[int] | None:
        """Rows that were written one by one in pass ``number``; empty if all of it was written, ``None`` if nothing was."""
        return self._stamps.written(words, number)

    def pieces(self, time: int, rows: Sequence[int]) -> list[Any]:
        """Return the values written at ``time``: views of these rows of an array (or all of it), or each row's encoded object."""
        if isinstance(self._slots, ObjectCells):
            count = self._stamps.rows or 1
            first = time % self._stamps.ring * count
            return [self._slots.encoded(first + row) for row in (rows or range(count))]
        slot = self._slots[time % len(self._slots)]
        return [slot[row] for row in rows] if rows else [slot]


View = npt.NDArray[Any]
Read = Callable[[int], Any]
"""Reads the value that was written at a time."""


class Reading(NamedTuple):
    """Functions that read the value of an input.

    Attributes:
        read: Reads all of it.
        slot: The view that is the value at every tick, if it is an array with one slot.
        row_readers: Reads each source of an input of objects.
        single_rows: Reads one row of each source of a boundary output of objects, by its number there.
    """

    read: Read
    slot: View | None = None
    row_readers: tuple[Read, ...] = ()
    single_rows: tuple[Callable[[int, int], Any], ...] = ()


class PortValues:
    """The values of all ports, as one worker sees them.

    Args:
        topology: The program.
        layout: Where everything lies.
        worker: Number of the worker.
        memory: The arena.
        sides: The side block of each worker.
    """

    def __init__(
        self, topology: Topology, layout: ArenaLayout, worker: int, memory: memoryview, sides: Sequence[SideBlock | None]
    ) -> None:
        self._topology, self._layout, self._memory = topology, layout, memory
        self.cells: dict[int, ObjectCells] = {}  # of outputs of objects
        for node in topology.outputs:
            if node.dtype is None:
                offset, writer = layout.cells[node.index], layout.owner[node.index]
                self.cells[node.index] = ObjectCells(
                    node.ring * (node.rows or 1), None if offset < 0 else memory, offset, sides[writer], writer == worker
                )

    def views(self, output: int) -> list[list[View]]:
        """Make writable views of every place of an array output, by slot of its ring; its own place first."""
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

    def reading(self, node: InputSpec) -> Reading:
        """Make the functions that read an input."""
        if not node.sources:
            return Reading(_nothing)
        if node.dtype is None:
            return Reading(
                self._read_objects(node),
                row_readers=tuple(self._read_rows(piece) for piece in node.sources),
                single_rows=tuple(self._read_row(piece) for piece in node.sources) if node.reactor == BOUNDARY else (),
            )
        slots = self._input_views(node)
        if len(slots) > 1:
            return Reading(lambda time: slots[time % len(slots)])
        (only,) = slots
        return Reading(lambda time: only, None if node.delay else only)

    def _buffer(self, index: int) -> list[View]:
        """Make views of the slots of a buffer."""
        buffer = self._layout.buffers[index]
        count = buffer.nbytes // buffer.dtype.itemsize if buffer.dtype.itemsize else 0
        flat = np.frombuffer(self._memory, buffer.dtype, count, buffer.offset)
        ring = flat.reshape(buffer.ring, *buffer.shape)
        # With `...`, for of a port without dimensions ring[slot] would be a number, and not a view.
        return [ring[slot, ...] for slot in range(buffer.ring)]

    def _input_views(self, node: InputSpec) -> list[View]:
        if node.index in self._layout.gathers:
            slots = self._buffer(self._layout.gathers[node.index])
        else:
            (piece,) = node.sources
            slots = self.views(piece.output)[0]
            if piece.lo is not None:
                slots = [slot[piece.lo, ...] if piece.single else slot[piece.lo : piece.hi] for slot in slots]
        for slot in slots:
            slot.flags.writeable = False
        return slots

    def _read_objects(self, node: InputSpec) -> Read:
        """Make the reader of a whole input: the value of its one source, or a list with one value for each row that it gathers."""
        if node.sources[0].at is None:
            return self._read_rows(node.sources[0])
        if any(piece.block or self._topology.outputs[piece.output].rows is not None for piece in node.sources):
            readers = [(self._read_rows(piece), piece.block) for piece in node.sources]
            return lambda time: [value for read, block in readers for value in (read(time) if block else (read(time),))]
        cells_of_rows = [(self.cells[piece.output], self._topology.outputs[piece.output].ring) for piece in node.sources]
        return lambda time: [cells.read(time % ring) for cells, ring in cells_of_rows]

    def _read_rows(self, piece: PortRows) -> Read:
        """Make the reader of one source of an input: one value, or the list of the rows that it selects of a port with rows."""
        output, cells = self._topology.outputs[piece.output], self.cells[piece.output]
        ring, rows = output.ring, output.rows
        if rows is None:
            return (lambda time: cells.read(0)) if ring == 1 else (lambda time: cells.read(time % ring))
        if piece.single:
            row = piece.lo or 0
            return lambda time: cells.read(time % ring * rows + row)
        span = range(piece.lo or 0, rows if piece.hi is None else piece.hi)
        return lambda time: [cells.read(time % ring * rows + row) for row in span]

    def _read_row(self, piece: PortRows) -> Callable[[int, int], Any]:
        """Make the reader of single rows of one source of an input."""
        output, cells, first = self._topology.outputs[piece.output], self.cells[piece.output], piece.lo or 0
        ring, rows = output.ring, output.rows or 1
        return lambda time, row: cells.read(time % ring * rows + first + row)


def _nothing(time: int) -> Any:
    raise AssertionError("an input without a source is never present")
