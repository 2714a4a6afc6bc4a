"""SB3's wrappers of vector environments around a single environment: an actor has environments of its own, one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecEnvWrapper, VecTransposeImage
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

__all__ = ["StackedFrames", "TransposedImages", "channels_first", "levels_of"]

Array = npt.NDArray[Any]

_shift = np.right_shift if sys.byteorder == "little" else np.left_shift


class StackedFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """``VecFrameStack`` for one environment: the last observations, and zeros where an episode has had fewer.

    Args:
        env: The environment.
        n_stack: How many observations.
        channels_order: ``"first"`` or ``"last"``; of a ``Dict`` space for each key.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], n_stack: int, channels_order: str | Mapping[str, str | None]) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        layout: StackedObservations[Any] = StackedObservations(1, n_stack, space, channels_order)
        self.observation_space = layout.stacked_observation_space
        self.keyed = isinstance(space, spaces.Dict)
        self.frames = {
            key: _Frames(part.stacked_obs[0], part.channels_first, n_stack)
            for key, part in (layout.sub_stacked_observations if self.keyed else {"": layout}).items()
        }

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        for frames in self.frames.values():
            frames.rows = np.zeros_like(frames.rows)
        return self._stacked(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._stacked(observation), reward, terminated, truncated, info

    def _stacked(self, observation: Any) -> Any:
        if not self.keyed:
            return self.frames[""].push(observation)
        return {key: self.frames[key].push(part) for key, part in observation.items()}


class _Frames:
    """The last observations, the newest one at the end of the axis of channels.

    Args:
        rows: Zeros, of the shape that all of them have together.
        channels_first: Whether channels are the first axis, or the last.
        n_stack: How many observations.
    """

    def __init__(self, rows: Array, channels_first: bool, n_stack: int) -> None:
        self.rows = rows
        axis = 0 if channels_first else -1
        channels = rows.shape[axis] // n_stack
        before: tuple[Any, ...] = () if channels_first else (Ellipsis,)
        self.older, self.newer = (*before, slice(0, -channels)), (*before, slice(channels, None))
        self.newest = (*before, slice(-channels, None))
        # All channels of a pixel as one number: shifting it is seven times as fast as moving bytes, three at a time.
        size = rows.shape[-1] * rows.itemsize
        self.word = f"u{size}" if not channels_first and size in (2, 4, 8) else ""
        self.bits = 8 * channels * rows.itemsize

    def push(self, observation: Any) -> Array:
        """Add an observation in the place of the oldest one. Returns all of them, an array that stays as it is."""
        rows = np.empty_like(self.rows)
        if self.word:
            _shift(self.rows.view(self.word), self.bits, out=rows.view(self.word))
        else:
            rows[self.older] = self.rows[self.newer]
        rows[self.newest] = observation
        self.rows = rows
        return rows


class TransposedImages(gymnasium.ObservationWrapper[Any, Any, Any]):
    """``VecTransposeImage`` for one environment: images with their channels first.

    Args:
        env: The environment.
        keys: Which parts of a ``Dict`` are images; empty for an environment whose observation is one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(env)
        self.keys = keys
        self.observation_space = channels_first(env.observation_space)

    def observation(self, observation: Any) -> Any:
        if self.keys:
            return {key: np.transpose(part, (2, 0, 1)) if key in self.keys else part for key, part in observation.items()}
        return np.transpose(observation, (2, 0, 1))


def levels_of(venv: Any) -> list[Any]:
    """The wrappers around a vector environment, the outermost first, and the vector environment."""
    levels = [venv]
    while isinstance(levels[-1], VecEnvWrapper):
        levels.append(levels[-1].venv)
    return levels


def channels_first(space: Any) -> Any:
    """A space as SB3 shows it to policies: images, also those in a ``Dict``, have their channels first."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: channels_first(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Box) and is_image_space(space) and not is_image_space_channels_first(space):
        return VecTransposeImage.transpose_space(space)
    return space
