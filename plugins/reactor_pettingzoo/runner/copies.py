"""One environment as the runner steps it: who acts, what they are given, what came of it.

Agents that act together (``ParallelEnv``) and agents that take turns (``AECEnv``) differ in what a step is: an action of everybody
who is there, or of one of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy.typing as npt

from reactor_pettingzoo.agents import AgentID
from reactor_pettingzoo.runner.roster import MASK, AgentBlock, Roster

__all__ = ["Copy", "Together", "Turns"]

Array = npt.NDArray[Any]


class Copy:
    """An environment, and the rows that it fills.

    Args:
        env: The environment.
        roster: Its agents.
        record: Its part of what the policies see: a record of shape ``()``, see :meth:`Roster.record`.
        source: For each agent, which group of policies acts for it.
        acting: Its part of who acts in the coming step, ``(agents,)``, bool.

    Attributes:
        present: Agents that have been there in this episode, whether they acted or not.
        over: Whether the episode has ended with the last step.
        observations: What the agents see now, as the environment says it, where they act together.
        full: Whether all agents that there may be are there and act together, in the roster's order.
    """

    def __init__(self, env: Any, roster: Roster, record: Array, source: Sequence[int], acting: Array) -> None:
        self.env, self.roster, self.record, self.source, self.acting = env, roster, record, source, acting
        self.index = {agent: index for index, agent in enumerate(roster.agents)}
        self.over = self.full = False
        self.present: set[AgentID] = set()
        self.live: list[AgentID] = []
        self.observations: Mapping[AgentID, Any] = {}
        # For each agent the arrays that it fills, each with the key of the observation's part, and that of its mask.
        self.places = {agent: self._places(agent) for agent in roster.agents}

    def _places(self, agent: AgentID) -> tuple[AgentBlock, int, list[tuple[Array, str]], Array | None]:
        block, row = self.roster.block_of(agent)
        parts = [(self.record[block.field(f"observation.{key}")][row, ...], key) for key in block.parts]
        mask = self.record[block.field(MASK)][row] if block.mask else None
        if block.mask == "observation" and parts[0][1] == "":
            space: Any = block.observation_space
            parts = [(parts[0][0], next(key for key in space.spaces if key != MASK))]
        return block, row, parts, mask

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
        """Write into the record what the agents see now."""

    def took_part(self) -> tuple[bool, ...]:
        """For each agent whether it has been there in this episode."""
        return tuple([agent in self.present for agent in self.roster.agents])

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
        for block in self.roster.blocks:
            for name, _, _ in block.fields():
                self.record[name] = 0
        self.live = list(live)
        self.present.update(live)

    def _broken(self, agent: AgentID, what: str, returned: Any) -> ValueError:
        return ValueError(
            f"the environment breaks PettingZoo's API: {what} for agent {agent!r} ({returned}); pettingzoo.test.api_test and "
            "parallel_api_test say more"
        )


class Together(Copy):
    """Agents that act together: a step is an action of everybody who is there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        agents = self.roster.agents
        self.infos: Mapping[AgentID, Any] = {}
        self.rewards_of = itemgetter(*agents) if len(agents) > 1 else lambda rewards: (rewards[agents[0]],)
        # The group that acts for all of them, each with its own row, in their order.
        sources, rows = {*self.source}, [self.places[agent][1] for agent in agents]
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
            gains = [rewards.get(agent, 0.0) for agent in self.roster.agents]
            for agent in self.live:
                if agent not in rewards:
                    raise self._broken(agent, "step() returned no reward", list(rewards)) from None
        if True in terminations.values() or True in truncations.values():
            for agent in env.agents:  # one that is kept would never end the episode
                if terminations.get(agent) or truncations.get(agent):
                    raise self._broken(agent, "step() has ended its episode and left it in env.agents", list(env.agents))
        if env.agents != self.live:
            self._arrive(env.agents)
            self.over = not self.live
        return gains

    def show(self) -> None:
        """See :class:`Copy`."""
        self._show_all(self.observations, self.infos)

    def _arrive(self, agents: Sequence[AgentID]) -> None:
        self._enter(agents)
        live, places = self.live, self.places
        self.full = tuple(live) == self.roster.agents
        self.does = [(agent, self.source[self.index[agent]], places[agent][1]) for agent in live]
        self.acting[:] = [agent in live for agent in self.roster.agents]
        for agent in live:
            self.record[places[agent][0].field("alive")][places[agent][1]] = True
        self.sees = [(place, agent) for agent in live for place, key in places[agent][2] if not key]
        self.sees_part = [(place, agent, key) for agent in live for place, key in places[agent][2] if key]
        for agent in live:
            block, _, _, mask = places[agent]
            if mask is not None and block.mask == "observation":
                self.sees_part.append((mask, agent, MASK))
        self.masked_by_info = [(places[agent][3], agent) for agent in live if places[agent][0].mask == "info"]

    def _show_all(self, observations: Mapping[AgentID, Any], infos: Mapping[AgentID, Any]) -> None:
        agent: AgentID = None
        try:
            for place, agent in self.sees:
                place[...] = observations[agent]
            for place, agent, key in self.sees_part:
                place[...] = observations[agent][key]
            for mask, agent in self.masked_by_info:
                mask[...] = infos[agent][MASK]  # type: ignore[index]
        except KeyError as error:
            if agent not in observations:
                raise self._broken(agent, "no observation was returned", list(observations)) from None
            raise self._broken(agent, f"there is no {error} in its observation or info", infos.get(agent)) from None


class Turns(Copy):
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
        env.step(actions[self.group][self.places[agent][1]])
        rewards = env.rewards
        gains = [rewards.get(one, 0.0) for one in self.roster.agents]
        self._next()
        return gains

    def _next(self) -> None:
        """Find out whose turn it is; agents that are dead are stepped with None, as PettingZoo demands."""
        env = self.env
        self.present.update(env.agents)
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
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
            self._show(agent, env.observe(agent), env.infos.get(agent, {}))
        except KeyError as error:
            raise self._broken(agent, f"there is no {error} in its observation or info", env.infos.get(agent)) from None

    def _show(self, agent: AgentID, observation: Any, info: Mapping[str, Any]) -> None:
        """Write what an agent sees."""
        block, row, parts, mask = self.places[agent]
        self.record[block.field("alive")][row] = True
        for place, key in parts:
            place[...] = observation[key] if key else observation
        if mask is not None:
            mask[...] = observation[MASK] if block.mask == "observation" else info[MASK]
