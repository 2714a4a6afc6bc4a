"""A loop with hand-made lists: what runs, in which order, at which tag, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reactor_rl import RunError
from reactor_rl.runtime.channel import ControlBlock, Event
from reactor_rl.runtime.worker.clock import ALL, NEVER
from reactor_rl.runtime.worker.events import TimerHandle
from reactor_rl.runtime.worker.loop import Observer, WorkerLoop
from reactor_rl.runtime.worker.main import reply_to

A, B, C = 1, 2, 4


class Worker:
    """A loop of three reactions that note when they ran."""

    def __init__(self) -> None:
        self.loop = WorkerLoop(0, memoryview(bytearray(8 * (ControlBlock.NEXT + ControlBlock.PER_WORKER))).cast("q"))
        self.log: list[tuple[str, int, int]] = []
        self.then: dict[int, Callable[[], None]] = {}
        for bit, name in ((A, "a"), (B, "b"), (C, "c")):
            self.loop.reactions_by_bit[bit] = self.reaction(bit, name)
            self.loop.names[bit], self.loop.reactions[bit] = name, bit
        self.loop.steps = [(self.loop.dispatch, ALL)]
        self.loop.enter(0)

    def reaction(self, bit: int, name: str) -> Callable[[], None]:
        def run() -> None:
            assert self.loop.current == bit and self.loop.reacting and self.loop.running() == name
            self.log.append((name, self.loop.time, self.loop.microstep))
            if bit in self.then:
                self.then[bit]()

        return run

    def tick(self, time: int, pending: int = 0) -> list[tuple[str, int, int]]:
        self.log.clear()
        self.loop.pending |= pending
        self.loop.first_pass(time, self.loop.pass_number + 1)
        return list(self.log)


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_what_is_triggered_runs_once_lowest_bit_first(worker: Worker) -> None:
    assert worker.tick(0, C | A) == [("a", 0, 0), ("c", 0, 0)]
    assert worker.tick(1) == []
    assert worker.loop.current == ALL and not worker.loop.reacting


def test_a_reaction_may_trigger_later_ones_in_the_same_pass(worker: Worker) -> None:
    def trigger() -> None:
        worker.loop.pending |= C

    worker.then[A] = trigger
    assert worker.tick(0, A) == [("a", 0, 0), ("c", 0, 0)]


def test_a_step_runs_what_is_in_its_mask_and_leaves_the_rest_for_the_next(worker: Worker) -> None:
    between: list[str] = []
    worker.loop.steps = [
        (worker.loop.dispatch, A | C),
        (lambda _: between.append("".join(name for name, _, _ in worker.log)), None),
        (worker.loop.dispatch, ALL),
    ]
    assert [name for name, _, _ in worker.tick(0, A | B | C)] == ["a", "c", "b"]
    assert between == ["ac"]


def test_an_error_ends_its_reaction_and_nothing_else(worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("no")

    worker.then[A] = fail
    assert [name for name, _, _ in worker.tick(3, A | B)] == ["a", "b"]
    (failure,) = worker.loop.failures
    assert isinstance(failure.error, ValueError) and failure.tag == (3, 0)
    assert worker.loop.words[ControlBlock.EVENTS] == Event.FAILED


def test_what_comes_behind_a_reaction_does_not_come_behind_one_that_has_failed(worker: Worker) -> None:
    done: list[str] = []

    def fail() -> None:
        worker.loop.after_reaction(lambda: done.append("a"))
        raise ValueError("no")

    worker.then[A] = fail
    worker.then[B] = lambda: worker.loop.after_reaction(lambda: done.append("b"))
    worker.tick(0, A | B)
    assert done == ["b"]


def test_an_interrupt_in_a_step_is_found_again_and_gone_on_from(worker: Worker) -> None:
    interrupted = [True]

    def wait(_: object) -> None:
        if interrupted.pop():
            interrupted.append(False)
            raise TimeoutError

    worker.loop.steps = [(worker.loop.dispatch, A), (wait, None), (worker.loop.dispatch, ALL)]
    with pytest.raises(TimeoutError):
        worker.tick(0, A | B)
    assert worker.loop.unfinished() and worker.log == [("a", 0, 0)]
    worker.loop.execute()
    assert not worker.loop.unfinished() and worker.log == [("a", 0, 0), ("b", 0, 0)]


def test_what_is_due_comes_at_its_time_and_is_known_before(worker: Worker) -> None:
    loop = worker.loop
    assert loop.next_time() == NEVER
    loop.wake_at(5, A)
    loop.wake_at(2, B)
    loop.wake_at(5, C)
    assert loop.next_time() == loop.words[ControlBlock.NEXT] == 2
    assert worker.tick(1) == []
    assert worker.tick(2) == [("b", 2, 0)]
    assert loop.next_time() == 5
    assert worker.tick(5) == [("a", 5, 0), ("c", 5, 0)]
    assert loop.next_time() == NEVER


def test_a_new_agenda_is_told_whatever_is_in_it(worker: Worker) -> None:
    loop = worker.loop
    loop.wake_at(5, A)
    loop.enter(3)
    assert loop.words[ControlBlock.NEXT] == NEVER
    for index, (offset, period) in enumerate(((0, 1), (0, None), (2, 4), (20, 3))):
        timer = TimerHandle(loop, "timer", ALL, index, offset, period)
        timer.mask = 1 << index
        loop.timers.append(timer)
    loop.enter(12)
    assert loop.words[ControlBlock.NEXT] == 0 and loop.agenda.always == A  # one that fires at every tick
    assert loop.agenda.timers == {14: [2], 20: [3]}
    del loop.timers[0]
    loop.enter(12)
    assert loop.words[ControlBlock.NEXT] == 14


def test_alone_it_skips_to_what_is_due_and_stops_behind_a_request(worker: Worker) -> None:
    loop = worker.loop
    for time in (3, 7, 9):
        loop.wake_at(time, A)
    worker.then[A] = lambda: loop.request_stop() if loop.time == 7 else None
    assert loop.ticks_alone(0, 100) == 8
    assert worker.log == [("a", 3, 0), ("a", 7, 0)]
    loop.words[ControlBlock.EVENTS] = 0
    assert loop.ticks_alone(8, 100) == 100 and worker.log[2:] == [("a", 9, 0)]


class Waiting:
    """A logical action that is present at so many further microsteps."""

    def __init__(self, worker: Worker, times: int) -> None:
        self.worker, self.times = worker, times

    def arrive(self) -> bool:
        self.times -= 1
        self.worker.loop.pending |= C
        return self.times > 0


WAYS: dict[str, Callable[[WorkerLoop], Any]] = {
    "one tick alone": lambda loop: loop.tick_alone(4, 7),
    "ticks alone": lambda loop: loop.ticks_alone(4, 5),
    "a pass with others": lambda loop: loop.first_pass(4, 7),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_belongs_to_the_thread_that_runs_it(worker: Worker, way: str) -> None:
    loop = worker.loop
    loop.wake_at(4, A)
    assert loop.is_in_this_thread()
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(WAYS[way], loop).result()
        assert worker.log == [("a", 4, 0)]
        assert elsewhere.submit(loop.is_in_this_thread).result() and not loop.is_in_this_thread()


@pytest.mark.parametrize("way", WAYS)
def test_who_was_interrupted_in_a_reaction_is_in_none(worker: Worker, way: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    worker.then[B] = interrupt
    worker.loop.wake_at(4, B)
    with pytest.raises(KeyboardInterrupt):
        WAYS[way](worker.loop)
    assert worker.log == [("b", 4, 0)]
    assert not worker.loop.reacting and worker.loop.running() == "(none)"


@pytest.mark.parametrize("way", WAYS)
def test_a_pass_that_is_left_is_put_in_order_though_its_end_was_interrupted(worker: Worker, way: str) -> None:
    left: list[bool] = []

    def leave(late: bool) -> None:
        left.append(late)
        if len(left) == 1:
            raise KeyboardInterrupt

    worker.loop._limit.leave = leave
    with pytest.raises(KeyboardInterrupt):
        WAYS[way](worker.loop)
    worker.loop.abandon()
    assert left == [False, False]  # the user's numbers of threads are put back


class Notes(Observer):
    """Notes the bits of the reactions."""

    def __init__(self) -> None:
        self.bits: list[int] = []

    def before_reaction(self, bit: int) -> None:
        self.bits.append(bit)

    def after_reaction(self, bit: int) -> None:
        self.bits.append(-bit)


@pytest.mark.parametrize("way", WAYS)
def test_observers_see_every_reaction(worker: Worker, way: str) -> None:
    notes = Notes()
    worker.loop.observers.append(notes)
    worker.loop.wake_at(4, A | C)
    WAYS[way](worker.loop)
    assert notes.bits == [A, -A, C, -C]


def test_a_trace_begins_and_ends_once(worker: Worker) -> None:
    assert reply_to(worker.loop, ("trace", True)).get() is None
    with pytest.raises(RunError, match="is being traced already"):
        reply_to(worker.loop, ("trace", True)).get()
    worker.tick(3, A | B)
    found = reply_to(worker.loop, ("trace", False)).get()
    assert [(kind, name, time) for kind, name, _, _, time, _ in found] == [("reaction", "a", 3), ("reaction", "b", 3)]
    assert all(begin <= end for _, _, begin, end, _, _ in found)
    assert reply_to(worker.loop, ("trace", False)).get() == []  # as of a worker that has replaced the one that was traced


@pytest.mark.parametrize("alone", [True, False])
def test_microsteps_go_on_as_long_as_something_waits(worker: Worker, alone: bool) -> None:
    loop = worker.loop
    loop.again.append(Waiting(worker, 3))
    loop.pending |= A
    worker.then[A] = loop.tell_again  # as an action does that is scheduled at once
    if alone:
        loop.tick_alone(4, loop.pass_number + 1)
    else:
        loop.first_pass(4, loop.pass_number + 1)
        while loop.words[ControlBlock.EVENTS] & Event.AGAIN:
            loop.next_pass(loop.pass_number + 1)
    assert worker.log == [("a", 4, 0), ("c", 4, 1), ("c", 4, 2), ("c", 4, 3)]
    assert loop.again == [] and not loop.words[ControlBlock.EVENTS]  # else a later tick would have a microstep of nothing


def test_shutdown_reactions_run_once_whatever_happens(worker: Worker) -> None:
    worker.loop.shutdown_mask = B | C

    def fail() -> None:
        raise RuntimeError

    worker.then[B] = fail
    worker.loop.shut_down_alone()
    assert [name for name, _, _ in worker.log] == ["b", "c"]
    worker.loop.shut_down_alone()
    assert len(worker.log) == 2 and worker.loop.failures == []
