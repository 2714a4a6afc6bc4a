"""A cycle of an ``AECEnv`` that PettingZoo has converted, without the wrappers between: the same calls of it, in the same order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from reactor_pettingzoo.agents import leave_dead

__all__ = ["stepped"]


def stepped(env: ParallelEnv, actions: dict[Any, Any]) -> Any:
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
