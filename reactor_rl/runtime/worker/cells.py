"""The cells of object ports: serialised values, so that no two reactors ever share one.

Between workers a value lies as a
pickle in a cell of the arena, or, if it is too long, in the side block of the worker that wrote it.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

from reactor_rl.runtime.arena import CELL
from reactor_rl.runtime.block import Block
from reactor_rl.serialise import Pickled, decode, encode, loads

__all__ = ["HEADER", "Cells", "Side"]

HEADER = struct.Struct("=qq")
_INLINE = CELL - HEADER.size


class Side:
    """The side block of one worker: room for pickles that are longer than a cell.

    Every cell keeps the region that it was given until it outgrows it; regions double, so at most as much again is wasted.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._used = 0
        self._regions: dict[int, tuple[int, int]] = {}

    def write(self, cell: int, data: bytes) -> int:
        """Store ``data`` for a cell; returns its offset in the block."""
        offset, room = self._regions.get(cell, (0, 0))
        if len(data) > room:
            offset, room = self._used, 2 * len(data)
            self._block.grow(offset + room)
            self._used += room
            self._regions[cell] = offset, room
        self._block.view(offset + len(data))[offset : offset + len(data)] = data
        return offset

    def move(self, block: Block) -> None:
        """Go on in another block. What is in it already stays as it is."""
        self._block, self._used, self._regions = block, block.reserved, {}

    def put(self, offset: int, data: bytes) -> None:
        """Store at a place what has been read from that of another block."""
        self._block.grow(offset + len(data))
        self._block.view(offset + len(data))[offset : offset + len(data)] = data

    def all(self) -> bytes:
        """All that is in the block."""
        size = self._block.reserved
        return bytes(self._block.view(size)) if size else b""

    def read(self, offset: int, length: int) -> memoryview:
        return self._block.view(offset + length)[offset : offset + length]


class Cells:
    """The cells of one object output: its slots, and its rows within each slot.

    Args:
        count: Number of cells, ring times rows.
        memory: The arena, where another worker reads this output; else None.
        offset: Byte offset of the first cell in the arena.
        side: The side block of the worker that writes.
        local: Whether this is the worker that writes; its own readers take the value from here.
    """

    def __init__(self, count: int, memory: memoryview | None, offset: int, side: Side | None, local: bool) -> None:
        self._kept: list[Any] = [None] * count
        self._memory, self._offset, self._side, self._local = memory, offset, side, local

    def write(self, cell: int, value: Any) -> None:
        self.keep(cell, encode(value))

    def keep(self, cell: int, kept: Any) -> None:
        """Store an encoded value."""
        self._kept[cell] = kept
        if self._memory is not None:
            assert self._side is not None
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
        """The encoded value of a cell, to be stored or sent elsewhere."""
        return self._kept[cell] if self._local else Pickled(bytes(self._pickled(cell)))

    def _pickled(self, cell: int) -> memoryview:
        """Where the pickle lies that another worker wrote."""
        assert self._memory is not None and self._side is not None
        at = self._offset + cell * CELL
        length, offset = HEADER.unpack_from(self._memory, at)
        if offset >= 0:
            return self._side.read(offset, length)
        at += HEADER.size
        return self._memory[at : at + length]

    def local(self) -> list[Any]:
        """The encoded values themselves, for a port that nobody outside this worker reads."""
        return self._kept

    def kept(self) -> list[Any]:
        """The encoded values, for a snapshot."""
        return list(self._kept)

    def keep_all(self, kept: list[Any]) -> None:
        """Become what :meth:`kept` gave, but in the arena, where that is already."""
        self._kept[:] = kept
