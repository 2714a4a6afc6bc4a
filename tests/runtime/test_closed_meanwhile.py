"""Ends that come at an unlucky moment: as a tick ends in another thread, and at the last question of a start."""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reactor_rl import Input, Program, Reactor, RunClosedError, RunError, Timer, WorkerDiedError, reaction, shutdown
from reactor_rl.runtime.channel import ControlBlock, Event
from reactor_rl.runtime.processes import ProcessesExecutor
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.threads import ThreadsExecutor


class Closes(Reactor):
    """Notes that it was closed, in this process."""

    each = Timer(period=1)
    closed: list[int] = []

    def __init__(self, bank_index: int) -> None:
        self.index = bank_index

    @reaction(each)
    def go(self) -> None: ...

    @reaction(shutdown)
    def close(self) -> None:
        self.closed.append(self.index)


def closing() -> Program:
    program = Program("closing")
    program.bank(Closes, 2)
    return program


def closed_by_another(run: Run) -> threading.Thread:
    """Close a run in another thread, which has begun with that when this returns."""
    other = threading.Thread(target=run.close)
    other.start()
    while run._closer == -1:
        time.sleep(0.001)
    return other


OPERATIONS: dict[str, Callable[[Run], Any]] = {
    "tick": lambda run: run.tick(),
    "tick_async": lambda run: run.tick_async(),
    "run": lambda run: run.run(1),
    "set": lambda run: run.set(),
    "snapshot": lambda run: run.snapshot(),
}


@pytest.mark.parametrize("state", ["busy", "ready"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_begins_or_ends_as_another_thread_closes_the_run(operation: str, state: str) -> None:
    """That one has seen the state before this one changes it: it need not wait for it, and closes the caller's own reactors."""
    Closes.closed.clear()
    run, others = closing().start(executor="threads", workers=2), []
    if operation == "tick_async" and state == "ready":
        state = "ticking"

    class Watched(Run):
        def __setattr__(self, name: str, value: Any) -> None:
            if (name, value) == ("_state", state) and not others and self._closer == -1:
                others.append(closed_by_another(self))
            super().__setattr__(name, value)

    run.__class__ = Watched
    began = time.monotonic()
    with pytest.raises(RunClosedError, match="closed by another thread"):
        OPERATIONS[operation](run)
    others[0].join(10)
    assert sorted(Closes.closed) == [0, 1] and time.monotonic() - began < 0.45
    assert run.stopped
    run.close()


class Takes(Reactor):
    first, second = Input((2,), np.float32), Input((2,), np.float32)

    @reaction(first, second)
    def take(self) -> None: ...


def test_what_cannot_be_done_because_another_thread_closes_the_run_says_so() -> None:
    program = Program("takes")
    one = program.add(Takes)
    program.connect(program.input("first", (2,), np.float32), one.first)
    program.connect(program.input("second", (2,), np.float32), one.second)
    run = program.start(executor="inline")

    class Closing:
        def __array__(self, *_: Any, **__: Any) -> Any:
            other = threading.Thread(target=run.close, kwargs={"terminate": True})
            other.start()
            other.join(10)
            return np.zeros(2, np.float32)

    with pytest.raises(RunClosedError, match="closed by another thread, in the middle of an operation of this one"):
        run.set(first=Closing(), second=[1, 2])
    run.close()


class Fails(Closes):
    """Raises an error when it is closed, if it is the second one."""

    @reaction(shutdown)
    def close(self) -> None:
        if self.index:
            raise ValueError("it fails")


@pytest.mark.parametrize("fails", [False, True])
def test_errors_of_shutdown_reactions_may_be_lost_with_their_worker(fails: bool) -> None:
    """One that has died, and was replaced, before it was asked for them: nobody knows which of all errors was the first."""
    program = Program("closing")
    program.bank(Fails if fails else Closes, 2, name="them")
    run = program.start(executor="threads", workers=2, placement={"them[0]": 1, "them[1]": 0})
    run.tick()
    run._words[ControlBlock.EVENTS + ControlBlock.PER_WORKER] = Event.FAILED  # worker 1, which has the first reactor
    with pytest.raises(RunError, match="its worker died before it could say which"):
        run.close()
    assert run.stopped


def test_a_helper_that_waits_for_a_question_that_never_comes_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        time.sleep(0.1)  # until the helper waits for it
        raise KeyboardInterrupt

    Closes.closed.clear()
    run = closing().start(executor="threads", workers=2)
    with monkeypatch.context() as patch:
        patch.setattr(ThreadsExecutor, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.snapshot()
    run.close()
    assert sorted(Closes.closed) == [0, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("operation", ["tick", "snapshot"])
def test_a_thread_that_was_made_to_end_is_noticed(operation: str) -> None:
    """As tools do that limit the time of functions."""
    with closing().start(executor="threads", workers=2) as run:
        (helper,) = (thread for thread in threading.enumerate() if thread.name == "reactor_rl worker 1")
        assert helper.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(helper.ident), ctypes.py_object(SystemExit))
        with pytest.raises(WorkerDiedError, match=r"worker 1 ended; it held closes\[1\]\. The run is over"):
            OPERATIONS[operation](run)


@pytest.mark.faults
@pytest.mark.timeout(60)
def test_ctrl_c_at_the_last_question_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers wait for the question that was announced to them, so the run is torn down; it does not end well."""

    def interrupted(*_: Any) -> None:
        time.sleep(0.3)  # until the helper waits for it
        raise KeyboardInterrupt

    monkeypatch.setattr(ProcessesExecutor, "send", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        closing().start(executor="processes", workers=2)
    assert caught.tb  # which may keep the run
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("reactor_rl")]
