"""A game with lives, as ALE's are, for ``EpisodicLifeEnv``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

LIVES = (3, 4, 5)
"""Steps of each life of a game."""
GAME = sum(LIVES)


class Game(gymnasium.Env[Any, Any]):
    """Three lives, and a reward of 1 for each step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    @property
    def ale(self) -> Game:
        return self

    def lives(self) -> int:
        return len(self.left)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = self.drawn()
        return self.seen(), {}

    def drawn(self) -> list[int]:
        return list(LIVES)

    def seen(self) -> Any:
        return np.array([len(self.left) / 3], np.float32)

    def step(self, action: Any) -> Any:
        self.left[0] -= 1
        if not self.left[0]:
            del self.left[0]
        return self.seen(), 1.0, not self.left, False, {}
