"""Ends that meet: threads that close one run, a run that is closed while its workers are replaced, the interpreter's exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reactor_rl import Program, Reactor, Recover, RecoveryWarning, RunClosedError, Timer, reaction, shutdown, startup
from reactor_rl.runtime import launch, lifetime, processes
from reactor_rl.runtime.channel import Channel, ControlBlock
from reactor_rl.runtime.run import Run

HURRIES: dict[str, Callable[[Run], None]] = {
    "terminated": lambda run: run.close(terminate=True),
    "in time": lambda run: run.close(timeout=0.05),
}


class Lingers(Reactor):
    """Takes its time to end, and notes which others end in this process meanwhile."""

    ending: list[int] = []

    def __init__(self, path: str, bank_index: int) -> None:
        self.path, self.index = f"{path}/{bank_index}", bank_index

    @reaction(shutdown)
    def end(self) -> None:
        self.ending.append(self.index)
        Path(f"{self.path}.ending").touch()
        time.sleep(0.15)
        with open(f"{self.path}.met", "a") as file:
            file.write("".join(map(str, self.ending)))
        self.ending.remove(self.index)


@pytest.mark.parametrize("hurry", HURRIES)
@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
def test_who_closes_in_a_hurry_leaves_the_caller_s_own_to_who_has_time(executor: str, hurry: str, tmp_path: Path) -> None:
    program = Program("lingers")
    program.bank(Lingers, 4, path=str(tmp_path))
    run = program.start(executor=executor, workers=1 if executor == "inline" else 2)
    of_caller = [node.index for node in run._topology.reactors if run._plan.worker_of(node.index) == 0]
    with ThreadPoolExecutor(1) as other:
        patient = other.submit(run.close)
        while not (tmp_path / f"{of_caller[0]}.ending").exists():
            time.sleep(0.001)
        HURRIES[hurry](run)
        assert run.stopped
        patient.result(10)
    for index in of_caller:  # one after another, and once
        assert {*map(int, (tmp_path / f"{index}.met").read_text())} & {*of_caller} == {index}
        assert (tmp_path / f"{index}.met").read_text().count(str(index)) == 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_handler_of_a_signal_closes_what_is_being_closed(tmp_path: Path) -> None:
    program = Program("lingers")
    program.bank(Lingers, 4, path=str(tmp_path))
    run = program.start(executor="processes", workers=2, caller_works=False)
    before = signal.signal(signal.SIGALRM, lambda *_: run.close(terminate=True))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        run.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert run.stopped and not (tmp_path / "3.met").exists()


class Stays(Reactor):
    """Does not let its process end."""

    def __init__(self, bank_index: int) -> None:
        self.helps = bank_index > 0

    @reaction(startup)
    def begin(self) -> None:
        if self.helps:
            threading.Thread(target=time.sleep, args=(60,)).start()


@pytest.mark.timeout(60)
def test_processes_that_another_thread_has_ended_and_released_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program("stays")
    program.bank(Stays, 2)
    run = program.start(executor="processes", workers=2)
    really_wait, here, waits = launch.connection.wait, threading.get_ident(), threading.Event()

    def wait(handles: Any, timeout: float | None = None) -> Any:
        if timeout != 0 and threading.get_ident() != here:
            waits.set()
        elif timeout != 0:  # what this thread has terminated, the other one finds and releases
            patient.result(10)
        return really_wait(handles, timeout)

    monkeypatch.setattr(launch.connection, "wait", wait)
    with ThreadPoolExecutor(1) as other:
        patient = other.submit(run.close)
        assert waits.wait(10) and not patient.done()
        run.close(terminate=True)
        assert patient.done()


# ---------------------------------------------------------------------- while workers are replaced


class Makes(Reactor):
    """Makes something that has to be closed; a slow one's successor does that when there is a gate."""

    each = Timer(period=1)

    def __init__(self, folder: Path, bank_index: int) -> None:
        self.index, self.folder = bank_index, folder

    @reaction(startup)
    def begin(self) -> None:
        if self.index == 2 and (self.folder / "again").exists():
            end = time.monotonic() + 10.0
            while not (self.folder / "gate").exists() and time.monotonic() < end:
                time.sleep(0.005)
        (self.folder / f"{self.index}.{os.getpid()}.made").touch()

    @reaction(each)
    def go(self) -> None:
        pass

    @reaction(shutdown)
    def end(self) -> None:
        (self.folder / f"{self.index}.{os.getpid()}.closed").touch()


