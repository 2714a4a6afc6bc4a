"""Environments that write what they return into the same arrays and dicts again, and keep and change what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

EVERYBODY: dict[Any, Any] = {}
"""What all environments of a process write into, as a simulator's static arrays."""
BOX = spaces.Box(-10, 10, (3,), np.float32)
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "box": BOX,
    "pixels": spaces.Box(0, 255, (2, 2), np.uint8),
    "dict": spaces.Dict(near=BOX, far=spaces.MultiBinary(4)),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "multi": spaces.MultiDiscrete([3, 2]),
}


class Habits:
    """What an environment does with arrays.

    Args:
        shared: Whether all environments of the process have the same ones.
        views: Whether it returns new views of them each time.
        observations: Kind of observations.
        actions: Kind of actions.
        masks: Whether infos have action masks (of discrete actions).
    """

    def __init__(self, shared: bool, views: bool, observations: str, actions: str, masks: bool) -> None:
        self.buffers: dict[Any, Any] = EVERYBODY if shared else {}
        self.views, self.masks = views, masks and actions == "discrete"
        self.seen, self.done = OBSERVATIONS[observations], ACTIONS[actions]
        self.history: list[Any] = []

    def written(self, key: Any, value: Any) -> Any:
        """A value, in the array that belongs to a key."""
        value = np.asarray(value)
        array = self.buffers.setdefault((key, value.shape, value.dtype.str), np.empty_like(value))
        array[...] = value
        return array[...] if self.views else array

    def observation(self, agent: str, random: np.random.Generator) -> Any:
        """A new observation."""
        numbers = random.integers(-9, 10, 4)
        match self.seen:
            case spaces.Dict():
                parts = {"near": (numbers[:3] / 4).astype(np.float32), "far": (numbers > 0).astype(np.int8)}
                kept = self.buffers.setdefault((agent, "dict"), {})
                kept.update({key: self.written((agent, key), part) for key, part in parts.items()})
                return kept
            case spaces.Box(shape=(3,)):
                return self.written((agent, "seen"), (numbers[:3] / 4).astype(np.float32))
        return self.written((agent, "seen"), (numbers + 9).astype(np.uint8).reshape(2, 2))

    def info(self, agent: str, random: np.random.Generator, begun: bool) -> Any:
        """A new info; with a mask only sometimes, and never after a reset."""
        info = self.buffers.setdefault((agent, "info"), {})
        info.clear()
        mask = random.random(4) < 0.6
        mask[random.integers(4)] = True
        info["drawn"] = self.written((agent, "drawn"), random.random(2))
        if self.masks and begun and random.random() < 0.7:
            info["action_mask"] = self.written((agent, "mask"), mask.astype(np.int8))
        return info

    def judged(self, agent: str, action: Any, mask: Any) -> Any:
        """A reward that depends on all actions that were kept; the last of them is changed in place."""
        if mask is not None:
            assert mask[action], f"{action} of {mask}"
        self.history.append(action)
        kept = sum(float(np.sum(one)) * (at + 1) for at, one in enumerate(self.history[-6:]))
        if isinstance(action, np.ndarray):
            action *= action.dtype.type(2)
        return self.written((agent, "reward"), np.array([kept / 8]))


class Hoarders(ParallelEnv):
    """Agents that act together; one dies early, one joins late."""

    metadata = {"name": "hoarders"}
    possible_agents = ["ant", "bee", "late"]

    def __init__(self, **habits: Any) -> None:
        self.habits = Habits(**habits)
        self.random = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Any:
        return self.habits.seen

    def action_space(self, agent: str) -> Any:
        return self.habits.done

    def _told(self, agents: list[str]) -> tuple[Any, Any]:
        kept = self.habits.buffers.setdefault("observations", {})
        kept.clear()
        kept.update({agent: self.habits.observation(agent, self.random) for agent in agents})
        infos = self.habits.buffers.setdefault("infos", {})
        infos.clear()
        infos.update({agent: self.habits.info(agent, self.random, self.t > 0) for agent in agents})
        self.masks = {agent: np.array(info["action_mask"]) for agent, info in infos.items() if "action_mask" in info}
        return kept, infos

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.t = ["ant", "bee"], 0
        self.length = int(self.random.integers(4, 9))
        return self._told(self.agents)

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        before = self.agents
        rewards = self.habits.buffers.setdefault("rewards", {})
        rewards.clear()
        for agent in before:
            rewards[agent] = self.habits.judged(agent, actions[agent], self.masks.get(agent))
        actions.clear()  # the dict is the environment's, too
        over = {agent: self.t >= self.length or (agent == "ant" and self.t == 3) for agent in before}
        self.agents = [agent for agent in before if not over[agent]]
        if self.t == 2:
            self.agents = [*self.agents, "late"]
        told = list(dict.fromkeys([*before, *self.agents]))
        rewards |= {agent: 0.0 for agent in told if agent not in before}
        observations, infos = self._told(told)
        return observations, rewards, {agent: over.get(agent, False) for agent in told}, dict.fromkeys(told, False), infos

    def close(self) -> None:
        pass


class Players(AECEnv):
    """Agents that take turns."""

    metadata = {"name": "players"}
    possible_agents = ["north", "south"]

    def __init__(self, **habits: Any) -> None:
        super().__init__()
        self.habits, self.render_mode = Habits(**habits), None

    def observation_space(self, agent: str) -> Any:
        return self.habits.seen

    def action_space(self, agent: str) -> Any:
        return self.habits.done

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = self.possible_agents[:]
        self.rewards: dict[str, Any] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.t, self.agent_selection = 0, self.agents[0]
        self._look()

    def _look(self) -> None:
        self.infos = {agent: self.habits.info(agent, self.random, self.t > 0) for agent in self.agents}
        self.masks = {agent: np.array(info["action_mask"]) for agent, info in self.infos.items() if "action_mask" in info}
        self.drawn = int(self.random.integers(1000))

    def observe(self, agent: str) -> Any:
        return self.habits.observation(agent, np.random.default_rng(self.drawn))

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self.t += 1
        self.rewards = dict.fromkeys(self.agents, 0.0) | {agent: self.habits.judged(agent, action, self.masks.get(agent))}
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        if self.t >= 7:
            self.terminations = dict.fromkeys(self.agents, True)
        self._look()

    def close(self) -> None:
        pass
