"""PettingZoo environments whose observations, rewards and infos are the very facts that the tests are about."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import AECEnv, ParallelEnv

AGENTS = ["ant", "bee", "cat", "dog"]
LONGEST = 9
LOW = -(2.0**31)


class Crowd(ParallelEnv):
    """Observes ``[seed, episodes, step, agent, sum of the agent's actions, a random number]``; its arrays are used again.

    Args:
        kind: ``"together"``: agents live for the whole episode, of drawn length. ``"deaths"``: they die at drawn times, by
            termination and by truncation. ``"joins"``: besides, two are not there at first, or never come. ``"masks"``: as
            ``"joins"``, with observations that are dicts with an action mask. ``"texts"``: as ``"deaths"``, with a text.
        folder: Where it tells who closed it.
    """

    metadata = {"name": "crowd", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self, kind: str = "deaths", folder: str | None = None) -> None:
        self.kind, self.folder = kind, folder
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.seed, self.episodes, self.options = -1, 0, None
        self.seeds: list[int | None] = []
        self.np_random, _ = seeding.np_random(0)
        facts: spaces.Space[Any] = spaces.Box(LOW, -LOW, (6,), np.float64)
        if kind == "masks":
            facts = spaces.Dict(observation=facts, action_mask=spaces.MultiBinary(5))
        elif kind == "texts":
            facts = spaces.Dict(facts=facts, name=spaces.Text(8))
        self._spaces = dict.fromkeys(AGENTS, facts)
        self._action_spaces = dict.fromkeys(AGENTS, spaces.Discrete(5))
        self._arrays = {agent: np.zeros(6) for agent in AGENTS}

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        if seed is not None:
            self.np_random, _ = seeding.np_random(seed)
            self.seed = seed
        self.options, self.t, self.episodes = options, 0, self.episodes + 1
        draw = self.np_random.integers
        together = int(draw(2, 6))
        self.end = dict.fromkeys(AGENTS, together) if self.kind == "together" else {a: int(draw(1, LONGEST + 2)) for a in AGENTS}
        late = {agent: int(draw(1, 5)) for agent in ("bee", "dog")}
        self.begin = late if self.kind in ("joins", "masks") else {}
        self.agents = [agent for agent in self._order() if agent not in self.begin]
        self.sums = dict.fromkeys(AGENTS, 0)
        return {agent: self._observe(agent) for agent in self.agents}, self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        assert list(actions) == self.agents, f"actions of {list(actions)}, where {self.agents} are alive"
        self.t += 1
        for agent, action in actions.items():
            self.sums[agent] += int(action)
        done = {agent: self.t >= self.end[agent] for agent in self.agents}
        over = self.t >= LONGEST
        there = list(self.agents)
        self.agents = [agent for agent in there if not (done[agent] or over)]
        if self.agents:
            there += (joining := [agent for agent, t in self.begin.items() if t == self.t])
            self.agents = [agent for agent in self._order() if agent in self.agents + joining]
        terminations = {agent: done.get(agent, False) and self.end[agent] % 2 == 0 for agent in there}
        truncations = {agent: (done.get(agent, False) and self.end[agent] % 2 == 1) or over for agent in there}
        observations = {agent: self._observe(agent) for agent in there} | {"common": None}  # other keys are allowed
        rewards = {agent: self.np_random.random() + self.sums[agent] for agent in there}
        return observations, rewards, terminations, truncations, self._infos(there)

    def _order(self) -> list[str]:
        """Agents are not always in the order of ``possible_agents``."""
        return AGENTS[::-1] if self.episodes % 2 else AGENTS

    def _observe(self, agent: str) -> Any:
        facts = self._arrays[agent]
        facts[:] = self.seed, self.episodes, self.t, AGENTS.index(agent), self.sums[agent], self.np_random.random()
        if self.kind == "masks":
            return {"observation": facts, "action_mask": np.arange(5, dtype=np.int8) % (self.t + 2) == 0}
        return {"facts": facts, "name": agent + str(self.t)} if self.kind == "texts" else facts

    def _infos(self, there: list[str] | None = None) -> dict[str, Any]:
        """Nothing, numbers, texts and nested ones, by the step."""
        infos: dict[str, Any] = {agent: {} for agent in there or self.agents}
        for agent, info in infos.items():
            if self.t % 3 != 1:
                info |= {"t": self.t, "sum": float(self.sums[agent])}
            if self.t % 3 == 2 and agent != "cat":
                info |= {"name": agent, "nested": {"array": np.array([self.t, 1])}}
        return infos

    def render(self) -> Any:
        return np.full((2, 2, 3), self.episodes, np.uint8)

    def state(self) -> Any:
        return np.array([self.seed, self.t])

    def add(self, a: int, b: int = 0) -> int:
        return self.episodes + a + b

    def close(self) -> None:
        if self.folder is not None and self.episodes:  # a throw-away one is not reset here
            Path(self.folder, f"{self.seed}").write_text(str(os.getpid()))


class Broken(Crowd):
    """The one whose seed is 1 breaks PettingZoo's interface in one way, in its third step or in its reset."""

    def __init__(self, how: str) -> None:
        super().__init__("masks" if how == "shape at reset" else "together")
        self.how = how

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        results = observations, _ = super().reset(seed, options)
        self.end = dict.fromkeys(AGENTS, 7)
        if self.seed == 1 and self.how == "shape at reset":
            observations["cat"]["observation"] = np.zeros((1,))
        return results

    def step(self, actions: dict[str, Any]) -> Any:
        results = super().step(actions)
        if self.t == 3 and self.seed == 1:
            if self.how == "raises":
                raise ZeroDivisionError("the third step")
            self.agents.append("eel")
        return results


class Steered(Crowd):
    """Its actions are arrays, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._action_spaces = dict.fromkeys(AGENTS, spaces.Box(-100, 100, (2,), np.float32))
        self.kept: list[Any] = []

    def step(self, actions: dict[str, Any]) -> Any:
        self.kept += actions.values()
        return super().step({agent: action[0] for agent, action in actions.items()})


class Unlike(Crowd):
    """Its agents have different spaces."""

    def __init__(self, what: str) -> None:
        super().__init__()
        if what == "observations":
            self._spaces["cat"] = spaces.Box(0, 1, (7,))
        else:
            self._action_spaces["cat"] = spaces.Discrete(6)


class Unlisted(Crowd):
    """Does not say which agents there may be."""

    def __init__(self) -> None:
        super().__init__("deaths")
        del self.possible_agents


class Turns(AECEnv):
    """Agents take turns."""

    metadata = {"name": "turns"}
    possible_agents = AGENTS
