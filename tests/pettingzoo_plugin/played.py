"""Policies of every kind, everybody who plays them, and one game for one agent and for many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv
from sb3_contrib import QRDQN, TQC, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from reactor_gymnasium import evaluate as evaluate_one
from reactor_pettingzoo import MultiAgentRunner, RandomPolicy, evaluate, tournament

SEEN = spaces.Box(-1000, 1000, (3,), np.float32)
CHOICE, BOX = spaces.Discrete(4), spaces.Box(-2, 3, (2,), np.float32)
CHOICES, BITS = spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3)
LENGTH = 9


def _seen(t: int, total: float) -> Any:
    """Numbers far from 0."""
    return np.array([400 + t % 5, -300 + 3 * np.sin(total), 7 * t], np.float32)


def _paid(t: int, action: Any) -> float:
    """More or less for each action, and later."""
    numbers = np.ravel(np.asarray(action, np.float64))
    return float((numbers * (1 + np.arange(len(numbers)))).sum() * (1 + 0.1 * t))


class One(gymnasium.Env[Any, Any]):
    """A game of a few steps for one agent."""

    observation_space = SEEN

    def __init__(self, action_space: spaces.Space[Any] = CHOICE) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.total = 0, 0.0
        return _seen(0, 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = _paid(self.t, action)
        self.t, self.total = self.t + 1, self.total + reward
        return _seen(self.t, self.total), reward, self.t >= LENGTH, False, {}


class Allowing(One):
    """Says which actions are allowed: all."""

    def action_masks(self) -> Any:
        return np.ones(int(self.action_space.n), np.bool_)  # type: ignore[attr-defined]


class Many(ParallelEnv):
    """The same game for several agents, each by itself."""

    metadata = {"name": "many"}
    possible_agents: list[Any] = ["a", "b"]

    def __init__(self, action_space: spaces.Space[Any] = CHOICE, ids: Any = ("a", "b")) -> None:
        self.space, self.possible_agents = action_space, list(ids)

    def observation_space(self, agent: Any) -> Any:
        return SEEN

    def action_space(self, agent: Any) -> Any:
        return self.space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, list(self.possible_agents)
        self.totals = dict.fromkeys(self.agents, 0.0)
        return {agent: _seen(0, 0) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        paid = {agent: _paid(self.t, action) for agent, action in actions.items()}
        for agent, reward in paid.items():
            self.totals[agent] += reward
        self.t += 1
        there, over = self.agents, self.t >= LENGTH
        self.agents = [] if over else there
        seen = {agent: _seen(self.t, self.totals[agent]) for agent in there}
        return seen, paid, dict.fromkeys(there, over), dict.fromkeys(there, False), {agent: {} for agent in there}

    def close(self) -> None:
        pass


_OFF: dict[str, Any] = {"buffer_size": 10}
MODELS: dict[str, tuple[Any, spaces.Space[Any], dict[str, Any]]] = {
    "ppo": (PPO, CHOICE, {}),
    "ppo continuous": (PPO, BOX, {}),
    "ppo choices": (PPO, CHOICES, {}),
    "ppo bits": (PPO, BITS, {}),
    "ppo sde": (PPO, BOX, {"use_sde": True}),
    "a2c": (A2C, CHOICE, {}),
    "dqn": (DQN, CHOICE, _OFF),
    "sac": (SAC, BOX, _OFF),
    "td3": (TD3, BOX, _OFF),
    "maskable ppo": (MaskablePPO, CHOICE, {}),
    "recurrent ppo": (RecurrentPPO, CHOICE, {}),
    "qrdqn": (QRDQN, CHOICE, _OFF),
    "tqc": (TQC, BOX, _OFF),
    "crossq": (CrossQ, BOX, _OFF),
}
"""Models by name: their class, what they do, and more arguments."""


def model_of(name: str, normalize: Callable[[Any], Any] = lambda env: env) -> Any:
    """A model that has not learned."""
    kind, space, more = MODELS[name]
    env = normalize(DummyVecEnv([lambda: Allowing(space) if kind is MaskablePPO else One(space)]))
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    return kind(policy, env, seed=0, device="cpu", policy_kwargs={"net_arch": [16]}, **more)


def normalized(env: Any) -> Any:
    """An environment within a ``VecNormalize`` that has seen the game, within another wrapper."""
    made = VecNormalize(env, clip_obs=1.5)
    made.obs_rms.mean[:], made.obs_rms.var[:] = [401, -300, 30], [2, 9, 400]  # type: ignore[union-attr]
    return VecMonitor(made)


def spoil(module: torch.nn.Module, number: float = np.nan) -> None:
    """Let a network have learned nothing but NaN."""
    with torch.no_grad():
        for one in module.parameters():
            one.fill_(number)


def return_of(model: Any, shown: Callable[[Any], Any] = lambda seen: seen) -> float:
    """What a model gets in a loop, by ``predict`` of what it is shown."""
    env: Any = One(model.action_space)
    seen, _ = env.reset()
    over, total, state, start = False, 0.0, None, np.ones(1, np.bool_)
    while not over:
        more = {} if isinstance(model, MaskablePPO) else {"state": state, "episode_start": start}
        action, state = model.predict(shown(seen[None]), deterministic=True, **more)
        seen, reward, over, _, _ = env.step(action[0])
        total, start = total + reward, np.zeros(1, np.bool_)
    return total


def by_evaluate(policy: Any, space: spaces.Space[Any], **settings: Any) -> list[float]:
    env_fn = Allowing if isinstance(policy, MaskablePPO) else One
    found = evaluate_one(policy, lambda: env_fn(space), 2, **{"seed": 0, "executor": "inline", **settings})  # type: ignore[arg-type]
    return found.returns.tolist()  # type: ignore[no-any-return]


def by_evaluate_of_many(policy: Any, space: spaces.Space[Any], **settings: Any) -> list[float]:
    found = evaluate({"all": policy}, lambda: Many(space), 2, **{"seed": 0, "executor": "inline", **settings})  # type: ignore[arg-type]
    return [total for agent in ("a", "b") for total in found.infos[f"return.{agent}"].tolist()]


def by_runner(policy: Any, space: spaces.Space[Any], *, seed: Any = 0, **settings: Any) -> list[float]:
    with MultiAgentRunner(lambda: Many(space), {"all": policy}, executor="inline", **{"num_envs": 2, **settings}) as runner:
        report = runner.run(episodes=2, seed=seed)
    return [total for episode in report.episodes for total in episode.returns.values()]


def by_tournament(policy: Any, space: spaces.Space[Any], **settings: Any) -> list[float]:
    population = {"all": policy, "other": RandomPolicy()}
    more: dict[str, Any] = {"seed": 0, "executor": "inline", "workers": 1, **settings}
    found = tournament(lambda: Many(space), population, episodes=1, **more)
    return found.payoffs[:, 0, 0].tolist()  # type: ignore[no-any-return]


PLAYERS: dict[str, Callable[..., list[float]]] = {
    "evaluate": by_evaluate,
    "evaluate of many": by_evaluate_of_many,
    "runner": by_runner,
    "tournament": by_tournament,
}
"""Everybody who plays a policy: what its agents have got in some episodes."""
MANY = [name for name in PLAYERS if name != "evaluate"]
