"""Samples of a runner of many agents since its last call, as columns, and the episodes that RLlib is given of them.

A row is an agent of an environment, as in :class:`~reactor_ray.rllib.multi_agent_vector_env.AgentColumns`. Observation ``k`` of a
fragment comes before step ``k``, so that a fragment has one more of them than steps.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from ray.rllib.core.columns import Columns
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from reactor_ray.rllib.fragment import Rows, continued, fill
from reactor_ray.rllib.multi_agent_vector_env import AgentColumns

__all__ = ["Acted", "MultiAgentFragment", "Sampled"]

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Acted:
    """The agents' actions between two observations."""

    of_modules: list[tuple[Any, npt.NDArray[np.int64], Mapping[str, _Array]]]
    """For each module its id, the rows that it acted for, and what it said of them: actions, and all that it computed besides."""
    weights: int | None
    """The number of the weights that it acted with, ``None`` for random actions."""


@dataclass(slots=True)
class Sampled:
    """The episodes of a fragment, and how many steps they are."""

    done: list[Any] = field(default_factory=list)
    """Those that have ended, the earliest first."""
    ongoing: list[Any] = field(default_factory=list)
    """Chunks of those that go on."""
    env_steps: int = 0
    agent_steps: Counter[Any] = field(default_factory=Counter)
    """Observations that steps brought, by agent."""
    module_steps: Counter[Any] = field(default_factory=Counter)
    """The same by module."""


class _Playing:
    """An episode from its beginning, or from that of the fragment, on: RLlib's object, which gets its steps at the end."""

    def __init__(self, episode: Any) -> None:
        self.episode = episode
        self.chunks: dict[Any, Any] = {}

    def chunk(self, agent: Any) -> Any:
        """The ``SingleAgentEpisode`` of an agent, which has no steps yet."""
        episode = self.episode
        if agent not in self.chunks:
            self.chunks[agent] = SingleAgentEpisode(
                agent_id=agent,
                module_id=episode.module_for(agent),
                multi_agent_episode_id=episode.id_,
                observation_space=episode.observation_space.get(agent),
                action_space=episode.action_space.get(agent),
            )
        return self.chunks[agent]

    def goes_on(self) -> _Playing:
        """The next chunk of it, with the agents that are not done."""
        episode = self.episode
        chunks = {agent: continued(chunk) for agent, chunk in self.chunks.items() if not chunk.is_done}
        successor = MultiAgentEpisode(
            id_=episode.id_,
            observation_space=episode.observation_space,
            action_space=episode.action_space,
            env_t_started=episode.env_t,
            agent_t_started={agent: chunk.t_started for agent, chunk in chunks.items()},
            agent_module_ids=dict(episode._agent_to_module_mapping),
            agent_to_module_mapping_fn=episode.agent_to_module_mapping_fn,
            len_lookback_buffer=0,
        )
        successor.custom_data.update(copy.deepcopy(episode.custom_data))
        playing = _Playing(successor)
        playing.chunks = chunks
        return playing


class MultiAgentFragment:
    """Records steps, and makes episodes of them.

    Args:
        agents: The agents of an environment, in the order of their rows.
        rows: What they have after the reset.
        episodes: RLlib's new episode of each environment.
    """

    def __init__(self, agents: tuple[Any, ...], rows: AgentColumns, episodes: list[Any]) -> None:
        self.agents = agents
        self.rows, self.times = [rows], [time.perf_counter()]
        self.acted: list[Acted] = []
        self.before = 0  # how many steps belong to the last fragment: the lookback
        self.playing = [[_Playing(episode)] for episode in episodes]

    @property
    def now(self) -> AgentColumns:
        """The agents' newest observations and flags."""
        return self.rows[-1]

    def __len__(self) -> int:
        """How many steps of all environments there are since :meth:`begin`."""
        return len(self.acted) - self.before

    def begin(self, lookback: int) -> None:
        """Begin the next fragment.

        Args:
            lookback: Of how many steps episodes may look back into this one.
        """
        self.before = min(lookback, len(self.acted))
        self.rows, self.times = self.rows[-self.before - 1 :], self.times[-self.before - 1 :]
        self.acted = self.acted[len(self.acted) - self.before :]

    def add(self, acted: Acted, rows: AgentColumns) -> None:
        """Record a step."""
        self.acted.append(acted)
        self.rows.append(rows)
        self.times.append(time.perf_counter())

    def new_episode(self, environment: int, episode: Any) -> None:
        """An environment's episode is over: its next one."""
        self.playing[environment].append(_Playing(episode))

    def modules(self) -> list[tuple[Any, npt.NDArray[np.int64]]]:
        """Each module whose turn it is, with the rows that it acts for, in the order of their first ones."""
        of_modules: dict[Any, list[int]] = {}
        for row in np.flatnonzero(self.now.acting).tolist():
            environment, agent = divmod(row, len(self.agents))
            module = self.playing[environment][-1].episode.module_for(self.agents[agent])
            of_modules.setdefault(module, []).append(row)
        return [(module, np.array(rows)) for module, rows in of_modules.items()]

    def sampled(self) -> Sampled:
        """Episodes and chunks of all steps since :meth:`begin`; those that go on are continued in the next fragment."""
        result = Sampled()
        if not len(self):
            return result
        columns = _Stacked(self)
        ended: list[tuple[int, int, Any]] = []
        for environment, playing in enumerate(self.playing):
            begin = self.before + int(columns.over[self.before, environment])
            ends = np.flatnonzero(columns.over[self.before + 1 :, environment]) + self.before + 1
            for one, end in zip(playing, ends.tolist(), strict=False):
                columns.fill(one, environment, begin, end, result)
                ended.append((end, environment, one.episode))
                begin = end + 1
            last = playing[-1]
            if begin < len(self.acted):
                columns.fill(last, environment, begin, len(self.acted), result)
                result.ongoing.append(last.episode)
                last = last.goes_on()
            self.playing[environment] = [last]
        result.done = [episode for _, _, episode in sorted(ended, key=lambda one: one[:2])]
        return result


