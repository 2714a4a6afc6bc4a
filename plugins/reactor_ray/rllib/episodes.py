"""Rows of a fragment's columns become an episode of RLlib's at once, not step by step.

Shapes: ``T`` steps in a chunk of an episode, ``L`` steps of the same episode before it, which are its lookback. Columns may be
nested, as spaces are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

__all__ = ["Rows", "continued", "fill"]


@dataclass(frozen=True, slots=True)
class Rows:
    """What one agent of one environment saw and did in a chunk of an episode.

    A column is either an array, as ``SingleAgentEpisode.to_numpy()`` makes it, or a list of single items.
    """

    observations: Any
    """``(L + T + 1, *shape)``: those that were acted on, and the last."""
    actions: Any
    """``(L + T, *shape)``."""
    rewards: Any
    """``(L + T,)`` float64."""
    infos: list[dict[str, Any]]
    """``L + T + 1``, one for each observation."""
    extras: Mapping[str, Any]
    """What the module said besides: of each name ``(L + T, *shape)``, or ``(T, *shape)`` if there was none of it before."""
    steps: int
    """``T``."""
    lookback: int
    """``L``."""


def fill(episode: Any, rows: Rows, *, terminated: bool, truncated: bool, began: float, ended: float) -> None:
    """Give an episode its steps.

    Args:
        episode: A ``SingleAgentEpisode`` that has none yet, new or from :func:`continued`. What it holds besides (its id, where it
            started, ``custom_data``) stays.
        rows: The steps.
        terminated: Whether the last step ended the episode.
        truncated: Whether the last step cut it off.
        began: When it began, by ``time.perf_counter()``.
        ended: When its last step was taken.
    """
    for buffer, data in (
        (episode.observations, rows.observations),
        (episode.actions, rows.actions),
        (episode.rewards, rows.rewards),
        (episode.infos, rows.infos),
    ):
        buffer.data, buffer.lookback, buffer.finalized = data, rows.lookback, not isinstance(data, list)
    episode.extra_model_outputs = {name: InfiniteLookbackBuffer(data) for name, data in rows.extras.items()}
    for buffer in episode.extra_model_outputs.values():
        buffer.lookback = rows.lookback if _length(buffer.data) > rows.steps else 0
    episode.t = episode.t_started + rows.steps
    episode.is_terminated, episode.is_truncated = terminated, truncated
    episode._start_time, episode._last_step_time = began, ended


def continued(episode: Any) -> Any:
    """The next chunk of an episode that goes on. It has no steps, and no lookback before :func:`fill` gives it some."""
    chunk = SingleAgentEpisode(
        id_=episode.id_,
        observation_space=episode.observation_space,
        action_space=episode.action_space,
        t_started=episode.t,
        agent_id=episode.agent_id,
        module_id=episode.module_id,
        multi_agent_episode_id=episode.multi_agent_episode_id,
        len_lookback_buffer=0,
    )
    chunk.custom_data.update(copy.deepcopy(episode.custom_data))
    return chunk


def _length(column: Any) -> int:
    """How many rows there are of what may be nested."""
    while isinstance(column, Mapping):
        column = next(iter(column.values()))
    while isinstance(column, tuple):
        column = column[0]
    return len(column)
