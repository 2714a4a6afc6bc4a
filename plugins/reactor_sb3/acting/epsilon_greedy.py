"""How an actor of a Q-learning algorithm acts: greedily, but for random actions at the rate of exploration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_sb3.acting.records import Fields
from reactor_torch import Greedy, Network

__all__ = ["EpsilonGreedy"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EpsilonGreedy:
    """The :class:`~reactor_sb3.acting.actor.Behaviour` of Q-learning's actors.

    Attributes:
        network: Structure of the Q-network.
        actions: How many actions there are, counted from 0.
        spread: How much greedier the last actor is than the first: actor ``i`` of ``n`` explores with
            ``epsilon ** (1 + spread * i / (n - 1))`` (Horgan et al. 2018, "Distributed Prioritized Experience Replay"; there 7).
    """

    network: Network
    actions: int
    spread: float

    @property
    def fields(self) -> Fields:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""
        return (("actions", np.dtype(np.int64), ()),)

    def memory(self, first: int, envs: int) -> None:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""

    def begin_round(
        self, index: int, actors: int, rates: Array, random: np.random.Generator, bound: Greedy, record: Array, memory: None
    ) -> Callable[[int], Array]:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""
        chosen: Array = record["actions"]
        shape: tuple[int, ...] = chosen.shape
        exponent = np.float32(1 + (self.spread * index / (actors - 1) if actors > 1 else 0))
        exploring: Any = random.random(shape, np.float32) < (rates**exponent)[:, None]
        chosen[...] = random.integers(self.actions, size=shape)
        at_random: list[bool] = exploring.all(1).tolist()

        def act(step: int) -> Array:
            actions: Array = chosen[step]
            if not at_random[step]:
                best = bound(step)
                actions[...] = np.where(exploring[step], actions, best) if len(actions) > 1 else best
            return actions

        return act

    def end_round(self, bound: Greedy, record: Array, memory: None) -> None:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""
