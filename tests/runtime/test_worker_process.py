"""A process with a connection: messages, its condition, and its end, however that comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

import pytest

from reactor_rl import RunError
from reactor_rl.plugin import WorkerProcess, end_workers
from reactor_rl.runtime import launch


@contextmanager
def started(function: Callable[[Any], object], method: str | None = None) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(function, method)
    try:
        worker.start()
        yield worker
    finally:
        end_workers([worker], 0.0)


def heard(worker: WorkerProcess) -> Any:
    """The next message of a worker, all of it."""
    while True:
        assert connection.wait(list(worker.handles), 30.0)
        try:
            return worker.receive()
        except TimeoutError:
            pass


def echo(home: Any) -> None:
    while True:
        try:
            home.send(home.recv())
        except EOFError:
            return


@pytest.mark.parametrize("method", [None, "fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_messages_of_any_length_come_back(method: str | None) -> None:
    with started(echo, method) as worker:
        for message in ("short", b"long" * 1_000_000):
            worker.send(message)
            assert heard(worker) == message
        with pytest.raises(TimeoutError):
            worker.receive()
        assert not worker.ended
        assert end_workers([worker], 30.0) == [0]  # by itself


def test_it_is_in_the_condition_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACTOR_RL_TEST", "set later than the fork server")
    names = ("REACTOR_RL_TEST", "OMP_NUM_THREADS")
    with started(lambda home: home.send([signal.getsignal(signal.SIGINT), *map(os.environ.get, names)])) as worker:
        assert heard(worker) == [signal.SIG_IGN, "set later than the fork server", "1"]


def test_a_death_is_told_after_the_last_message() -> None:
    def last_words(home: Any) -> None:
        home.poll(30.0)  # it is sent something that it does not read
        home.send(3)
        os.kill(os.getpid(), signal.SIGKILL)

    with started(last_words) as worker:
        worker.send(2)
        assert heard(worker) == 3
        with pytest.raises(EOFError):
            heard(worker)
        worker.send(4)  # nobody reads it
        assert end_workers([worker], 30.0) == [-signal.SIGKILL]


@pytest.mark.timeout(60)
def test_who_has_ended_is_told_from_who_has_not() -> None:
    with started(lambda home: home.recv()) as worker:
        assert not worker.ended
        worker.send("go")
        assert connection.wait([worker.handles[1]], 30.0)
        assert worker.ended


def test_some_end_by_themselves_and_others_do_not() -> None:
    def resist(home: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        home.send("ready")
        time.sleep(600)

    with started(echo) as idle, started(resist) as busy:
        assert heard(busy) == "ready"
        assert end_workers([idle, busy], 0.5) == [0, -signal.SIGKILL]
        assert end_workers([idle, busy], 0.5) == [None, None]


def test_who_was_never_started_is_released() -> None:
    worker = WorkerProcess(echo)
    assert end_workers([worker], 0.0) == [None]


@pytest.mark.parametrize("error", [ConnectionResetError, EOFError])
def test_who_is_killed_as_it_is_started_is_named(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise error

    monkeypatch.setattr(launch, "start_process", killed)
    with pytest.raises(RunError, match="a worker, or the fork server that starts workers, was killed as it was started"):
        with started(echo):
            pass
