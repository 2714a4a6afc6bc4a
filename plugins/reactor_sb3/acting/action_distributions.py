"""How actions are drawn: from what a policy's network gives, and from noise that is drawn for a whole round at once.

They are SB3's distributions, without torch. Every kind of action has its own kind of noise, such that a step only has to add and to
compare; probabilities are computed for a whole round afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

__all__ = ["Bernoulli", "Categorical", "ActionDistribution", "Gaussian", "distribution_of", "normal_log_probs"]

Array = npt.NDArray[Any]
_TINY = np.float32(1e-30)
_HALF_LOG_2PI = np.float32(0.5 * math.log(2 * math.pi))


class ActionDistribution(Protocol):
    """A kind of distribution of actions; ``outputs`` are what the network gives, ``(..., n)``, float32."""

    def noise(self, random: np.random.Generator, steps: int, envs: int, parameters: Array) -> Array:
        """Noise for a round, ``(steps, envs, n)``, float32.

        Args:
            random: Where it comes from.
            steps: Of the round.
            envs: Environments.
            parameters: The policy's, a record.
        """

    def choose(self, outputs: Array, noise: Array) -> Array:
        """Random actions, ``(envs, *shape)``."""

    def mode(self, outputs: Array) -> Array:
        """The most probable actions, ``(envs, *shape)``."""

    def log_probs(self, outputs: Array, actions: Array, parameters: Array) -> Array:
        """Logarithms of the probabilities of actions ``(..., *shape)``, ``(...)``, float32."""


@dataclass(frozen=True)
class Categorical:
    """One choice, or several that are independent of each other.

    Attributes:
        sizes: Among how many is chosen, for each choice.
        several: Whether an action is an array of choices and not a number, even if it is of only one.
    """

    sizes: tuple[int, ...]
    several: bool

    def noise(self, random: np.random.Generator, steps: int, envs: int, parameters: Array) -> Array:
        """Gumbel noise: the largest logit after it has been added is drawn with the right probability."""
        drawn = random.standard_exponential((steps, envs, sum(self.sizes)), np.float32)
        return -np.log(np.maximum(drawn, _TINY))

    def choose(self, outputs: Array, noise: Array) -> Array:
        return self.mode(outputs + noise)

    def mode(self, outputs: Array) -> Array:
        if not self.several:
            return outputs.argmax(-1)  # type: ignore[no-any-return]
        return np.stack([part.argmax(-1) for part in self._parts(outputs)], -1)

    def log_probs(self, outputs: Array, actions: Array, parameters: Array) -> Array:
        chosen = actions if self.several else actions[..., None]
        total = np.zeros(outputs.shape[:-1], np.float32)
        for number, part in enumerate(self._parts(outputs)):
            shifted = part - part.max(-1, keepdims=True)
            total -= np.log(np.exp(shifted).sum(-1))
            total += np.take_along_axis(shifted, chosen[..., number, None], -1)[..., 0]
        return total

    def _parts(self, outputs: Array) -> list[Array]:
        return np.split(outputs, np.cumsum(self.sizes[:-1]), -1)


@dataclass(frozen=True)
class Bernoulli:
    """Numbers that are 0 or 1, independent of each other.

    Attributes:
        dtype: Of the numbers.
        count: How many there are.
    """

    dtype: np.dtype[Any]
    count: int

    def noise(self, random: np.random.Generator, steps: int, envs: int, parameters: Array) -> Array:
        """Logistic noise: a bit is 1, with the right probability, where it lies below the logit."""
        return random.logistic(size=(steps, envs, self.count)).astype(np.float32)

    def choose(self, outputs: Array, noise: Array) -> Array:
        return (outputs > noise).astype(self.dtype)

    def mode(self, outputs: Array) -> Array:
        return (outputs > 0).astype(self.dtype)

    def log_probs(self, outputs: Array, actions: Array, parameters: Array) -> Array:
        return -np.logaddexp(np.float32(0), np.where(actions == 1, -outputs, outputs)).sum(-1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Gaussian:
    """Numbers that are independent of each other; their standard deviations are the policy's parameter ``log_std``.

    Attributes:
        shape: Of an action.
    """

    shape: tuple[int, ...]

    def noise(self, random: np.random.Generator, steps: int, envs: int, parameters: Array) -> Array:
        """Normal noise with the policy's standard deviations."""
        drawn = random.standard_normal((steps, envs, math.prod(self.shape)), np.float32)
        return drawn * np.exp(parameters["log_std"])  # type: ignore[no-any-return]

    def choose(self, outputs: Array, noise: Array) -> Array:
        return (outputs + noise).reshape(-1, *self.shape)

    def mode(self, outputs: Array) -> Array:
        return outputs.reshape(-1, *self.shape)

    def log_probs(self, outputs: Array, actions: Array, parameters: Array) -> Array:
        return normal_log_probs(actions.reshape(outputs.shape) - outputs, parameters["log_std"])


def normal_log_probs(distances: Array, log_std: Array) -> Array:
    """Logarithms of the probabilities of independent normal numbers.

    Args:
        distances: From their means, ``(..., n)``, float32.
        log_std: Logarithms of their standard deviations, ``(n,)`` or ``(..., n)``.

    Returns:
        ``(...)``, float32.
    """
    apart = distances * np.exp(-log_std)
    return -(np.float32(0.5) * apart * apart + log_std + _HALF_LOG_2PI).sum(-1)  # type: ignore[no-any-return]


def distribution_of(space: gymnasium.Space[Any]) -> ActionDistribution:
    """The distribution that SB3 has for actions of a space.

    Raises:
        TypeError: If SB3 has no distribution for it.
    """
    match space:
        case spaces.Discrete():
            return Categorical((int(space.n),), several=False)
        case spaces.MultiDiscrete():
            return Categorical(tuple(map(int, space.nvec)), several=True)
        case spaces.MultiBinary():
            return Bernoulli(np.dtype(space.dtype), math.prod(space.shape))
        case spaces.Box():
            return Gaussian(space.shape)
    raise TypeError(f"there is no distribution of actions of {space}")
