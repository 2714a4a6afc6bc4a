"""Small environments whose agents learn, and trainers for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from runner_envs import Herd, Table

from reactor_pettingzoo.learning import SyncIPPO

BOX = spaces.Box(-10, 10, (4,), np.float32)
MIXED: dict[str, Any] = {
    "ant": spaces.Discrete(3), "bee": spaces.Box(-1, 1, (2,), np.float32), "cat": spaces.MultiDiscrete([2, 3]),
    "late": spaces.MultiBinary(2),
}  # fmt: skip
SEEN: dict[str, Any] = {
    "ant": spaces.Box(-10, 10, (3,), np.float32), "bee": BOX, "cat": spaces.Box(-10, 10, (2, 2), np.float32),
    "late": spaces.Box(-10, 10, (5,), np.float32),
}  # fmt: skip


class Solo(ParallelEnv):
    """An environment of Gymnasium's as that of one agent."""

    metadata = {"name": "solo"}
    possible_agents = ["only"]

    def __init__(self, env_id: str) -> None:
        self.env = gymnasium.make(env_id)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space

    def action_space(self, agent: str) -> Any:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["only"]
        observation, _ = self.env.reset(seed=seed, options=options)
        return {"only": observation}, {"only": {}}

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, _ = self.env.step(actions["only"])
        if terminated or truncated:
            self.agents = []
        return {"only": observation}, {"only": reward}, {"only": terminated}, {"only": truncated}, {"only": {}}

    def close(self) -> None:
        self.env.close()


class Pair(ParallelEnv):
    """Two agents that see different things, and are paid for them; an episode ends by itself, or is cut off."""

    metadata = {"name": "pair"}
    possible_agents = ["one", "two"]

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-10, 10, (3 if agent == "one" else 5,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2) if agent == "one" else spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.t, self.agents = 0, self.possible_agents[:]
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        self.facts = {
            agent: self.random.normal(size=self.observation_space(agent).shape).astype(np.float32) for agent in self.agents
        }
        return dict(self.facts)

    def step(self, actions: Any) -> Any:
        self.t += 1
        paid = {agent: float(self.facts[agent][int(action)]) for agent, action in actions.items()}
        paid["two"] -= 0.5 * paid["one"]
        over, cut = bool(self.random.random() < 0.1), self.t >= 7
        found = self._seen(), paid, dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, cut and not over)
        infos: dict[str, Any] = {agent: {} for agent in self.agents}
        if over or cut:
            self.agents = []
        return *found, infos


class Late(AECEnv):
    """Two players take turns; each move is paid two moves later, and the last ones when the game ends."""

    metadata = {"name": "late"}
    possible_agents = ["first", "second"]

    def __init__(self, length: int = 6) -> None:
        super().__init__()
        self.length = length

    def observation_space(self, agent: str) -> Any:
        return BOX

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.t, self.agent_selection, self.moves = 0, "first", []
        self._skip_agent_selection: Any = None

    def observe(self, agent: str) -> Any:
        return np.array([self.t, *self.moves[-3:], *[0] * (3 - len(self.moves[-3:]))], np.float32)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        other = self.possible_agents[1 - self.possible_agents.index(agent)]
        self.moves.append(int(action))
        self.t += 1
        self.rewards = {agent: 0.0, other: 0.0}
        if len(self.moves) > 1:  # the move before this one is paid now, to the other player
            self.rewards[other] = float(self.moves[-2])
        if self.t == self.length:
            self.rewards[agent] = float(action)
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other


ENVS: dict[str, Any] = {
    "deaths": Herd,
    "masks": partial(Herd, masks="observation"),
    "masks in infos": partial(Herd, masks="info"),
    "mixed": partial(Herd, actions=MIXED, observations=SEEN),
    "turns": Table,
    "late": Late,
}
SMALL: dict[str, Any] = {"n_actors": 2, "envs_per_actor": 2, "n_steps": 16, "batch_size": 32, "n_epochs": 2, "seed": 0}
EVALUATED: dict[str, Any] = {"evaluate_every": 2, "evaluate_episodes": 2}


def make(env: Any = "deaths", **changed: Any) -> SyncIPPO:
    given = {"executor": "inline", "policy_kwargs": {"net_arch": [16]}, **SMALL, **changed}
    return SyncIPPO("MlpPolicy", ENVS.get(env, env) if isinstance(env, str) else env, **given)


def outcome(model: Any) -> dict[str, Any]:
    return {
        "weights": model.fingerprint(),
        "evaluations": [(one.timesteps, one.returns, one.lengths) for one in model.evaluations],
        "counters": (model.num_timesteps, model.n_episodes, model.n_updates),
        "episodes": [{name: value for name, value in info.items() if name != "t"} for info in model.ep_info_buffer],
    }
