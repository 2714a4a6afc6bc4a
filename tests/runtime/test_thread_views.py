"""Without the GIL, threads that slice one view lose count of its slices (cpython#156248), so that each has a view of its own."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from reactor_rl import Output, Program, Reactor, Timer, reaction
from reactor_rl.runtime import numeric_threads
from reactor_rl.runtime import run as runs
from reactor_rl.runtime.worker import main


class Each(Reactor):
    each = Timer(period=1)
    said = Output()

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(each, effects=said)
    def go(self) -> None:
        self.said.set(threading.current_thread().name)


def counter(view: memoryview) -> Any:
    """What counts the slices of a view, and of views that were made from it."""
    (found,) = (one for one in gc.get_referents(view) if type(one).__name__ == "managedbuffer")
    return found


def test_each_thread_counts_its_own_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    really_bind, really_end = main.bind, numeric_threads.ended
    bound: dict[int, tuple[memoryview, Any]] = {}
    ended: list[int] = []

    def bind(plan: Any, worker: int, memory: memoryview, *others: Any) -> Any:
        found = really_bind(plan, worker, memory, *others)
        bound[worker] = memory, found[0]
        return found

    def end(group: int) -> None:
        ended.append(group)
        really_end(group)

    for module in (main, runs):
        monkeypatch.setattr(module, "bind", bind)
    monkeypatch.setattr(numeric_threads, "ended", end)
    program = Program("each")
    program.connect(program.bank(Each, 4).said, program.output("names").rows)
    with program.start(executor="threads", workers=4) as run:
        run.tick()
        assert len(set(run.names)) == len(bound) == 4
        views = [memory for memory, _ in bound.values()]
        counters = [counter(view) for view in views]
        assert len({id(one) for one in counters}) == 4
        assert all(counter(loop.words) is counter(memory) for memory, loop in bound.values())
        assert len({id(view.obj) for view in views}) == 1  # of one array
    assert {loop._limit._group for _, loop in bound.values()} == set(ended)  # all know that they are of one run
