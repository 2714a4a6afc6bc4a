"""Mistakes of the first minute: each message, with its notes, names the mistake and what to do instead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO

from reactor_gymnasium import ReactorVectorEnv, evaluate, make_vec
from reactor_sb3 import ReactorVecEnv, SaveCheckpoint, StopOnEvaluation, SyncDQN, SyncPPO, SyncSAC

pytestmark = pytest.mark.filterwarnings("ignore:.*ERROR. environments? .* raised")  # by Gymnasium's logger
INLINE: dict[str, Any] = {"executor": "inline"}
PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 2}


class Walk(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}


class OldStep(Walk):
    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, {}


class NoStep(Walk):
    def step(self, action: Any) -> Any:
        return None


class OldReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32)


class OneNumber(Walk):
    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32)


class NoReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return None


def walks(kind: type = Walk, **given: Any) -> ReactorVectorEnv:
    return ReactorVectorEnv([kind] * 2, **{**INLINE, **given})


def stepped(kind: type, **given: Any) -> None:
    with walks(kind, **given) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))


def learned(kind: Any, **given: Any) -> None:
    with SyncPPO("MlpPolicy", kind, n_actors=1, n_steps=16, batch_size=16, **{**INLINE, **given}) as model:
        model.learn(16)


def on_ppo(callback: Any) -> None:
    PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16).learn(16, callback=callback)


def stand(seen: Any) -> Any:
    return np.zeros(len(seen), np.int64)


def of_environments(do: Callable[[ReactorVectorEnv], Any]) -> None:
    with walks() as envs:
        envs.reset(seed=0)
        do(envs)


FIVE = "step() must return observation, reward, terminated, truncated, info"
TWO = "reset() must return observation, info"
NOTHING = "the function returned None, and must return the environment that it makes"
MODULE = "import that, or write 'module:id'"
A_SEQUENCE = "env_fns must be a sequence of functions, one for each environment, got "
CASES: dict[str, tuple[Callable[[], Any], type[BaseException], list[str]]] = {
    "an id": (lambda: ReactorVectorEnv("CartPole-v1"), TypeError, [A_SEQUENCE + "'CartPole-v1'", "make_vec('CartPole-v1'"]),
    "a class": (lambda: ReactorVectorEnv(Walk), TypeError, [A_SEQUENCE, "pass [Walk] * n"]),
    "a function": (lambda: ReactorVectorEnv(walks), TypeError, [A_SEQUENCE, "pass [walks] * n"]),
    "an environment": (lambda: ReactorVectorEnv(Walk()), TypeError, [A_SEQUENCE, "pass [lambda: MyEnv(...)] * n"]),
    "a list of ids": (
        lambda: ReactorVectorEnv(["CartPole-v1"] * 2),
        TypeError,
        ["env_fns[0] must be a function that makes a new environment, got 'CartPole-v1'", "lambda: gymnasium.make('CartPole-v1')"],
    ),
    "a list of environments": (
        lambda: ReactorVectorEnv([Walk()] * 2), TypeError, ["env_fns[0] must be a function that makes a new environment"]
    ),
    "shards by id": (
        lambda: ReactorVectorEnv.of(["CartPole-v1"]), TypeError, ["vector_env_fns[0]", "gymnasium.make_vec('CartPole-v1', ...)"]
    ),
    "an id for SB3": (lambda: ReactorVecEnv("CartPole-v1"), TypeError, [A_SEQUENCE]),
    "a list for a trainer": (lambda: SyncPPO("MlpPolicy", [Walk] * 2), TypeError, ["got [<class", "n_actors= for how many"]),
    "n_envs of make_vec": (lambda: make_vec("CartPole-v1", n_envs=4), TypeError, ["make_vec has no n_envs: it is num_envs=4"]),
    "num_envs of PPO": (lambda: SyncPPO("MlpPolicy", Walk, num_envs=8), TypeError, ["SyncPPO has no num_envs", "n_actors=8"]),
    "n_envs of DQN": (lambda: SyncDQN("MlpPolicy", Walk, n_envs=8), TypeError, ["SyncDQN has no n_envs", "n_actors=8"]),
    "vectorization_mode": (
        lambda: make_vec("CartPole-v1", vectorization_mode="async"), gymnasium.error.Error, ["leave vectorization_mode out"]
    ),
    "a function without return": (lambda: ReactorVectorEnv([lambda: None] * 2), TypeError, [NOTHING, "environment 0"]),
    "a trainer's function without return": (lambda: SyncPPO("MlpPolicy", lambda: None), TypeError, [NOTHING, "environment 0"]),
    "the second function": (lambda: ReactorVectorEnv([Walk, lambda: None], **INLINE), TypeError, [NOTHING, "environment 1"]),
    "a function of a class": (
        lambda: ReactorVectorEnv([lambda: Walk]), TypeError, ["returned the class Walk, and must return an environment: Walk()"]
    ),
    "a function of a number": (lambda: ReactorVectorEnv([lambda: 3]), TypeError, ["returned 3, which is not an environment"]),
    "evaluate without return": (lambda: evaluate(stand, lambda: None, episodes=1), TypeError, [NOTHING]),
    "four values": (lambda: stepped(OldStep), ValueError, [FIVE, "`done` is `terminated or truncated` today"]),
    "four values in processes": (lambda: stepped(OldStep, **PROCESSES), ValueError, [FIVE, "environment"]),
    "four values for a trainer": (lambda: learned(OldStep), ValueError, [FIVE, "environment 0"]),
    "four values for an evaluation": (lambda: evaluate(stand, OldStep, episodes=1, **INLINE), ValueError, [FIVE]),
    "no info for an evaluation": (
        lambda: evaluate(stand, OldReset, episodes=1, **INLINE), TypeError, ["as the info, which must be a dict"]
    ),
    "no values": (lambda: stepped(NoStep), TypeError, [FIVE]),
    "reset without info": (lambda: stepped(OldReset), TypeError, ["as the info, which must be a dict", "observation, info"]),
    "reset of one number": (lambda: stepped(OneNumber), ValueError, [TWO, "an observation alone"]),
    "reset of a trainer": (lambda: learned(OldReset), TypeError, ["as the info, which must be a dict", "environment 0"]),
    "reset of nothing": (lambda: stepped(NoReset), TypeError, [TWO]),
    "SaveCheckpoint": (partial(on_ppo, SaveCheckpoint("unused/m.zip")), TypeError, ["such as SyncPPO, got PPO: use SaveRun"]),
    "StopOnEvaluation": (partial(on_ppo, StopOnEvaluation(9)), TypeError, ["got PPO: use StopTrainingOnRewardThreshold"]),
    "envs.envs": (lambda: of_environments(lambda envs: envs.envs[0]), AttributeError, ["Use call(), get_attr() or set_attr()"]),
    "one number": (lambda: of_environments(lambda envs: envs.step(1)), TypeError, ["an action for each of 2 environments, got 1"]),
    "an id nobody knows": (lambda: SyncSAC("MlpPolicy", "Mine-v0"), gymnasium.error.NameNotFound, [MODULE]),
    "an id in a function": (
        lambda: ReactorVectorEnv([partial(gymnasium.make, "Mine-v0")]), gymnasium.error.NameNotFound, [MODULE]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_message_names_the_mistake_and_what_to_do(case: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    do, kind, parts = CASES[case]
    with pytest.raises(kind) as raised:
        do()
    said = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert [part for part in parts if part not in said] == [], said
    assert not [*tmp_path.iterdir()]


def test_a_vector_env_has_no_envs() -> None:
    with walks() as envs:
        assert not hasattr(envs, "envs")


def test_what_a_step_raises_by_itself_is_left_alone() -> None:
    class Wrong(Walk):
        def step(self, action: Any) -> Any:
            first, second = [1, 2, 3]  # noqa: F841
            return None

    with ReactorVectorEnv([Wrong], **INLINE) as envs:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="too many values to unpack") as raised:
            envs.step(np.zeros(1, np.int64))
    assert not any("must return" in note for note in raised.value.__notes__)


WITH_CTYPES = """
import ctypes
import gymnasium, numpy as np
from reactor_gymnasium import ReactorVectorEnv

LIBRARY = ctypes.CDLL(None)

class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def step(self, action):
        return LIBRARY.abs

try:
    ReactorVectorEnv([Own] * 2, executor="inline")
except Exception as error:
    print(error.__notes__)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the C library by no name")
def test_a_library_of_ctypes_in_a_script_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WITH_CTYPES)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "a library of ctypes, say). Put it into a module of its own, and import that" in done.stdout
