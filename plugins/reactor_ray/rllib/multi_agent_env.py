"""RLlib's ``MultiAgentEnv`` as PettingZoo's ``ParallelEnv``, which ``ParallelVectorEnv`` steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import Space
from pettingzoo import ParallelEnv
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

__all__ = ["AsMultiAgentEnv", "AsParallelEnv", "MakesParallel"]


_Of = dict[Any, Any]
"""Something of each agent, by its id."""


class AsParallelEnv(ParallelEnv):
    """A ``MultiAgentEnv`` all of whose living agents act in every step.

    An agent lives from the first observation that it gets in an episode until it is terminated or truncated, alone or with all
    others (``"__all__"``). One that is terminated without a last observation gets its previous one again, as in RLlib's episodes.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        # ParallelPettingZooEnv makes its own list of a set, whose order another process does not share.
        inner = getattr(env, "par_env", None)
        self.possible_agents = list(getattr(inner, "possible_agents", None) or env.possible_agents)
        self.agents: list[Any] = []
        self.metadata = {"name": type(env).__name__, **(getattr(env, "metadata", None) or {})}
        self.render_mode = getattr(env, "render_mode", None)
        self._last: dict[Any, Any] = {}

    def observation_space(self, agent: Any) -> Space[Any]:
        """The space of one agent's observations."""
        space: Space[Any] = self.env.get_observation_space(agent)
        return space

    def action_space(self, agent: Any) -> Space[Any]:
        """The space of one agent's actions."""
        space: Space[Any] = self.env.get_action_space(agent)
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[_Of, _Of]:
        """Begin an episode with the agents that have an observation."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = [agent for agent in self.possible_agents if agent in observations]
        self._last = dict(observations)
        return observations, infos or {}

    def step(self, actions: _Of) -> tuple[_Of, _Of, _Of, _Of, _Of]:
        """Step with the actions of all living agents.

        Raises:
            RuntimeError: If an agent that goes on gets no observation: it does not act in each step.
        """
        observations, rewards, terminateds, truncateds, infos = self.env.step(actions)
        there = [agent for agent in self.possible_agents if agent in self.agents or agent in observations]
        terminations, truncations = _of_all(there, terminateds), _of_all(there, truncateds)
        for agent in there:
            if agent not in observations:
                if not terminations[agent]:
                    raise RuntimeError(
                        f"step() returned no observation for agent {agent!r}, which is not terminated: agents that "
                        "do not act in each step need RLlib's own MultiAgentEnvRunner"
                    )
                observations[agent] = self._last[agent]
        self.agents = [agent for agent in there if not (terminations[agent] or truncations[agent])]
        self._last = dict(observations)
        return observations, {agent: rewards.get(agent, 0.0) for agent in there}, terminations, truncations, infos or {}

    def render(self) -> Any:
        """The environment's picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _of_all(agents: list[Any], flags: Mapping[Any, bool]) -> dict[Any, bool]:
    every = flags.get("__all__", False)
    return {agent: bool(every or flags.get(agent, False)) for agent in agents}


class MakesParallel:
    """Makes a ``ParallelEnv`` of whatever a creator makes.

    Args:
        creator: Makes an RLlib ``MultiAgentEnv``, or an environment of PettingZoo.
    """

    def __init__(self, creator: Callable[[], Any]) -> None:
        self.creator = creator

    def __call__(self) -> Any:
        env = self.creator()
        if type(env) is ParallelPettingZooEnv:
            return env.par_env  # its wrapper would only be undone
        return AsParallelEnv(env) if isinstance(env, MultiAgentEnv) else env


class AsMultiAgentEnv(MultiAgentEnv):
    """One environment of many as RLlib asks it without stepping it: its agents and their spaces.

    Args:
        agents: The agents.
        observation_space: Every agent's.
        action_space: Every agent's.
    """

    def __init__(self, agents: tuple[Any, ...], observation_space: Space[Any], action_space: Space[Any]) -> None:
        super().__init__()
        self.agents = self.possible_agents = list(agents)
        self.observation_spaces = dict.fromkeys(agents, observation_space)
        self.action_spaces = dict.fromkeys(agents, action_space)
