"""The steps since the last ``sample()`` as columns, one array per vector step, and the RLlib episodes that they become at once.

Shapes: ``N`` environments, ``K`` vector steps; ``T`` steps in a chunk of an episode, ``L`` steps of the same episode before it, its
lookback. Columns may be nested, as spaces are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tree
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

__all__ = ["Fragment", "Rows", "continued", "fill"]


@dataclass(frozen=True, slots=True)
class Rows:
    """An agent's part of a chunk of an episode, in one environment.

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
    """The module's other outputs: of each name ``(L + T, *shape)``, or ``(T, *shape)`` if there was none of it before."""
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


class Fragment:
    """The columns of the steps from :meth:`begin` or :meth:`go_on` on. A step's index counts from there.

    Args:
        lookback: How many steps before a fragment its episodes may look back at.
    """

    def __init__(self, lookback: int) -> None:
        self._keep = lookback
        self._observations: list[Any] = []
        self._infos: list[list[dict[str, Any]]] = []
        self._actions: list[Any] = []
        self._rewards: list[Any] = []
        self._extras: dict[str, list[Any]] = {}
        self._times: list[float] = []
        self._before = 0
        self._stacked: tuple[Any, Any, Any, dict[str, Any]] | None = None

    def begin(self, observations: Any, infos: list[dict[str, Any]], time: float) -> None:
        """Forget everything: all environments were reset.

        Args:
            observations: ``(N, *shape)``, nested as the space is.
            infos: ``N`` of them.
            time: When, by ``time.perf_counter()``.
        """
        self._observations, self._infos, self._times = [observations], [infos], [time]
        self._actions, self._rewards, self._extras = [], [], {}
        self._before, self._stacked = 0, None

    def resume(self, time: float) -> None:
        """Let what comes next begin now, not when the newest step was taken."""
        self._times[-1] = time

    def go_on(self) -> None:
        """Forget what no next step looks back at."""
        steps, self._before = len(self._actions), min(self._keep, len(self._actions))
        for column in (self._observations, self._infos, self._times, self._actions, self._rewards, *self._extras.values()):
            del column[: steps - self._before]
        self._stacked = None

    def add(
        self, actions: Any, extras: dict[str, Any], observations: Any, rewards: Any, infos: list[dict[str, Any]], time: float
    ) -> None:
        """Add a vector step, of which nothing may change afterwards."""
        if not len(self):
            self._extras = {name: self._extras.get(name, []) for name in extras}
        self._actions.append(actions)
        for name, column in self._extras.items():
            column.append(extras[name])
        self._observations.append(observations)
        self._rewards.append(rewards)
        self._infos.append(infos)
        self._times.append(time)

    @property
    def observations(self) -> Any:
        """The newest: ``(N, *shape)``, nested as the space is."""
        return self._observations[-1]

    def __len__(self) -> int:
        return len(self._actions) - self._before

    def fill(
        self, episode: Any, env: int, lo: int, hi: int, terminated: bool = False, truncated: bool = False, *, listed: bool = False
    ) -> None:
        """Give an episode its steps from ``lo`` to before ``hi`` of an environment; see :func:`fill`.

        They are arrays, views of the fragment's, or with ``listed`` lists of single items, as it has them while it goes on.
        """
        back = min(self._before, episode.t_started) if lo == 0 else 0
        first, end = self._before + lo - back, self._before + hi
        lists = self._observations, self._actions, self._rewards, self._extras
        observations, actions, rewards, extras = lists if listed else self._arrays()

        def cut(column: Any, rows: slice) -> Any:
            if listed:
                return [tree.map_structure(lambda leaf: leaf[env], row) for row in column[rows]]
            return tree.map_structure(lambda leaf: leaf[env, rows], column)

        def said(name: str) -> slice:  # the same rows of what the module may have begun to say with this fragment
            late = len(self._actions) - len(self._extras[name])
            return slice(max(first - late, 0), end - late)

        rows = Rows(
            observations=cut(observations, slice(first, end + 1)),
            actions=cut(actions, slice(first, end)),
            rewards=cut(rewards, slice(first, end)),
            infos=[row[env] for row in self._infos[first : end + 1]],
            extras={name: cut(column, said(name)) for name, column in extras.items()},
            steps=hi - lo,
            lookback=back,
        )
        began, ended = self._times[self._before + lo], self._times[end]
        fill(episode, rows, terminated=terminated, truncated=truncated, began=began, ended=ended)

    def _arrays(self) -> tuple[Any, Any, Any, dict[str, Any]]:
        if self._stacked is None:
            extras = {name: _joined(column) for name, column in self._extras.items()}
            self._stacked = _joined(self._observations), _joined(self._actions), np.stack(self._rewards, axis=1), extras
        return self._stacked


def _joined(rows: list[Any]) -> Any:
    """Rows ``(N, *shape)`` as arrays ``(N, K, *shape)``, so that what belongs to an environment lies together."""
    return tree.map_structure(lambda *leaves: np.stack(leaves, axis=1), *rows)
