"""Vector environments in places that others own: threads, forks, pools, loaders, event loops, signal handlers.

Each case is a function that raises unless everything was as it should be. ``CASES`` has them by name, for the short tests and for
``benchmarks/faults.py``, which runs each many times in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from compare import fingerprint, played, rollout
from ctrl_c import left_by
from envs import Facts
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv
from reactor_rl import ProgramError, RunError, WorkerDiedError

CASES: dict[str, Callable[[], None]] = {}
EXECUTORS = ("inline", "threads", "processes")
NUM_ENVS = 4
STEPS = 30
Facts3 = [partial(Facts, index, length=1_000_000) for index in range(3)]


def case(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Have a function be a case."""

    def found(function: Callable[[], None]) -> Callable[[], None]:
        CASES[name] = function
        return function

    return found


def env_fns(count: int = NUM_ENVS) -> list[Callable[[], Any]]:
    return [partial(gymnasium.make, "CartPole-v1", max_episode_steps=9 + index % 7) for index in range(count)]


@functools.cache
def expected(seed: int, count: int = NUM_ENVS, steps: int = STEPS) -> str:
    """What Gymnasium's own vector environment gives, as a hash."""
    return fingerprint(played(SyncVectorEnv(env_fns(count)), rollout(seed, steps)))


def found(executor: str, seed: int, count: int = NUM_ENVS, steps: int = STEPS, workers: int = 3) -> str:
    """What ours gives."""
    how: dict[str, Any] = {} if executor == "inline" else {"workers": workers}
    return fingerprint(played(ReactorVectorEnv(env_fns(count), executor=executor, **how), rollout(seed, steps)))


def check(executor: str, seed: int) -> None:
    assert found(executor, seed) == expected(seed), f"{executor}, seed {seed}: other results than SyncVectorEnv's"


# ---------------------------------------------------------------------- threads


@case("threads with an environment each")
def threads_of_their_own() -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(check, EXECUTORS * 2, range(6)))


def stepped(envs: Any) -> float | None:
    """How many steps environment 1 has made after another one, if that was not refused because of another thread."""
    try:
        return float(envs.step(np.zeros(3, np.int64))[0][1, 4])
    except RunError as error:
        return None if "another thread is in the middle" in str(error) else -1.0


@case("one environment in several threads")
def one_in_several_threads() -> None:
    """In turns it is right. At the same time a call is right or refused, and no step is lost or counted twice."""
    zeros = np.zeros(3, np.int64)
    for executor in EXECUTORS[1:]:
        envs = ReactorVectorEnv(Facts3, executor=executor, workers=2)
        with contextlib.closing(envs), ThreadPoolExecutor(3) as pool:
            pool.submit(envs.reset, seed=0).result()
            lock = threading.Lock()

            def in_turn(_: int, envs: Any = envs, lock: Any = lock) -> float:
                with lock:
                    return float(envs.step(zeros)[0][0, 4])

            assert sorted(pool.map(in_turn, range(20))) == list(range(1, 21))

            steps = [step for step in pool.map(stepped, [envs] * 200) if step is not None]
            assert sorted(steps) == list(range(21, 21 + len(steps))) and steps, f"{executor}: {sorted(steps)}"
            assert envs.step(zeros)[0][2, 4] == 21 + len(steps)

            def until_closed(envs: Any = envs) -> None:
                while True:
                    envs.step(zeros)

            stepping = pool.submit(until_closed)
            time.sleep(0.05)
            envs.close()
            error = stepping.exception(timeout=20)
            assert isinstance(error, (RunError, ClosedEnvironmentError)) and not isinstance(error, WorkerDiedError), repr(error)


@case("asyncio")
def event_loop() -> None:
    """In the loop's own thread, in threads of its own, and with a step that others wait for."""

    async def steps(seed: int) -> str:
        envs = ReactorVectorEnv(env_fns(), executor="processes", workers=2)
        try:
            return fingerprint(await asyncio.to_thread(rollout(seed, STEPS), envs))
        finally:
            await asyncio.to_thread(envs.close)

    async def main() -> None:
        check("processes", 0)
        several = await asyncio.gather(*map(steps, range(3)), asyncio.to_thread(check, "threads", 3))
        assert several[:3] == [expected(seed) for seed in range(3)]

    asyncio.run(main())


# ---------------------------------------------------------------------- other processes


