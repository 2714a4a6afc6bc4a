"""A kernel with hand-made lists: what runs, in which order, at which tag, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reactor_rl.runtime.channel import Words
from reactor_rl.runtime.worker.clock import ALL, NEVER
from reactor_rl.runtime.worker.loop import Kernel

A, B, C = 1, 2, 4


class Worker:
    """A kernel of three reactions that note when they ran."""

    def __init__(self) -> None:
        self.kernel = Kernel(0, memoryview(bytearray(8 * (Words.NEXT + 1))).cast("q"))
        self.log: list[tuple[str, int, int]] = []
        self.then: dict[int, Callable[[], None]] = {}
        for bit, name in ((A, "a"), (B, "b"), (C, "c")):
            self.kernel.calls[bit] = self.reaction(bit, name)
            self.kernel.names[bit], self.kernel.reactions[bit] = name, bit
        self.kernel.steps = [(self.kernel.run, ALL)]
        self.kernel.enter(0)

    def reaction(self, bit: int, name: str) -> Callable[[], None]:
        def run() -> None:
            assert self.kernel.current == bit and self.kernel.reacting and self.kernel.running() == name
            self.log.append((name, self.kernel.time, self.kernel.microstep))
            if bit in self.then:
                self.then[bit]()

        return run

    def tick(self, time: int, pending: int = 0) -> list[tuple[str, int, int]]:
        self.log.clear()
        self.kernel.pending |= pending
        self.kernel.first_pass(time, self.kernel.number + 1)
        return list(self.log)


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_what_is_triggered_runs_once_lowest_bit_first(worker: Worker) -> None:
    assert worker.tick(0, C | A) == [("a", 0, 0), ("c", 0, 0)]
    assert worker.tick(1) == []
    assert worker.kernel.current == ALL and not worker.kernel.reacting


def test_a_reaction_may_trigger_later_ones_in_the_same_pass(worker: Worker) -> None:
    def trigger() -> None:
        worker.kernel.pending |= C

    worker.then[A] = trigger
    assert worker.tick(0, A) == [("a", 0, 0), ("c", 0, 0)]


def test_a_step_runs_what_is_in_its_mask_and_leaves_the_rest_for_the_next(worker: Worker) -> None:
    between: list[str] = []
    worker.kernel.steps = [
        (worker.kernel.run, A | C),
        (lambda _: between.append("".join(name for name, _, _ in worker.log)), None),
        (worker.kernel.run, ALL),
    ]
    assert [name for name, _, _ in worker.tick(0, A | B | C)] == ["a", "c", "b"]
    assert between == ["ac"]


def test_an_error_ends_its_reaction_and_nothing_else(worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("no")

    worker.then[A] = fail
    assert [name for name, _, _ in worker.tick(3, A | B)] == ["a", "b"]
    (failure,) = worker.kernel.failures
    assert isinstance(failure.error, ValueError) and failure.tag == (3, 0)
    assert worker.kernel.words[Words.FAILED] == 1


def test_what_comes_behind_a_reaction_does_not_come_behind_one_that_has_failed(worker: Worker) -> None:
    done: list[str] = []

    def fail() -> None:
        worker.kernel.after_reaction(lambda: done.append("a"))
        raise ValueError("no")

    worker.then[A] = fail
    worker.then[B] = lambda: worker.kernel.after_reaction(lambda: done.append("b"))
    worker.tick(0, A | B)
    assert done == ["b"]


def test_an_interrupt_in_a_step_is_found_again_and_gone_on_from(worker: Worker) -> None:
    interrupted = [True]

    def wait(_: object) -> None:
        if interrupted.pop():
            interrupted.append(False)
            raise TimeoutError

    worker.kernel.steps = [(worker.kernel.run, A), (wait, None), (worker.kernel.run, ALL)]
    with pytest.raises(TimeoutError):
        worker.tick(0, A | B)
    assert worker.kernel.unfinished() and worker.log == [("a", 0, 0)]
    worker.kernel.execute()
    assert not worker.kernel.unfinished() and worker.log == [("a", 0, 0), ("b", 0, 0)]


def test_what_is_due_comes_at_its_time_and_is_known_before(worker: Worker) -> None:
    kernel = worker.kernel
    assert kernel.next_time() == NEVER
    kernel.wake_at(5, A)
    kernel.wake_at(2, B)
    kernel.wake_at(5, C)
    assert kernel.next_time() == kernel.words[Words.NEXT] == 2
    assert worker.tick(1) == []
    assert worker.tick(2) == [("b", 2, 0)]
    assert kernel.next_time() == 5
    assert worker.tick(5) == [("a", 5, 0), ("c", 5, 0)]
    assert kernel.next_time() == NEVER


def test_alone_it_skips_to_what_is_due_and_stops_behind_a_request(worker: Worker) -> None:
    kernel = worker.kernel
    for time in (3, 7, 9):
        kernel.wake_at(time, A)
    worker.then[A] = lambda: kernel.request_stop() if kernel.time == 7 else None
    assert kernel.ticks_alone(0, 100) == 8
    assert worker.log == [("a", 3, 0), ("a", 7, 0)]
    kernel.words[Words.STOP] = 0
    assert kernel.ticks_alone(8, 100) == 100 and worker.log[2:] == [("a", 9, 0)]


class Waiting:
    """A logical action that is present at so many further microsteps."""

    def __init__(self, worker: Worker, times: int) -> None:
        self.worker, self.times = worker, times

    def arrive(self) -> bool:
        self.times -= 1
        self.worker.kernel.pending |= C
        return self.times > 0


def test_microsteps_go_on_as_long_as_something_waits(worker: Worker) -> None:
    worker.kernel.again.append(Waiting(worker, 3))
    worker.kernel.pending |= A
    worker.kernel.tick_alone(4, worker.kernel.number + 1)
    assert worker.log == [("a", 4, 0), ("c", 4, 1), ("c", 4, 2), ("c", 4, 3)]
    assert worker.kernel.again == []


def test_shutdown_reactions_run_once_whatever_happens(worker: Worker) -> None:
    worker.kernel.shutdown_mask = B | C

    def fail() -> None:
        raise RuntimeError

    worker.then[B] = fail
    worker.kernel.shut_down_alone()
    assert [name for name, _, _ in worker.log] == ["b", "c"]
    worker.kernel.shut_down_alone()
    assert len(worker.log) == 2 and worker.kernel.failures == []
