"""An interrupt at whatever line leaves what closes at once, with nothing left behind."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import product
from types import FrameType
from typing import Any

import numpy as np
import pytest
from ctrl_c import CLASSES, interrupt
from places import INLINE, PLACES, PROCESSES

from reactor_rl import RunError
from reactor_rl.runtime import boundary, guards, helpers, launch, lifetime, processes, run, threads

gym = pytest.importorskip("gymnasium")
ReactorVectorEnv = pytest.importorskip("reactor_gymnasium").ReactorVectorEnv
VECTOR = [importlib.import_module(f"reactor_gymnasium.vector.{name}") for name in ("sharded", "live", "env_program")]

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")]


# ---------------------------------------------------------------------- every line


CALLERS = {module.__file__ for module in (run, guards, lifetime, boundary, helpers, processes, launch, threads, *VECTOR)}
"""Files of what the caller does beside its share of the environments: there a line makes a difference."""


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line of those files that is executed."""

    def __init__(self, line: int) -> None:
        self.left, self.where = line, ""
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in CALLERS or in_finaliser(frame):
            return None
        if event == "line":
            self.files.append(frame.f_code.co_filename)
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def in_finaliser(frame: FrameType | None) -> bool:
    """Whether a frame is that of a ``__del__``, or below one: what is raised there goes nowhere."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@contextmanager
def interrupted(line: int) -> Iterator[Interrupter]:
    interrupter = Interrupter(line)
    gc.collect()
    gc.disable()
    sys.settrace(interrupter)
    try:
        yield interrupter
    finally:
        sys.settrace(None)
        gc.enable()


def let_go() -> None:
    """Drop the traceback of an exception that the interpreter takes to be handled still, after a tracer has raised in a ``with``.

    A signal is never looked for at that place.
    """
    error = sys.exc_info()[1]
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


class Stuck(BaseException):
    """Not an Exception, so that nobody handles it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Stuck

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def step(envs: Any) -> None:
    envs.step(np.zeros(envs.batch_size, np.int64))


def wait(envs: Any) -> None:
    envs.step_async(np.zeros(envs.batch_size, np.int64))
    envs.step_wait()


def wait_briefly(envs: Any) -> None:
    envs.step_async(np.zeros(envs.batch_size, np.int64))
    with suppress(multiprocessing.TimeoutError):
        envs.step_wait(1e-9)
        return
    envs.step_wait()


PHASES: dict[str, Callable[[Any], None]] = {
    "step": step,
    "async": wait,
    "timeout": wait_briefly,
    "reset": lambda envs: envs.reset(seed=1),
    "call": lambda envs: envs.call("render_mode"),
    "close": lambda envs: envs.close(),
}
HOW: dict[str, dict[str, Any]] = {
    "processes": {"executor": "processes", "workers": 3},
    "threads": {"executor": "threads", "workers": 3},
    "batches": {"executor": "processes", "workers": 3, "batch_size": 3, "caller_works": True},
}
POINTS = 6
"""How many lines of each phase are interrupted, spread over all of them; of a step in processes every third one."""


def make(how: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 6, **how)
    envs.reset(seed=0)
    step(envs)
    return envs


def lines_of(how: dict[str, Any], phase: Callable[[Any], None]) -> list[str]:
    """The file of each line that a phase executes."""
    envs = make(how)
    with interrupted(10**9) as counted:
        phase(envs)
    envs.close()
    return counted.files


def struck(how: str, phase: str, line: int) -> str:
    """Where a phase was interrupted, empty if it had not so many lines; what is left closes in any case, and is of no other use."""
    envs = make(HOW[how])
    with suppress(KeyboardInterrupt), interrupted(line) as interrupter:
        PHASES[phase](envs)
    let_go()
    try:
        with at_most(30.0):
            envs.close()
    except Stuck:
        envs.close(terminate=True)
        pytest.fail(f"close() does not return after an interrupt at {interrupter.where}")
    envs.close()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        step(envs)
    return interrupter.where.rpartition(":")[0]


