"""Where values lie: cells of objects, and the side block for those that are too long for a cell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reactor_rl.runtime.plan import CELL
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker.values import ObjectCells, SideBlock


@pytest.fixture
def blocks() -> Iterator[list[SharedMemory]]:
    made = [SharedMemory(0, "a test") for _ in range(2)]
    yield made
    for block in made:
        block.close()


def test_a_cell_keeps_its_region_until_it_outgrows_it(blocks: list[SharedMemory]) -> None:
    side = SideBlock(blocks[0])
    assert side.all() == b""
    first, second = side.write(0, b"a" * 10), side.write(1, b"b" * 10)
    assert (first, second) == (0, 20)  # twice the length that is needed
    assert side.write(0, b"c" * 20) == first
    assert bytes(side.read(first, 20)) == b"c" * 20 and bytes(side.read(second, 10)) == b"b" * 10
    third = side.write(0, b"d" * 21)
    assert third == 40 and side.write(0, b"e" * 42) == third
    assert side.write(1, b"f") == second
    assert side.all()[: third + 42] == b"c" * 20 + b"f" + b"b" * 9 + bytes(10) + b"e" * 42


def test_a_copy_goes_on_behind_what_it_was_given(blocks: list[SharedMemory]) -> None:
    side = SideBlock(blocks[0])
    side.write(0, b"old")
    copy = SideBlock(blocks[1])
    copy.put(0, side.all())
    copy.put(5000, b"far")
    assert bytes(copy.read(0, 3)) == b"old" and bytes(copy.read(5000, 3)) == b"far"
    there = blocks[1].reserved
    side.move(blocks[1])
    at = side.write(0, b"new")
    assert at == there > 5000  # nothing that lies there already is written over
    assert bytes(copy.read(0, 3)) == b"old" and bytes(copy.read(at, 3)) == b"new"


@pytest.mark.parametrize("value", [None, 7, "text", {"a": [1]}, b"x" * (3 * CELL)])
def test_who_reads_elsewhere_finds_what_was_written(value: object, blocks: list[SharedMemory]) -> None:
    memory = memoryview(bytearray(3 * CELL))
    writer = ObjectCells(2, memory, CELL, SideBlock(blocks[0]), local=True)
    reader = ObjectCells(2, memory, CELL, SideBlock(blocks[0]), local=False)
    for cell, written in ((0, value), (1, "other"), (1, value)):
        writer.write(cell, written)
        assert writer.read(cell) == reader.read(cell) == written
    again = ObjectCells(2, None, -1, None, local=True)
    for cell in range(2):
        again.keep(cell, reader.encoded(cell))
    assert [again.read(cell) for cell in range(2)] == [value, value]
    again.keep_all([writer.encoded(0), None])
    assert again.kept() == [writer.encoded(0), None]
    assert bytes(memory[:CELL]) == bytes(CELL)