def in_a_child(work: Callable[[], None]) -> str:
    """What goes wrong in a forked child that does something, empty if nothing."""
    read, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(said, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(said)
    with os.fdopen(read, "rb") as answers:
        text = answers.read().decode()
    os.waitpid(child, 0)
    return text


@case("after a fork")
def after_fork() -> None:
    """The child is refused and may make its own; the parent goes on."""
    for executor in EXECUTORS[1:]:
        envs = ReactorVectorEnv(Facts3, executor=executor, workers=2)
        with contextlib.closing(envs):
            envs.reset(seed=0)
            zeros = np.zeros(3, np.int64)
            assert envs.step(zeros)[0][0, 4] == 1
            for call in (partial(envs.step, zeros), envs.reset, partial(envs.call, "total")):
                said = in_a_child(call)
                assert "forked child" in said, said

            def its_own(envs: Any = envs) -> None:
                envs.close()
                check("threads", 1)
                check("processes", 2)

            assert in_a_child(its_own) == ""
            assert envs.step(zeros)[0][0, 4] == 2


def in_a_daemon(seed: int) -> str:
    """What a worker of a pool does."""
    try:
        ReactorVectorEnv(env_fns(), executor="processes", workers=2).close()
    except ProgramError as error:
        if "daemonic" not in str(error):
            return str(error)
    else:
        return "processes were started"
    envs = ReactorVectorEnv(env_fns())
    assert envs.executor == "inline", envs
    if fingerprint(played(envs, rollout(seed, STEPS))) != expected(seed):
        return "auto: other results"
    return "" if found("threads", seed) == expected(seed) else "threads: other results"


@case("workers of multiprocessing.Pool")
def pools() -> None:
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(in_a_daemon, range(3)) == [""] * 3
            pool.close()
            pool.join()


@case("workers of ProcessPoolExecutor")
def process_pool() -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        seeds = list(range(2))
        assert list(pool.map(found, ["processes"] * 2, seeds)) == [expected(seed) for seed in seeds]


@case("workers of torch's DataLoader")
def data_loader() -> None:
    import torch.utils.data

    class Rollouts(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            seed = 0 if info is None else info.id
            if wrong := in_a_daemon(seed):
                raise AssertionError(wrong)
            with contextlib.closing(ReactorVectorEnv(env_fns())) as envs:
                for part in rollout(seed, STEPS)(envs):
                    yield part[0]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create 2 worker processes")  # on a single core
        loader = torch.utils.data.DataLoader(Rollouts(), batch_size=None, num_workers=2)
        seen: list[Any] = [np.asarray(one) for one in loader]
    theirs = [[part[0] for part in played(SyncVectorEnv(env_fns()), rollout(seed, STEPS))] for seed in (0, 1)]
    inorder = [one for both in zip(*theirs, strict=True) for one in both]  # workers take turns
    assert len(seen) == len(inorder) and all(np.array_equal(a, b) for a, b in zip(seen, inorder, strict=True))


# ---------------------------------------------------------------------- signals


class LateError(Exception):
    """What a handler raises that limits the time of something."""


@contextlib.contextmanager
def signalled(handler: Callable[..., None], seconds: float, times: int = 1_000_000) -> Iterator[None]:
    """This thread, which must be the main one, gets a signal every so many seconds."""
    before = signal.signal(signal.SIGUSR2, handler)
    over, main = threading.Event(), threading.get_ident()

    def send() -> None:
        for _ in range(times):
            if over.wait(seconds):
                break
            signal.pthread_kill(main, signal.SIGUSR2)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR2, before)


@case("signals every millisecond")
def signals() -> None:
    """Handlers that return disturb nothing, nor does a fault handler that writes the stack each time."""
    rung: list[int] = []

    def ring(*_: Any) -> None:
        rung.append(1)
        signal.raise_signal(signal.SIGUSR1)

    with tempfile.TemporaryFile() as file:
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        try:  # until nobody rings any more, for else the signal ends the process
            with signalled(ring, 1e-3):
                for executor in EXECUTORS:
                    check(executor, 0)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
        assert rung and file.seek(0, os.SEEK_END) > 0


@case("an exception from a signal handler")
def raised_by_a_handler() -> None:
    """Ends what was going on; what is left says so, and closes."""

    def late(*_: Any) -> None:
        raise LateError

    zeros = np.zeros(3, np.int64)
    for executor in EXECUTORS:
        envs = ReactorVectorEnv(Facts3, executor=executor, **({} if executor == "inline" else {"workers": 2}))
        with contextlib.closing(envs), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # within an environment's step it is an error of that environment, and logged as one
            envs.reset(seed=0)
            steps, end = int(envs.step(zeros)[0][0, 4]), time.monotonic() + 20.0
            with contextlib.suppress(LateError), signalled(late, 0.02, times=1):
                while time.monotonic() < end:
                    steps = int(envs.step(zeros)[0][0, 4])
            assert time.monotonic() < end
            with contextlib.suppress(RunError):  # it struck within a step; or else between two, and nothing is lost
                assert steps < int(envs.step(zeros)[0][0, 4]) <= steps + 2


# ---------------------------------------------------------------------- the interpreter's end

_MAKE = """
import os, sys, threading, gymnasium as gym, numpy as np
from reactor_gymnasium import ReactorVectorEnv
envs = ReactorVectorEnv([lambda: gym.make("CartPole-v1")] * 4, executor={executor!r}, workers=3)
envs.reset(seed=0)
actions = np.zeros(4, np.int64)
envs.step(actions)
"""
ENDS = {
    "not closed": "",
    "in the middle of a step": "envs.step_async(actions)",
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "stepped by a daemonic thread": """
def forever():
    while True:
        envs.step(actions)
threading.Thread(target=forever, daemon=True).start()
import time; time.sleep(0.05)
""",
    "in a cycle": "envs.me = [envs]; del envs",
}
"""What a program does last, by name."""


_CLOSED = "reactor_rl.errors.RunClosedError: the run was closed"


def ends(executor: str, how: str) -> str:
    """What is wrong with how a program ends that does not close its environment, empty if nothing."""
    code = _MAKE.format(executor=executor) + ENDS[how]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "it does not end"
    left = left_by(process.pid)
    if how == "stepped by a daemonic thread" and said.startswith("Exception in thread"):  # which may be cut short
        raised = [line for line in said.splitlines()[1:] if line and not line.startswith((" ", "Traceback"))]
        said = "" if all(_CLOSED.startswith(line[: len(_CLOSED)]) for line in raised) else said
    return "" if (said, process.returncode, left) == ("", 0, []) else f"{how}: {process.returncode}, {left}, {said}"


@case("the interpreter's end without close()")
def interpreter_ends() -> None:
    with ThreadPoolExecutor(2) as pool:
        ways = [(executor, how) for executor in EXECUTORS[1:] for how in ENDS]
        assert [said for said in pool.map(lambda way: ends(*way), ways) if said] == []
