"""One environment as the runner steps it: who acts, what they are given, what came of it.

Agents that act together (``ParallelEnv``) and agents that take turns (``AECEnv``) differ in what a step is: an action of everybody
who is there, or of one of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from reactor_pettingzoo.agents import MASK, AgentID, AgentSpecs, leave_dead
from reactor_pettingzoo.runner.places import AgentPlace, Part

__all__ = ["Copy", "ParallelCopy", "AECCopy"]

Array = npt.NDArray[Any]
_NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.bool_})
"""Types of rewards that cannot change after they were returned."""


class Copy:
    """An environment, and the rows that it fills.

    Args:
        env: The environment.
        specs: Its agents.
        record: Its part of what the policies see: a record of shape ``()``, see :meth:`AgentSpecs.record`.
        source: For each agent, which group of policies acts for it.
        acting: Its part of who acts in the coming step, ``(agents,)``, bool.

    Attributes:
        present: Agents that have been there in this episode, whether they acted or not.
        over: Whether the episode has ended with the last step.
        full: Whether all agents that there may be are there and act together, in the specs' order.
        masked: Whether an agent that acts together with others has a mask now, where nobody had one after the first reset.
    """

    def __init__(self, env: Any, specs: AgentSpecs, record: Array, source: Sequence[int], acting: Array) -> None:
        self.env, self.specs, self.record, self.source, self.acting = env, specs, record, source, acting
        self.index = {agent: index for index, agent in enumerate(specs.agents)}
        self.over = self.full = self.masked = False
        self.present: set[AgentID] = set()
        self.live: list[AgentID] = []
        self.places = {agent: AgentPlace(specs, record, agent) for agent in specs.agents}
        self.fields = [name for group in specs.groups for name, _, _ in group.fields()]

    @abstractmethod
    def reset(self, seed: int | None) -> None:
        """Begin an episode."""

    @abstractmethod
    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """Take a step.

        Args:
            actions: For each group of policies the actions by row.

        Returns:
            The reward of each agent.
        """

    @abstractmethod
    def show(self) -> None:
        """Write into the record what the agents see now: before another copy steps, which may use the same arrays."""

    def took_part(self) -> tuple[bool, ...]:
        """For each agent whether it has been there in this episode."""
        return tuple([agent in self.present for agent in self.specs.agents])

    def idle(self) -> None:
        """Leave nobody to act for."""
        self._arrive([])
        self.acting.fill(False)
        self.record["acting"] = 0

    def _arrive(self, agents: Sequence[AgentID]) -> None:
        """Take account of who is there."""
        self._enter(agents)

    def _enter(self, live: Sequence[AgentID]) -> None:
        """Show who is there; the rows of everybody else are zeros."""
        known = self.places
        for agent in live:
            if agent not in known:
                raise ValueError(
                    f"agent {agent!r} joined, and is none of the environment's possible_agents {list(known)}: list every agent "
                    "that may ever join there"
                )
        for name in self.fields:
            self.record[name] = 0
        self.live = list(live)
        self.present.update(live)

    def _numbers(self, rewards: Sequence[Any]) -> Sequence[float]:
        """Rewards that stay as they are now: an array of one element is a reward, too, and may be the environment's own."""
        if _NUMBERS.issuperset(map(type, rewards)):
            return rewards
        return [np.asarray(reward, np.float64).item() for reward in rewards]

    def _mask_by_info(self, place: AgentPlace, info: Mapping[str, Any] | None) -> bool:
        """Write the mask that an agent may have in its info; whether it has one."""
        mask = info.get(MASK) if info else None
        if mask is not None:
            place.write_mask(mask)
        elif place.masked:
            place.free()
        return mask is not None

    def _broken(self, agent: AgentID, what: str, returned: Any) -> ValueError:
        return ValueError(
            f"the environment breaks PettingZoo's API: {what} for agent {agent!r} ({returned}); pettingzoo.test.api_test and "
            "parallel_api_test say more"
        )


