"""What may be kept of a live vector environment: snapshots of its run where they are exact, copies and pickles never."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from every_other import every_other, in_turn
from places import INLINE, PROCESSES
from stable_baselines3.common.env_util import make_vec_env

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec
from reactor_rl import RunError
from reactor_sb3 import ReactorVecEnv

PLACES = [INLINE, PROCESSES]


# ---------------------------------------------------------------------- snapshots


class InAWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has another environment, which is not one of the layers, and whose observations come from both."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.other = gymnasium.make("HalfCheetah-v5").unwrapped

    def reset(self, **kwargs: Any) -> Any:
        self.other.reset(seed=kwargs.get("seed"))
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(self.other.step(np.full(6, action - 0.5))[1]), terminated, truncated, info


def pong() -> gymnasium.Env[Any, Any]:
    import ale_py  # noqa: F401  (registers its environments)

    return gymnasium.make("ALE/Pong-v5", repeat_action_probability=0.0)


EXACT: dict[str, Any] = {
    **{id: partial(gymnasium.make, id) for id in ("CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "HalfCheetah-v5")},
    "Pong": pong,
    "elsewhere": InAWrapper,
}


def goes_on_alike(envs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int) -> None:
    """Half of the steps are taken twice over, from a snapshot, with the same results."""
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(steps)]
    envs.reset(seed=0)
    for action in actions[: steps // 2]:
        envs.step(action)
    saved = envs._run.snapshot()
    expected = [envs.step(action) for action in actions[steps // 2 :]]
    for _ in range(2):
        envs._run.restore(saved)
        assert_same([envs.step(action) for action in actions[steps // 2 :]], expected)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_a_restored_run_goes_on_bit_for_bit(name: str, place: dict[str, Any]) -> None:
    with ReactorVectorEnv([EXACT[name]] * 3, **place) as envs:
        goes_on_alike(envs, 60)
        envs.get_attr("np_random")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("colour", [{}, {"grayscale": False, "autoreset_mode": "SameStep"}], ids=["grey", "colour"])
def test_restored_games_go_on_bit_for_bit(colour: dict[str, Any], place: dict[str, Any]) -> None:
    with AtariVectorEnv("pong", 3, **colour, **place) as envs:
        goes_on_alike(envs, 40)


def test_a_snapshot_goes_over_to_other_workers() -> None:
    with ReactorVectorEnv([EXACT["HalfCheetah-v5"]] * 3, executor="inline") as envs:
        actions = [envs.action_space.sample() for _ in range(20)]
        envs.reset(seed=0)
        envs.step(actions[0])
        saved = envs._run.snapshot()
        expected = [envs.step(action) for action in actions]
    with ReactorVectorEnv([EXACT["HalfCheetah-v5"]] * 3, executor="inline") as envs:
        envs.reset(seed=7)
        envs._run.restore(saved)
        assert_same([envs.step(action) for action in actions], expected)


class Locked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Holds what nobody can pickle."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.lock = threading.Lock()


class Unruly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws from the process's generator."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        observation, _, *others = super().step(action)
        return observation, random.random(), *others


def sticky_pong() -> gymnasium.Env[Any, Any]:
    import ale_py  # noqa: F401  (registers its environments)

    return gymnasium.make("ALE/Pong-v5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "why"),
    [(Locked, "cannot pickle .*lock"), (Unruly, "did not go on as it did"), (sticky_pong, "the action that it may repeat")],
    ids=["a lock", "a global generator", "sticky actions"],
)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_would_go_on_otherwise_is_refused(make: Any, why: str, place: dict[str, Any]) -> None:
    with ReactorVectorEnv([make] * 2, **place) as envs:
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        with pytest.raises(RunError, match=rf"environment [01] of ReactorVectorEnv .* saved and restored exactly: .*{why}"):
            envs._run.snapshot()
        envs.step(envs.action_space.sample())  # nothing has happened to it


@pytest.mark.slow
@in_turn("place", PLACES, ids=str, kept=1)
def test_games_with_sticky_actions_are_refused(place: dict[str, Any]) -> None:
    with AtariVectorEnv("pong", 2, repeat_action_probability=0.25, **place) as envs:
        envs.reset(seed=0)
        with pytest.raises(RunError, match=r"of AtariVectorEnv cannot be saved and restored exactly: .*sticky actions"):
            envs._run.snapshot()


# ---------------------------------------------------------------------- copies

MAKERS: dict[str, Any] = {
    "ReactorVectorEnv": lambda: make_vec("CartPole-v1", 2, executor="processes", workers=2),
    "AtariVectorEnv": lambda: AtariVectorEnv("pong", 2, executor="processes", workers=2),
    "ReactorVecEnv": lambda: make_vec_env(
        "CartPole-v1", 2, vec_env_cls=ReactorVecEnv, vec_env_kwargs={"executor": "processes", "workers": 2}
    ),
}


@pytest.mark.slow
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
@every_other(cls=[ReactorVectorEnv, AtariVectorEnv, ReactorVecEnv], make=REFUSED.values())
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
