"""Wrappers around one environment give what SB3's give around a vector of one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from reactor_sb3.environments.wrapped_alone import StackedFrames


class Frames(gymnasium.Env[Any, Any]):
    """Random frames, five an episode."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        high = 255 if np.issubdtype(dtype, np.integer) else 1.0
        self.observation_space = spaces.Box(0, high, shape, dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = 5
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self.observation_space.sample(), 1.0, not self.left, False, {}


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("stacked", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((6, 5, 1), np.uint8), ((6, 5, 3), np.uint8), ((6, 5, 2), np.int16), ((6, 5, 1), np.float32), ((1,), np.float64)],
    ids=str,
)
def test_stacked_frames(shape: tuple[int, ...], dtype: Any, stacked: int, order: str) -> None:
    theirs = VecFrameStack(DummyVecEnv([lambda: Frames(shape, dtype)]), stacked, order)
    ours = StackedFrames(Frames(shape, dtype), stacked, order)
    assert ours.observation_space == theirs.observation_space
    theirs.seed(3)
    given = [ours.reset(seed=3)[0]]
    expected = [theirs.reset()[0]]
    for _ in range(12):
        observation, _, terminated, *_ = ours.step(0)
        theirs_now, _, _, infos = theirs.step(np.zeros(1, np.int64))
        if terminated:
            given.append(observation)
            expected.append(infos[0]["terminal_observation"])
            observation, _ = ours.reset()
        given.append(observation)
        expected.append(theirs_now[0].copy())
    for mine, other in zip(given, expected, strict=True):  # after all of them: what was given is not written again
        assert mine.dtype == other.dtype
        assert np.array_equal(mine, other)