class _Stacked:
    """A fragment's steps, one array per column."""

    def __init__(self, fragment: MultiAgentFragment) -> None:
        rows = fragment.rows
        self.fragment, self.steps = fragment, len(fragment.acted)
        self.observations = np.stack([of_step.observations for of_step in rows])
        self.rewards = np.stack([of_step.rewards for of_step in rows[1:]])
        self.there = np.stack([of_step.there for of_step in rows])
        self.terminated = np.stack([of_step.terminated for of_step in rows])
        self.truncated = np.stack([of_step.truncated for of_step in rows])
        self.over = np.stack([of_step.over for of_step in rows])
        self.weights = None if fragment.acted[-1].weights is None else np.array([acted.weights for acted in fragment.acted])
        self.of_modules = self._of_modules()

    def _of_modules(self) -> dict[Any, dict[str, _Array]]:
        """Each module's outputs, ``(steps, rows, *shape)``; zeros for rows that are not its own."""
        n = len(self.fragment.now.there)
        columns: dict[Any, dict[str, _Array]] = {}
        for step, acted in enumerate(self.fragment.acted):
            for module, rows, said in acted.of_modules:
                of_module = columns.setdefault(module, {})
                for name, values in said.items():
                    if name not in of_module:
                        of_module[name] = np.zeros((self.steps, n, *values.shape[1:]), values.dtype)
                    elif of_module[name].dtype != values.dtype:  # without exploration RLlib's log-probabilities are integers
                        of_module[name] = of_module[name].astype(np.result_type(of_module[name], values))
                    of_module[name][step, rows] = values
        return columns

    def fill(self, playing: _Playing, environment: int, begin: int, end: int, result: Sampled) -> None:
        """Give an episode its steps from observation ``begin`` to observation ``end``, and count them."""
        fragment, episode = self.fragment, playing.episode
        lo = environment * len(fragment.agents)
        rows = slice(lo, lo + len(fragment.agents))
        over = bool(self.over[end, environment])
        all_truncated = over and bool(self.truncated[end, rows][self.there[end, rows]].all())
        lookback = min(fragment.before, episode.env_t_started)
        episode._len_lookback_buffers = lookback
        for row, agent in enumerate(fragment.agents, lo):
            seen = np.flatnonzero(self.there[begin : end + 1, row])
            if not len(seen):
                continue
            first, last = begin + int(seen[0]), begin + int(seen[-1])
            chunk = playing.chunk(agent)
            brought = last - max(first, begin + 1) + 1
            result.agent_steps[agent] += brought
            result.module_steps[chunk.module_id] += brought
            if last == first:
                continue  # it has only just joined
            back = min(lookback, chunk.t_started) if first == begin else 0
            # MultiAgentEpisode.add_env_step calls an episode terminated whenever no agent is left, and so all who are there then.
            terminated = bool(self.terminated[last, row]) or (over and last == end)
            truncated = bool(self.truncated[last, row]) or (all_truncated and last == end)
            fill(
                chunk,
                self._rows(row, chunk.module_id, first - back, last, back),
                terminated=terminated,
                truncated=truncated,
                began=fragment.times[first],
                ended=fragment.times[last],
            )
            episode.agent_episodes[agent] = chunk
            skip = [episode.SKIP_ENV_TS_TAG]
            numbers = [*range(chunk.t_started - back, chunk.t + 1)]
            where = skip * (first - back - begin + lookback) + numbers + skip * (end - last)
            episode.env_t_to_agent_t[agent] = InfiniteLookbackBuffer(where, lookback=lookback)
        episode.env_t = episode.env_t_started + end - begin
        episode.is_terminated, episode.is_truncated = over, all_truncated
        episode._start_time, episode._last_step_time = fragment.times[begin], fragment.times[end]
        result.env_steps += end - begin

    def _rows(self, row: int, module: Any, first: int, last: int, back: int) -> Rows:
        """Copies of what is in a row from observation ``first`` to observation ``last``; episodes outlive the fragment."""
        said = {name: column[first:last, row].copy() for name, column in self.of_modules[module].items()}
        actions = said.pop(Columns.ACTIONS)
        if said and self.weights is not None:
            said[WEIGHTS_SEQ_NO] = self.weights[first:last].copy()
        return Rows(
            observations=self.observations[first : last + 1, row].copy(),
            actions=actions,
            rewards=self.rewards[first:last, row].copy(),
            infos=[self.fragment.rows[index].infos.get(row, {}) for index in range(first, last + 1)],
            extras=said,
            steps=last - first - back,
            lookback=back,
        )
