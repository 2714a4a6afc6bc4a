"""Time in which the caller itself did not run is nobody's delay: Ctrl-Z, a paused container, a closed lid."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest

from reactor_rl import WorkerHungError
from reactor_rl.runtime import helpers, recovery
from reactor_rl.runtime.channel import Deadline
from reactor_rl.runtime.executor import SLICE
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.processes import REVIVED
from reactor_rl.runtime.recovery import RecoveringHelpers


class Slept:
    """A helper whose token comes after so many looks; before one of them the caller sleeps for an hour."""

    def __init__(self, looks: int, asleep_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks, self.asleep_at, self.now = looks, asleep_at, 1000.0
        monkeypatch.setattr(helpers.time, "monotonic", lambda: self.now)  # the same module for all files
        self.counted = itertools.count()

    def wait(self, spinning: Any) -> bool:
        return False

    def poll(self, block: bool, seconds: float) -> bool:
        look = next(self.counted)
        self.now += 3600.0 if look == self.asleep_at else seconds
        return look >= self.looks


def waiting(inbound: Any, limit: float | None) -> Any:
    """As much of the caller's side as a wait takes."""
    whole: Any = Helpers.__new__(Helpers)
    whole.loop = SimpleNamespace(observers=[], time=3)
    whole._inbound, whole._spinning, whole.deadline, whole.limit = {1: inbound}, None, Deadline(None), limit
    whole._numbers, whole.words = range(1, 2), [0] * 99
    whole._plan, whole.whereabouts = SimpleNamespace(names_of=lambda worker: ("reactor",)), ", ".join
    whole._executor = SimpleNamespace(died=lambda: None, stopped=lambda worker: False, receive=_nothing)
    return whole


def _nothing(worker: int, timeout: float) -> Any:
    raise TimeoutError


def test_a_limit_does_not_count_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting(Slept(20, 7, monkeypatch), 30 * SLICE).wait(1)
    with pytest.raises(WorkerHungError, match="worker 1 has not ended its part of tick 3"):
        waiting(Slept(99, 7, monkeypatch), 30 * SLICE).wait(1)


def test_a_time_out_does_not_count_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    for looks in (20, 99):
        inbound = Slept(looks, 7, monkeypatch)
        whole = waiting(inbound, None)
        whole.deadline = Deadline(30 * SLICE)
        if looks == 20:
            whole.wait(1)
        else:
            with pytest.raises(TimeoutError):
                whole.wait(1)
            assert next(inbound.counted) < 40


def test_each_helper_has_the_whole_limit_to_take_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Slept(0, -1, monkeypatch)
    whole = waiting(clock, 30 * SLICE)
    whole._numbers, whole.start, whole.loop.pass_number = range(1, 3), [], 4
    looks: dict[int, int] = {}

    def sent(worker: int, seconds: float) -> bool:
        clock.now += seconds
        looks[worker] -= 1
        return looks[worker] < 0

    whole._executor.send, whole._executor.sent = lambda worker, request: None, sent
    whole._expect()  # as for the last token
    looks |= {1: 20, 2: 20}
    whole._send(("a question", None))
    looks |= {1: 20, 2: 99}
    with pytest.raises(WorkerHungError, match="worker 2 has not answered in"):
        whole._send(("a question", None))
    assert looks[2] > 60


def test_what_is_being_brought_back_is_not_to_blame_for_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    for looks in (20, 99):
        slept = Slept(looks, 7, monkeypatch)

        def receive(worker: int, timeout: float, slept: Slept = slept) -> str:
            return REVIVED if slept.poll(True, timeout) else ""

        whole: Any = RecoveringHelpers.__new__(RecoveringHelpers)
        whole.limit, whole.words, whole._alone, whole._startup = 30 * SLICE, [0] * 99, True, -math.inf
        ends: list[Any] = []
        whole._processes = SimpleNamespace(starting=lambda seconds: False, receive=receive, ended=list, kill=ends.append)
        whole._causes, whole._where, whole.deadline = {}, lambda worker: ("it hangs", False), Deadline(None)
        monkeypatch.setattr(recovery, "START", 0.0)
        assert whole._listen_until_revived([1]) == []
        assert bool(ends) == (looks == 99)