@pytest.mark.filterwarnings("ignore:.*Calling .close. while waiting:UserWarning")
def test_lines_of_every_file_are_interrupted() -> None:
    struck_in: set[str] = set()
    for how, phase in product(HOW, PHASES):
        files = lines_of(HOW[how], PHASES[phase])
        for file in sorted({*files} - struck_in):
            of_file = [line for line, one in enumerate(files, 1) if one == file]
            for part in (2, 4, 3, len(of_file)):  # a run that waits for more or less has other lines there
                struck_in.add(struck(how, phase, of_file[len(of_file) // part]))
                if file in struck_in:
                    break
    assert struck_in - {""} == CALLERS


@pytest.mark.filterwarnings("ignore:.*Calling .close. while waiting:UserWarning")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", HOW)
def test_an_interrupt_at_every_line(how: str, phase: str) -> None:
    lines = min(len(lines_of(HOW[how], PHASES[phase])) for _ in range(2))  # who has to wait for less executes fewer
    assert lines > 10
    points = lines // 3 if (how, phase) == ("processes", "step") else POINTS
    struck_at = [
        any(struck(how, phase, line) for _ in range(3))
        for line in sorted({1 + (lines - 1) * point // (points - 1) for point in range(points)})
    ]
    assert sum(struck_at) > POINTS // 2


@pytest.mark.parametrize("how", ["processes", "threads"])
def test_an_interrupt_at_every_line_of_the_constructor(how: str) -> None:
    with interrupted(10**9) as counted:
        envs = ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 6, **HOW[how])
    envs.close()
    lines = 10**9 - counted.left
    hit = 0
    for line in range(1, lines, max(1, lines // POINTS)):
        with suppress(KeyboardInterrupt), interrupted(line):
            ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 6, **HOW[how]).close()
            hit -= 1
        hit += 1
        let_go()
        gc.collect()
    assert hit > POINTS - 2


def _rollout(envs: Any) -> list[Any]:
    first, _ = envs.reset(seed=3)
    return [first, *(part for _ in range(12) for part in envs.step(np.arange(6) % 2)[:4])]


def _refusal(envs: Any) -> str:
    """What a step says; what was begun and not ended is ended."""
    try:
        envs.step(np.zeros(6, np.int64))
    except gym.error.AlreadyPendingCallError as error:
        next(getattr(envs, f"{name}_wait") for name in ("reset", "step", "call") if f"call to `{name}`" in str(error))()
    except RunError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("phase", ["step", "async", "timeout", "reset", "call"])
def test_a_reset_will_do_where_all_is_done_by_the_caller(phase: str) -> None:
    """At whatever line it was interrupted: episodes begin anew, as if nothing had happened."""
    inline = {"executor": "inline"}
    with closing(make(inline)) as envs:
        expected = _rollout(envs)
    lines = len(lines_of(inline, PHASES[phase]))
    struck_at = refused = 0
    for line in range(1, lines + 1, 1 + lines // 60):
        with closing(make(inline)) as envs:
            with suppress(KeyboardInterrupt), interrupted(line) as interrupter:
                PHASES[phase](envs)
            let_go()
            struck_at += bool(interrupter.where)
            said = _refusal(envs)
            if "interrupted" in said:
                refused += 1
                assert "reset() will do" in said, (interrupter.where, said)
            for part, wanted in zip(_rollout(envs), expected, strict=True):
                np.testing.assert_array_equal(part, wanted, interrupter.where)
    assert struck_at > 20 and refused > 5


def _of_every_kind() -> dict[str, tuple[Callable[[], Any], int]]:
    """What makes each, and of how many rows."""
    from mpe2 import simple_spread_v3

    from reactor_gymnasium import AtariVectorEnv
    from reactor_pettingzoo import ParallelVectorEnv
    from reactor_sb3 import ReactorVecEnv

    cartpole: Any = partial(gym.make, "CartPole-v1")
    two: Any = partial(gym.make_vec, "CartPole-v1", 2, vectorization_mode="sync")
    return {
        "of": (lambda: ReactorVectorEnv.of([two, two], executor="inline"), 4),
        "Atari": (lambda: AtariVectorEnv("pong", 2, executor="inline"), 2),
        "PettingZoo": (lambda: ParallelVectorEnv(simple_spread_v3.parallel_env, 2, executor="inline"), 6),
        "SB3": (lambda: ReactorVecEnv([cartpole, cartpole], executor="inline"), 2),
    }


def _begun(envs: Any) -> Any:
    if hasattr(envs, "seed"):  # SB3's
        envs.seed(5)
        return envs.reset()
    return envs.reset(seed=5)[0]


@pytest.mark.parametrize("kind", ["of", "Atari", "PettingZoo", "SB3"])
def test_a_reset_will_do_of_every_kind(kind: str) -> None:
    for module in ("ale_py", "stable_baselines3", "mpe2", "pettingzoo"):
        pytest.importorskip(module)
    new, rows = _of_every_kind()[kind]

    def play(envs: Any) -> Any:
        return envs.step(np.zeros(rows, np.int64))

    with closing(new()) as envs:
        expected = _begun(envs)
        after = play(envs)[:2]
        with interrupted(10**9) as counted:
            play(envs)
    hit = 0
    for line in range(1, 10**9 - counted.left, 9):
        with closing(new()) as envs:
            _begun(envs)
            with suppress(KeyboardInterrupt), interrupted(line) as interrupter:
                play(envs)
                hit -= 1
            hit += 1
            let_go()
            np.testing.assert_array_equal(_begun(envs), expected, interrupter.where)
            for part, wanted in zip(play(envs)[:2], after, strict=True):
                np.testing.assert_array_equal(part, wanted, interrupter.where)
    assert hit > 3


NOSY: list[Any] = []


class Nosy(gym.Wrapper):  # type: ignore[type-arg]
    """Resets the vector environment that steps it."""

    def step(self, action: Any) -> Any:
        for envs in NOSY:
            envs.reset()
        return super().step(action)


def nosy() -> Any:
    return Nosy(gym.make("CartPole-v1"))


HALVES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "reset": ("reset_wait", lambda envs: envs.reset(seed=1)),
    "masked reset": ("reset_wait", lambda envs: envs.reset(options={"reset_mask": np.arange(4) < 2})),
    "call": ("call_wait", lambda envs: envs.call("render")),
    "get_attr": ("call_wait", lambda envs: envs.get_attr("spec")),
    "set_attr": ("_end_calls", lambda envs: envs.set_attr("colour", 3)),
    "render": ("call_wait", lambda envs: envs.render()),
    "step": ("step_wait", lambda envs: envs.step(np.zeros(2, np.int64))),
}
"""Calls of two halves: the second one, and the call."""
EVERYWHERE = [*PLACES, INLINE | {"batch_size": 2}, PROCESSES | {"batch_size": 2}]


@pytest.mark.parametrize("call", HALVES)
@pytest.mark.parametrize("place", EVERYWHERE, ids=str)
def test_a_reset_follows_an_interrupt_between_two_halves(call: str, place: dict[str, Any]) -> None:
    """On any executor: nothing is lost there, for what was begun can be ended."""
    half, interrupted_call = HALVES[call]
    if ("batch_size" in place) != (call == "step") and not (call == "reset" and "batch_size" in place):
        pytest.skip("a step of all environments has no halves, and masks need all in one batch")

    def strike(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_name == half and frame.f_code.co_filename in CALLERS:
            sys.settrace(None)
            raise KeyboardInterrupt

    with closing(ReactorVectorEnv([partial(gym.make, "CartPole-v1")] * 4, **place)) as envs:
        first, _ = envs.reset(seed=5)
        actions = np.zeros(len(first), np.int64)
        then = envs.step(actions)[0]
        envs.reset(seed=3)
        sys.settrace(strike)
        try:
            with pytest.raises(KeyboardInterrupt):
                interrupted_call(envs)
        finally:
            sys.settrace(None)
        with pytest.raises(RunError, match=r"reset\(\) will do"):
            envs.step(actions)
        np.testing.assert_array_equal(envs.reset(seed=5)[0], first)
        np.testing.assert_array_equal(envs.step(actions)[0], then)


def test_a_reset_does_not_do_in_the_middle_of_a_step() -> None:
    with closing(ReactorVectorEnv([nosy] * 2, executor="inline")) as envs:
        envs.reset(seed=0)
        NOSY.append(envs)
        try:
            with pytest.raises(RunError, match="in the middle of one"), pytest.warns(UserWarning, match="raised RunError"):
                envs.step(np.zeros(2, np.int64))
        finally:
            NOSY.clear()


def test_only_closing_is_left_after_an_interrupt() -> None:
    refused = 0
    for line in (12, 20, 30):
        envs = make(HOW["processes"])
        with suppress(KeyboardInterrupt), interrupted(line):
            step(envs)
        let_go()
        with pytest.raises(RunError, match=r"interrupted.*close\(\) it"):
            envs.step(np.zeros(6, np.int64))
        with pytest.raises(RunError, match="interrupted"):
            envs.reset()
        refused += 1
        envs.close()
    assert refused == 3


class SlowToClose(gym.Wrapper):  # type: ignore[type-arg]
    """Takes a minute to close, but for the one that the caller makes to look at its spaces."""

    def __init__(self, caller: int) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.caller = caller

    def close(self) -> None:
        if os.getpid() != self.caller:
            threading.Event().wait(60)


def test_a_second_close_ends_what_an_interrupted_one_began() -> None:
    envs = ReactorVectorEnv([partial(SlowToClose, os.getpid())] * 3, executor="processes", workers=4, caller_works=False)
    processes = list(envs._run._executor._processes)
    pids = [process.pid for process in processes]
    assert len(pids) == 3
    with pytest.raises(Stuck), at_most(0.3):
        envs.close()
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < 5.0
    assert envs.closed
    assert not [child for child in multiprocessing.active_children() if launch.pid in pids]


# ---------------------------------------------------------------------- real signals


@pytest.mark.parametrize("kind", CLASSES)
def test_a_real_interrupt(kind: str) -> None:
    hosts = {"ReactorVectorEnv": "gymnasium", "MultiAgentRunner": "pettingzoo"}
    pytest.importorskip(hosts.get(kind.partition(",")[0], "stable_baselines3"))
    found = interrupt(kind, (0.05, 0.21))
    assert (found.left, found.errors, found.ended) == ([], "", True)
    assert len(found.seconds) == 2
