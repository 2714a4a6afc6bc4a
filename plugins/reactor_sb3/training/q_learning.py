"""What the trainers of Q-networks have in common: discrete actions, epsilon-greedy actors, and a rate of exploration that falls."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3.acting.epsilon_greedy import EpsilonGreedy
from reactor_sb3.learning.q_learner import QLearner
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["QLearning"]


class QLearning(Trainer):
    """A trainer of a Q-network.

    A subclass says, besides what every trainer does, at which rate its actors explore.
    """

    q_net: Any
    exploration_rate: float
    _learner: QLearner

    def _set_options(self, env: Any) -> None:
        super()._set_options(env)
        self.epsilon_spread = float(self.arguments["epsilon_spread"])
        if self.epsilon_spread < 0:
            raise ValueError(f"epsilon_spread={self.epsilon_spread!r} must not be negative (0: all actors explore alike; Ape-X: 7)")

    def _spare(self, env: Any) -> VecEnv | None:
        spare = super()._spare(env)
        space = None if spare is None else spare.action_space
        if isinstance(space, spaces.Discrete) and space.start != 0:  # SB3 refuses those that are not discrete
            raise ValueError(f"{space} counts from {space.start}; wrap the environment so that actions count from 0")
        return spare

    def acting(self) -> tuple[torch.nn.Module, EpsilonGreedy]:
        """The Q-network, and how actors act by it."""
        return self.q_net, EpsilonGreedy.of(self.q_net, self.action_space, self.epsilon_spread)

    @abstractmethod
    def _present_rate(self) -> float:
        """The rate of exploration when a round is done."""

    def round_done(self) -> None:
        self.exploration_rate = self._present_rate()
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def __repr__(self) -> str:
        gradients = "formulas" if self._learner.dense else "autograd"
        return f"{super().__repr__()[:-1]}, gradients={gradients!r})"

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_learner"]
