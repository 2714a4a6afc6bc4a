"""Environments that raise, workers that are killed, callers that are interrupted: named errors, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from envs import Facts, Sleeps
from every_other import every_other
from places import INLINE, PROCESSES, THREADS, WAITING
from scripts import alive, end_within, run, shared_memory

from reactor_gymnasium import ReactorVectorEnv
from reactor_rl import RunError, WorkerDiedError

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")]

PLACES = [INLINE, THREADS, THREADS | {"workers": 4}, PROCESSES, PROCESSES | {"workers": 3} | WAITING]
ZEROS = np.zeros(4, np.int64)


class Special(Exception):
    """An exception that cannot be rebuilt from its arguments."""

    def __init__(self, one: int, *, other: int) -> None:
        super().__init__(f"special {one} {other}")


class Faulty(Facts):
    """Raises what it is told to, where it is told to."""

    def __init__(self, index: int, faults: dict[int, tuple[str, Any]]) -> None:
        super().__init__(index, length=3)
        self.where, self.error = faults.get(index, ("nowhere", None))
        self.pid = os.getpid()

    def fail(self, where: str) -> None:
        if self.where == where:
            if callable(self.error):
                self.error()
            else:
                raise self.error

    def step(self, action: Any) -> Any:
        if self.total == 1:
            self.fail("step")
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        if self.resets == 1:
            self.fail("reset")
        return super().reset(**kwargs)

    def draw_number(self) -> float:
        self.fail("call")
        return 0.0

    def close(self) -> None:
        self.fail("close")


def faulty(faults: dict[int, tuple[str, Any]], n: int = 4) -> list[Any]:
    return [partial(Faulty, i, faults) for i in range(n)]


def steps(envs: Any, number: int) -> None:
    for _ in range(number):
        envs.step(ZEROS)


def raise_special() -> None:
    raise Special(1, other=2)


@every_other(where=["step", "reset", "autoreset", "call"], index=range(4), place=PLACES)
def test_an_exception_names_the_environment(where: str, index: int, place: dict[str, Any]) -> None:
    fault = "reset" if where == "autoreset" else where
    envs = ReactorVectorEnv(faulty({index: (fault, LookupError("lost"))}), **place)
    envs.reset(seed=0)
    calls = {"call": lambda: envs.call("draw_number"), "reset": envs.reset}
    with pytest.raises(LookupError, match="lost") as raised:
        calls.get(where, lambda: steps(envs, 8))()
    assert f"raised in environment {index} of" in raised.value.__notes__[-1]
    assert "in fail" in str(raised.value.__cause__)
    assert "raise self.error" in str(raised.value.__cause__)
    if where == "call":  # nothing has happened to the environments
        assert envs.get_attr("index") == (0, 1, 2, 3)
        steps(envs, 8)
    else:
        with pytest.raises(RunError, match=f"environment {index} raised LookupError"):
            envs.step(ZEROS)
    envs.close()
    assert envs.closed


class Referring(Facts):
    """An info of the third has something that can be copied, and not be pickled."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "env": weakref.ref(self) if self.index == 2 else None}


