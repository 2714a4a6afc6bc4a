"""Environments with something for doctor to find, registered when this is imported."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_born = itertools.count()


class Ailing(gymnasium.Env[Any, Any]):
    """Observes a number; ends its episodes after seven steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, ailment: str = "") -> None:
        self.ailment, self.number = ailment, next(_born)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        if self.ailment == "heavy resets":
            end = time.perf_counter() + 2e-3
            while time.perf_counter() < end:
                pass
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.ailment == "fails":
            raise ValueError("not today")
        self.steps += 1
        seen = self.np_random.random()
        if self.ailment == "global":
            seen = random.random()
        elif self.ailment == "no twins":
            seen += self.number
        infos = {"seen": seen, "half": seen / 2} if self.ailment == "infos" else {}
        return np.array([seen]), 0.0, self.steps >= 7, False, infos

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | ({"steps": 0} if self.ailment == "forgets" else {})


for one in ("global", "heavy resets", "no twins", "infos", "forgets", "fails"):
    gymnasium.register(f"Ailing/{one.replace(' ', '')}-v0", Ailing, kwargs={"ailment": one})
gymnasium.register("Ailing/nothing-v0", Ailing)
