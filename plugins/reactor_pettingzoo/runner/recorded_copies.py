"""One environment as the runner steps it: what its agents see is written into a record, from which policies are asked.

An agent's rows of the record are looked at before they are written: shape, dtype, action masks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from numpy import ndarray

from reactor_gymnasium.plugin import make_probe
from reactor_pettingzoo.agent_record import AgentFields, ObservedArray
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.copies import AECCopy, Copy, ParallelCopy
from reactor_pettingzoo.reading import AgentID, choices_of, segments
from reactor_rl.plugin import decode

__all__ = ["ProbeCopy", "RecordedCopy", "recorded_copy"]

Array = npt.NDArray[Any]


class RecordedCopy(Copy):
    """A copy whose agents see what is in a record.

    Args:
        env: The environment.
        specs: Its agents.
        record: Its part of what the policies see: a record of shape ``()``, see :meth:`AgentSpecs.record`.
        source: For each agent, which group of policies acts for it.
        acting: Its part of who acts in the coming step, ``(agents,)``, bool.

    Attributes:
        full: Whether all agents that there may be are there and act together, in the specs' order.
        masked: Whether an agent that acts together with others has a mask now, where nobody had one after the first reset.
    """

    def __init__(self, env: Any, specs: AgentSpecs, record: Array, source: Sequence[int], acting: Array) -> None:
        super().__init__(env, specs.agents)
        self.specs, self.record, self.source, self.acting = specs, record, source, acting
        self.full = self.masked = False
        self.places = {agent: AgentFields(specs, record, agent) for agent in specs.agents}
        self.fields = [name for group in specs.groups for name, _, _ in group.fields()]

    @abstractmethod
    def reset(self, *, seed: int | None = None) -> None:
        """Begin an episode, and write into the record what the agents see."""

    @abstractmethod
    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """Take a step, and write into the record what the agents see then.

        Args:
            actions: For each group of policies the actions by row.

        Returns:
            The reward of each agent.
        """

    def took_part(self) -> tuple[bool, ...]:
        """For each agent whether it has been there in this episode."""
        return tuple([agent in self.present for agent in self.agents])

    def idle(self) -> None:
        """Leave nobody to act for."""
        self._arrive([])
        self.acting.fill(False)
        self.record["acting"] = 0

    def _arrive(self, names: Iterable[AgentID]) -> None:
        super()._arrive(names)
        self._clear()

    def _clear(self) -> None:
        for name in self.fields:  # the rows of everybody who is not there are zeros
            self.record[name] = 0

    def _lacking(self, agent: AgentID, key: KeyError) -> Exception:
        return self.broken(f"there is no {key} in the observation or info of agent {agent!r} ({self.infos.get(agent)})")


class RecordedParallelCopy(RecordedCopy, ParallelCopy):
    """Agents that act together: a step is an action of everybody who is there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The group that acts for all of them, each with its own row, in their order.
        sources, rows = {*self.source}, [self.places[agent].row for agent in self.agents]
        self.only = sources.pop() if len(sources) == 1 and rows == list(range(len(rows))) else -1

    def reset(self, *, seed: int | None = None) -> None:
        """See :class:`RecordedCopy`."""
        self.begin(seed=seed)
        self._show()

    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """See :class:`RecordedCopy`."""
        if self.full and self.only >= 0:
            chosen = dict(zip(self.live, actions[self.only], strict=True))
        else:
            chosen = {agent: actions[group][row] for agent, group, row in self.does}
        self.act(chosen)
        self._show()
        return self.gains

    def _arrive(self, names: Iterable[AgentID]) -> None:
        super()._arrive(names)
        live, places = self.live, self.places
        self.full = tuple(live) == self.agents
        self.does = [(agent, self.source[self.index[agent]], places[agent].row) for agent in live]
        self.acting[:] = [agent in live for agent in self.agents]
        self.sees: list[tuple[AgentID, Array, Any, tuple[int, ...], ObservedArray]] = []
        self.sees_nested: list[tuple[AgentID, ObservedArray]] = []
        self.masks: list[tuple[AgentID, AgentFields]] = []
        self.may_be_masked: list[tuple[AgentID, AgentFields]] = []
        for agent in live:
            place = places[agent]
            place.alive[...] = True
            place.free()
            for part in place.observed:
                if part.path:
                    self.sees_nested.append((agent, part))
                else:
                    self.sees.append((agent, part.array, part.dtype, part.shape, part))
            if place.may_be_masked:
                self.may_be_masked.append((agent, place))
            elif place.mask is not None:
                self.masks.append((agent, place))

    def _show(self) -> None:
        """Write what the agents see."""
        observations, infos = self.observations, self.infos
        agent: AgentID = None
        try:
            for agent, array, dtype, shape, part in self.sees:
                seen = observations[agent]
                if type(seen) is not ndarray or seen.dtype != dtype or seen.shape != shape:
                    seen = part.fitting(self.observation(agent))
                array[...] = seen
            for agent, part in self.sees_nested:
                part.write(self.observation(agent))
            for agent, place in self.masks:
                self.mask(place.group, agent, place.mask)
            if self.may_be_masked and (self.masked or (infos and any(infos.values()))):
                self.masked = False
                for agent, place in self.may_be_masked:
                    self.masked |= place.write_mask(self, agent)
        except KeyError as error:
            raise (self.blind(agent) if agent not in observations else self._lacking(agent, error)) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise


