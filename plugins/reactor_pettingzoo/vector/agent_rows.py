"""The agents of one copy as rows: of a parallel environment, and of one in turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gymnasium import Space, spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from reactor_gymnasium.plugin import Infos, make_probe
from reactor_pettingzoo.agents import AgentID, as_parallel, leave_dead
from reactor_rl.plugin import decode

__all__ = ["AgentRows", "AgentStep", "TriedRows", "step_parallel"]


class AgentStep(NamedTuple):
    """What a step brought: observations and rewards of all rows, the rows that ended with how they did, and infos."""

    observations: list[Any]
    rewards: list[Any]
    ends: list[tuple[int, bool, bool]]
    infos: Infos


class AgentRows:
    """A ``ParallelEnv`` whose agents have a row each. A row whose agent is not there is padded.

    Args:
        env: The environment.
        agents: The agents; row = index in it.
        padding: The observation of padded rows.
        check: Raises if an observation has not the shape that its space says; agents' first ones are checked.
        name: What errors call the environment.

    Attributes:
        over: Whether the episode is over, or none has begun.
    """

    def __init__(self, env: ParallelEnv, agents: Sequence[AgentID], padding: Any, check: Callable[[Any], None], name: str) -> None:
        self.env, self.padding, self.check, self.name = env, padding, check, name
        self.n = len(agents)
        self.index = {agent: row for row, agent in enumerate(agents)}
        self.over = True
        self._names: list[AgentID] = []  # who is alive, as the environment says it
        self._live: list[tuple[int, AgentID]] = []
        self._padded: list[int] = []
        self._gone: set[AgentID] = set()  # who has died in this episode

    def __getstate__(self) -> dict[str, Any]:
        """What an episode depends on, for :func:`~reactor_gymnasium.environments.saving.save_env`."""
        return {name: value for name, value in vars(self).items() if name not in ("padding", "check")}

    def reset(self, **kwargs: Any) -> tuple[list[Any], Infos]:
        """Begin an episode. Returns observations of all rows, and infos.

        Raises:
            RuntimeError: If the environment has no agents then, one that is not among its possible agents, or one that has no
                observation.
        """
        of_agents, infos = self.env.reset(**kwargs)
        self._names, self._gone, self.over = list(self.env.agents), set(), False
        if not self._names:
            raise RuntimeError(f"{self.name} has no agents after reset()")
        self._live = [(self._row(agent), agent) for agent in self._names]
        self._padded = self._others(self._live)
        observations = [self.padding] * self.n
        for row, agent in self._live:
            observations[row] = self._first(agent, of_agents, "reset()")
        return observations, _infos(self._live, infos, self._padded)

    def step(self, actions: Sequence[Any]) -> AgentStep:
        """Step the environment with the actions of those who are alive.

        Args:
            actions: One for each row; those of padded rows are ignored.

        Raises:
            RuntimeError: If the environment returns no observation, reward or flag for a live agent, or if its ``agents``
                contradict the flags.
        """
        live, padded = self._live, self._padded
        of_agents, gains, terminations, truncations, infos = step_parallel(self.env, {agent: actions[row] for row, agent in live})
        observations, rewards = [self.padding] * self.n, [0.0] * self.n
        ends: list[tuple[int, bool, bool]] = []
        agent = None
        try:
            for row, agent in live:
                observations[row], rewards[row] = of_agents[agent], gains[agent]
                terminated, truncated = terminations[agent], truncations[agent]
                if terminated or truncated:
                    ends.append((row, bool(terminated), bool(truncated)))
        except KeyError:
            parts = {"observation": of_agents, "reward": gains, "termination": terminations, "truncation": truncations}
            missing = [part for part, values in parts.items() if agent not in values]
            if not missing:
                raise
            raise RuntimeError(f"{self.name}: step() returned no {' and no '.join(missing)} for agent {agent!r}") from None
        if ends or self.env.agents != self._names:
            joined = self._change({row for row, _, _ in ends})
            for row, agent in joined:
                observations[row], rewards[row] = self._first(agent, of_agents, "step()"), gains.get(agent, 0.0)
            live = live + joined
            padded = self._others(live)
            if self.over:  # for a learner the padding ends here, too
                ends += [(row, True, False) for row in padded]
        return AgentStep(observations, rewards, ends, _infos(live, infos, padded))

    def _change(self, ended: set[int]) -> list[tuple[int, AgentID]]:
        """Take account of who died and who joined; returns the latter."""
        names = list(self.env.agents)
        before = {agent: row for row, agent in self._live}
        left = [agent for agent, row in before.items() if row not in ended and agent not in names]
        if left:
            raise RuntimeError(f"{self.name}: agent {left[0]!r} left env.agents without being terminated or truncated")
        back = [agent for agent in names if agent in self._gone]
        if back:
            raise RuntimeError(f"{self.name}: agent {back[0]!r} came back within an episode, which PettingZoo does not allow")
        live = [(self._row(agent), agent) for agent in names if before.get(agent) not in ended]
        self.over = not live
        kept = [agent for agent in names if before.get(agent) in ended]
        if kept and live:
            raise RuntimeError(f"{self.name}: agent {kept[0]!r} was terminated or truncated, and step() left it in env.agents")
        self._gone |= {agent for agent, row in before.items() if row in ended}
        self._names, self._live, self._padded = names, live, self._others(live)
        return [(row, agent) for row, agent in live if agent not in before]

    def _row(self, agent: AgentID) -> int:
        try:
            return self.index[agent]
        except KeyError:
            raise RuntimeError(f"{self.name}: agent {agent!r} is none of its possible agents {list(self.index)}") from None

    def _first(self, agent: AgentID, observations: Mapping[AgentID, Any], call: str) -> Any:
        if agent not in observations:
            raise RuntimeError(f"{self.name}: {call} returned no observation for agent {agent!r}")
        try:
            self.check(observations[agent])
        except Exception as error:
            error.add_note(f"as {call} of {self.name} returned it for agent {agent!r}")
            raise
        return observations[agent]

    def _others(self, live: list[tuple[int, AgentID]]) -> list[int]:
        there = {row for row, _ in live}
        return [row for row in range(self.n) if row not in there]


class TriedRows(AgentRows):
    """A copy as :func:`~reactor_gymnasium.environments.saving.probe_save_strategy` tries one, with an action of all agents.

    Args:
        env: The environment.
        agents: The agents.
        action_space: Every agent's action space.
    """

    def __init__(self, env: ParallelEnv, agents: Sequence[AgentID], action_space: Space[Any]) -> None:
        super().__init__(env, agents, None, lambda observation: None, "environment 0")
        self.action_space = spaces.Tuple([action_space] * self.n)

    @classmethod
    def of(cls, env_fn: Any, agents: Sequence[AgentID], action_space: Space[Any]) -> TriedRows:
        """A throw-away one, of an encoded function."""
        return cls(as_parallel(make_probe(decode(env_fn))), agents, action_space)

    def step(self, actions: Sequence[Any]) -> Any:
        """Observations, rewards, who has ended, and whether the episode is over."""
        observations, rewards, ends, _ = super().step(actions)
        return observations, rewards, ends, self.over

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _infos(live: list[tuple[int, AgentID]], infos: Mapping[AgentID, dict[str, Any]], padded: list[int]) -> Infos:
    of_rows = {row: info for row, agent in live if (info := infos.get(agent))}
    of_rows.update((row, {"padded": True}) for row in padded)
    return dict(sorted(of_rows.items()))


def step_parallel(env: ParallelEnv, actions: dict[Any, Any]) -> Any:
    """What ``env.step(actions)`` returns.

    The wrappers that PettingZoo's environments come in look every attribute up through each other, some fifty times in a step.
    All that they do after a reset is to check actions, which is done here, too.

    Args:
        env: An environment that has been reset.
        actions: Of each agent that is there.

    Raises:
        AssertionError: If an action is not in its space and a wrapper checks that, or if agents do not act in a cycle.
        ValueError: If agents that have ended stay.
    """
    if type(env) is not aec_to_parallel_wrapper:
        return env.step(actions)
    inner, checked = env.aec_env, False
    while type(inner) in (OrderEnforcingWrapper, AssertOutOfBoundsWrapper):
        checked = checked or type(inner) is AssertOutOfBoundsWrapper
        inner = inner.env
    if inner is env.aec_env:
        return env.step(actions)
    rewards: dict[Any, Any] = defaultdict(int)
    for agent in inner.agents:
        if agent != inner.agent_selection:
            raise AssertionError(
                f"agent {agent!r} had to act, and it was the turn of {inner.agent_selection!r}: to be parallel, all agents of an "
                "environment act in a cycle, and die at its end"
            )
        inner.observe(agent)  # nobody needs it, but an environment may draw random numbers for it
        action = actions[agent]
        if checked and not inner.action_space(agent).contains(action):
            raise AssertionError("action is not in action space")
        inner.step(action)
        for other in inner.agents:
            rewards[other] += inner.rewards[other]
    terminations, truncations, infos = dict(inner.terminations), dict(inner.truncations), dict(inner.infos)
    observations = {agent: inner.observe(agent) for agent in inner.agents}
    leave_dead(inner)
    env.agents = inner.agents
    return observations, rewards, terminations, truncations, infos
