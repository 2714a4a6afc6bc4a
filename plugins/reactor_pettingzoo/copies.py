"""One copy of a PettingZoo environment: who is alive, who has joined or died, and whether the episode is over.

Agents that act together (``ParallelEnv``) and agents that take turns (``AECEnv``) differ in what a step is: an action of everybody
who is there, or of one of them. How observations are kept, and in which words a mistake is told, is the matter of derived classes:
``ParallelVectorEnv`` pads rows, and ``MultiAgentRunner`` writes records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper

from reactor_pettingzoo.agents import AgentID

__all__ = ["AECCopy", "Copy", "ParallelCopy", "leave_dead", "step_parallel", "within_checks"]


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

    def _begin(self, names: Iterable[AgentID]) -> None:
        """Begin an episode with those who are there after a reset."""
        self.present.clear()
        self.over = False
        self._arrive(names)
        if not self.live:
            raise self._nobody()

    def _arrive(self, names: Iterable[AgentID]) -> None:
        """Take account of who is there: it is not who was there before."""
        self.live = list(names)
        for agent in self.live:
            if agent not in self.index:
                raise self._stranger(agent)
        self.present.update(dict.fromkeys(self.live))

    @abstractmethod
    def _nobody(self) -> Exception:
        """The exception if no agent is there after a reset."""

    @abstractmethod
    def _stranger(self, agent: AgentID) -> Exception:
        """The exception if an agent is there that is not among :attr:`agents`."""


class ParallelCopy(Copy):
    """Agents that act together.

    Attributes:
        observations: What the last reset or step returned, by agent.
        infos: Likewise.
    """

    def __init__(self, env: Any, agents: Sequence[AgentID]) -> None:
        super().__init__(env, agents)
        self.observations: Mapping[AgentID, Any] = {}
        self.infos: Mapping[AgentID, Any] = {}

    def _reset(self, **kwargs: Any) -> None:
        """Begin an episode."""
        self.observations, self.infos = self.env.reset(**kwargs)
        self._begin(self.env.agents)


class AECCopy(Copy):
    """Agents that take turns.

    Attributes:
        agent: Whose turn it is.
    """

    agent: AgentID

    def _reset(self, **kwargs: Any) -> None:
        """Begin an episode."""
        self.env.reset(**kwargs)
        self.present.clear()
        self._next()
        if self.over:
            raise self._nobody()

    def _next(self) -> None:
        """Find out whose turn it is; those who died have to leave before."""
        env = self.env
        self.present.update(dict.fromkeys(env.agents))
        leave_dead(env)
        self.over = not env.agents
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
