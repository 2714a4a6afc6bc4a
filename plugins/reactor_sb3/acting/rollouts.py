"""How the actors of an on-policy algorithm act, and what they make of a round: values, probabilities and advantages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

from reactor_sb3.acting.plain_policy import ActingPolicy, Drawing
from reactor_sb3.acting.records import Fields, Observations

__all__ = ["OnPolicy", "advantages", "by_env", "fill"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OnPolicy:
    """The :class:`~reactor_sb3.acting.actor.Behaviour` of actors that draw their actions as the policy says.

    Attributes:
        network: Structure of the policy.
        observations: Layout of observations.
        action_space: Of the environments.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
    """

    network: ActingPolicy
    observations: Observations
    action_space: gymnasium.Space[Any]
    gamma: float
    gae_lambda: float

    @property
    def fields(self) -> Fields:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`; actions of a ``Box`` are also ``"drawn"``, as the policy has them."""
        space, number = self.action_space, np.dtype(np.float32)
        assert space.shape is not None
        judged = [("log_probs", number, ()), ("values", number, ()), ("advantages", number, ())]
        if isinstance(space, spaces.Box):
            return (("actions", np.result_type(number, space.dtype), space.shape), ("drawn", number, space.shape), *judged)
        return (("actions", np.dtype(space.dtype), space.shape), *judged)

    def memory(self, first: int, envs: int) -> None:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""

    def begin_round(
        self, index: int, actors: int, rates: Array, random: np.random.Generator, bound: Drawing, record: Array, memory: None
    ) -> Callable[[int], Array]:
        """See :class:`~reactor_sb3.acting.actor.Behaviour`."""
        return bound.begin_round(random, record)

    def end_round(self, bound: Drawing, record: Array, memory: None) -> None:
        """Add values, probabilities and advantages.

        As in SB3, a return goes on with the value of the last observation where a time limit has ended an episode.
        """
        record["log_probs"], values = bound.end_round()
        record["values"] = values
        dones, timeouts = record["dones"], record["timeouts"]
        following = np.zeros_like(values)
        following[:-1] = values[1:]
        following[dones] = 0
        others = timeouts.copy()  # what was observed last, and in no other step
        others[-1] |= ~dones[-1]
        if others.any():
            nexts = self.observations.of(record, "next_observations")
            following[others] = bound.values_of({key: part[others] for key, part in nexts.items()})
        record["advantages"] = advantages(record["rewards"], values, following, dones, self.gamma, self.gae_lambda)


def advantages(rewards: Array, values: Array, following: Array, dones: Array, gamma: float, gae_lambda: float) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016), ``(steps, envs)``, float32.

    What comes later is added up over doubling distances: a few operations on whole arrays in the place of some for each step.

    Args:
        rewards: ``(steps, envs)``, as everything else.
        values: Of the observations before each step.
        following: Of those after it; 0 where nothing follows.
        dones: Whether an episode ended with a step.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
    """
    total = rewards + gamma * following.astype(np.float64) - values
    weight = gamma * gae_lambda * np.logical_not(dones)
    distance = 1
    while distance < len(total):
        total[:-distance] += weight[:-distance] * total[distance:]
        weight[:-distance] *= weight[distance:]  # numpy takes care of the overlap
        distance *= 2
    return total.astype(np.float32)


def by_env(field: Array) -> Array:
    """A copy of a field of gathered rounds, from ``(actors, steps, envs, ...)`` to ``(actors * envs * steps, ...)``.

    This is the order in which SB3's rollout buffer has it when minibatches are drawn.
    """
    actors, steps, envs, *rest = field.shape
    return np.array(field.swapaxes(1, 2), order="C").reshape(actors * envs * steps, *rest)


def fill(buffer: RolloutBuffer, layout: Observations, rounds: Array) -> None:
    """Make a rollout buffer one that is full of a round.

    Args:
        buffer: SB3's. Its arrays become views, ``(steps, envs, ...)``, of such in the order in which minibatches are drawn.
        layout: Of observations as the policy sees them.
        rounds: A record for each actor.
    """
    target: Any = buffer
    steps, envs = buffer.buffer_size, buffer.n_envs

    def view(field: Array) -> Array:
        return by_env(field).reshape(envs, steps, *field.shape[3:]).swapaxes(0, 1)

    target.observations = layout.outside({key: view(part) for key, part in layout.of(rounds, "observations").items()})
    drawn = view(rounds["drawn" if "drawn" in (rounds.dtype.names or ()) else "actions"])
    target.actions = drawn.reshape(steps, envs, -1)
    for name in ("rewards", "values", "log_probs", "advantages"):
        setattr(target, name, view(rounds[name]))
    target.returns = target.advantages + target.values
    target.episode_starts = np.concatenate([np.ones((1, envs)), view(rounds["dones"])[:-1]]).astype(np.float32)
    target.pos, target.full, target.generator_ready = steps, True, False
