"""Small PettingZoo environments whose agents die, join late and lose turns, policies for them, and one way to run both."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from torch import nn

from reactor_pettingzoo import MultiAgentRunner
from reactor_pettingzoo.runner.report import Report

BOX = spaces.Box(-10, 10, (4,), np.float32)
FIVE = spaces.Discrete(5)
Spaces = dict[str, spaces.Space[Any]]


class Herd(ParallelEnv):
    """Agents die at drawn times, and one joins late.

    Args:
        masks: Where action masks are: ``"observation"``, ``"info"`` or nowhere.
        actions: Of every agent, or by agent.
        observations: Likewise, without masks.
        breaks: What goes wrong in the second step of the copy that was reset with seed 1.
        slow: Seconds that a step of that copy takes.
    """

    metadata = {"name": "herd", "render_modes": ["rgb_array"], "render_fps": 10}
    possible_agents = ["ant", "bee", "cat", "late"]

    def __init__(
        self,
        masks: str = "",
        actions: spaces.Space[Any] | Spaces = FIVE,
        observations: spaces.Space[Any] | Spaces = BOX,
        breaks: str = "",
        slow: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self.masks, self.breaks, self.slow, self.render_mode = masks, breaks, slow, render_mode
        self.agents: list[str] = []
        self.actions = actions if isinstance(actions, dict) else dict.fromkeys(self.possible_agents, actions)
        seen = observations if isinstance(observations, dict) else dict.fromkeys(self.possible_agents, observations)
        self.plain = seen
        self.seen: Spaces = {agent: self._with_mask(agent, space) for agent, space in seen.items()}
        self.seed: int | None = None

    def _with_mask(self, agent: str, space: spaces.Space[Any]) -> spaces.Space[Any]:
        if self.masks != "observation":
            return space
        return spaces.Dict(observation=space, action_mask=spaces.MultiBinary(int(self.actions[agent].n)))  # type: ignore[attr-defined]

    def observation_space(self, agent: str) -> Any:
        return self.seen[agent]

    def action_space(self, agent: str) -> Any:
        return self.actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.seed, self.random = seed, np.random.default_rng(seed)
        self.t = 0
        self.ends = {agent: int(self.random.integers(2, 9)) for agent in self.possible_agents}
        self.ends["late"] = max(self.ends["late"], 4)
        self.agents = self.possible_agents[:-1]
        self.sums = dict.fromkeys(self.possible_agents, 0.0)
        return {agent: self._observe(agent) for agent in self.agents}, {agent: self._info(agent) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert list(actions) == self.agents, f"actions of {list(actions)}, where {self.agents} are alive"
        for agent, action in actions.items():
            assert self.actions[agent].contains(np.asarray(action, self.actions[agent].dtype)), f"{action} of {agent}"
            assert not self.masks or self._mask(agent)[int(action)], f"the action {action} of {agent} is illegal"
        self.t += 1
        for agent, action in actions.items():
            self.sums[agent] = 0.8 * self.sums[agent] + float(np.sum(action))
        there = self.agents
        over = {agent: self.t >= self.ends[agent] for agent in there}
        self.agents = [agent for agent in there if not over[agent]]
        if self.t == 2:
            self.agents = [*self.agents, "late"]
        told = list(dict.fromkeys([*there, *self.agents]))
        found = (
            {agent: self._observe(agent) for agent in told},
            {agent: self.sums[agent] / 7 + float(self.random.random()) for agent in there},
            {agent: over.get(agent, False) and agent != "bee" for agent in told},
            {agent: over.get(agent, False) and agent == "bee" for agent in told},
            {agent: self._info(agent) for agent in told},
        )
        if self.seed == 1:
            if self.slow:
                time.sleep(self.slow)
            if self.t == 2:
                self._break(*found)
        return found

    def _break(self, observations: Any, rewards: Any, terminations: Any, truncations: Any, infos: Any) -> None:
        match self.breaks:
            case "observation":
                del observations[self.agents[0]]
            case "reward":
                del rewards[self.agents[0]]
            case "mask":
                del infos[self.agents[0]]["action_mask"]
            case "stranger":
                self.agents = [*self.agents, "eel"]
                observations["eel"] = observations["late"]
            case "raises":
                raise ZeroDivisionError("the second step")
            case "exits":
                os._exit(3)

    def _observe(self, agent: str) -> Any:
        space = self.plain[agent]
        number = np.tanh(self.sums[agent] / 5) + 0.2 * self.random.normal(size=space.shape)
        if space.dtype is not None and space.dtype.kind in "iu":
            number = np.round(3 * number)
        facts = np.clip(number, -3, 3).astype(space.dtype)
        return {"observation": facts, "action_mask": self._mask(agent)} if self.masks == "observation" else facts

    def _mask(self, agent: str) -> Any:
        mask = (np.arange(self.actions[agent].n) + self.t + self.possible_agents.index(agent)) % 3 != 0  # type: ignore[attr-defined]
        return mask.astype(np.int8)

    def _info(self, agent: str) -> dict[str, Any]:
        return {"action_mask": self._mask(agent)} if self.masks == "info" else {}

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        return np.full((8, 8, 3), 20 * self.t, np.uint8)

    def close(self) -> None:
        pass


class Junction(ParallelEnv):
    """Agents that are all there from the first step of an episode to its last, and see six numbers each."""

    metadata = {"name": "junction"}
    possible_agents = ["car_0", "car_1", "car_2"]

    def __init__(self) -> None:
        self.space = spaces.Box(-10, 10, (6,), np.float32)

    def observation_space(self, agent: str) -> Any:
        return self.space

    def action_space(self, agent: str) -> Any:
        return FIVE

    def shown(self, observation: Any) -> Any:
        """An observation as an agent is given it."""
        return observation

    def _all(self) -> dict[str, Any]:
        return {agent: self.shown(row.astype(np.float32)) for agent, row in zip(self.agents, self.at, strict=True)}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        self.at = self.random.normal(size=(3, 6))
        return self._all(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.t += 1
        done = np.array([actions[agent] for agent in self.agents])
        self.at = np.roll(self.at, 1, 1) + 0.1 * (done[:, None] - 2) + 0.05 * self.random.normal(size=(3, 6))
        every = self.possible_agents
        seen, over = self._all(), self.t == 13
        rewards = dict(zip(every, (self.at[:, 0] * done).tolist(), strict=True))
        self.agents = [] if over else self.agents
        return seen, rewards, dict.fromkeys(every, False), dict.fromkeys(every, over), {agent: {} for agent in every}

    def close(self) -> None:
        """Nothing to end."""


class Table(AECEnv):
    """Agents take turns in a drawn order, so that some are skipped; they die in their own turns and in those of others.

    Args:
        masks: Where action masks are: ``"info"`` or nowhere.
        early: Whether agents also die before their first turn.
        breaks: ``"mask"`` if one is missing in the third turn of the copy that was reset with seed 1.
    """

    metadata = {"name": "table", "render_modes": ["rgb_array"], "render_fps": 10}
    possible_agents = ["north", "east", "south"]

    def __init__(self, masks: str = "info", early: bool = False, breaks: str = "", render_mode: str | None = None) -> None:
        super().__init__()
        self.masks, self.early, self.breaks, self.render_mode = masks, early, breaks, render_mode
        self.observation_spaces = dict.fromkeys(self.possible_agents, BOX)
        self.action_spaces = dict.fromkeys(self.possible_agents, FIVE)
        self.seed: int | None = None

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.seed, self.random = seed, np.random.default_rng(seed)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.t, self.sums = 0, dict.fromkeys(self.agents, 0.0)
        self.waiting: set[str] = set() if self.early else {*self.agents}
        self._skip_agent_selection: Any = None
        self._next()

    def _next(self) -> None:
        live = [agent for agent in self.agents if not (self.terminations[agent] or self.truncations[agent])]
        if live:
            self.agent_selection = live[self.random.integers(len(live))]
        self.infos = {agent: {"action_mask": self._mask(agent)} if self.masks else {} for agent in self.agents}
        self.facts = self.random.normal(size=4).astype(np.float32)
        if self.breaks == "mask" and self.seed == 1 and self.t == 2:
            self.infos[self.agent_selection] = {}

    def _mask(self, agent: str) -> Any:
        return ((np.arange(5) + self.t + self.possible_agents.index(agent)) % 3 != 0).astype(np.int8)

    def observe(self, agent: str) -> Any:
        return np.clip(self.facts + np.float32(np.tanh(self.sums[agent])), -10, 10)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert FIVE.contains(action) and (not self.masks or self._mask(agent)[action]), f"{action} of {agent} at {self.t}"
        self._cumulative_rewards[agent] = 0.0
        self.t += 1
        self.sums[agent] = 0.5 * self.sums[agent] + action / 4
        for one in self.agents:
            self.rewards[one] = self.sums[agent] * (1 if one == agent else -0.5)
        self.waiting.discard(agent)
        mortal = [one for one in self.agents if one not in self.waiting]
        if self.t > 2 and self.random.random() < 0.25:
            self.terminations[mortal[self.random.integers(len(mortal))]] = True
        if self.t >= 15 and not self.waiting:
            self.truncations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()
        self._next()
        self._deads_step_first()

    def render(self) -> Any:
        return np.full((8, 8, 3), 15 * self.t, np.uint8) if self.render_mode else None

    def close(self) -> None:
        pass


class Alone(gymnasium.Env[Any, Any]):
    """No PettingZoo environment."""

    observation_space, action_space = BOX, FIVE

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(4, np.float32), {}


class Still(ParallelEnv):
    """Two agents always see the same, and whatever they do changes nothing."""

    metadata = {"name": "still"}
    possible_agents = ["one", "two"]

    def __init__(self, action_space: spaces.Space[Any] = FIVE, mask: tuple[int, ...] = ()) -> None:
        self.actions, self.infos = action_space, {"action_mask": np.array(mask, np.int8)} if mask else {}
        self.agents: list[str] = []
        self.sight = np.array([0.5, -1, 2, 1], np.float32)

    def observation_space(self, agent: str) -> Any:
        return BOX

    def action_space(self, agent: str) -> Any:
        return self.actions

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = self.possible_agents[:], 0
        return self._told(self.sight), self._told(self.infos)

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        over = self.t == 50
        self.agents = [] if over else self.agents
        return self._told(self.sight), self._told(1.0), self._told(over), self._told(False), self._told(self.infos)

    def _told(self, what: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, what)

    def close(self) -> None:
        pass


# ---------------------------------------------------------------------- policies, and running them


def mlp(seed: int, inputs: int, actions: int, hidden: int = 32, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, actions))


class Residual(nn.Module):
    """A network that is not a sequence of layers."""

    def __init__(self, seed: int, inputs: int, actions: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(inputs, inputs), nn.Linear(inputs, actions)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1).float()
        return self.last(x + torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def first_legal(observations: Any, masks: Any) -> Any:
    """The first legal action, or one chosen by what is seen."""
    preferred = np.floor(7 * np.abs(observations.reshape(len(observations), -1).sum(1))) % masks.shape[1]
    found = np.where(np.take_along_axis(masks, preferred.astype(int)[:, None], 1)[:, 0], preferred, masks.argmax(1))
    return found.astype(int)


def by_sum(observations: Any) -> Any:
    return (np.abs(observations.reshape(len(observations), -1).sum(1)) * 10).astype(int) % 5


def ran(env_fn: Any, policies: Any, /, copies: int = 3, seed: int = 0, record: bool = True, **settings: Any) -> Report:
    """One run of a new runner; ``steps``, ``episodes`` and the parameters of the runner."""
    how = {name: settings.pop(name) for name in ("steps", "episodes") if name in settings}
    settings = {"executor": "inline"} | settings
    with MultiAgentRunner(env_fn, policies, num_envs=copies, **settings) as runner:
        return runner.run(**how, seed=seed, record=record, progress_bar=False)


def message(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


class Matrix(ParallelEnv):
    """The reward of each side's agents is known from what both sides do, or is the seed of the episode's environment.

    Args:
        sizes: How many agents each side has.
        seeds: Whether seeds are what is paid.
    """

    metadata = {"name": "matrix"}

    def __init__(self, sizes: tuple[int, int] = (1, 1), seeds: bool = False) -> None:
        self.sides = [[f"{name}{number}" for number in range(size)] for name, size in zip("ab", sizes, strict=True)]
        self.possible_agents = [*self.sides[0], *self.sides[1]]
        self.seeds, self.seed = seeds, 0
        self.seen, self.done = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(5)

    def observation_space(self, agent: str) -> Any:
        return self.seen

    def action_space(self, agent: str) -> Any:
        return self.done

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seed = self.seed if seed is None else seed
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        first, second = (float(np.mean([actions[agent] for agent in side])) for side in self.sides)
        paid = (self.seed, -self.seed) if self.seeds else (10 * first + second, first - second)
        # Within a side one agent gets more and another less; the mean is what counts.
        rewards = {
            agent: paid[side] + number - (len(agents) - 1) / 2
            for side, agents in enumerate(self.sides)
            for number, agent in enumerate(agents)
        }
        ended, self.agents = self.agents, []
        every = dict.fromkeys(ended, True)
        return {agent: np.ones(1, np.float32) for agent in ended}, rewards, every, dict.fromkeys(ended, False), {}
