"""What is changed after an environment was constructed reaches it nowhere, or everywhere: never some of its copies."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scripts import run

from reactor_gymnasium import ReactorVectorEnv

WAYS: list[dict[str, Any]] = [
    {"workers": 1},
    {"workers": 2, "executor": "processes"},
    {"workers": 3, "executor": "processes"},
    {"workers": 2, "executor": "processes", "caller_works": False},
    {"workers": 2, "executor": "threads"},
]

CURRICULUM = """
    import gymnasium as gym, numpy as np
    from reactor_gymnasium import ReactorVectorEnv

    class Task:
        level = 1

    class Env(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)
        level = 1
        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}
        def step(self, action):
            return np.zeros(1, np.float32), 10 * self.level + Task.level, False, False, {"task": Task()}

    for how in WAYS:
        Env.level = Task.level = 1
        envs = ReactorVectorEnv([Env] * 4, **how)
        envs.reset(seed=0)
        Env.level = Task.level = 5
        rewards, infos = envs.step(np.zeros(4, int))[1::3]
        print(rewards, all(type(task) is Task and task.level == 5 for task in infos["task"]), Env.level, Task.level)
        envs.close()
"""


@pytest.mark.slow
def test_a_curriculum_in_a_class_of_main() -> None:
    done = run(CURRICULUM.replace("WAYS", repr(WAYS)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[11. 11. 11. 11.] True 5 5"] * len(WAYS)


def by_value() -> tuple[Any, type[Exception], type[Any]]:
    """Classes that cannot be imported, and so travel by value."""

    class Refused(Exception):
        pass

    class Given:
        def __init__(self, number: int) -> None:
            self.number = number

    class Env(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)
        given: Any = None

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            if action:
                raise Refused("this action")
            return np.zeros(1, np.float32), 0.0, False, False, {}

        def knows(self, other: Any) -> tuple[bool, Any]:
            return isinstance(other, Given) and isinstance(self.given, Given), Given(7)

    return Env, Refused, Given


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's vector environments log what happened
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_classes_are_known_again_on_both_sides(way: dict[str, Any]) -> None:
    env, refused, given = by_value()
    with ReactorVectorEnv([env] * 3, **way) as envs:
        envs.reset(seed=0)
        envs.set_attr("given", given(1))
        for known, answer in envs.call("knows", given(2)):
            assert known and type(answer) is given and answer.number == 7
        assert all(type(found) is given for found in envs.get_attr("given"))
        with pytest.raises(refused, match="this action"):
            envs.step(np.array([0, 1, 1]))


class Reads(gym.Env[Any, Any]):
    """Says what its variables are."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        import os

        self.variables = {name: os.environ.get(name) for name in ("RRL_SET", "RRL_GONE")}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_variables_that_change_between_two_constructions(way: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRL_GONE", "here")
    with ReactorVectorEnv([Reads] * 3, **way) as envs:
        assert envs.get_attr("variables") == ({"RRL_SET": None, "RRL_GONE": "here"},) * 3
    monkeypatch.delenv("RRL_GONE")
    monkeypatch.setenv("RRL_SET", "now")
    with ReactorVectorEnv([Reads] * 3, **way) as envs:
        assert envs.get_attr("variables") == ({"RRL_SET": "now", "RRL_GONE": None},) * 3