@pytest.mark.parametrize("place", [PLACES[1], PLACES[3]], ids=str)
def test_an_info_that_cannot_be_pickled_names_the_environment(place: dict[str, Any]) -> None:
    with ReactorVectorEnv([partial(Referring, i) for i in range(4)], **place) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match="weakref") as raised:
            envs.step(ZEROS)
        assert "raised by an info of environment 2, which must be something that can be pickled" in raised.value.__notes__


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_missing_attribute_ends_nothing(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv(faulty({}), **place)
    envs.reset(seed=0)
    with pytest.raises(AttributeError, match="no_such_thing"):
        envs.get_attr("no_such_thing")
    steps(envs, 2)
    envs.close()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_of_several_exceptions_the_last_ones_is_raised_and_all_are_reported(place: dict[str, Any]) -> None:
    faults = {0: ("step", KeyError("zero")), 1: ("step", OSError("one")), 2: ("step", ValueError("two"))}
    envs = ReactorVectorEnv(faulty(faults), **place)
    envs.reset()
    envs.step(ZEROS)
    with pytest.warns(UserWarning, match="raised") as warned, pytest.raises(ValueError, match="two"):
        envs.step(ZEROS)
    first, second, last = (str(warning.message) for warning in warned)
    assert "environment 0 raised KeyError: 'zero', but that of environment 2 is raised:\nTraceback" in first and "in fail" in first
    assert "environment 1 raised OSError: one, but" in second
    assert "environment 2 raised ValueError: two" in last and "Traceback" not in last  # which the exception itself has
    envs.close()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_one_bug_of_many_environments_is_one_line(place: dict[str, Any]) -> None:
    faults = {index: ("step", LookupError("the same")) for index in (0, 1, 3)}
    envs = ReactorVectorEnv(faulty(faults), **place)
    envs.reset()
    envs.step(ZEROS)
    with pytest.warns(UserWarning, match="raised LookupError") as warned, pytest.raises(LookupError, match="the same"):
        envs.step(ZEROS)
    (warning,) = warned
    assert "environments 0, 1, 3 raised LookupError: the same" in str(warning.message)
    envs.close()


class BadReward(Facts):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.index == 3:
            raise OSError("step of 3")
        return observation, "much" if self.index in (0, 1) else reward, *rest


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_which_exception_is_raised_does_not_depend_on_the_placement(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(BadReward, i) for i in range(4)], **place)
    envs.reset()
    with pytest.raises(OSError, match="step of 3") as raised:
        envs.step(ZEROS)
    assert "raised in environment 3 of" in raised.value.__notes__[-1]
    envs.close()


class NoObservation(Facts):
    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return None if self.index == 1 else observation, info


@pytest.mark.parametrize("place", PLACES[:4], ids=str)
def test_a_reset_without_an_observation_names_the_environment(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(NoObservation, i) for i in range(4)], **place)
    with pytest.raises(TypeError, match="None as the observation") as raised:
        envs.reset()
    assert "environment 1" in raised.value.__notes__[-1]
    envs.close()


def test_a_member_without_observations_at_its_reset_is_named() -> None:
    class Silent(gymnasium.vector.SyncVectorEnv):
        def reset(self, **kwargs: Any) -> Any:
            return None, super().reset(**kwargs)[1]

    envs = ReactorVectorEnv.of([lambda: Silent([partial(Facts, 0)] * 2)] * 2, executor="inline")
    with pytest.raises(TypeError, match="None as the observation"):
        envs.reset()
    envs.close()


