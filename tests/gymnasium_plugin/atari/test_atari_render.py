"""``render_mode`` of ``AtariVectorEnv``: the screens of all games, whoever plays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import assert_same
from every_other import in_turn
from gymnasium.error import AlreadyPendingCallError, ResetNeeded

from reactor_gymnasium import AtariEnv, AtariVectorEnv

pytest.importorskip("ale_py", reason="ale-py is not installed")

N = 4
GAME = {"max_num_frames_per_episode": 30}


@pytest.fixture(scope="module")
def screens() -> list[list[Any]]:
    """Of each game alone, after its reset and each of 9 steps, some of which begin another episode."""
    found = []
    for index in range(N):
        env = AtariEnv("breakout", render_mode="rgb_array", **GAME)
        env.reset(seed=7 + index)
        shown, over = [env.render()], False
        for _ in range(9):
            if over:
                env.reset()
                over = False
            else:
                _, _, terminated, truncated, _ = env.step(index % 4)
                over = terminated or truncated
            shown.append(env.render())
        found.append(shown)
    return found


@pytest.mark.slow
@in_turn(
    "place",
    [{"executor": "inline"}, {"executor": "processes", "workers": 2}, {"executor": "threads", "workers": 2, "batch_size": 2}],
    ids=str,
    kept=1,
)
def test_each_game_shows_what_it_shows_alone(place: dict[str, Any], screens: list[list[Any]]) -> None:
    batch = place.get("batch_size", N)
    with AtariVectorEnv("breakout", N, render_mode="rgb_array", **GAME, **place) as envs:
        assert envs.metadata["render_modes"] == ["rgb_array"] and envs.metadata["render_fps"] == 15
        with pytest.raises(ResetNeeded, match=r"before render\(\)"):
            envs.render()
        envs.reset(seed=7)
        for step in range(10):
            shown = envs.render()
            assert type(shown) is tuple
            assert_same(list(shown), [of_one[step] for of_one in screens], f"step {step}")
            for lo in range(0, N, batch) if step < 9 else []:
                observations, *_, infos = envs.step(np.arange(lo, lo + batch))
                assert observations.shape[0] == batch == len(infos["lives"])
        envs.step_async(np.arange(batch))
        with pytest.raises(AlreadyPendingCallError, match="render"):
            envs.render()
        envs.step_wait()


def test_without_a_mode_nothing_is_shown_and_others_are_refused() -> None:
    with AtariVectorEnv("pong", 1, executor="inline") as envs:
        assert envs.render_mode is None
        envs.reset(seed=0)
        with pytest.warns(UserWarning, match="without a render mode"):
            assert envs.render() is None
    with pytest.raises(ValueError, match="HumanRendering shows in a window"):
        AtariVectorEnv("pong", 1, render_mode="human")
