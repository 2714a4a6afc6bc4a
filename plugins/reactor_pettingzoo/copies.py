"""One copy of a PettingZoo environment: who is alive, who has joined or died, and whether the episode is over.

Agents that act together (``ParallelEnv``) and agents that take turns (``AECEnv``) differ in what a step is: an action of everybody
who is there, or of one of them. Everybody who steps a copy does it here; how what it returns is kept is their matter:
``ParallelVectorEnv`` pads rows, ``MultiAgentRunner`` writes records, and ``evaluate`` and ``SyncIPPO`` have one agent of all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper

from reactor_gymnasium.plugin import as_number
from reactor_pettingzoo.agents import AgentID

__all__ = ["NUMBERS", "AECCopy", "Copy", "ParallelCopy", "leave_dead", "step_parallel", "within_checks"]

NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.bool_})
"""Types of rewards that cannot change after they were returned: an array of one element may be the environment's own."""


class Copy(ABC):
    """A copy of an environment, and who is there.

    Args:
        env: The environment.
        agents: All agents that there may be; an agent's row is its index in it.

    Attributes:
        live: Who is alive, in the order of the environment's ``agents``.
        present: Who has been there in this episode.
        over: Whether the episode has ended with the last step, or none has begun.
    """

    def __init__(self, env: Any, agents: Sequence[AgentID]) -> None:
        self.env, self.agents = env, tuple(agents)
        self.index = {agent: row for row, agent in enumerate(self.agents)}
        self.live: list[AgentID] = []
        self.present: dict[AgentID, None] = {}  # not a set: the order of one depends on the process
        self.over = True

    @abstractmethod
    def begin(self, **kwargs: Any) -> Any:
        """Begin an episode; ``kwargs`` are those of the environment's ``reset()``."""

    @abstractmethod
    def act(self, actions: Any) -> Any:
        """Step the environment, and take account of who has died and who has joined."""

    def _arrive(self, names: Iterable[AgentID]) -> None:
        """Take account of who is there: it is not who was there before."""
        self.live = list(names)
        self.over = not self.live
        for agent in self.live:
            if agent not in self.index:
                raise self.broken(
                    f"agent {agent!r} joined, which is not among the environment's possible_agents {list(self.index)}: list every "
                    "agent that may ever join there"
                )
        self.present.update(dict.fromkeys(self.live))

    def _some_are_there(self) -> None:
        if self.over:
            raise self.broken("it has no agents after reset()")

    def broken(self, what: str) -> Exception:
        """The exception if the environment does not do as it should."""
        return ValueError(
            f"the environment breaks PettingZoo's API: {what}; pettingzoo.test.api_test and parallel_api_test say more"
        )


class ParallelCopy(Copy):
    """Agents that act together."""

    def begin(self, **kwargs: Any) -> tuple[Mapping[AgentID, Any], Mapping[AgentID, Any]]:
        """See :class:`Copy`. Returns observations and infos."""
        observations, infos = self.env.reset(**kwargs)
        self.present.clear()
        self._arrive(self.env.agents)
        self._some_are_there()
        return observations, infos

    def act(self, actions: dict[AgentID, Any]) -> tuple[Mapping[AgentID, Any], ...]:
        """See :class:`Copy`; actions of those who are alive.

        Returns:
            Observations, rewards, terminations, truncations and infos, as the environment has returned them.
        """
        returned: tuple[Mapping[AgentID, Any], ...] = step_parallel(self.env, actions)
        _, _, terminations, truncations, _ = returned
        if True in terminations.values() or True in truncations.values():
            self._change({agent for flags in (terminations, truncations) for agent, flag in flags.items() if flag})
        elif self.env.agents != self.live:
            self._change(frozenset())
        return returned

    def _change(self, ended: Set[AgentID]) -> None:
        """Take account of who is there after a step that has ended the episodes of some."""
        names = self.env.agents
        kept = [agent for agent in names if agent in ended]
        if kept and len(kept) < len(names):  # if all are kept, nobody is left to act
            raise self.broken(f"agent {kept[0]!r} was terminated or truncated, and step() left it in env.agents ({names})")
        if kept or names != self.live:
            self._arrive([] if kept else names)


class AECCopy(Copy):
    """Agents that take turns.

    Attributes:
        inner: The environment without wrappers that only check.
        agent: Whose turn it is.
    """

    inner: Any
    agent: AgentID

    def begin(self, **kwargs: Any) -> None:
        """See :class:`Copy`."""
        self.env.reset(**kwargs)
        self.inner = within_checks(self.env)
        self.present.clear()
        self.live, self.over = [], True
        self._next()
        self._some_are_there()

    def act(self, actions: Any) -> tuple[dict[AgentID, Any], dict[AgentID, bool], dict[AgentID, bool]]:
        """See :class:`Copy`; the action of the one whose turn it is, which its mask allows.

        Returns:
            Rewards of the step, terminations and truncations, also of those who have left.
        """
        env = self.inner
        env.step(actions)
        rewards, terminations, truncations = dict(env.rewards), dict(env.terminations), dict(env.truncations)
        if not NUMBERS.issuperset(map(type, rewards.values())):
            rewards = {agent: as_number(reward) for agent, reward in rewards.items()}
        self._next()
        return rewards, terminations, truncations

    def _next(self) -> None:
        """Find out whose turn it is; those who died have to leave before."""
        env = self.inner
        if env.agents != self.live:
            self.present.update(dict.fromkeys(env.agents))
        leave_dead(env)
        if env.agents != self.live:
            self._arrive(env.agents)
        if not self.over:
            self.agent = env.agent_selection


def leave_dead(env: Any) -> None:
    """Step an ``AECEnv`` with None while it is the turn of agents that are dead, as PettingZoo demands.

    Raises:
        ValueError: If they stay all the same.
    """
    kept = 0
    while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
        agent, before = env.agent_selection, list(env.agents)
        env.step(None)
        kept = kept + 1 if env.agents == before else 0
        if kept > len(before):
            raise ValueError(
                f"the environment breaks PettingZoo's API: agent {agent!r} has ended, and env.step(None) leaves it in env.agents "
                f"({before}). step() has to begin with: if self.terminations[self.agent_selection] or "
                "self.truncations[self.agent_selection]: return self._was_dead_step(action)"
            )


def within_checks(env: Any) -> Any:
    """The ``AECEnv`` within PettingZoo's wrappers that only check, for whoever resets the outermost and takes legal actions.

    Each of them looks every attribute up in the next one: that takes longer than a step of a board game.
    """
    while type(env) in (OrderEnforcingWrapper, AssertOutOfBoundsWrapper, TerminateIllegalWrapper):
        env = env.env
    return env


def step_parallel(env: ParallelEnv, actions: dict[Any, Any]) -> Any:
    """The result of ``env.step(actions)``.

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
