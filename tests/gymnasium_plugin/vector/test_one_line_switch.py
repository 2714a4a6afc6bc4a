"""Scripts without a guard, notebooks and the REPL: changing the class is all that a user does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from every_other import in_turn
from scripts import end_within, run, shared_memory

pytestmark = pytest.mark.timeout(100)

SCRIPT = """
import os
import gymnasium as gym
import numpy as np
from reactor_gymnasium import ReactorVectorEnv
class Reading:
    def __init__(self, number):
        self.number = number

class Counter(gym.Env):
    observation_space = gym.spaces.Box(-99, 99, (2,))
    action_space = gym.spaces.Discrete(2)
    def __init__(self, offset=0):
        self.offset = offset
        self.count = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.array([self.offset, 0], np.float32), {}
    def step(self, action):
        self.count += 1
        return np.array([self.offset, self.count], np.float32), 1.0, self.count > 5, False, {"reading": Reading(self.count)}
    def pid(self):
        return os.getpid()

class Doubled(gym.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

gym.register("Counter-v0", entry_point=Counter, max_episode_steps=4)
def make(i):
    return lambda: Doubled(gym.make("Counter-v0", offset=i))

envs = ReactorVectorEnv([make(i) for i in range(4)], executor="processes", workers=2, context=CONTEXT)
observations, infos = envs.reset(seed=0)
rewards = np.zeros(4)
for _ in range(4):
    observations, reward, terminations, truncations, infos = envs.step(np.zeros(4, int))
    rewards += reward

assert observations.tolist() == [[i, 4] for i in range(4)], observations
assert rewards.tolist() == [8.0] * 4 and truncations.all() and not terminations.any()
assert all(isinstance(reading, Reading) and reading.number == 4 for reading in infos["reading"]), infos
print("pids", *sorted(set(envs.call("pid"))))
CLOSE
print("fine")
"""


def script(context: str | None, close: bool) -> str:
    return SCRIPT.replace("CONTEXT", repr(context)).replace("CLOSE", "envs.close()" if close else "")


def check(done: Any) -> None:
    lines = done.stdout.splitlines()
    assert lines[-1:] == ["fine"] or "fine" in done.stdout, (done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pids") == 1  # it ran once: no worker has run the script again
    (line,) = (line for line in lines if "pids" in line)
    pids = [int(pid) for pid in line.split("pids")[1].split()]
    assert len(pids) == 2
    assert end_within(pids, 1.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("close", [True, False], ids=["closed", "not closed"])
@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_unguarded_scripts(context: str, close: bool) -> None:
    before = shared_memory()
    done = run(script(context, close))
    check(done)
    assert done.stderr == ""
    assert shared_memory() - before == set()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["-c", "stdin"])
@pytest.mark.parametrize("context", [None, "spawn"])
def test_code_without_a_file(how: str, context: str | None) -> None:
    done = run(script(context, close=False), how=how)
    check(done)
    assert done.stderr == ""


@pytest.mark.slow
@in_turn("context", [None, "spawn"], kept=1)
def test_the_repl(context: str | None) -> None:
    # The REPL ends a block at an empty line, so a class must not hold one and a statement after it needs one.
    done = run(script(context, close=False).replace("\nclass Reading", "\n\nclass Reading"), how="repl")
    check(done)
    assert "Error" not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("IPython") is None, reason="IPython is not installed")
def test_ipython() -> None:
    done = run(script(None, close=False) + "\nexit()\n", how="ipython")
    check(done)


BUSY = """
import multiprocessing, threading, time
import gymnasium as gym
import numpy as np
from reactor_gymnasium import ReactorVectorEnv

def child(queue):
    queue.put("from the child")

class Busy(gym.Env):
    observation_space = gym.spaces.Box(-99, 99, (1,))
    action_space = gym.spaces.Discrete(2)
    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "a")
        self.numbers = (i for i in range(100))
        self.beats = 0
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()
        print("made")
    def beat(self):
        while self.beats < 10**6:
            with self.lock:
                self.beats += 1
            time.sleep(0.001)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        print("step", flush=True)
        self.file.write("step ")
        return np.array([next(self.numbers)], np.float32), 0.0, False, False, {}
    def ask(self):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        found = queue.get(timeout=60)
        process.join()
        return found
    def close(self):
        self.file.close()

envs = ReactorVectorEnv([lambda: Busy(PATH)] * 3, executor="processes", workers=WORKERS, context=CONTEXT)
envs.reset()
for step in range(3):
    observations = envs.step(np.zeros(3, int))[0]
assert observations.tolist() == [[2.0]] * 3
assert envs.call("ask") == ("from the child",) * 3
envs.close()
assert open(PATH).read().count("step") == 9
print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize("context", [None, "spawn", "fork"])
@pytest.mark.parametrize("workers", [1, 2])
def test_environments_that_print_start_threads_and_processes_and_hold_what_cannot_be_pickled(
    context: str | None, workers: int, tmp_path: Path
) -> None:
    code = BUSY.replace("CONTEXT", repr(context)).replace("WORKERS", str(workers)).replace("PATH", repr(str(tmp_path / "file")))
    done = run(code)
    assert done.stdout.splitlines()[-1:] == ["fine"], (done.stdout, done.stderr)
    assert done.stdout.count("step") == 9
    assert done.stderr == ""


@pytest.mark.slow
def test_an_exception_class_of_main_is_the_callers_own() -> None:
    done = run(
        """
        import gymnasium as gym, numpy as np, warnings
        from reactor_gymnasium import ReactorVectorEnv
        warnings.simplefilter("ignore")
        class Broken(Exception):
            pass
        class Env(gym.Env):
            observation_space = gym.spaces.Discrete(2)
            action_space = gym.spaces.Discrete(2)
            def __init__(self, index):
                self.index = index
            def reset(self, *, seed=None, options=None):
                return 0, {}
            def step(self, action):
                if self.index == 3:
                    raise Broken("in a helper")
                return 0, 0.0, False, False, {}
        envs = ReactorVectorEnv([lambda i=i: Env(i) for i in range(4)], executor="processes", workers=2)
        envs.reset()
        try:
            envs.step([0] * 4)
        except Broken as error:
            print("caught", error)
        envs.close()
        """
    )
    assert done.stdout == "caught in a helper\n", done.stderr


@pytest.mark.slow
def test_what_cannot_be_pickled_travels_by_fork_and_is_refused_clearly_otherwise() -> None:
    code = """
        import threading, gymnasium as gym
        from reactor_gymnasium import ReactorVectorEnv
        lock = threading.Lock()
        def make():
            return gym.make("CartPole-v1") if lock else None
        with ReactorVectorEnv([make] * 2, executor="processes", workers=2, context="fork") as envs:
            print(envs.reset(seed=0)[0].shape)
        try:
            ReactorVectorEnv([make] * 2, executor="processes", workers=2)
        except Exception as error:
            print("cannot be pickled" in str(error))
        """
    done = run(code)
    assert done.stdout.splitlines() == ["(2, 4)", "True"], (done.stdout, done.stderr)
