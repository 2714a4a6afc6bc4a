"""A lock is free again whatever line of its block an interrupt strikes at."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from reactor_rl.runtime import guards
from reactor_rl.runtime.guards import LockGuard


def work(lock: Any, done: list[int]) -> None:
    with LockGuard(lock):
        done.append(1)
        done.append(2)
    done.append(3)


def lines_until(line: int, lock: Any) -> int:
    """Run :func:`work` with an interrupt at the n-th line; returns how many there were."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in (__file__, guards.__file__) or frame.f_code.co_name == "__del__":
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work(lock, [])
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_an_interrupt_at_every_line(kind: Any) -> None:
    lock = kind()
    lines = lines_until(10**9, lock)
    assert lines > 7
    for line in range(1, lines + 1):
        lines_until(line, lock)
        taken: list[bool] = []
        other = threading.Thread(target=lambda found=taken: found.append(lock.acquire(blocking=False)) or lock.release())
        other.start()
        other.join()
        assert taken == [True], line
