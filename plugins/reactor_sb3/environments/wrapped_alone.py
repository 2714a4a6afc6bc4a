"""What SB3 wraps around vector environments, around a single environment: an actor has environments of its own, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecTransposeImage
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

__all__ = ["StackedFrames", "TransposedImages"]

Array = npt.NDArray[Any]


class StackedFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What ``VecFrameStack`` gives, for one environment: the last observations, and zeros where an episode has had fewer.

    Args:
        env: The environment.
        n_stack: How many observations.
        channels_order: ``"first"`` or ``"last"``; of a ``Dict`` space for each key.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], n_stack: int, channels_order: str | Mapping[str, str | None]) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        self.frames: StackedObservations[Any] = StackedObservations(1, n_stack, space, channels_order)
        self.observation_space = self.frames.stacked_observation_space

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """See Gymnasium."""
        observation, info = self.env.reset(**kwargs)
        return _only_row(self.frames.reset(_as_row(observation))), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """See Gymnasium."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # The last observation of an episode is stacked like any other.
        stacked, _ = self.frames.update(_as_row(observation), np.zeros(1, np.bool_), [{}])
        return _only_row(stacked), reward, terminated, truncated, info


def _as_row(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.asarray(part)[None] for key, part in observation.items()}
    return np.asarray(observation)[None]


def _only_row(rows: Any) -> Any:
    """A copy, for the next reset writes into the same array."""
    return {key: part[0].copy() for key, part in rows.items()} if isinstance(rows, dict) else rows[0].copy()


class TransposedImages(gymnasium.ObservationWrapper[Any, Any, Any]):
    """What ``VecTransposeImage`` gives, for one environment: images with their channels first.

    Args:
        env: The environment.
        keys: Which parts of a ``Dict`` are images; empty for an environment whose observation is one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(env)
        self.keys = keys
        space: Any = env.observation_space
        transpose = VecTransposeImage.transpose_space
        if keys:
            parts = {key: transpose(part, key) if key in keys else part for key, part in space.spaces.items()}
            self.observation_space = spaces.Dict(parts)
        else:
            self.observation_space = transpose(space)

    def observation(self, observation: Any) -> Any:
        """See Gymnasium."""
        if self.keys:
            return {key: np.transpose(part, (2, 0, 1)) if key in self.keys else part for key, part in observation.items()}
        return np.transpose(observation, (2, 0, 1))