@pytest.mark.parametrize("place", [PLACES[0], PLACES[3]], ids=str)
def test_an_exception_that_cannot_travel_is_replaced_by_one_that_says_the_same(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv(faulty({3: ("step", raise_special)}), **place)
    envs.reset()
    with pytest.raises(RuntimeError, match="Special: special 1 2"):
        steps(envs, 2)
    envs.close()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_exception_in_close_reaches_the_caller_once(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv(faulty({2: ("close", OSError("still busy"))}), **place)
    envs.reset()
    with pytest.raises(OSError, match="still busy"):
        envs.close()
    envs.close()


def test_sys_exit_in_a_helper_is_named() -> None:
    envs = ReactorVectorEnv(faulty({3: ("step", SystemExit(7))}), executor="processes", workers=2)
    envs.reset()
    envs.step(ZEROS)
    with pytest.raises(RuntimeError, match="SystemExit was raised: 7"):
        envs.step(ZEROS)
    with pytest.raises(RunError):
        envs.step(ZEROS)
    envs.close()


def test_sys_exit_in_the_callers_own_share_is_the_callers() -> None:
    envs = ReactorVectorEnv(faulty({0: ("step", SystemExit(7))}), executor="processes", workers=2)
    envs.reset()
    envs.step(ZEROS)
    with pytest.raises(SystemExit):
        envs.step(ZEROS)
    envs.close()


# ---------------------------------------------------------------------- killed workers


@pytest.mark.parametrize("when", ["during", "between"])
def test_a_killed_worker_is_named_within_a_second(when: str) -> None:
    envs = ReactorVectorEnv([partial(Sleeps, i) for i in range(4)], executor="processes", workers=2)
    envs.reset()
    envs.step(ZEROS)
    victim = envs.call("pid")[3]
    assert victim != os.getpid()
    killed: list[float] = []

    def kill() -> None:
        os.kill(victim, signal.SIGKILL)
        killed.append(time.monotonic())

    if when == "during":
        timer = threading.Timer(0.2, kill)
        timer.start()
    else:
        kill()
        end_within([victim], 1)
    with pytest.raises(WorkerDiedError, match=r"worker 1 was killed by SIGKILL; it held environments\[2:4\]"):
        envs.step(ZEROS)
    assert time.monotonic() - killed[0] < 1
    if when == "during":
        timer.join()
    with pytest.raises(RunError):
        envs.reset()
    envs.close()


@pytest.mark.parametrize("ends", [{"terminate": True}, {"timeout": 0.2}], ids=str)
def test_a_helper_that_is_stuck_does_not_keep_close(ends: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(Sleeps, i) for i in range(4)], executor="processes", workers=2)
    envs.reset()
    envs.step(ZEROS)
    envs.step_async(ZEROS)
    time.sleep(0.1)
    begin = time.monotonic()
    with pytest.warns(UserWarning, match="Calling `close` while waiting for a pending call"):
        envs.close(**ends)
    assert time.monotonic() - begin < 2
    assert envs.closed


def test_a_stuck_thread_is_left_behind() -> None:
    done = run(
        """
        import time, numpy as np
        from functools import partial
        from envs import Sleeps
        from reactor_gymnasium import ReactorVectorEnv
        envs = ReactorVectorEnv([partial(Sleeps, i) for i in range(4)], executor="threads", workers=2)
        envs.reset()
        envs.step(np.zeros(4, int))
        envs.step_async(np.zeros(4, int))
        begin = time.monotonic()
        envs.close(terminate=True)
        assert time.monotonic() - begin < 2
        print("closed")
    """,
        timeout=20,
    )
    assert done.stdout.split() == ["closed"], done.stderr
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- the caller

CALLER = """
import os, sys, time
import numpy as np
from functools import partial
from envs import Sleeps
from reactor_gymnasium import ReactorVectorEnv
envs = ReactorVectorEnv([partial(Sleeps, i) for i in range(4)], executor="processes", workers=3)
envs.reset()
envs.step(np.zeros(4, int))
print(*set(envs.call("pid")), flush=True)
"""


def start(code: str, folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    path = folder / "caller.py"
    path.write_text(CALLER + code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 3
    assert process.pid in pids
    return process, [pid for pid in pids if pid != process.pid]


@pytest.mark.parametrize("code", ["time.sleep(60)", "envs.step(np.zeros(4, int))"])
def test_workers_end_with_a_caller_that_is_killed(code: str, tmp_path: Path) -> None:
    before = shared_memory()
    process, workers = start(code, tmp_path)
    time.sleep(0.1)
    assert all(alive(pid) for pid in workers)
    process.kill()
    process.communicate()
    assert end_within(workers, 1.0) == []
    assert shared_memory() - before == set()


def test_ctrl_c_is_a_keyboard_interrupt_and_leaves_nothing(tmp_path: Path) -> None:
    before = shared_memory()
    code = """
try:
    envs.step(np.zeros(4, int))
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    envs.step(np.zeros(4, int))
except Exception as error:
    print(type(error).__name__, "interrupted" in str(error), flush=True)
envs.close()
print("closed", flush=True)
"""
    process, workers = start(code, tmp_path)
    time.sleep(0.3)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # a terminal interrupts them all
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 15
    assert out.split("\n")[:3] == ["interrupted", "RunError True", "closed"], (out, err)
    assert process.returncode == 0
    assert err == ""
    assert end_within(workers, 1.0) == []
    assert shared_memory() - before == set()


def test_a_script_that_ends_by_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    before = shared_memory()
    process, workers = start("envs.step(np.zeros(4, int))", tmp_path)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode != 0
    assert err.strip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1, err  # the workers say nothing
    assert end_within(workers, 1.0) == []
    assert shared_memory() - before == set()