class RecordedAECCopy(RecordedCopy, AECCopy):
    """Agents that take turns: a step is an action of the one whose turn it is."""

    def reset(self, *, seed: int | None = None) -> None:
        """See :class:`RecordedCopy`."""
        self.begin(seed=seed)

    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """See :class:`RecordedCopy`."""
        self.act(actions[self.group][self.places[self.agent].row])
        return self.gains

    def _turn(self) -> None:
        super()._turn()
        agent = self.agent
        index, place = self.index[agent], self.places[agent]
        self._clear()
        self.acting.fill(False)
        self.acting[index] = True
        self.group = self.source[index]
        self.record["acting"] = index
        place.alive[...] = True
        try:
            seen = self.observations[agent]
            if seen is None:
                raise self.blind(agent)
            for part in place.observed:
                part.write(seen)
            if place.may_be_masked:
                place.write_mask(self, agent)
            else:
                self.mask(place.group, agent, place.mask)
        except KeyError as error:
            raise self._lacking(agent, error) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise

    def _arrive(self, names: Iterable[AgentID]) -> None:
        super()._arrive(names)
        if self.over:
            self.acting.fill(False)


def recorded_copy(env: Any, specs: AgentSpecs, record: Array, source: Sequence[int], acting: Array) -> RecordedCopy:
    """A copy of agents that act together or take turns; arguments as for :class:`RecordedCopy`."""
    kind: type[RecordedCopy] = RecordedAECCopy if specs.turns else RecordedParallelCopy
    return kind(env, specs, record, source, acting)


class ProbeCopy:
    """A copy that is tried like an environment of one agent, see :mod:`reactor_gymnasium.environments.saving`.

    An action is a number from which those of all agents are drawn: only here it is known which ones their masks allow.

    Args:
        env: The environment.
        specs: Its agents.
    """

    action_space: ClassVar[spaces.Space[Any]] = spaces.Discrete(2**31)

    def __init__(self, env: Any, specs: AgentSpecs) -> None:
        self._specs = specs
        self._record = np.zeros((), specs.record())
        groups = [specs.group_of(agent)[0].number for agent in specs.agents]
        self._copy = recorded_copy(env, specs, self._record, groups, np.zeros(len(specs.agents), np.bool_))

    @classmethod
    def of(cls, env_fn: Any, specs: AgentSpecs) -> ProbeCopy:
        """One of an encoded function."""
        return cls(make_probe(decode(env_fn)), specs)

    def reset(self, *, seed: int | None = None) -> tuple[bytes, dict[str, Any]]:
        """Begin an episode. Returns what all agents see, and no info."""
        if seed is not None:
            self._seed(seed)
        self._copy.reset(seed=seed)
        return self._record.tobytes(), {}

    def sample(self) -> list[Any]:
        """Random actions of all agents, for :meth:`act`."""
        actions = []
        for group in self._specs.groups:
            masks = group.masks(self._record)
            actions.append([_sample(group.action_space, mask) for mask in ([None] * group.rows if masks is None else masks)])
        return actions

    def act(self, actions: list[Any]) -> tuple[float, ...]:
        """Take a step. Returns every agent's reward."""
        return tuple(self._copy.step(actions))

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._copy.over

    def step(self, number: Any) -> tuple[bytes, tuple[float, ...], bool, bool, dict[str, Any]]:
        """Take a step with the actions that a number stands for. Returns what all agents see, their rewards, and flags."""
        self._seed(int(number))
        rewards = self.act(self.sample())
        return self._record.tobytes(), rewards, self.over, False, {}

    def close(self) -> None:
        """Close the environment."""
        self._copy.env.close()

    def _seed(self, number: int) -> None:
        for group in self._specs.groups:
            group.action_space.seed(number)


def _sample(space: Any, mask: Any) -> Any:
    if mask is None or not mask.any():
        sampled = space.sample()
    elif isinstance(space, spaces.Discrete):
        sampled = space.sample(mask)
    else:
        chosen = [space.np_random.choice(np.flatnonzero(mask[part])) for part in segments(choices_of(space))]
        sampled = np.reshape(np.array(chosen, space.dtype), space.shape) + space.start
    return int(sampled) if isinstance(space, spaces.Discrete) else sampled
