"""SB3's models as learners, dense or by autograd, and transitions for them to learn from."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples, RolloutBufferSamples

from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss
from reactor_sb3.learned import read_actor_critic
from reactor_torch import Network, Networks, normalized

FEATURES = 5
NUMBERS = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
IMAGES = spaces.Box(0, 255, (3, 38, 41), np.uint8)
WAYS = ("dense", "written")
"""By the extension; the loss as it is written, by autograd."""
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi-discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi-binary": spaces.MultiBinary(4),
    "box": spaces.Box(-1, 1, (2,), np.float32),
}


class Walk(gymnasium.Env[Any, Any]):
    """Observations that wander, rewards that depend on them; never read by anything but spaces and shapes."""

    def __init__(self, action_space: spaces.Space[Any], observation_space: spaces.Space[Any] = NUMBERS) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}


def ppo(kind: str, **arguments: Any) -> PPO:
    """A model of SB3's, in the state in which its ``train`` is called."""
    model = PPO(
        "MlpPolicy", Walk(ACTIONS[kind]), seed=1, device="cpu", **{"n_epochs": 1, "batch_size": 64, "n_steps": 64} | arguments
    )
    model.set_logger(configure(None, []))
    return model


def dqn(**arguments: Any) -> DQN:
    """The same for DQN."""
    model = DQN("MlpPolicy", Walk(spaces.Discrete(3)), seed=1, device="cpu", buffer_size=10, **arguments)
    model.set_logger(configure(None, []))
    return model


def rollout(model: PPO, rows: int, generator: np.random.Generator) -> RolloutBufferSamples:
    """What a rollout buffer might give: actions that the policy could have taken, a while ago."""
    policy = model.policy
    observations = torch.from_numpy(generator.normal(size=(rows, FEATURES)).astype(np.float32))
    with torch.no_grad():
        actions, values, log_prob = policy(observations)
    drift = torch.from_numpy(generator.normal(size=(3, rows)).astype(np.float32))
    kept = actions.to(torch.float32).reshape(rows, -1)  # as rollout buffers keep them
    return RolloutBufferSamples(
        observations, kept, values.flatten() + 0.3 * drift[0], log_prob + 0.3 * drift[1],
        2 * drift[2], values.flatten() + drift[0] + drift[2],
    )  # fmt: skip


def replay(rows: int, generator: np.random.Generator, discounts: bool = False) -> ReplayBufferSamples:
    """What a replay buffer might give."""

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(generator.normal(size=shape).astype(np.float32))

    return ReplayBufferSamples(
        numbers(rows, FEATURES), torch.from_numpy(generator.integers(0, 3, (rows, 1))), numbers(rows, FEATURES),
        torch.from_numpy(generator.integers(0, 2, (rows, 1)).astype(np.float32)), 3 * numbers(rows, 1),
        torch.from_numpy(generator.uniform(0.9, 1, (rows, 1)).astype(np.float32)) if discounts else None,
    )  # fmt: skip


class Learner:
    """One network with one loss.

    Args:
        nets: The networks.
        name: Name of both.
        way: One of :data:`WAYS`.
    """

    def __init__(self, nets: Networks, name: str, way: str) -> None:
        assert nets.compiled == (way == "dense")
        self.nets, self.name, self.flat = nets, name, nets.flat(name)
        self.statistics = nets.loss(name).statistics

    def begin(self) -> None:
        """Take over what was loaded."""
        self.nets.begin_round(self.nets.losses)

    def update(self, batch: Any) -> Any:
        """One update; returns the statistics."""
        statistics = self.nets.gradients(self.name, batch)
        self.nets.step(self.name)
        return statistics


def ppo_learner(model: PPO, way: str) -> Learner:
    clip_range_vf = None if model.clip_range_vf is None else model.clip_range_vf(1)
    loss = PPOLoss(model.clip_range(1), clip_range_vf, model.ent_coef, model.vf_coef)
    read = read_actor_critic if way == "dense" else None
    parts = {"policy": Network(model.policy, model.policy.optimizer, model.max_grad_norm, read=read)}
    return Learner(Networks(parts, {"policy": loss}), "policy", way)


def ppo_batch(model: PPO, given: RolloutBufferSamples) -> PPOBatch:
    actions = given.actions.long().flatten() if isinstance(model.action_space, spaces.Discrete) else given.actions
    advantages = normalized(given.advantages, len(given.advantages)) if model.normalize_advantage else given.advantages
    return PPOBatch(given.observations, actions, advantages, given.returns, given.old_log_prob, given.old_values)


def load_state(ours: Any, theirs: Any) -> None:
    """Weights and optimiser of one policy into another, as SB3's ``set_parameters`` does it."""
    ours.policy.load_state_dict(theirs.policy.state_dict())
    ours.policy.optimizer.load_state_dict(copy.deepcopy(theirs.policy.optimizer.state_dict()))  # which it keeps where it can