@pytest.fixture
def makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose two helpers have been killed."""
    monkeypatch.setattr(lifetime, "ABORTED", 20.0)  # a busy machine takes its time
    program = Program("makes")
    program.bank(Makes, 3, tmp_path)
    run = program.start(executor="processes", workers=3, recover=Recover(restarts=4))
    run.tick()
    (tmp_path / "again").touch()
    executor: Any = run._executor
    for child in executor._processes:
        os.kill(child.pid, signal.SIGKILL)
    for path in tmp_path.glob("[12].*.made"):
        path.unlink()
    return run


def closes_as_they_are_replaced(
    run: Run, until: Callable[[], bool], monkeypatch: pytest.MonkeyPatch, made: bool = False
) -> threading.Thread:
    """Tick, while another thread closes the run as soon as successors are to be made, or are all ``made`` but not started.

    The tick goes on when that one has come so far.
    """
    name, calls = ("new_process", 2) if made else ("begin", 1)
    really, closing = getattr(processes, name), threading.Thread(target=run.close)

    def call(*args: Any) -> Any:
        nonlocal calls
        result = really(*args)
        calls -= 1
        if calls == 0:
            closing.start()
            while not until():
                time.sleep(0.001)
        return result

    with monkeypatch.context() as patch, warnings.catch_warnings():
        patch.setattr(processes, name, call)
        warnings.simplefilter("ignore", RecoveryWarning)
        with pytest.raises(RunClosedError, match="closed by another thread"):
            run.tick()
    return closing


@pytest.mark.faults
@pytest.mark.timeout(60)
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("made", [False, True])
def test_successors_that_start_while_their_run_is_closed_close_what_they_made(
    made: bool, makes: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once successors are made they are started, and ended by whoever closes the run."""
    started, really_start = [], launch.start_process

    def start_process(context: Any, process: Any) -> None:
        really_start(context, process)
        started.append(process)

    monkeypatch.setattr(launch, "start_process", start_process)
    closing = closes_as_they_are_replaced(makes, lambda: bool(makes._words[ControlBlock.ABORT]), monkeypatch, made)
    assert not list(tmp_path.glob("2.*.made"))  # whoever ticks does not wait for the slow one
    (tmp_path / "gate").touch()
    closing.join()
    begun = {path.stem for path in tmp_path.glob("*.made")}
    assert {path.stem for path in tmp_path.glob("*.closed")} == begun
    assert started and len(begun) == 1 + len(started)  # on a busy machine the second one is not even started


@pytest.mark.faults
@pytest.mark.timeout(60)
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_nobody_is_replaced_once_all_are_ended(makes: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by a thread that has begun to: nobody would ever end the successors."""
    channels: list[int] = []
    monkeypatch.setattr(lifetime, "ABORTED", 0.1)
    monkeypatch.setattr(processes, "Channel", lambda: channels.append(1) or Channel())
    closes_as_they_are_replaced(makes, lambda: makes._state == "closed", monkeypatch).join()
    assert not channels  # whose names would be there for a while
    assert not list(tmp_path.glob("[12].*.made"))


# ---------------------------------------------------------------------- exit


@pytest.mark.parametrize("end", ["early.kept.close()", "atexit._clear()"], ids=["closed", "not closed"])
def test_a_run_that_outlives_the_names_of_its_module_says_nothing(end: str) -> None:
    """At exit modules that are still referred to lose their names, the last one that was imported first."""
    script = f"""
    import atexit, sys, types
    sys.early = sys.modules["early"] = early = types.ModuleType("early")
    from reactor_rl import Program
    from reactor_rl.runtime import lifetime

    sys.late = lifetime
    early.kept = Program("kept").start(executor="inline")
    {end}
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.faults
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_start_that_makes_no_progress_is_left_to_its_thread_which_ends_what_it_started() -> None:
    """The interpreter's exit waits for that thread. Workers here would not end by themselves."""
    script = """
    import atexit, threading
    atexit.register(lambda: print([thread.name for thread in threading.enumerate() if "reactor_rl" in thread.name]))
    import os, signal, time
    from reactor_rl import Input, Program, Reactor, reaction
    from reactor_rl.runtime import launch

    class Slow(Reactor):
        inp = Input()
        def __init__(self, seconds, bank_index): self.pid, self.seconds = os.getpid(), seconds
        def __setstate__(self, state): time.sleep(0 if state["pid"] == os.getpid() else state["seconds"])
        @reaction(inp)
        def go(self): pass

    def started(context, process, really_start=launch.start_process):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        really_start(context, process)
        print("started", process.name)

    def slow(seconds):
        program = Program("slow")
        program.connect(program.input("given"), program.bank(Slow, 3, seconds).inp)
        return program

    slow(0).start(executor="processes", workers=3).close()
    launch.start_process = started
    os.kill(server := launch._own_server()._forkserver_pid, signal.SIGSTOP)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        slow(100).start(executor="processes", workers=3)
    except KeyboardInterrupt:
        print("interrupted")
    later = threading.Timer(0.3, os.kill, (server, signal.SIGCONT))
    later.daemon = True
    later.start()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\nstarted reactor_rl worker 1\n[]\n", "")


def test_a_start_that_ends_just_after_it_was_given_up_has_ended() -> None:
    class Late(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait()
            return False

    start, late = processes.ProcessStart(launch.context_named("spawn"), []), []
    start._over = Late()
    start.in_background()
    assert start.stop(lambda: late.append("its thread has ended without a call")) and not late