class ParallelCopy(Copy):
    """Agents that act together: a step is an action of everybody who is there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        agents = self.specs.agents
        self.observations: Mapping[AgentID, Any] = {}
        self.infos: Mapping[AgentID, Any] = {}
        self.rewards_of = itemgetter(*agents) if len(agents) > 1 else lambda rewards: (rewards[agents[0]],)
        # The group that acts for all of them, each with its own row, in their order.
        sources, rows = {*self.source}, [self.places[agent].row for agent in agents]
        self.only = sources.pop() if len(sources) == 1 and rows == list(range(len(agents))) else -1

    def reset(self, seed: int | None) -> None:
        """See :class:`Copy`."""
        self.observations, self.infos = self.env.reset(seed=seed)
        self.present.clear()
        self._arrive(self.env.agents)
        if not self.live:
            raise ValueError(f"{self.env} has no agents after reset()")
        self.over = False

    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """See :class:`Copy`."""
        env = self.env
        if self.full and self.only >= 0:
            chosen = dict(zip(self.live, actions[self.only], strict=True))
        else:
            chosen = {agent: actions[group][row] for agent, group, row in self.does}
        self.observations, rewards, terminations, truncations, self.infos = env.step(chosen)
        try:
            gains: Sequence[float] = self.rewards_of(rewards)
        except KeyError:  # some are dead
            gains = [rewards.get(agent, 0.0) for agent in self.specs.agents]
            for agent in self.live:
                if agent not in rewards:
                    raise self._broken(agent, "step() returned no reward", list(rewards)) from None
        gains = self._numbers(gains)
        if True in terminations.values() or True in truncations.values():
            for agent in env.agents:  # one that is kept would never end the episode
                if terminations.get(agent) or truncations.get(agent):
                    raise self._broken(agent, "step() has ended its episode and left it in env.agents", list(env.agents))
        if env.agents != self.live:
            self._arrive(env.agents)
            self.over = not self.live
        return gains

    def _arrive(self, agents: Sequence[AgentID]) -> None:
        self._enter(agents)
        live, places = self.live, self.places
        self.full = tuple(live) == self.specs.agents
        self.does = [(agent, self.source[self.index[agent]], places[agent].row) for agent in live]
        self.acting[:] = [agent in live for agent in self.specs.agents]
        self.sees: list[tuple[AgentID, Array, Any, tuple[int, ...], Part]] = []
        self.sees_parts: list[tuple[AgentID, Part]] = []
        self.masks: list[tuple[AgentID, AgentPlace]] = []
        self.may_be_masked: list[tuple[AgentID, AgentPlace]] = []
        for agent in live:
            place = places[agent]
            place.alive[...] = True
            place.free()
            for part in place.parts:
                if part.path:
                    self.sees_parts.append((agent, part))
                else:
                    self.sees.append((agent, part.array, part.dtype, part.shape, part))
            if place.may_be_masked:
                self.may_be_masked.append((agent, place))
            elif place.mask is not None:
                self.masks.append((agent, place))

    def show(self) -> None:
        """See :class:`Copy`."""
        observations, infos = self.observations, self.infos
        agent: AgentID = None
        try:
            for agent, array, dtype, shape, part in self.sees:
                seen = observations[agent]
                if type(seen) is not ndarray or seen.dtype is not dtype or seen.shape != shape:
                    seen = part.fitting(seen)
                array[...] = seen
            for agent, part in self.sees_parts:
                part.write(observations[agent])
            for agent, place in self.masks:
                place.write_mask((observations if place.group.mask == "observation" else infos)[agent][MASK])
            if self.may_be_masked and (self.masked or (infos and any(infos.values()))):
                self.masked = False
                for agent, place in self.may_be_masked:
                    self.masked |= self._mask_by_info(place, infos.get(agent) if infos else None)
        except KeyError as error:
            if agent not in observations:
                raise self._broken(agent, "no observation was returned", list(observations)) from None
            raise self._broken(agent, f"there is no {error} in its observation or info", infos.get(agent)) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise


class AECCopy(Copy):
    """Agents that take turns: a step is an action of the one whose turn it is."""

    def reset(self, seed: int | None) -> None:
        """See :class:`Copy`."""
        self.env.reset(seed=seed)
        self.over = False
        self.present.clear()
        self._next()
        if self.over:
            raise ValueError(f"{self.env} has no agents left after reset()")

    def show(self) -> None:
        """It is shown with the turn."""

    def step(self, actions: Sequence[Any]) -> Sequence[float]:
        """See :class:`Copy`."""
        env, agent = self.env, self.agent
        env.step(actions[self.group][self.places[agent].row])
        rewards = env.rewards
        gains = self._numbers([rewards.get(one, 0.0) for one in self.specs.agents])
        self._next()
        return gains

    def _next(self) -> None:
        """Find out whose turn it is."""
        env = self.env
        self.present.update(env.agents)
        leave_dead(env)
        self.over = not env.agents
        self._enter(env.agents)
        self.acting.fill(False)
        if self.over:
            return
        self.agent = agent = env.agent_selection
        index = self.index[agent]
        self.acting[index] = True
        self.group = self.source[index]
        self.record["acting"] = index
        try:
            self._show(self.places[agent], env.observe(agent), env.infos.get(agent, {}))
        except KeyError as error:
            raise self._broken(agent, f"there is no {error} in its observation or info", env.infos.get(agent)) from None
        except (TypeError, ValueError) as error:
            error.add_note(f"in what agent {agent!r} is to see")
            raise

    def _show(self, place: AgentPlace, observation: Any, info: Mapping[str, Any]) -> None:
        """Write what an agent sees."""
        place.alive[...] = True
        for part in place.parts:
            part.write(observation)
        if place.may_be_masked:
            place.free()
            self._mask_by_info(place, info)
        elif place.mask is not None:
            place.write_mask((observation if place.group.mask == "observation" else info)[MASK])
