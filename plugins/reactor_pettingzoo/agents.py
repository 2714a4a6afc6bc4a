"""The agents of a PettingZoo environment: who they are, which spaces they share, and what stands for one that is not there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import create_empty_array
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel

__all__ = ["AgentID", "agents_of", "as_parallel", "leave_dead", "padding", "shared_space"]

AgentID = Hashable
"""The id of an agent: a string as a rule, but anything hashable is allowed."""


def as_parallel(env: Any) -> ParallelEnv:
    """The environment as a ``ParallelEnv``.

    Raises:
        TypeError: If it is something else, or an ``AECEnv`` whose agents take turns.
    """
    if isinstance(env, ParallelEnv):
        return env
    if not isinstance(env, AECEnv):
        raise TypeError(f"env_fn must make a pettingzoo.ParallelEnv, and it made {env!r} of type {type(env).__name__}")
    if not env.metadata.get("is_parallelizable", False):
        raise TypeError(
            f"env_fn made {env}, an AECEnv whose agents take turns (its metadata has no 'is_parallelizable': True). If one agent "
            "acts at a time, convert it with pettingzoo.utils.conversions.turn_based_aec_to_parallel, or use MultiAgentRunner; "
            "if it updates only after all agents have acted, set metadata['is_parallelizable'] = True"
        )
    return aec_to_parallel(env)


def agents_of(env: ParallelEnv) -> tuple[AgentID, ...]:
    """All agents that may ever appear; of an environment that does not say so, those that are there after a reset.

    Raises:
        ValueError: If there are none.
    """
    # A copy: some environments change the list itself while they are played.
    agents = tuple(getattr(env, "possible_agents", ()))
    if not agents:
        env.reset(seed=0)
        agents = tuple(env.agents)
    if not agents:
        raise ValueError(f"{env} has no possible_agents, and no agents after a reset")
    return agents


def shared_space(env: ParallelEnv, agents: tuple[AgentID, ...], kind: Literal["observation", "action"]) -> Space[Any]:
    """The one observation space or action space that all agents have.

    Raises:
        ValueError: If two agents have different ones.
    """
    space_of, pad = (
        (env.observation_space, "supersuit.pad_observations_v0")
        if kind == "observation"
        else (env.action_space, "supersuit.pad_action_space_v0")
    )
    first: Space[Any] = space_of(agents[0])
    for agent in agents[1:]:
        if space_of(agent) != first:
            raise ValueError(
                f"agent {agents[0]!r} has the {kind} space {first} and agent {agent!r} has {space_of(agent)}: all agents of a "
                f"ParallelVectorEnv need the same one. Wrap the environment so that they are equal ({pad} pads them), or use "
                "MultiAgentRunner, where every agent has its own"
            )
    return first


def padding(space: Space[Any]) -> Any:
    """The observation of an agent that is not there: zeros, empty where that means nothing."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: padding(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(padding(part) for part in space.spaces)
    empty = create_empty_array(space, 1)
    return empty[0] if isinstance(empty, tuple) and empty else empty


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
