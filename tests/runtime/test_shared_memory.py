"""A block is the same memory for everyone who maps it, grows in place, and is gone with the last of its views."""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from reactor_rl import ArenaError
from reactor_rl.runtime.shared_memory import SharedMemory, available_memory

PAGE = mmap.PAGESIZE


def test_what_is_written_is_there_whoever_looks() -> None:
    block = SharedMemory(100, "a test")
    first, second = block.view(100), block.view(50)
    first[7] = 42
    assert second[7] == 42 and len(first) >= 100
    block.close()


def test_threads_view_an_array_as_a_mapping_miscounts_its_views_without_a_gil() -> None:
    block = SharedMemory(100, "a test")
    views = [block.view(100), block.view(50)]
    assert isinstance(views[0].obj, np.ndarray) and views[0].obj is views[1].obj
    block.close()


@pytest.mark.parametrize("pages", [2, 5, 100])
def test_it_grows_and_views_of_before_stay_valid(pages: int) -> None:
    block = SharedMemory(10, "a test")
    before = block.view(10)
    before[0] = 1
    block.grow(pages * PAGE)
    after = block.view(pages * PAGE)
    after[pages * PAGE - 1] = 9
    assert after[0] == 1
    before[1] = 2
    assert after[1] == 2
    block.grow(1)  # never smaller
    assert block.size == pages * PAGE
    block.close()


@pytest.mark.skipif(os.name != "posix", reason="elsewhere it is mapped at once")
def test_a_thread_that_looks_while_another_one_maps_it_sees_what_was_written() -> None:
    block = SharedMemory(PAGE, "a test")
    block.view(PAGE)[:5] = b"there"
    block.grow(2 * PAGE)
    seen: list[bytes] = []

    class Looking(SharedMemory):
        def map_over(self, memory: mmap.mmap) -> None:
            if not seen:
                seen.append(b"")
                with ThreadPoolExecutor(1) as other:
                    seen.append(other.submit(lambda: bytes(self.view(PAGE)[:5])).result(10))
            super().map_over(memory)

    block.__class__ = Looking
    assert bytes(block.view(2 * PAGE)[:5]) == b"there" and seen[1] == b"there"
    block.close()


def test_nothing_there_takes_no_memory() -> None:
    block = SharedMemory(0, "a test")
    assert block.size == 0
    with pytest.raises(ArenaError, match="cannot view 8 bytes of a block of 0"):
        block.view(8)
    block.close()


def test_views_outlive_the_block() -> None:
    block = SharedMemory(PAGE, "a test")
    view = block.view(PAGE)
    block.close()
    view[5] = 3
    assert view[5] == 3


def test_too_much_is_refused_before_it_is_used() -> None:
    free = available_memory()
    if free is None:
        pytest.skip("this system does not tell how much memory there is")
    with pytest.raises(ArenaError, match=r"cannot reserve .* for a test: .*fewer environments"):
        SharedMemory(4 * free, "a test")


def test_a_system_that_does_not_tell_what_is_free_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", hidden)
    assert available_memory() is None
    block = SharedMemory(PAGE, "a test")
    assert block.size == PAGE
    block.close()


def test_of_a_block_that_grows_only_what_is_new_has_to_be_free(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedMemory(4 * PAGE, "a test")
    monkeypatch.setattr("reactor_rl.runtime.shared_memory.available_memory", lambda: 2 * PAGE)
    block.grow(6 * PAGE)
    assert block.size == 6 * PAGE
    with pytest.raises(ArenaError, match="cannot reserve"):
        block.grow(9 * PAGE)


def test_it_does_not_pickle_but_into_a_process() -> None:
    import pickle

    block = SharedMemory(8, "a test")
    with pytest.raises(RuntimeError):
        pickle.dumps(block)
    block.close()


def other_side(block: SharedMemory, line: Connection) -> None:
    view = block.view(block.size)
    line.send(bytes(view[:4]))
    view[10] = 77
    line.send("written")
    size = line.recv()
    grown = block.view(size)
    line.send((grown[size - 1], grown[10]))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_another_process_maps_the_same_memory_also_what_was_added_later(method: str) -> None:
    block = SharedMemory(PAGE, "a test")
    mine = block.view(PAGE)
    mine[:4] = b"here"
    line, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context(method).Process(target=other_side, args=(block, theirs))
    process.start()
    try:
        assert line.poll(30) and line.recv() == b"here"
        assert line.poll(30) and line.recv() == "written" and mine[10] == 77
        block.grow(3 * PAGE)
        block.view(3 * PAGE)[3 * PAGE - 1] = 5
        line.send(3 * PAGE)
        assert line.poll(30) and line.recv() == (5, 77)
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
        line.close()
        theirs.close()
        block.close()


def test_threads_that_write_into_their_own_bytes_do_not_meet() -> None:
    block = SharedMemory(PAGE, "a test")
    view = block.view(PAGE)

    def write(number: int) -> None:
        for value in range(20_000):
            view[number] = value & 255

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert list(view[:6]) == [19_999 & 255] * 4 + [0, 0]
    block.close()


def test_closing_twice_closes_one_descriptor() -> None:
    block = SharedMemory(8, "a test")
    fd = block._fd
    block.close()
    other = os.open(os.devnull, os.O_RDONLY)  # very likely the same number
    try:
        block.close()
        os.fstat(other)
    finally:
        os.close(other)
    assert fd >= 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors and maps as Linux shows them")
def test_closing_gives_the_memory_back_and_views_keep_what_was_in_it() -> None:
    def ours() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:reactor_rl")

    gc.collect()
    descriptors, maps = ours()
    block = SharedMemory(PAGE, "a test")
    small = block.view(PAGE)
    small[3] = 1
    block.grow(3 * PAGE)
    large = block.view(3 * PAGE)
    large[4] = 2
    assert ours() == (descriptors + 1, maps + 2)
    block.close()
    assert ours() == (descriptors, maps)
    assert (small[3], small[4], large[3], large[4]) == (1, 2, 1, 2)
    large[3] = 9
    assert small[3] == 1
