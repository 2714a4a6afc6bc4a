"""An environment that is saved and loaded goes on to the bit, or says that it cannot be saved."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from saved_envs import REPLAY, STATE, Make, Walk
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.environments.saving import load_env, save_env

HERE = Path(__file__)


def trajectory(env: gymnasium.Env[Any, Any], actions: list[Any]) -> list[bytes]:
    """Everything that it gives, infos aside; the last part begins with a reset that nobody asked for."""
    seen: list[bytes] = []
    for number, action in enumerate(actions):
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(pickle.dumps((np.array(observation).tolist(), float(reward), bool(terminated), bool(truncated))))
        if terminated or truncated or number == len(actions) * 2 // 3:
            seen.append(pickle.dumps(np.array(env.reset()[0]).tolist()))
    return seen


def some_actions(env: gymnasium.Env[Any, Any], count: int, seed: int) -> list[Any]:
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [(name, at % 2) for at, name in enumerate(STATE)])
def test_a_loaded_environment_goes_on_as_the_saved_one(name: str, seed: int) -> None:
    make, steps = STATE[name], 60
    env = make()
    env.reset(seed=seed)
    trajectory(env, some_actions(env, 31 + 40 * seed, seed))
    saved = save_env(env)
    actions = some_actions(env, steps, seed + 10)
    wanted = trajectory(env, actions)

    other = make()
    assert load_env(other, saved) is other
    assert trajectory(other, actions) == wanted
    # Once more from the same bytes, into one that has been used.
    assert trajectory(load_env(other, saved), actions) == wanted
    assert len(set(wanted)) > 1
    env.close()
    other.close()


def test_other_wrappers_are_refused() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"state of .*TimeLimit.* of .*CartPoleEnv, it cannot be put into .*Monitor of"):
        load_env(Monitor(gymnasium.make("CartPole-v1")), save_env(env))


@pytest.mark.parametrize("make", [REPLAY["lock"], REPLAY["generator"], REPLAY["Pong, sticky"]])
def test_what_cannot_be_saved_says_so(make: Make) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises((TypeError, pickle.PicklingError), match=r"cannot pickle|sticky"):
        save_env(env)
    env.step(env.action_space.sample())  # and is none the worse for it
    env.close()


def test_windows_and_logs_stay_the_new_ones(tmp_path: Path) -> None:
    def make(number: int) -> gymnasium.Env[Any, Any]:
        return Monitor(gymnasium.make("FrozenLake-v1", render_mode="rgb_array"), str(tmp_path / str(number)))

    env, other = make(0), make(1)
    env.reset(seed=0)
    drawn = env.render()
    load_env(other, save_env(env))
    assert np.array_equal(other.render(), drawn)  # type: ignore[arg-type]
    for one in env, other:
        over = False
        while not over:
            over = one.step(2)[2]
        one.close()
    logs = [(tmp_path / f"{number}.monitor.csv").read_text().splitlines()[2].split(",")[:2] for number in range(2)]
    assert logs[0] == logs[1]


def test_a_class_that_a_new_environment_does_not_know_travels_along() -> None:
    def make(known: bool) -> gymnasium.Env[Any, Any]:
        class Late:
            at = 7 if known else 8

        env = Walk()
        if known:
            env.late = Late(), Late()  # type: ignore[attr-defined]
        return env

    env = load_env(make(False), save_env(make(True)))
    assert [one.at for one in env.late] == [7, 7]  # type: ignore[attr-defined]
    assert type(env.late[0]) is type(env.late[1])  # type: ignore[attr-defined]


LOAD_ELSEWHERE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import test_env_state as t
from reactor_gymnasium.environments.saving import load_env
env = load_env(t.STATE[sys.argv[2]](), pathlib.Path(sys.argv[3]).read_bytes())
sys.stdout.write(repr(t.trajectory(env, t.some_actions(env, 60, 5))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CartPole", "Breakout, SB3", "script"])
def test_another_process_goes_on(name: str, tmp_path: Path, run_script: Callable[..., tuple[int, str]]) -> None:
    env = STATE[name]()
    env.reset(seed=0)
    trajectory(env, some_actions(env, 50, 0))
    saved, script = tmp_path / "saved", tmp_path / "elsewhere.py"
    saved.write_bytes(save_env(env))
    script.write_text(LOAD_ELSEWHERE)
    status, said = run_script(script, tmp_path, str(HERE.parent), name, str(saved))
    assert status == 0 and said.endswith(repr(trajectory(env, some_actions(env, 60, 5)))), said[:2000]  # after ALE's own lines
    env.close()


MAIN = """
import pathlib, sys
import gymnasium, numpy as np
from gymnasium import spaces
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_gymnasium.environments.saving import probe_save_strategy

class Board:
    def __init__(self):
        self.sum = 0

class Env(gymnasium.Env):
    def __init__(self):
        self.observation_space, self.action_space = spaces.Discrete(1000), spaces.Discrete(2)
        self.board, self.rule = Board(), lambda n: n + 1
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.board.sum, {}
    def step(self, action):
        assert type(self.board) is Board
        self.board.sum = self.rule(self.board.sum)
        return self.board.sum, 0.0, False, False, {}

path = pathlib.Path(sys.argv[1])
env = Env()
if path.exists():
    load_env(env, path.read_bytes())
else:
    assert probe_save_strategy(Env) == "state"
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    path.write_bytes(save_env(env))
sys.stdout.write(str(env.step(0)[0]))
"""


@pytest.mark.slow
def test_what_a_script_defines_is_what_it_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, str(tmp_path / "saved")]
    said = [subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout for _ in range(2)]
    assert said == ["6", "6"]
