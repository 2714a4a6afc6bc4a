"""Batches that take turns, as others' tools see them: EnvPool's loops, Gymnasium's wrappers, Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import gymnasium.wrappers.vector as wrappers
import numpy as np
import pytest
from compare import assert_same
from gymnasium import spaces
from gymnasium.error import NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorWrapper

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec

N = 6


def cartpoles(batch_size: int | None, **place: Any) -> ReactorVectorEnv:
    return ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1", max_episode_steps=5)] * N, batch_size=batch_size, **place)


def envpool_loop(envs: Any, steps: int) -> dict[int, list[Any]]:
    """EnvPool's own loop: every environment's observations, rewards and flags, by its ``env_id``."""
    seen: dict[int, list[Any]] = {index: [] for index in range(N)}
    envs.async_reset(seed=3)
    for _ in range(steps * N // envs.action_space.shape[0]):
        observations, rewards, terminations, truncations, infos = envs.recv()
        ids = infos.get("env_id", np.arange(N))
        for row, index in enumerate(ids.tolist()):
            seen[index].append([observations[row].copy(), rewards[row], terminations[row], truncations[row]])
        envs.send((np.array([len(seen[index]) for index in ids]) + ids) % 2, ids)
    envs.recv()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [{"executor": "inline"}, {"executor": "threads", "workers": 3}, {"executor": "processes", "workers": 2}], ids=str
)
def test_envpools_loop(place: dict[str, Any]) -> None:
    """The same of each environment, in batches of every size, as of all of them step by step."""
    alone: dict[int, list[Any]] = {index: [] for index in range(N)}
    with cartpoles(None, executor="inline") as envs:
        observations, _ = envs.reset(seed=3)
        results: Any = (observations, np.zeros(N), *np.zeros((2, N), np.bool_))
        for step in range(12):
            for index in range(N):
                alone[index].append([part[index] for part in results[:4]])
            results = envs.step((step + 1 + np.arange(N)) % 2)
    for batch_size in (None, 3, 2):
        with cartpoles(batch_size, **place) as envs:
            for _ in range(2):  # a second reset begins anew
                assert_same(envpool_loop(envs, 12), alone, f"batch_size={batch_size}")


def test_it_is_the_turn_of_one_batch() -> None:
    with cartpoles(2, executor="threads", workers=2) as envs:
        envs.async_reset()
        ids = envs.recv()[4]["env_id"]
        for wrong in ([2, 3], [1, 0], [0], [0, 1, 2], 0):
            with pytest.raises(ValueError, match="it is the turn of environments 0 to 1, whose results came last"):
                envs.send(np.zeros(2, np.int64), wrong)
        with pytest.raises(NoAsyncCallError):
            envs.recv()
        envs.send(np.zeros(2, np.int64), ids)
        envs.recv()
        with pytest.raises(ValueError, match="it is the turn of environments 2 to 3"):
            envs.send(np.zeros(2, np.int64), ids)


@pytest.mark.slow
def test_games_in_envpools_loop() -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    seen = []
    for batch_size in (0, 2):
        with AtariVectorEnv("pong", 4, batch_size=batch_size, executor="inline", stack_num=1) as envs:
            envs.async_reset(seed=0)
            frames: dict[int, list[bytes]] = {index: [] for index in range(4)}
            for _ in range(3 * 4 // envs.batch_size):
                observations, rewards, _, _, infos = envs.recv()
                assert rewards.dtype == np.int32
                for row, index in enumerate(infos["env_id"].tolist()):
                    frames[index].append(observations[row].tobytes())
                envs.send(np.full(envs.batch_size, 2), infos["env_id"])
            envs.recv()
            seen.append(frames)
    assert seen[0] == seen[1] and len({len(of_one) for of_one in seen[0].values()}) == 1


# ---------------------------------------------------------------------- Gymnasium's wrappers

PICTURES = spaces.Box(0, 255, (4, 4, 3), np.uint8)


class Pictures(gymnasium.Env[Any, Any]):
    """An environment for wrappers that want pictures, or a dict of them."""

    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, form: str = "") -> None:
        self.form = form
        self.observation_space: Any = spaces.Dict(a=PICTURES) if form == "dict" else spaces.Box(-1, 1, (4,)) if form else PICTURES
        self.render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 2.0, False, False, {"x": 1}


REFUSED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "ClipAction": ("flat", wrappers.ClipAction),
    "DictInfoToList": ("flat", wrappers.DictInfoToList),
    "DtypeObservation": ("flat", lambda envs: wrappers.DtypeObservation(envs, np.float64)),
    "FilterObservation": ("dict", lambda envs: wrappers.FilterObservation(envs, ["a"])),
    "FlattenObservation": ("", wrappers.FlattenObservation),
    "GrayscaleObservation": ("", wrappers.GrayscaleObservation),
    "NormalizeObservation": ("flat", wrappers.NormalizeObservation),
    "NormalizeReward": ("flat", wrappers.NormalizeReward),
    "RecordEpisodeStatistics": ("flat", wrappers.RecordEpisodeStatistics),
    "RescaleAction": ("flat", lambda envs: wrappers.RescaleAction(envs, np.float32(0), np.float32(1))),
    "RescaleObservation": ("flat", lambda envs: wrappers.RescaleObservation(envs, np.float32(0), np.float32(1))),
    "ReshapeObservation": ("flat", lambda envs: wrappers.ReshapeObservation(envs, (2, 2))),
    "TransformAction": ("flat", lambda envs: wrappers.TransformAction(envs, lambda actions: actions)),
    "TransformObservation": ("flat", lambda envs: wrappers.TransformObservation(envs, lambda observations: observations)),
    "behind another": ("flat", lambda envs: wrappers.RecordEpisodeStatistics(Own(envs))),
    "behind one that works": ("flat", lambda envs: wrappers.DictInfoToList(wrappers.ClipReward(envs, 0, 1))),
}
WORKING: dict[str, Callable[[Any], Any]] = {
    "ClipReward": lambda envs: wrappers.ClipReward(envs, 0, 1),
    "TransformReward": lambda envs: wrappers.TransformReward(envs, lambda rewards: rewards / 2),
    "a user's": lambda envs: wrappers.ClipReward(Own(envs), 0, 1),
}


class Own(VectorWrapper[Any, Any, Any, Any, Any]):
    """A user's own wrapper is the user's to make fit."""


@pytest.mark.filterwarnings("ignore:.*don't match as expected:UserWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_wrappers_that_want_all_rows_in_a_step_are_refused_before_anything_is_stepped(name: str) -> None:
    form, wrap = REFUSED[name]
    with ReactorVectorEnv([partial(Pictures, form)] * 4, batch_size=2, executor="inline") as envs:
        wrapped = wrap(envs)
        with pytest.raises(ValueError, match=r"takes every step for one of all environments, .* leave out batch_size, or put"):
            wrapped.reset(seed=0)
    with ReactorVectorEnv([partial(Pictures, form)] * 4, executor="inline") as envs:
        wrapped = wrap(envs)
        wrapped.reset(seed=0)
        wrapped.step(wrapped.action_space.sample())  # what it says helps


@pytest.mark.parametrize("name", WORKING)
def test_wrappers_to_which_rows_are_rows_work(name: str) -> None:
    with ReactorVectorEnv([partial(Pictures, "flat")] * 4, batch_size=2, executor="inline") as envs:
        wrapped = WORKING[name](envs)
        wrapped.reset(seed=0)
        results = [wrapped.step(wrapped.action_space.sample()) for _ in range(4)]
        assert [rewards.tolist() for _, rewards, *_ in results] == [[0, 0], [1, 1], [1, 1], [1, 1]]
        assert results[1][4]["env_id"].tolist() == [0, 1]


def test_every_wrapper_of_gymnasiums_was_thought_of() -> None:
    """Of the others, some need packages, a window or a film; those of the base classes are told apart by their names."""
    others = {
        "ArrayConversion", "HumanRendering", "JaxToNumpy", "JaxToTorch", "NumpyToTorch", "RecordVideo", "ResizeObservation",
        "VectorizeTransformAction", "VectorizeTransformObservation", "VectorizeTransformReward",
    }  # fmt: skip
    assert set(wrappers.__all__) - others <= {*REFUSED, *WORKING}


def test_stable_baselines3_is_told() -> None:
    reactor_sb3 = pytest.importorskip("reactor_sb3")
    with make_vec("CartPole-v1", 4, batch_size=2, executor="inline", autoreset_mode=AutoresetMode.SAME_STEP) as envs:
        for given in (envs, wrappers.ClipReward(envs, 0, 1)):
            with pytest.raises(ValueError, match=r"take turns, 2 of 4 in a step, .* make it without batch_size"):
                reactor_sb3.from_vector_env(given)
    with pytest.raises(TypeError, match="batch_size"):
        reactor_sb3.ReactorVecEnv([partial(gymnasium.make, "CartPole-v1")] * 4, batch_size=2)
