"""What may be kept of a live vector environment: snapshots of its run where they are exact, copies and pickles never."""

from __future__ import annotations

import copy
import gc
import pickle
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from stable_baselines3.common.env_util import make_vec_env

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec
from reactor_rl import RunError
from reactor_sb3 import ReactorVecEnv

PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "processes", "workers": 2},
]


# ---------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_a_restored_run_goes_on_bit_for_bit(id: str, place: dict[str, Any]) -> None:
    with make_vec(id, 4, **place) as envs:
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(60)]
        envs.reset(seed=0)
        for action in actions[:30]:
            envs.step(action)
        saved = envs._run.snapshot()
        expected = [envs.step(action) for action in actions[30:]]
        envs._run.restore(saved)
        assert_same([envs.step(action) for action in actions[30:]], expected)
        envs._run.restore(saved)
        assert_same(envs.get_attr("np_random"), envs.get_attr("np_random"))
        assert_same([envs.step(action) for action in actions[30:]], expected)


class InAWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has another environment, which is not one of the layers."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.other = gymnasium.make("HalfCheetah-v5").unwrapped


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (partial(gymnasium.make, "HalfCheetah-v5"), "HalfCheetahEnv"),
        (partial(gymnasium.make, "ALE/Pong-v5"), "AtariEnv"),
        (InAWrapper, "HalfCheetahEnv"),
    ],
    ids=["HalfCheetah", "Pong", "elsewhere"],
)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_would_be_made_anew_is_refused(make: Any, name: str, place: dict[str, Any]) -> None:
    import ale_py  # noqa: F401  (registers its environments)

    with ReactorVectorEnv([make] * 2, **place) as envs:
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        with pytest.raises(RunError, match=rf"environment [01] of ReactorVectorEnv .*{name} is an EzPickle"):
            envs._run.snapshot()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_games_are_refused(place: dict[str, Any]) -> None:
    with AtariVectorEnv("pong", 2, **place) as envs:
        envs.reset(seed=0)
        with pytest.raises(RunError, match="of AtariVectorEnv cannot be saved and restored"):
            envs._run.snapshot()


# ---------------------------------------------------------------------- copies

MAKERS: dict[str, Any] = {
    "ReactorVectorEnv": lambda: make_vec("CartPole-v1", 2, executor="processes", workers=2),
    "AtariVectorEnv": lambda: AtariVectorEnv("pong", 2, executor="processes", workers=2),
    "ReactorVecEnv": lambda: make_vec_env(
        "CartPole-v1", 2, vec_env_cls=ReactorVecEnv, vec_env_kwargs={"executor": "processes", "workers": 2}
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_copies_are_refused_and_the_original_goes_on(name: str, recwarn: pytest.WarningsRecorder) -> None:
    envs = MAKERS[name]()
    try:
        envs.reset()
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"^{name} cannot be copied or pickled"):
                way(envs)
            gc.collect()
        envs.step(
            np.array([envs.action_space.sample() for _ in range(2)]) if name == "ReactorVecEnv" else envs.action_space.sample()
        )
    finally:
        envs.close()


REFUSED: dict[str, Any] = {
    "no arguments": lambda cls: cls(),
    "unknown argument": lambda cls: cls([lambda: gymnasium.make("CartPole-v1")], colour="red"),
    "nothing": lambda cls: cls([]),
    "a number": lambda cls: cls([lambda: gymnasium.make("CartPole-v1")], workers=0),
    "an executor": lambda cls: cls([lambda: gymnasium.make("CartPole-v1")], executor="magic"),
    "an environment": lambda cls: cls([lambda: 1 / 0]),
    "never begun": lambda cls: cls.__new__(cls),
}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("cls", [ReactorVectorEnv, AtariVectorEnv, ReactorVecEnv])
def test_what_was_not_made_ends_in_silence(cls: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", said.append)
    try:
        made = make(cls)
        del made
    except Exception as error:
        del error
    gc.collect()
    assert [one.exc_value for one in said] == []
