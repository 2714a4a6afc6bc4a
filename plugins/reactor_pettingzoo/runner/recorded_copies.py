"""One environment as the runner steps it: what its agents see is written into a record, from which policies are asked.

An agent's rows of the record are looked at before they are written: shape, dtype, action masks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from numpy import ndarray

from reactor_gymnasium.plugin import ObservationLayout, as_number, make_probe
from reactor_pettingzoo.agents import MASK, AgentID, AgentSpecs
from reactor_pettingzoo.copies import NUMBERS, AECCopy, Copy, ParallelCopy
from reactor_rl.plugin import decode

__all__ = ["ProbeCopy", "RecordedCopy", "recorded_copy"]

Array = npt.NDArray[Any]


class ObservedArray:
    """One array of what an agent sees.

    Args:
        array: Where it belongs.
        space: What it is.
        path: The keys that lead to it in what the environment returns.
    """

    def __init__(self, array: Array, space: Space[Any], path: tuple[Any, ...]) -> None:
        assert space.shape is not None and space.dtype is not None
        self.array, self.space, self.path = array, space, path
        self.shape, self.dtype = tuple(space.shape), np.dtype(space.dtype)
        self._leaves = ObservationLayout(space)

    def write(self, observation: Any) -> None:
        """Write it down from an observation.

        Raises:
            ValueError, TypeError: As :meth:`fitting` does.
        """
        for key in self.path:
            observation = observation[key]
        self.array[...] = self.fitting(observation)

    def fitting(self, value: Any) -> Array:
        """The value as an array that may be written.

        Raises:
            ValueError: If it has another shape, which a write would hide by broadcasting, or is a number that its space lacks.
            TypeError: If it does not cast to the dtype of its space.
        """
        array = np.asarray(value)
        if array.dtype == self.dtype and array.shape == self.shape:
            return array
        self._leaves.check(array)
        if self.dtype.kind in "iu" and not np.can_cast(array.dtype, self.dtype):
            narrow = array.astype(self.dtype)
            if not np.array_equal(narrow, array) or not self.space.contains(narrow if narrow.shape else narrow[()]):
                raise ValueError(f"the observation {array.tolist()} of dtype {array.dtype} is not in {self.space}")
        return array


class AgentFields:
    """The fields of a record that belong to one agent.

    Args:
        specs: The agents.
        record: The environment's record, of shape ``()``.
        agent: The agent.

    Attributes:
        group: The agents with equal spaces.
        row: Its row among them.
        alive: Its flag, of shape ``()``.
        observed: The arrays that it sees.
        mask: Its action mask; ``None`` where there is no room for one.
        masked: Where masks may come later, whether it has one now; else ``None``.
    """

    def __init__(self, specs: AgentSpecs, record: Array, agent: AgentID) -> None:
        self.group, self.row = group, row = specs.group_of(agent)
        self.alive: Array = record[group.field("alive")][row, ...]
        fields = ((record[group.field(f"observation.{key}")][row, ...], part, group.path(key)) for key, part in group.parts.items())
        self.observed = [ObservedArray(*field) for field in fields]
        self.mask: Array | None = record[group.field(MASK)][row] if group.mask else None
        self.masked: Array | None = record[group.field("masked")][row, ...] if group.mask == "later" else None

    @property
    def may_be_masked(self) -> bool:
        """Whether masks in infos are to be looked for, which nobody had after the first reset."""
        return self.group.mask in ("", "later") and isinstance(self.group.action_space, spaces.Discrete)

    def write_mask(self, mask: Any) -> None:
        """Write down an action mask.

        Raises:
            ValueError: If it does not fit the actions.
        """
        if self.mask is None:
            raise ValueError(
                f"an action mask for {self.group.action_space}, where no agent had one after reset(seed=0): give one in each info"
            )
        array = np.asarray(mask)
        if array.shape != self.mask.shape or array.dtype.kind not in "biuf":
            raise ValueError(
                f"the action mask has shape {array.shape} and dtype {array.dtype}; of {self.group.action_space} it is an array of "
                f"{self.mask.size} numbers, not 0 where an action is legal"
            )
        self.mask[...] = array if array.dtype in (np.int8, np.bool_) else array != 0
        if self.masked is not None:
            self.masked[...] = True

    def free(self) -> None:
        """Any action is legal."""
        if self.mask is not None and self.masked is not None:
            self.mask[...] = 1
            self.masked[...] = False


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

    def _lacking(self, agent: AgentID, key: KeyError, info: Any) -> Exception:
        return self.broken(f"there is no {key} in the observation or info of agent {agent!r} ({info})")

    def _mask_by_info(self, place: AgentFields, info: Mapping[str, Any] | None) -> bool:
        """Write the mask that an agent may have in its info; whether it has one."""
        mask = info.get(MASK) if info else None
        if mask is not None:
            place.write_mask(mask)
        elif place.masked:
            place.free()
        return mask is not None


class RecordedParallelCopy(RecordedCopy, ParallelCopy):
    """Agents that act together: a step is an action of everybody who is there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        agents = self.agents
        self.rewards_of = itemgetter(*agents) if len(agents) > 1 else lambda rewards: (rewards[agents[0]],)
        # The group that acts for all of them, each with its own row, in their order.
        sources, rows = {*self.source}, [self.places[agent].row for agent in agents]
        self.only = sources.pop() if len(sources) == 1 and rows == list(range(len(agents))) else -1

    def reset(self, *, seed: int | None = None) -> None:
        """See :class:`RecordedCopy`."""
        self._show(*self.begin(seed=seed))

    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """See :class:`RecordedCopy`."""
        live = self.live
        if self.full and self.only >= 0:
            chosen = dict(zip(live, actions[self.only], strict=True))
        else:
            chosen = {agent: actions[group][row] for agent, group, row in self.does}
        observations, rewards, _, _, infos = self.act(chosen)
        try:
            gains: Sequence[float] = self.rewards_of(rewards)
        except KeyError:  # some are dead
            gains = [rewards.get(agent, 0.0) for agent in self.agents]
            for agent in live:
                if agent not in rewards:
                    raise self.broken(f"step() returned no reward for agent {agent!r} ({list(rewards)})") from None
        if not NUMBERS.issuperset(map(type, gains)):
            gains = [as_number(reward) for reward in gains]
        self._show(observations, infos)
        return gains

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

    def _show(self, observations: Mapping[AgentID, Any], infos: Mapping[AgentID, Any]) -> None:
        """Write what the agents see."""
        agent: AgentID = None
        try:
            for agent, array, dtype, shape, part in self.sees:
                seen = observations[agent]
                if type(seen) is not ndarray or seen.dtype != dtype or seen.shape != shape:
                    seen = part.fitting(seen)
                array[...] = seen
            for agent, part in self.sees_nested:
                part.write(observations[agent])
            for agent, place in self.masks:
                place.write_mask((observations if place.group.mask == "observation" else infos)[agent][MASK])
            if self.may_be_masked and (self.masked or (infos and any(infos.values()))):
                self.masked = False
                for agent, place in self.may_be_masked:
                    self.masked |= self._mask_by_info(place, infos.get(agent) if infos else None)
        except KeyError as error:
            if agent not in observations:
                raise self.broken(f"no observation was returned for agent {agent!r} ({list(observations)})") from None
            raise self._lacking(agent, error, infos.get(agent)) from None
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
        rewards, _, _ = self.act(actions[self.group][self.places[self.agent].row])
        return [rewards.get(one, 0.0) for one in self.agents]

    def _next(self) -> None:
        super()._next()
        self._clear()
        self.acting.fill(False)
        if self.over:
            return
        env, agent = self.inner, self.agent
        index = self.index[agent]
        self.acting[index] = True
        self.group = self.source[index]
        self.record["acting"] = index
        try:
            self._show(self.places[agent], env.observe(agent), env.infos.get(agent, {}))
        except KeyError as error:
            raise self._lacking(agent, error, env.infos.get(agent)) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise

    def _show(self, place: AgentFields, observation: Any, info: Mapping[str, Any]) -> None:
        """Write what an agent sees."""
        place.alive[...] = True
        for part in place.observed:
            part.write(observation)
        if place.may_be_masked:
            place.free()
            self._mask_by_info(place, info)
        elif place.mask is not None:
            place.write_mask((observation if place.group.mask == "observation" else info)[MASK])


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
    if isinstance(space, spaces.Discrete):
        return int(space.sample() if mask is None or not mask.any() else space.sample(mask))
    return space.sample()
