"""Environments of what sb3-contrib's algorithms are for: forbidden actions, and observations that do not say all."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

__all__ = ["ConnectFour", "MaskedGrid", "masked_cartpole", "without_velocities"]


class MaskedGrid(gymnasium.Env[Any, int]):
    """A square of eight times eight fields, of which about half can be taken at a time: the best of them is hinted at."""

    SIZE, LENGTH = 64, 100

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (self.SIZE,), np.float32)
        self.action_space: Any = spaces.Discrete(self.SIZE)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._drawn(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.open[action], f"{action} is forbidden"
        self.steps += 1
        reward = float(self.values[action])
        return self._drawn(), reward, self.steps == self.LENGTH, False, {}

    def action_masks(self) -> Any:
        return self.open

    def _drawn(self) -> Any:
        self.values = self.np_random.random(self.SIZE, np.float32)
        self.open = self.np_random.random(self.SIZE) < 0.5
        self.open[0] = True
        return self.values


class ConnectFour(gymnasium.Env[Any, int]):
    """PettingZoo's connect_four for its first player; the second one drops its chips at random."""

    def __init__(self) -> None:
        from pettingzoo.classic import connect_four_v3

        self.game = connect_four_v3.raw_env()
        self.observation_space = spaces.Box(0, 1, (84,), np.float32)
        self.action_space: Any = spaces.Discrete(7)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.game.reset()
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.game.step(int(action))
        if not self._over:
            self.game.step(int(self.np_random.choice(np.flatnonzero(self.action_masks()))))
        return self._seen(), float(self.game.rewards["player_0"]), self._over, False, {}

    def action_masks(self) -> Any:
        return np.array(self.game.board[:7]) == 0

    @property
    def _over(self) -> bool:
        return bool(self.game.terminations["player_0"])

    def _seen(self) -> Any:
        return self.game.observe("player_0")["observation"].astype(np.float32).flatten()


class _TwoButtons(gymnasium.ActionWrapper[Any, int, int]):
    """Two actions push to the left and two to the right; at each step one of either is forbidden."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(4)

    def reset(self, **kwargs: Any) -> Any:
        found = self.env.reset(**kwargs)
        self._forbid()
        return found

    def step(self, action: Any) -> Any:
        assert self.open[action], f"{action} is forbidden"
        found = super().step(action)
        self._forbid()
        return found

    def action(self, action: int) -> int:
        return int(action) // 2

    def action_masks(self) -> Any:
        return self.open

    def _forbid(self) -> None:
        left, right = self.unwrapped.np_random.random(2) < 0.5
        self.open = np.array([left, not left, right, not right])


def masked_cartpole() -> Any:
    """CartPole, half of whose actions are forbidden at a time."""
    return _TwoButtons(TimeLimit(CartPoleEnv(), 500))


class _Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole's observations of where the cart is and how the pole leans."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        low, high = (bound[[0, 2]] for bound in (env.observation_space.low, env.observation_space.high))
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]]


def without_velocities() -> Any:
    """CartPole, whose velocities somebody who acts has to remember."""
    return _Positions(TimeLimit(CartPoleEnv(), 500))
