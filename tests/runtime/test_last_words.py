"""Helpers hear that another thread closes their run, whatever the caller does; a failure that dies with its worker is an error."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import Output, Program, Reactor, Recover, RecoveryWarning, RunClosedError, RunError, Timer, reaction, shutdown
from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.executor import HelperCommand
from reactor_rl.runtime.worker import main


class Env(Reactor):
    each = Timer(period=1)
    steps = Output((), np.int64)

    def __init__(self, folder: str, fails: bool, bank_index: int = 0) -> None:
        self.path, self.fails, self.taken = f"{folder}/{bank_index}", fails and bank_index > 0, 0

    @reaction(each, effects=steps)
    def step(self) -> None:
        self.taken += 1
        self.steps.set(self.taken)

    @reaction(shutdown)
    def end(self) -> None:
        Path(self.path).write_text(str(self.taken))
        if self.fails:
            raise OSError("could not be closed")


class Words:
    """The caller's words: who begins a tick writes FIRST a moment after another thread has written QUIT."""

    def __init__(self, words: Any) -> None:
        self.words = words
        self.begins, self.quits, self.written = threading.Event(), threading.Event(), threading.Event()

    def __getitem__(self, word: int) -> int:
        return int(self.words[word])

    def __setitem__(self, word: int, value: int) -> None:
        if word == ControlBlock.COMMAND and value == HelperCommand.FIRST:
            self.begins.set()
            assert self.quits.wait(20)
        self.words[word] = value
        if word == ControlBlock.COMMAND and value == HelperCommand.FIRST:
            self.written.set()
        if word == ControlBlock.COMMAND and value == HelperCommand.QUIT and self.begins.is_set():
            self.quits.set()
            assert self.written.wait(20)


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_helpers_quit_although_the_command_of_a_tick_came_later(tmp_path: Path, executor: Any) -> None:
    program = Program("p")
    program.bank(Env, 2, str(tmp_path), False)
    run = program.start(executor=executor, workers=2)
    run.tick()
    run._words = run._helpers.words = words = Words(run._words)  # type: ignore[assignment]
    said: list[BaseException] = []

    def tick() -> None:
        try:
            run.tick()
        except RunClosedError as error:
            said.append(error)

    ticking = threading.Thread(target=tick)
    ticking.start()
    assert words.begins.wait(20)
    run.close()
    ticking.join(20)
    assert len(said) == 1
    assert (tmp_path / "1").read_text() == "1"  # it was closed, and takes no step more


def dies_once(path: str) -> None:
    """Have a helper die when it is to say what has failed."""
    plain = main._REQUESTS["failures"]  # type: ignore[attr-defined]

    def failures(loop: Any, argument: Any) -> Any:
        if loop.worker and os.path.exists(path):
            os.unlink(path)
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(loop, argument)

    main._REQUESTS["failures"] = failures  # type: ignore[attr-defined]


@pytest.mark.faults
@pytest.mark.skipif(os.name != "posix", reason="nobody is replaced")
def test_a_failure_of_the_end_that_dies_with_its_worker_is_an_error_that_says_so(tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.touch()
    program = Program("p")
    program.bank(Env, 2, str(tmp_path), True)
    program.worker_setup(partial(dies_once, str(once)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        run = program.start(executor="processes", workers=2, recover=Recover(restarts=1))
        run.tick()
        with pytest.raises(RunError, match="its worker died before it could say which"):
            run.close()
    assert not once.exists() and run.stopped
