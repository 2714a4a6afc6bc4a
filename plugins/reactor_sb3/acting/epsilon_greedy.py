"""How actors of Q-learning act: greedily, but for random actions at the rate of exploration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_sb3.acting.forwards import torch_forward
from reactor_sb3.acting.policy import Field, Rollout, Turn
from reactor_sb3.policies import LIBRARIES, network_of
from reactor_torch import BoundForward, Forward

__all__ = ["EpsilonGreedy"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EpsilonGreedy:
    """The :class:`~reactor_sb3.acting.policy.Policy` of a Q-network, or of one that gives quantiles of returns.

    Attributes:
        q_net: Structure of the network.
        actions: How many actions there are, counted from 0.
        spread: How much greedier the last actor is than the first: actor ``i`` of ``n`` explores with
            ``epsilon ** (1 + spread * i / (n - 1))`` (Horgan et al. 2018, "Distributed Prioritized Experience Replay"; there 7).
        quantiles: How many numbers the network gives for each action, ``(quantiles, actions)``: its value is their mean.
    """

    q_net: Forward
    actions: int
    spread: float
    quantiles: int = 1

    @classmethod
    def of(
        cls, q_net: Any, action_space: Any, spread: float = 0.0, layers: str = "q_net", quantiles: int = 1, policy: Any = None
    ) -> EpsilonGreedy:
        """The policy of a Q-network of SB3's, as light to evaluate as possible.

        Args:
            q_net: The network.
            action_space: A ``Discrete``.
            spread: See :attr:`spread`.
            layers: Name of the layers in the network, which follow its features extractor.
            quantiles: See :attr:`quantiles`.
            policy: What the network belongs to, if anything.

        Raises:
            ValueError: If one of them chooses actions in a way of its own.
        """
        assert isinstance(action_space, spaces.Discrete)
        for module in (q_net, policy):
            chooses = getattr(type(module), "_predict", None)
            if chooses is not None and chooses.__module__.partition(".")[0] not in LIBRARIES:
                raise ValueError(
                    f"{type(module).__name__} has a _predict() of its own, and actors take the action that the network values "
                    "most: let the network's forward() say so, or use SB3's algorithm with ReactorVecEnv"
                )
        light = network_of(q_net, layers)
        return cls(torch_forward(q_net, light) if isinstance(light, str) else light, int(action_space.n), spread, quantiles)

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("actions", np.dtype(np.int64), ()),)

    @property
    def draws(self) -> bool:
        return self.q_net.draws

    def memory(self, envs: range) -> None:
        """Nothing outlives a round."""

    def bind(self, weights: Array, rollout: Rollout) -> BoundEpsilonGreedy:
        return BoundEpsilonGreedy(self, self.q_net.bind(weights, rollout.observations), rollout)


class BoundEpsilonGreedy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of a Q-network."""

    def __init__(self, policy: EpsilonGreedy, q_values: BoundForward, rollout: Rollout) -> None:
        self.policy, self.rollout = policy, rollout
        self.best = q_values.argmax if policy.quantiles == 1 else _by_mean(q_values, policy)

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        policy, best, chosen = self.policy, self.best, self.rollout["actions"]
        shape: tuple[int, ...] = chosen.shape
        exponent = np.float32(1 + (policy.spread * turn.index / (turn.actors - 1) if turn.actors > 1 else 0))
        exploring: Any = turn.random.random(shape, np.float32) < (turn.rates**exponent)[:, None]
        chosen[...] = turn.random.integers(policy.actions, size=shape)
        at_random: list[bool] = exploring.all(1).tolist()

        def act(step: int) -> Array:
            actions: Array = chosen[step]
            if not at_random[step]:
                actions[...] = np.where(exploring[step], actions, best(step)) if len(actions) > 1 else best(step)
            return actions

        return act

    def end(self, turn: Turn) -> None:
        """All is noted already."""

    def greedy(self, step: int, memory: Any) -> Array:
        return self.best(step)


def _by_mean(outputs: BoundForward, policy: EpsilonGreedy) -> Callable[[int], Array]:
    shape = (-1, policy.quantiles, policy.actions)
    return lambda step: outputs(step).reshape(shape).mean(1).argmax(1)
