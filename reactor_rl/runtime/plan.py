"""The compiled program as workers get it: schedule, arena layout and options.

The arena is one block of memory that holds the values of ports, laid out by the schedule before anything runs. The control
block comes first: 64-bit words through which the workers agree. Behind it are the stamps of every output, which say whether it,
or which of its rows, is present.

Then come the array slots. The outputs that one input gathers lie next to each other in one buffer, so that the gathered value
is a view. If two different inputs gather an output, writing it also copies it into the second one's buffer. Last come the cells
of object ports that another worker reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reactor_rl import topology as topo
from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.worker.presence import Stamps
from reactor_rl.schedule import Schedule
from reactor_rl.topology import Topology

__all__ = ["CELL", "Buffer", "ArenaLayout", "ArenaSlot", "aligned_zeros", "control_words", "lay_out", "WorkerOptions", "Plan"]

LINE = 64
"""Bytes of a cache line of x86-64. Buffers begin at one, so that workers that write different buffers do not share a line."""
CELL = 1024
"""Bytes of a cell for an object that another worker reads: 16 of header, the rest for its pickle; longer ones go aside. Chosen:
infos of an environment mostly fit, and every such port takes this much in each slot of its ring.
"""


@dataclass(frozen=True)
class Buffer:
    """Array storage of shape ``(ring, *shape)`` at a byte offset."""

    offset: int
    ring: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod((self.ring, *self.shape), dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class ArenaSlot:
    """The place of an array output in a buffer: all of it (``lo is None``), row ``lo`` (``hi is None``), or rows ``lo..hi``."""

    buffer: int
    lo: int | None = None
    hi: int | None = None


@dataclass(frozen=True)
class ArenaLayout:
    """Offsets of everything in the arena.

    Attributes:
        stamps: For each output, where its stamps lie.
        buffers: The array storage.
        places: For each output its own place first, then the places that it is copied to. Empty for object outputs.
        gathers: The buffer of each array input that gathers.
        cells: For each object output that another worker reads the byte offset of its first cell, else -1.
        owner: Worker that writes each output.
        words: Number of words.
        size: Bytes in all.
    """

    stamps: tuple[Stamps, ...]
    buffers: tuple[Buffer, ...]
    places: tuple[tuple[ArenaSlot, ...], ...]
    gathers: dict[int, int]
    cells: tuple[int, ...]
    owner: tuple[int, ...]
    words: int
    size: int


def lay_out(topology: topo.Topology, schedule: Schedule) -> ArenaLayout:
    """Lay out the arena of a program for a schedule."""
    owner = tuple(0 if o.reactor == topo.BOUNDARY else schedule.placement[o.reactor] for o in topology.outputs)
    stamps: dict[int, Stamps] = {}
    word = ControlBlock.NEXT + ControlBlock.PER_WORKER * schedule.workers
    for worker in range(schedule.workers):
        word = -(-word // (LINE // 8)) * (LINE // 8)  # no two workers write into one cache line
        for output in topology.outputs:
            if owner[output.index] == worker:
                stamps[output.index] = Stamps(word, output.rows, output.ring)
                word += stamps[output.index].size
    buffers, places, gathers = _arrays(topology)
    offset = word * 8
    placed = []
    for buffer in buffers:
        offset = -(-offset // LINE) * LINE
        placed.append(Buffer(offset, buffer.ring, buffer.shape, buffer.dtype))
        offset += buffer.nbytes
    cells = [-1] * len(owner)
    remote = {
        piece.output
        for inp in topology.inputs
        for piece in inp.sources
        if owner[piece.output] != (0 if inp.reactor == topo.BOUNDARY else schedule.placement[inp.reactor])
    }
    for output in topology.outputs:
        if output.dtype is None and output.index in remote:
            offset = -(-offset // LINE) * LINE
            cells[output.index] = offset
            offset += CELL * output.ring * (output.rows or 1)
    in_order = tuple(stamps[output.index] for output in topology.outputs)
    return ArenaLayout(in_order, tuple(placed), tuple(map(tuple, places)), gathers, tuple(cells), owner, word, offset)


def control_words(memory: memoryview, layout: ArenaLayout) -> memoryview:
    """Return the words of an arena through which its workers agree."""
    return memory[: layout.words * 8].cast("q")


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Make an array of zeros in this process's memory that begins with a cache line, as arrays in shared memory do.

    Linear algebra takes other paths for other alignments, which changes the last bits of its results, so values must have the same
    alignment under every executor.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    block = np.zeros(size + LINE, np.uint8)
    begin = -block.ctypes.data % LINE
    return np.ndarray(shape, kind, block[begin : begin + size].data)


def _arrays(topology: topo.Topology) -> tuple[list[Buffer], list[list[ArenaSlot]], dict[int, int]]:
    """Buffers of the gathering inputs first, each claiming the outputs that no earlier one claimed; then the others' own."""
    buffers: list[Buffer] = []
    places: list[list[ArenaSlot]] = [[] for _ in topology.outputs]
    gathers: dict[int, int] = {}
    same: dict[tuple[topo.PortRows, ...], int] = {}
    for inp in topology.inputs:
        if inp.dtype is None or inp.rows is None:
            continue
        if inp.sources not in same:
            same[inp.sources] = len(buffers)
            assert inp.shape is not None
            ring = max(topology.outputs[piece.output].ring for piece in inp.sources)
            buffers.append(Buffer(0, ring, inp.shape, inp.dtype))
            for piece in inp.sources:
                assert piece.at is not None
                places[piece.output].append(ArenaSlot(same[inp.sources], piece.at, piece.at + piece.width if piece.block else None))
        gathers[inp.index] = same[inp.sources]
    for output in topology.outputs:
        if output.dtype is not None and (output.rows is not None or not places[output.index]):
            # Rows of an output that others read must lie together whatever gathers it.
            assert output.shape is not None
            places[output.index].insert(0, ArenaSlot(len(buffers)))
            buffers.append(Buffer(0, output.ring, output.shape, output.dtype))
    return buffers, places, gathers


@dataclass(frozen=True)
class WorkerOptions:
    """Options of the run that workers need."""

    debug: bool = False
    fingerprint: Literal["boundary", "all", "off"] = "boundary"


@dataclass(frozen=True)
class Plan:
    """All that a worker needs besides its reactors, its memory and its channels."""

    topology: Topology
    schedule: Schedule
    layout: ArenaLayout
    options: WorkerOptions

    def reactors_of(self, worker: int) -> tuple[int, ...]:
        """Indices of the reactors that live on a worker, in program order."""
        return tuple(index for index, placed in enumerate(self.schedule.placement) if placed == worker)

    def names_of(self, worker: int) -> tuple[str, ...]:
        """Names of the reactors that live on a worker."""
        return tuple(self.topology.reactors[index].name for index in self.reactors_of(worker))

    def worker_of(self, reactor: int) -> int:
        """Return the worker of a reactor; the boundary is the caller's."""
        return 0 if reactor < 0 else self.schedule.placement[reactor]
