"""The trainers of sb3-contrib's algorithms that the tests make, small and quick: a row for each."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from every_other import in_turn
from gymnasium import spaces
from trainers import ALGORITHMS, BOX, CHOICE, CONTINUOUS, INLINE, ROWS, Toy, new

from reactor_sb3 import Algorithm


class Masked(Toy):
    """Of its choices, some are forbidden at times; who takes one fails."""

    def step(self, action: Any) -> Any:
        assert self.allowed(action), action
        return super().step(action)

    def allowed(self, action: Any) -> bool:
        masks, at = self.action_masks(), 0
        sizes = sizes_of(self.action_space)
        for size, one in zip(sizes, np.atleast_1d(action), strict=True):
            if not masks[at + int(one)]:
                return False
            at += size
        return True

    def action_masks(self) -> Any:
        masks = np.ones(sum(sizes_of(self.action_space)), bool)
        masks[self.t % 2 :: 2] = False
        masks[::3] = True
        return masks


def sizes_of(space: Any) -> list[int]:
    """Among how many is chosen, for each choice."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(space.n)
    return [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.tolist()


class ToyOf:
    """Makes a :class:`trainers.Toy` that suits an algorithm; can be pickled."""

    def __init__(self, algorithm: str, space: Any = BOX, actions: Any = CHOICE) -> None:
        self.algorithm, self.space, self.actions = algorithm, space, actions

    def __call__(self) -> Toy:
        if ROWS[self.algorithm].masks:
            return Masked(self.space, self.actions)
        return Toy(self.space, BOX if self.algorithm in CONTINUOUS else CHOICE)


class Shown(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A CartPole that can be seen, and has masks."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))

    def action_masks(self) -> Any:
        return np.ones(2, bool)


CONTRIB: dict[str, Algorithm] = {name: row for name, row in ROWS.items() if row.extra == "contrib"}


def env_of(algorithm: str, *, shown: bool = False) -> Any:
    """An environment for it; one that can be watched."""
    row = CONTRIB[algorithm]
    if shown:
        return Shown if row.masks else row.env
    return ToyOf(algorithm) if row.masks or algorithm in CONTINUOUS else row.env


each = in_turn("algorithm", sorted(CONTRIB), kept=1)


def make(algorithm: str, env: Any = None, policy: Any = None, **changed: Any) -> Any:
    """One of them."""
    row = CONTRIB[algorithm]
    policy = row.policy if policy is None else policy
    network = dict(row.network)
    if "Cnn" in str(policy):
        network |= {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    given = {"n_actors": 4, "seed": 0, "policy_kwargs": network, **INLINE, **row.settings, **changed}
    return row.cls(policy, env_of(algorithm) if env is None else env, **given)


# ---------------------------------------------------------------------- SB3's and sb3-contrib's

EVERY: dict[str, Any] = {name: row.cls for name, row in ROWS.items()}
"""The class of each trainer."""
every = in_turn("algorithm", sorted(EVERY), kept=1)


def make_any(algorithm: str, **changed: Any) -> Any:
    """One of all of them."""
    return new(algorithm, **changed) if algorithm in ALGORITHMS else make(algorithm, **changed)
