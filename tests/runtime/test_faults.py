"""Whatever dies, is interrupted or gets stuck: the caller hears of it at once, can close, and nothing is left."""

from __future__ import annotations

import asyncio
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import (
    ArenaError,
    Input,
    Output,
    Program,
    ProgramError,
    Reactor,
    RunClosedError,
    RunError,
    Timer,
    WorkerDiedError,
    WorkerHungError,
    reaction,
)  # fmt: skip
from reactor_rl.runtime import processes

pytestmark = [pytest.mark.faults, pytest.mark.timeout(60), pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")]


class Each(Reactor):
    """Calls a function of itself at every tick."""

    each = Timer(period=1)
    pid = Output()

    def __init__(self, function: Any = None, bank_index: int = 0) -> None:
        self.function, self.index = function, bank_index

    @reaction(each, effects=pid)
    def go(self) -> None:
        self.pid.set(os.getpid())
        if self.function is not None:
            self.function(self)


def bank(function: Any = None, n: int = 3) -> Program:
    program = Program("faulty")
    each = program.bank(Each, n, function, name="env")
    program.connect(each.pid, program.output("pids").rows)
    return program


def gone(pid: int) -> bool:
    """Whether a process has ended; one that waits to be reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ---------------------------------------------------------------------- workers that die


def at_tick_1_in_helper(what: str, self: Any) -> None:
    if self.tag[0] == 1 and self.index == 1:
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "unnamed":
            os.kill(os.getpid(), 40)
        os._exit(3)


@pytest.mark.parametrize(
    ("what", "says", "code"),
    [
        ("kill", "was killed by SIGKILL", -9),
        ("unnamed", "was killed by signal 40;", -40),
        ("exit", "ended with exit status 3", 3),
    ],
)
def test_a_helper_dies_during_a_tick(what: str, says: str, code: int) -> None:
    run = bank(functools.partial(at_tick_1_in_helper, what)).start(executor="processes", workers=3)
    run.tick()
    began = time.monotonic()
    with pytest.raises(WorkerDiedError, match=says) as caught:
        run.tick()
    assert time.monotonic() - began < 1.0
    assert caught.value.worker == 1
    assert caught.value.reactors == ("env[1]",)
    assert caught.value.exitcode == code
    assert "env[1]" in str(caught.value)
    with pytest.raises(RunClosedError):
        run.tick()
    began = time.monotonic()
    run.close()
    run.close()
    assert time.monotonic() - began < 3.0


def leaves(error: type[BaseException], self: Any) -> None:
    if self.tag[0] == 1 and self.index == 1:
        raise error(3)


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_what_would_end_a_helper_is_told_by_its_name(error: type[BaseException], executor: Any) -> None:
    with bank(functools.partial(leaves, error)).start(executor=executor, workers=2) as run:
        run.tick()
        with pytest.raises(RuntimeError, match=f"{error.__name__} was raised: 3") as caught:
            run.tick()
        assert "env[1]" in caught.value.__notes__[0]


class Unstable:
    """Ends whoever loads it."""

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise SystemExit(4)

    def __call__(self, reactor: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_what_would_end_a_helper_at_its_start_is_told_by_its_name(executor: Any) -> None:
    program = Program("unstable")
    each = program.bank(Each, 2, Unstable(), name="env")
    program.connect(each.pid, program.output("pids").rows)
    with pytest.raises(RuntimeError, match="SystemExit was raised: 4"):
        program.start(executor=executor, workers=2, caller_works=False)


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    with pytest.raises(RunError, match=r"the working directory of this process, .*, has been deleted"):
        bank().start(executor="processes", workers=2)
    monkeypatch.chdir(tmp_path)
    with bank().start(executor="processes", workers=2) as run:
        run.tick()


def test_a_helper_dies_between_ticks() -> None:
    run = bank().start(executor="processes", workers=3)
    run.tick()
    os.kill(run.pids[2], signal.SIGKILL)
    assert wait_until(lambda: gone(run.pids[2]), 5.0)
    began = time.monotonic()
    with pytest.raises(WorkerDiedError, match="SIGKILL") as caught:
        run.tick()
    assert time.monotonic() - began < 1.0
    assert caught.value.reactors == ("env[2]",)
    run.close()


def test_a_helper_that_others_wait_for_dies() -> None:
    class Die(Reactor):
        each = Timer(period=1)
        out = Output()

        @reaction(each, effects=out)
        def die(self) -> None:
            if self.tag[0] == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.out.set(1)

    class Need(Reactor):
        inp = Input()

        @reaction(inp)
        def need(self) -> None: ...

    program = Program()
    program.add(Each)
    die, need = program.add(Die), program.add(Need)
    program.connect(die.out, need.inp)
    run = program.start(executor="processes", workers=3, costs={"each": 1.0, "die": 0.9, "need": 0.8})
    run.tick()
    with pytest.raises(WorkerDiedError):
        run.tick()
    run.close()


def test_close_notices_a_dead_helper() -> None:
    run = bank().start(executor="processes", workers=3)
    run.tick()
    os.kill(run.pids[1], signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerDiedError):
        run.close()
    assert time.monotonic() - began < 3.0


def test_a_helper_that_does_not_answer_is_an_error() -> None:
    with bank().start(executor="processes", workers=3, timeout=0.5) as run:
        run.tick()
        os.kill(run.pids[1], signal.SIGSTOP)
        with pytest.raises(WorkerHungError, match=r"worker \d has not answered in 0.5 s; its process is stopped, as by SIGSTOP\."):
            run.snapshot()


# ---------------------------------------------------------------------- things that do not fit


def test_an_unpicklable_parameter() -> None:
    import threading

    with pytest.raises(ProgramError, match=r"reactor 'env\[0\]' cannot be pickled.*startup reaction"):
        bank(threading.Lock()).start(executor="processes", workers=2)


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("odd")
        self.sum, self.lock = one + two, __import__("threading").Lock()


def raise_odd(self: Any) -> None:
    if self.index == 1:
        raise OddError(1, 2)


def test_an_unpicklable_exception() -> None:
    run = bank(raise_odd).start(executor="processes", workers=3)
    with pytest.raises(RuntimeError, match="OddError: odd") as caught:
        run.tick()
    assert "raise_odd" in str(caught.value.__cause__)
    assert "env[1].go" in caught.value.__notes__[0]
    run.close()


def test_too_much_memory() -> None:
    class Huge(Reactor):
        each = Timer(period=1)
        out = Output((1 << 40,), np.float64)

        @reaction(each, effects=out)
        def go(self) -> None: ...

    program = Program("huge")
    program.bank(Huge, 2)
    with pytest.raises(ArenaError, match=r"cannot reserve 17592\.\d GB.*program 'huge'.*available"):
        program.start(executor="processes", workers=2)


# ---------------------------------------------------------------------- stuck, forked, forgotten


def stuck(self: Any) -> None:
    if self.index == 1 and self.tag[0] == 1:
        time.sleep(600)


def test_a_stuck_helper_is_terminated() -> None:
    run = bank(stuck).start(executor="processes", workers=3)
    run.tick()
    run.tick_async()
    with pytest.raises(TimeoutError):
        run.tick_wait(0.1)
    began = time.monotonic()
    run.close(terminate=True)
    assert time.monotonic() - began < 1.5


def test_close_with_a_timeout_terminates_a_stuck_helper() -> None:
    run = bank(stuck).start(executor="processes", workers=3)
    run.tick()
    run.tick_async()
    began = time.monotonic()
    run.close(timeout=0.3)
    assert time.monotonic() - began < 3.0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_run_alone() -> None:
    with bank().start(executor="processes", workers=2) as run:
        run.tick()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run.close()
                run.__del__()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        run.tick()
        assert len(set(run.pids)) == 2


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_forgotten_run_closes_itself(executor: str) -> None:
    run = bank().start(executor=executor, workers=2)  # type: ignore[arg-type]
    run.tick()
    del run
    gc.collect()


# ---------------------------------------------------------------------- whole scripts

SCRIPT = """
import os, sys, time, signal
import numpy as np
from reactor_rl import *
FIRST

class Tool:
    def __init__(self, n): self.n = n

class Each(Reactor):
    each = Timer(period=1)
    out = Output()
    def __init__(self, bank_index): self.i = bank_index
    @reaction(startup)
    def build(self): self.tool = Tool(self.i)
    @reaction(each, effects=out)
    def go(self):
        self.out.set((os.getpid(), self.tool))
        SLEEP

program = Program("script")
bank = program.bank(Each, 3)
program.connect(bank.out, program.output("x").rows)
run = program.start(executor="processes", workers=3, start_method=CONTEXT)
run.tick()
print(*[p for p, _ in run.x], flush=True)
assert [t.n for _, t in run.x] == [0, 1, 2] and all(type(t) is Tool for _, t in run.x)
"""


def script(
    tmp_path: Path, more: str, sleep: str = "", context: str = "None", first: str = "", module: bool = False
) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    whole = SCRIPT.replace("SLEEP", sleep).replace("CONTEXT", context).replace("FIRST", first)
    path.write_text(whole + textwrap.dedent(more))
    return subprocess.Popen(
        [sys.executable, "-W", "error", *(["-m", "script"] if module else [str(path)])],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def pids_of(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    line = b""  # read without a buffer, for communicate() would not find what is in it
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    if not line:
        pytest.fail(process.communicate()[1])
    return [int(word) for word in line.split()]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def nothing_left(process: subprocess.Popen[str], pids: list[int]) -> None:
    assert wait_until(lambda: all(map(gone, pids)), 1.0), [pid for pid in pids if not gone(pid)]
    names = [name for name in os.listdir("/dev/shm") if f"rrl-{process.pid:x}-" in name]
    assert not names


@pytest.mark.parametrize(("context", "module"), [("'forkserver'", False), ("'spawn'", False), ("'fork'", False), ("'spawn'", True)])
def test_scripts_need_no_guard(tmp_path: Path, context: str, module: bool) -> None:
    with script(tmp_path, "run.tick()\nrun.close()\nprint('done')", context=context, module=module) as process:
        pids = pids_of(process)
        out, err = process.communicate(timeout=30)
        assert (out.strip(), err, process.returncode) == ("done", "", 0)
        assert len(set(pids)) == 3
        nothing_left(process, pids)


def test_a_script_that_does_not_close(tmp_path: Path) -> None:
    with script(tmp_path, "run.tick()\n") as process:
        pids = pids_of(process)
        began = time.monotonic()
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 3.0
        assert (err, process.returncode) == ("", 0)
        nothing_left(process, pids)


def test_a_script_that_ends_by_an_exception(tmp_path: Path) -> None:
    with script(tmp_path, "raise ValueError('mine')") as process:
        pids = pids_of(process)
        _, err = process.communicate(timeout=30)
        assert err.rstrip().endswith("ValueError: mine")
        assert process.returncode == 1
        nothing_left(process, pids)


@pytest.mark.parametrize("busy", ["", "time.sleep(1000) if self.tag[0] and self.i == 2 else None"])
def test_the_caller_is_killed(tmp_path: Path, busy: str) -> None:
    with script(tmp_path, "run.tick()\ntime.sleep(1000)", sleep=busy) as process:
        pids = pids_of(process)
        time.sleep(0.2)
        process.kill()
        process.wait()
        nothing_left(process, pids)


def test_the_caller_is_killed_and_leaves_a_forked_child(tmp_path: Path) -> None:
    """Which has all that the caller had open."""
    with script(tmp_path, "warnings.simplefilter('ignore')\nos.fork()\ntime.sleep(1000)", first="import warnings") as process:
        try:
            pids = pids_of(process)
            assert wait_until(lambda: children(process.pid), 5.0)
            time.sleep(0.2)
            process.kill()
            process.wait()
            nothing_left(process, pids)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


REFUSED = """
def refused(*_): raise OSError(38, "Function not implemented")
os.pidfd_open = refused
"""


def test_the_caller_is_killed_where_the_kernel_cannot_watch_processes(tmp_path: Path) -> None:
    with script(tmp_path, "run.tick()\ntime.sleep(1000)", context="'fork'", first=REFUSED) as process:
        pids = pids_of(process)
        time.sleep(0.2)
        process.kill()
        process.wait()
        nothing_left(process, pids)


def test_all_are_killed_before_workers_have_begun(tmp_path: Path) -> None:
    """The resource tracker too, which would remove what is left."""
    begin = f"""pass
    def __setstate__(self, state):
        import multiprocessing
        if multiprocessing.parent_process() is not None:
            open(f"{tmp_path}/{{os.getpid()}}.begun", "w").close()
        time.sleep(100)
    """
    with script(tmp_path, "", sleep=begin) as process:
        assert wait_until(lambda: len(list(tmp_path.glob("*.begun"))) == 2, 20.0)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        nothing_left(process, [int(path.stem) for path in tmp_path.glob("*.begun")])


def test_children_of_workers_end_when_the_caller_is_killed(tmp_path: Path) -> None:
    begin = """
        if self.tag[0] == 0 and self.i:
            import multiprocessing
            multiprocessing.get_context("spawn").Process(target=time.sleep, args=(1000,)).start()
    """
    with script(tmp_path, "run.tick()\ntime.sleep(1000)", sleep=begin.strip()) as process:
        pids = pids_of(process)
        assert wait_until(lambda: all(children(pid) for pid in pids[1:]), 5.0)
        time.sleep(0.5)
        pids += [child for pid in pids[1:] for child in children(pid)]
        process.kill()
        process.wait()
        nothing_left(process, pids)


def test_a_worker_whose_caller_has_ended_already_ends_at_once() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    process = multiprocessing.get_context("spawn").Process(target=processes._watch, args=(ended.pid,))
    process.start()
    process.join()
    assert process.exitcode == 1


def test_the_caller_is_killed_while_workers_start(tmp_path: Path) -> None:
    with script(tmp_path, "time.sleep(1000)", context="'spawn'") as process:
        time.sleep(0.5)
        process.kill()
        process.wait()
        end = time.monotonic() + 5.0  # a worker may just be starting

        def left() -> list[str]:
            return [name for name in os.listdir("/dev/shm") if f"rrl-{process.pid:x}-" in name]

        assert wait_until(lambda: not left(), end - time.monotonic())


INTERRUPTED = """
try:
    while True:
        run.tick()
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    run.tick()
except RunClosedError as error:
    print("closed" if "interrupted" in str(error) else error, flush=True)
began = time.monotonic()
run.close()
run.close()
print("quick" if time.monotonic() - began < 3 else "slow")
import multiprocessing
print(multiprocessing.active_children())
"""


@pytest.mark.parametrize("sleep", ["time.sleep(0.05)", "time.sleep(1.0) if self.tag[0] and self.i else None"])
def test_control_c(tmp_path: Path, sleep: str) -> None:
    with script(tmp_path, INTERRUPTED, sleep=sleep) as process:
        pids = pids_of(process)
        time.sleep(0.4)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (out.split("\n")[:4], err, process.returncode) == (["interrupted", "closed", "quick", "[]"], "", 0)
        nothing_left(process, pids)
