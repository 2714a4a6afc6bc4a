"""A lock is free again whenever a signal handler raises."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from reactor_rl.runtime import guards
from reactor_rl.runtime.guards import holding

pytestmark = [
    pytest.mark.timeout(60, method="thread"),  # the other method takes the timer that a test uses
    pytest.mark.skipif(os.name != "posix", reason="sends signals to itself"),
    pytest.mark.parametrize("kind", [threading.Lock, threading.RLock]),
]


class StruckError(Exception):
    pass


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def strike(*_: Any) -> None:
        raise StruckError

    before = {number: signal.signal(number, strike) for number in (signal.SIGUSR2, signal.SIGALRM)}
    yield
    for number, usual in before.items():
        signal.signal(number, usual)


class Struck:
    """A lock with a method at whose end there is a signal, so that the handler runs at the first moment after it."""

    def __init__(self, lock: Any, method: str) -> None:
        self.lock = lock
        self.signals = {method: [signal.SIGUSR2]}
        self.send = ctypes.CDLL(None)["raise"]  # signal.raise_signal() would run the handler itself

    # Handlers run when a call has returned. After map(), which calls nothing yet, neither method returns from a call.

    def acquire(self) -> bool:
        return [self.lock.acquire(), *map(self.send, self.signals.get("acquire", ()))][0]

    def release(self) -> None:
        [self.lock.release(), *map(self.send, self.signals.get("release", ()))]


def is_free(lock: Any) -> bool:
    """Whether another thread could take the lock."""
    free: list[bool] = []

    def take() -> None:
        if lock.acquire(blocking=False):
            lock.release()
            free.append(True)

    other = threading.Thread(target=take)
    other.start()
    other.join()
    return bool(free)


@pytest.mark.parametrize("method", ["acquire", "release"])
def test_a_handler_raises_as_the_lock_is_taken_or_released(kind: Any, method: str) -> None:
    lock, done = kind(), []

    def work() -> None:
        holding(Struck(lock, method))(done.append)(1)
        pytest.fail("the handler has not run")

    with pytest.raises(StruckError) as struck:
        work()
    assert struck.tb is not None
    assert is_free(lock)  # while there is a traceback, which keeps what the functions had
    assert done == ([] if method == "acquire" else [1])


def test_handlers_that_raise_at_any_moment(kind: Any) -> None:
    lock, calls, strikes = kind(), [0], 0

    @holding(lock)
    def work() -> None:
        calls[0] += 1

    end = time.monotonic() + 30.0
    while strikes < 2000:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + strikes % 7))
            while True:
                work()
        except StruckError:
            strikes += 1
        assert is_free(lock)
        assert time.monotonic() < end
    assert calls[0] > strikes


def lines_until(line: int, work: Callable[[], None]) -> int:
    """Call a function, and raise before the n-th line; returns how many there were."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in (__file__, guards.__file__):
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(None)
    return count


def test_a_trace_function_raises_before_any_line(kind: Any) -> None:
    lock, done = kind(), []

    @holding(lock)
    def work() -> None:
        done.append(1)
        done.append(2)

    lines = lines_until(10**9, work)
    assert lines > 7
    assert done == [1, 2]
    for line in range(1, lines + 1):
        assert lines_until(line, work) == line
        assert is_free(lock), line


def test_what_the_function_returns_and_raises(kind: Any) -> None:
    lock = kind()

    @holding(lock)
    def divide(number: int, *, by: int) -> float:
        """Divide."""
        assert not is_free(lock)
        return number / by

    assert divide(3, by=2) == 1.5
    with pytest.raises(ZeroDivisionError):
        divide(3, by=0)
    assert is_free(lock)
    assert divide.__doc__ == "Divide."
