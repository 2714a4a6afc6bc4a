"""The environments in which many agents learn, and the numbers that contenders of ``multi_agent_training.py`` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils import BaseParallelWrapper


@dataclass(frozen=True)
class Numbers:
    """What all contenders have in common."""

    envs: int = 8
    n_steps: int = 128
    batch_size: int = 256
    n_epochs: int = 4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 3e-4


@dataclass(frozen=True)
class Case:
    """An environment, and who learns in it.

    Attributes:
        make: Makes it.
        agents: How many agents it has.
        inputs: Numbers that each of them sees.
        actions: How many actions each of them has.
        shared: Whether all agents have one policy; else each has one of its own.
        deaths: Whether an agent's episode may end before the others'.
        turns: Whether they take turns: then one policy plays itself.
        numbers: What is the same for all.
    """

    make: Callable[[], Any]
    agents: int
    inputs: int
    actions: int
    shared: bool = False
    deaths: bool = False
    turns: bool = False
    numbers: Numbers = Numbers()


def spread() -> Any:
    from mpe2.simple_spread import simple_spread

    return simple_spread.parallel_env(N=3, max_cycles=25)


def four() -> Any:
    from pettingzoo.classic.connect_four import connect_four

    return connect_four.env()


class Viewed(BaseParallelWrapper):  # type: ignore[type-arg]
    """What agents see is made flat, and of another kind."""

    def __init__(self, env: Any, numbers: int, view: Callable[[Any], Any]) -> None:
        super().__init__(env)
        self.seen, self.view = spaces.Box(-1, 1, (numbers,), np.float32), view

    def observation_space(self, agent: str) -> Any:
        return self.seen

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        found, infos = super().reset(seed=seed, options=options)
        return self._viewed(found), infos

    def step(self, actions: Any) -> Any:
        found, *others = super().step(actions)
        return self._viewed(found), *others

    def _viewed(self, found: Any) -> dict[str, Any]:
        return {agent: self.view(seen).astype(np.float32).ravel() for agent, seen in found.items()}


def same(seen: Any) -> Any:
    return seen


def zombies() -> Any:
    """Two archers and two knights, who die one after the other."""
    from pettingzoo.butterfly.knights_archers_zombies import knights_archers_zombies

    return Viewed(knights_archers_zombies.parallel_env(), 135, same)


def small(seen: Any) -> Any:
    return seen[::8, ::8].mean(2) / 255


PISTONS = 10


def pistons() -> Any:
    """Each piston sees every eighth pixel of every eighth row, grey."""
    from pettingzoo.butterfly.pistonball import pistonball

    return Viewed(pistonball.parallel_env(n_pistons=PISTONS, continuous=False), 870, small)


SPREAD = "simple_spread, a policy for each of 3 agents"
FOUR = "connect four, self-play"
ZOMBIES = "knights, archers, zombies, a policy for each of 4 agents"
PISTONBALL = f"pistonball, one policy for {PISTONS} agents"
CASES = {
    SPREAD: Case(spread, 3, 18, 5),
    FOUR: Case(four, 2, 84, 7, turns=True, numbers=Numbers(envs=16)),
    ZOMBIES: Case(zombies, 4, 135, 6, deaths=True),
    PISTONBALL: Case(pistons, PISTONS, 870, 3, shared=True, numbers=Numbers(envs=4, n_steps=64)),
}
