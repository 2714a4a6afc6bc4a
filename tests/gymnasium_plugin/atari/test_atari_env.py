"""``AtariEnv`` alone plays as ``AtariVectorEnv`` plays each of its games, which is what ``ale_py.AtariVectorEnv`` does."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from every_other import in_turn
from gymnasium.error import Error, ResetNeeded
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env

from reactor_gymnasium import AtariEnv, AtariVectorEnv

ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed")

SHORT = {"max_num_frames_per_episode": 81}


def test_arguments_and_their_defaults_are_those_of_the_vector_environment() -> None:
    ours, vector = (inspect.signature(of).parameters for of in (AtariEnv, AtariVectorEnv))
    shared = [name for name in ours if name != "render_mode"]
    assert set(shared) <= set(vector)
    assert {name: ours[name].default for name in shared} == {name: vector[name].default for name in shared}
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ours if name != "game")


def played(env: AtariEnv, actions: list[int], seed: int | None) -> list[Any]:
    """An episode's beginning, and what the actions give."""
    return [env.reset(seed=seed), *(env.step(action) for action in actions)]


@pytest.mark.slow
@in_turn("probability", [0.0, 0.25], kept=1)
def test_a_seed_repeats_everything_in_the_same_object_and_in_another(probability: float) -> None:
    first, second = (AtariEnv("breakout", repeat_action_probability=probability) for _ in range(2))
    actions = np.random.default_rng(0).integers(0, 4, 60).tolist()
    expected = played(first, actions, 7)
    assert_same(played(first, actions, 7), expected)
    assert_same(played(second, actions, 7), expected)
    for seed in (8, None):
        assert not np.array_equal(played(first, actions, seed)[-1][0], expected[-1][0])


@pytest.mark.slow
def test_sticky_actions_repeat_actions() -> None:
    plain, sticky = (AtariEnv("pong", repeat_action_probability=p, noop_max=0) for p in (0.0, 0.9))
    actions = [2, 3] * 20
    a, b = played(plain, actions, 3), played(sticky, actions, 3)
    assert_same(a[0], b[0], "the reset draws nothing")
    assert not np.array_equal(a[-1][0], b[-1][0])


def test_spaces_and_what_is_returned() -> None:
    env = AtariEnv("breakout", stack_num=2, img_height=40, img_width=50, grayscale=False)
    assert env.observation_space == Box(0, 255, (2, 40, 50, 3), np.uint8)
    assert env.action_space == Discrete(4)
    observation, info = env.reset(seed=0)
    assert observation.shape == (2, 40, 50, 3)
    assert observation.dtype == np.uint8
    assert list(info) == ["lives", "frame_number", "episode_frame_number"]
    before = observation.copy()
    found = env.step(np.int64(2))
    assert [type(part) for part in found[1:]] == [float, bool, bool, dict]
    assert not np.shares_memory(found[0], observation)
    assert np.array_equal(observation, before)  # it is the caller's, and later steps leave it alone
    assert AtariEnv("breakout", full_action_space=True).action_space == Discrete(18)


def test_an_action_that_is_not_there_changes_nothing() -> None:
    env, other = AtariEnv("breakout"), AtariEnv("breakout")
    assert_same(env.reset(seed=1), other.reset(seed=1))
    for action in (4, -1, np.int64(4), 1.0, "1", None, np.array([1])):
        with pytest.raises(ValueError, match=r"is not one of Discrete\(4\)") as raised:
            env.step(action)
        assert repr(action) in str(raised.value)
        assert_same(env.step(1), other.step(1))


@pytest.mark.filterwarnings("ignore:Rom .* not supported:UserWarning")
def test_a_game_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="'Pong' is not the name of a game; names are in snake case"):
        AtariEnv("Pong")


# ---------------------------------------------------------------------- rendering


@in_turn("game, rows", [("pong", 210), ("carnival", 214)], kept=1)
def test_rendering_shows_the_screen(game: str, rows: int) -> None:
    env, blind = AtariEnv(game, render_mode="rgb_array"), AtariEnv(game)
    assert env.render_mode == "rgb_array"
    assert "rgb_array" in env.metadata["render_modes"]
    for either in (env, blind):
        either.reset(seed=0)
    first = env.render()
    assert first.shape == (rows, 160, 3)
    assert first.dtype == np.uint8
    assert first.any()
    for _ in range(40):
        assert_same(env.step(2), blind.step(2), "looking changes nothing")
        last = env.render()
    assert not np.array_equal(first, last)
    assert blind.render() is None
    assert blind.render_mode is None


@pytest.mark.parametrize("mode", ["human", "ansi", "RGB_array", ""])
def test_a_render_mode_that_is_not_there(mode: str) -> None:
    with pytest.raises(ValueError, match=f"render_mode='{mode}': choose None or \"rgb_array\""):
        AtariEnv("pong", render_mode=mode)


def test_frames_per_second_are_those_of_steps() -> None:
    assert AtariEnv("pong").metadata["render_fps"] == 15
    assert AtariEnv("pong", frameskip=1).metadata["render_fps"] == 60


# ---------------------------------------------------------------------- as an environment of Gymnasium's


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes:UserWarning")
def test_gymnasiums_own_check() -> None:
    check_env(AtariEnv("breakout", render_mode="rgb_array"))


def test_wrappers_and_close() -> None:
    with gymnasium.wrappers.TimeLimit(AtariEnv("pong"), 3) as env:
        env.reset(seed=0)
        assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    env.close()  # the second time


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ({"frameskip": 0}, Error, "must be positive"),
        ({"frameskip": 2.5}, Error, "Invalid frameskip type"),
        ({"stack_num": 0}, ValueError, "stack_num"),
        ({"noop_max": -1}, ValueError, "noop_max"),
        ({"max_num_frames_per_episode": 0}, ValueError, "max_num_frames_per_episode"),
        ({"repeat_action_probability": 1.5}, ValueError, "not a probability"),
    ],
)
def test_numbers_that_make_no_sense(arguments: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        AtariEnv("pong", **arguments)


def test_what_can_be_done_when() -> None:
    env = AtariEnv("pong")
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(0)
    with pytest.raises(ValueError, match="2\\*\\*31"):
        env.reset(seed=2**31)
