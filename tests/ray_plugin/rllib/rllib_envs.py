"""Environments of many agents as RLlib has them."""

from __future__ import annotations

from typing import Any

from agent_envs import AGENTS, Crowd
from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class RLlibCrowd(MultiAgentEnv):
    """A crowd whose agents end at drawn times, and of whom some come later.

    Args:
        config: ``kind`` is the crowd's. It raises in its 20th step if the file ``broke`` is not there yet.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.crowd = Crowd(config.get("kind", "joins"))
        self.possible_agents = list(AGENTS)
        self.agents = list(AGENTS)  # RLlib checks keys by it
        self.observation_spaces = {agent: self.crowd.observation_space(agent) for agent in AGENTS}
        self.action_spaces = {agent: self.crowd.action_space(agent) for agent in AGENTS}
        self.broke, self.steps = config.get("broke"), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.crowd.reset(seed, options)

    def step(self, action_dict: dict[str, Any]) -> Any:
        self.steps += 1
        if self.steps == 20 and self.broke and not self.broke.exists():
            self.broke.touch()
            raise ValueError("it broke")
        actions = {agent: action_dict[agent] for agent in self.crowd.agents}
        observations, rewards, terminateds, truncateds, infos = self.crowd.step(actions)
        del observations["common"]
        over, cut = not self.crowd.agents, all(truncateds.values())
        terminateds["__all__"], truncateds["__all__"] = over and not cut, over and cut
        return observations, rewards, terminateds, truncateds, infos


class Turns(RLlibCrowd):
    """One agent gets no observation in its third step, and lives on."""

    def step(self, action_dict: dict[str, Any]) -> Any:
        results = super().step(action_dict)
        if self.steps == 3:
            del results[0][AGENTS[0]]
        return results


class Unlike(RLlibCrowd):
    """One agent has other actions than the others."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.action_spaces["dog"] = spaces.Discrete(3)
