"""What actors know of a policy: how it draws actions, and what it thinks of observations.

Most policies are plain: a network that acts, one that judges, and a distribution of SB3's. Then actions are drawn by
:mod:`reactor_sb3.acting.action_distributions`, from noise that belongs to the actor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reactor_sb3.acting.action_distributions import ActionDistribution

__all__ = ["ActingPolicy", "Bounds", "Drawing", "BoundNetworks", "Networks", "Observed", "PlainPolicy"]

Array = npt.NDArray[Any]
Observed = Mapping[str, Array]
"""Observations by key, ``(steps, envs, ...)``, or of any number of environments, ``(count, ...)``."""


@dataclass(frozen=True)
class Bounds:
    """What actions of a ``Box`` are made to fit, as SB3 does.

    Attributes:
        low: Of every number.
        high: Of every number.
        squashed: Whether actions lie between -1 and 1 and are stretched, or anywhere and are clipped.
    """

    low: Array
    high: Array
    squashed: bool

    def __call__(self, actions: Array) -> Array:
        """Actions for environments, of policy's actions."""
        if self.squashed:
            actions = self.low + 0.5 * (actions + 1.0) * (self.high - self.low)
        return np.clip(actions, self.low, self.high)


class Drawing(Protocol):
    """A policy whose parameters are views of one slot, looking at the observations of another one."""

    def __call__(self, step: int) -> Array:
        """The most probable actions for the observations of a step, as environments are given them."""

    def begin_round(self, random: np.random.Generator, record: Array) -> Callable[[int], Array]:
        """Draw what chance decides in a round.

        Returns:
            From a step to actions for its observations, as environments are given them, ``(envs, *shape)``. They are noted in
            ``record["actions"]``, and in ``record["drawn"]`` as the policy has them, if that makes a difference.
        """

    def end_round(self) -> tuple[Array, Array]:
        """Of all steps: the logarithms of the actions' probabilities, and the values of the observations, ``(steps, envs)``."""

    def values_of(self, observations: Observed) -> Array:
        """The values of other observations, ``(count,)``."""


class ActingPolicy(Protocol):
    """The structure of a policy, light enough to travel."""

    def bind(self, parameters: Array, observations: Observed) -> Drawing:
        """The policy with its weights in a record of parameters, for observations ``(steps, envs, ...)``, by key."""


# ---------------------------------------------------------------------- plain policies


class BoundNetworks(Protocol):
    """Two networks with their weights, looking at observations."""

    def outputs(self, step: int) -> Array:
        """What the actor's network says of a step, ``(envs, n)``, float32; valid until the next call."""

    def values(self) -> Array:
        """What the critic's says of all steps, of each of which there have been outputs, ``(steps, envs)``."""

    def values_of(self, observations: Observed) -> Array:
        """What the critic's says of others, ``(count,)``."""


class Networks(Protocol):
    """The structure of an actor's and a critic's network."""

    def bind(self, parameters: Array, observations: Observed) -> BoundNetworks:
        """See :class:`ActingPolicy`."""


@dataclass(frozen=True)
class PlainPolicy:
    """The :class:`ActingPolicy` of a policy that does nothing of its own.

    Attributes:
        networks: Its networks.
        distribution: Of its actions.
        bounds: Of its actions.
    """

    networks: Networks
    distribution: ActionDistribution
    bounds: Bounds | None

    def bind(self, parameters: Array, observations: Observed) -> Drawing:
        """See :class:`ActingPolicy`."""
        return PlainDrawing(self, parameters, observations)


class PlainDrawing:
    """A plain policy with its weights."""

    def __init__(self, policy: PlainPolicy, parameters: Array, observations: Observed) -> None:
        self.parameters, self.distribution, self.bounds = parameters, policy.distribution, policy.bounds
        self.networks = policy.networks.bind(parameters, observations)
        self.steps, self.envs = next(iter(observations.values())).shape[:2]

    def __call__(self, step: int) -> Array:
        """See :class:`Drawing`."""
        actions = self.distribution.mode(self.networks.outputs(step))
        return actions if self.bounds is None else self.bounds(actions)

    def begin_round(self, random: np.random.Generator, record: Array) -> Callable[[int], Array]:
        """See :class:`Drawing`."""
        noise = self.distribution.noise(random, self.steps, self.envs, self.parameters)
        bounds, outputs, choose = self.bounds, self.networks.outputs, self.distribution.choose
        actions = record["actions"]
        drawn = self.drawn = actions if bounds is None else record["drawn"]
        scores = self.scores = np.empty_like(noise)

        def act(step: int) -> Array:
            of_step = scores[step] = outputs(step)
            drawn[step] = chosen = choose(of_step, noise[step])
            if bounds is not None:
                actions[step] = chosen = bounds(chosen)
            return chosen

        return act

    def end_round(self) -> tuple[Array, Array]:
        """See :class:`Drawing`."""
        return self.distribution.log_probs(self.scores, self.drawn, self.parameters), self.networks.values()

    def values_of(self, observations: Observed) -> Array:
        """See :class:`Drawing`."""
        return self.networks.values_of(observations)
