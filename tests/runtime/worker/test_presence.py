"""Presence over hand-made memory: what was written in which pass, row by row, with a delay, and in another run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs import QUIET

from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.worker.clock import WorkerClock
from reactor_rl.runtime.worker.presence import StampReader, Stamps

FREE = 0x5A5A
BEGIN = ControlBlock.NEXT + 3  # the stamps begin somewhere in the middle
SHAPES = [(None, 1), (None, 3), (3, 1), (3, 4)]


class Memory:
    """The stamps of one output in the middle of memory that belongs to others, and a worker that is at some pass."""

    def __init__(self, rows: int | None, ring: int) -> None:
        self.stamps = Stamps(BEGIN, rows, ring)
        size = BEGIN + self.stamps.size + 5
        self.words = memoryview(bytearray(8 * size)).cast("q")
        self.clock = WorkerClock(0, self.words)
        for word in (*range(BEGIN), *range(BEGIN + self.stamps.size, size)):
            self.words[word] = FREE
        self.stamps.clear(self.words)

    def at(self, time: int, number: int) -> Memory:
        self.clock.time, self.clock.pass_number, self.clock.tick_number = time, number, number
        return self

    def write(self, row: int | None = None) -> None:
        """What a handle does when all of a port, or one row of it, is set."""
        clock, stamps = self.clock, self.stamps
        if row is not None:
            stamps.stamp_row(self.words, row, clock.pass_number, clock.time)
            return
        self.words[stamps.whole] = clock.pass_number
        if stamps.times:
            self.words[stamps.times[clock.time % stamps.ring]] = clock.time

    def rows(self, delay: int = 0, lo: int | None = None, hi: int | None = None, since: int | None = None) -> object:
        """Presence as an input sees it: one truth value, or a list with one for each row."""
        present = StampReader(self.clock, self.stamps, delay, lo, hi).rows(self.clock.pass_number if since is None else since)
        return present.tolist() if isinstance(present, np.ndarray) else present


@pytest.fixture(params=SHAPES, ids=str)
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(*request.param)


def test_it_takes_a_word_for_each_thing_that_can_be_written_and_no_more() -> None:
    sizes = [Stamps(BEGIN, rows, ring).size for rows, ring in SHAPES]
    assert sizes == [1, 1 + 3, 2 + 3, (2 + 3) * (1 + 4)]
    for rows, ring in SHAPES:
        memory = Memory(rows, ring)
        for time in range(1, 1 + ring):
            memory.at(time, time).write()
            for row in range(rows or 0):
                memory.write(row)
        size = memory.stamps.size
        own, others = memory.words[BEGIN : BEGIN + size].tolist(), [*memory.words[:BEGIN], *memory.words[BEGIN + size :]]
        assert set(own) == set(range(1, 1 + ring)) and set(others) == {FREE}


def test_what_is_written_is_present_in_its_pass_alone(memory: Memory) -> None:
    assert memory.at(0, 1).rows() is False
    memory.write()
    assert memory.rows() is True and memory.stamps.written(memory.words, 1) == []
    assert memory.at(1, 2).rows() is False and memory.stamps.written(memory.words, 2) is None


def test_what_is_written_for_the_coming_pass_is_not_there_yet(memory: Memory) -> None:
    memory.at(3, 6).write()
    assert memory.at(2, 5).rows() is False and memory.stamps.written(memory.words, 5) is None


def test_the_caller_asks_for_all_passes_of_a_tick(memory: Memory) -> None:
    memory.at(5, 7).write()
    memory.at(5, 9)
    assert memory.rows() is False
    assert memory.rows(since=7) is True and memory.rows(since=8) is False
    assert memory.stamps.any_since(memory.words, 7) and not memory.stamps.any_since(memory.words, 8)
    source = StampReader(memory.clock, memory.stamps)
    assert source.any_since(7) and not source.any_since(8)


@pytest.mark.parametrize("ring", [1, 4])
def test_rows_are_written_one_by_one(ring: int) -> None:
    memory = Memory(3, ring).at(2, 3)
    memory.write(2)
    assert memory.rows() == [False, False, True]
    assert memory.rows(lo=0, hi=2) == [False, False] and memory.rows(lo=2, hi=3) == [True]
    memory.write(0)
    assert memory.rows() == [True, False, True] and memory.stamps.written(memory.words, 3) == [0, 2]
    assert [StampReader(memory.clock, memory.stamps, 0, lo, lo + 1).any_since(3) for lo in range(3)] == [True, False, True]
    asked = [StampReader(memory.clock, memory.stamps, 0, lo, lo + 1).any_row(3) for lo in range(3)]
    assert asked == [True, False, True]
    assert memory.stamps.any_since(memory.words, 3) and not memory.stamps.any_since(memory.words, 4)
    memory.write()
    assert memory.rows() is True
    memory.at(3, 4).write(1)
    assert memory.rows() == [False, True, False] and memory.rows(since=3) is True
    assert not StampReader(memory.clock, memory.stamps).any_row(3), "a row of this pass, not of an earlier one"


def test_a_delayed_value_is_there_at_its_time_and_at_no_microstep_after() -> None:
    memory = Memory(None, 3)
    memory.at(4, 10).write()
    seen = [time for time in range(12) if memory.at(time, 20 + time).rows(delay=2)]
    assert seen == [6]
    memory.at(6, 31).clock.tick_number = 30  # a further microstep of tick 6
    assert memory.rows(delay=2) is False and memory.rows(delay=2, since=30) is True


def test_the_ring_forgets_what_is_older_than_it_is_long() -> None:
    memory = Memory(2, 3)
    for time in range(5):
        memory.at(time, 1 + time).write(time % 2)
        assert [memory.rows(delay=delay) for delay in (1, 2)] == [
            time >= delay and [(time - delay) % 2 == row for row in range(2)] for delay in (1, 2)
        ]


def test_what_the_slots_hold() -> None:
    memory = Memory(2, 3)
    assert list(memory.stamps.in_slots(memory.words)) == []
    memory.at(3, 4).write()
    memory.at(4, 5).write(1)
    assert list(memory.stamps.in_slots(memory.words)) == [(None, 3), (1, 4)]
    undelayed = Memory(2, 1).at(3, 4)
    undelayed.write()
    assert list(undelayed.stamps.in_slots(undelayed.words)) == []


def test_another_run_takes_over_what_was_written_in_the_last_tick() -> None:
    first, second = Memory(2, 3), Memory(2, 3)
    first.at(3, 10).write(0)
    first.at(4, 11).write()
    first.write(1)
    saved = first.stamps.save(first.words, coming=12, oldest=11)
    second.at(9, 99).write()
    assert second.stamps.restore(second.words, saved, coming=501) is False
    assert second.at(4, 500).rows() is True and second.stamps.any_since(second.words, 500)
    assert second.at(5, 501).rows() is False
    assert second.rows(delay=1) is True and second.rows(delay=2) == [True, False]
    assert not second.stamps.any_since(second.words, 501)


def test_what_was_set_for_the_coming_pass_is_present_in_it() -> None:
    first, second = Memory(None, 1), Memory(None, 1)
    first.at(7, 20).write()
    saved = first.stamps.save(first.words, coming=20, oldest=20)
    assert second.stamps.restore(second.words, saved, coming=3) is True
    assert second.at(7, 3).rows() is True
    assert first.stamps.save(first.words, coming=22, oldest=21) == [-1]
    second.stamps.restore(second.words, [-1], coming=9)
    assert not any(second.at(0, number).rows() for number in range(1, 30))


WRITES = st.lists(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=3), min_size=1, max_size=12)


@QUIET
@given(WRITES, st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))
def test_it_agrees_with_a_list_of_what_was_written(ticks: list[list[int | None]], ring: int, lo: int, width: int) -> None:
    memory = Memory(3, ring)
    lo, hi = min(lo, 3 - width), min(lo, 3 - width) + width
    for time, writes in enumerate(ticks):
        memory.at(time, 1 + time)
        for row in writes:
            memory.write(row)
        for delay in range(min(ring, time + 1)):
            then = ticks[time - delay]
            expected: object = [row in then for row in range(lo, hi)] if then and None not in then else None in then
            assert memory.rows(delay, lo, hi) == expected
