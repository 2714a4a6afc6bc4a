"""Calls of the system that fail for want of memory, or of room in a queue: named errors, and nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import socket
import sys
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import pytest

from reactor_rl import ArenaError, Output, Program, Reactor, RunError, Timer, reaction
from reactor_rl.runtime import launch, limits, processes, shared_memory
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.shared_memory import SharedMemory

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(not sys.platform.startswith("linux"), reason="calls of Linux")]

HELP = "Cannot allocate memory. The memory of this machine or container is used up, .*vm.max_map_count.*fewer workers"


class Each(Reactor):
    each = Timer(period=1)
    pid = Output()

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(each, effects=pid)
    def go(self) -> None:
        self.pid.set(os.getpid())


def start() -> Run:
    program = Program("each")
    program.connect(program.bank(Each, 3).pid, program.output("pids").rows)
    return program.start(executor="processes", workers=3)


def refused(real: Callable[..., Any], at: int = 1, number: int = errno.ENOMEM) -> Callable[..., Any]:
    """A call that fails once: when it is called for the n-th time."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    return call


def descriptors() -> list[str]:
    """What this process has open, but for what the interpreter keeps."""
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(path).partition(":")[0] for path in paths if os.path.lexists(path))


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Nothing is open behind the block, whatever was raised there."""
    start().close()  # the services of the interpreter are there
    gc.collect()
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() == before


def test_shared_memory_that_cannot_be_made_or_mapped_says_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", refused(os.memfd_create))
        with pytest.raises(ArenaError, match=f"cannot make shared memory for a test: {HELP}"):
            SharedMemory(100, "a test")
    block = SharedMemory(100, "a test")
    monkeypatch.setattr(mmap, "mmap", refused(mmap.mmap))
    with pytest.raises(ArenaError, match=f"cannot map 4.1 kB of shared memory for a test: {HELP}"):
        block.view(100)
    assert len(block.view(100)) >= 100
    block.close()


def test_shared_memory_that_the_system_does_not_reserve_says_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedMemory(100, "a test")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refused(os.posix_fallocate, 1, errno.ENOSPC))
        with pytest.raises(ArenaError, match=r"cannot reserve 16.4 kB of shared memory for a test: No space left on device\."):
            block.grow(16_000)
    assert block.size == mmap.PAGESIZE
    block.close()


def test_pages_that_cannot_be_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedMemory(100, "a test")

    def exchange(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(shared_memory, "_exchange", exchange)
        with pytest.raises(ArenaError, match=f"cannot map 4.1 kB of shared memory for a test: {HELP}"):
            block.view(100)
    with pytest.raises(OSError, match="cannot exchange the pages of a mapping: Bad file descriptor"):
        shared_memory._exchange(mmap.mmap(-1, 4096), mmap.MAP_SHARED, -1)
    block.close()


def test_a_block_is_closed_though_its_content_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedMemory(100, "a test")
    monkeypatch.setattr(mmap, "mmap", refused(mmap.mmap))
    with pytest.raises(ArenaError, match="cannot map"):
        block.close(readable=True)
    assert block._fd == -1


@pytest.mark.faults
@pytest.mark.parametrize(("call", "name"), [("memfd_create", "make"), ("mmap", "map")])
def test_a_start_without_memory_says_for_which_program(call: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = mmap if call == "mmap" else os
    with nothing_left(), monkeypatch.context() as patch:
        patch.setattr(module, call, refused(getattr(module, call)))
        with pytest.raises(ArenaError, match=f"cannot {name} .*shared memory for the ports of program 'each': {HELP}"):
            start()


@pytest.mark.faults
@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS])
def test_a_fork_server_that_cannot_be_sent_what_a_worker_needs(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    helps = "ulimit -n" if number == errno.ETOOMANYREFS else "end other programs"
    with nothing_left():
        with monkeypatch.context() as patch:
            patch.setattr(reduction, "sendfds", refused(reduction.sendfds, 2, number))
            with pytest.raises(RunError, match=f"cannot start the workers: {os.strerror(number)}.*{helps}"):
                start()
        start().close()  # with another server: the one that has been sent nothing has ended


@pytest.mark.faults
def test_a_fork_server_with_no_room_for_another_connection_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ``socket.setdefaulttimeout()`` had been called: else the system waits for it."""
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", refused(socket.socket.connect, 2, errno.EAGAIN))
        with start() as run:
            run.tick()
            assert len(set(run.pids)) == 3

    def connect(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(launch, "QUEUED", 0.1)
    with nothing_left(), monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        with pytest.raises(RunError, match=r"the fork server has taken no new connection .*fewer runs at the same time"):
            start()


def test_who_cannot_look_for_workers_that_have_ended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with nothing_left():
        run = start()
        with monkeypatch.context() as patch:
            patch.setattr(launch.connection, "wait", refused(launch.connection.wait))
            with pytest.raises(RunError, match=f"cannot look for workers that have ended: {HELP}"):
                run._executor.died()
        run.close()
        del run


@pytest.mark.parametrize("at", range(1, 8))
def test_a_close_that_cannot_wait_leaves_nothing_at_the_second_try(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one tries again itself, but says so."""
    with nothing_left():
        run = start()
        run.tick()
        with monkeypatch.context() as patch:
            wait = refused(launch.connection.wait, at)
            patch.setattr(launch.connection, "wait", wait)
            with contextlib.suppress(RunError) if at > 3 else pytest.raises(RunError, match=f"cannot end the workers: {HELP}"):
                run.close()  # how often it waits depends on how soon the workers end
        assert run.stopped
        run.close()
        del run


def test_a_successor_without_memory_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[Any] = []

    class Line:
        send = said.append

    def revival(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(processes, "WorkerRevival", revival)
    for module, name in ((processes.signal, "signal"), (processes.numeric_threads, "for_good"), (processes.pickling, "for_good")):
        monkeypatch.setattr(module, name, lambda *_: None)
    for name in ("take_environment", "take", "_watch", "note_differing"):
        monkeypatch.setattr(processes, name, lambda *_, **__: None)
    load = (None, {}, (), processes.ModuleSettings(), "a history")
    processes._main(1, load, None, (), {}, Line(), 0.0, os.getpid(), {}, None)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=f"cannot start worker 1: {HELP}"):
        raise said[0].raised()


def test_other_errors_of_the_system_are_no_shortage() -> None:
    assert limits.shortage(OSError(errno.EINVAL, "Invalid argument")) is None
