"""Distributions of actions, as those who act need them: drawn from noise, without torch.

A distribution is a value: it says how the outputs of a network become actions. Every kind of action has its own kind of noise, such
that drawing only adds and compares. So a whole round's noise is drawn at once, and by whom is up to the caller. Probabilities are
computed for a whole round, too.

Outputs are ``(..., n)`` float32, of one step or of many. Actions are ``(..., *shape)``, raw: before they are fitted into a ``Box``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import distributions as of_torch

from reactor_rl.plugin import NoiseKind
from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters
from reactor_torch.forward import DenseForward
from reactor_torch.learned_distributions import (
    EPSILON,
    HALF_LOG_2PI,
    HIGHEST,
    LOWEST,
    EvaluatedBernoulli,
    EvaluatedCategorical,
    EvaluatedGaussian,
    EvaluatedGaussianByRow,
    LearnedDistribution,
)

__all__ = [
    "FORBIDDEN",
    "ActionDistribution",
    "Bernoulli",
    "Categorical",
    "Deterministic",
    "Gaussian",
    "GaussianByRow",
    "SquashedGaussian",
    "Values",
    "check_masks",
    "distribution_of",
]

Array = npt.NDArray[Any]
FORBIDDEN = np.float32(-1e8)
"""The score of a choice that a mask forbids, as sb3-contrib has it."""


class ActionDistribution(ABC):
    """How outputs of a network become actions; a frozen dataclass.

    Attributes:
        noise: Kind of noise that actions are drawn with.
        every: Steps that a draw of noise holds for; 0 for a whole round.
        dtype: Of actions.
        outputs: Numbers of a row of outputs.
        width: Numbers of noise for a row, if there is any.
        shape: Of an action.
        choices: Among how many is chosen, for each choice; ``()`` for a distribution that takes no masks.
    """

    noise: ClassVar[NoiseKind] = "none"
    every: int = 1
    dtype: np.dtype[Any] = np.dtype(np.float32)
    choices: tuple[int, ...] = ()
    outputs: int
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.outputs

    def scaled(self, noise: Array, weights: Array) -> Array:
        """Noise as :meth:`drawing` takes it.

        Args:
            noise: ``(..., width)``; may be overwritten.
            weights: A record of parameters.
        """
        return noise

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        """A function from the outputs ``(rows, n)`` and the scaled noise ``(rows, width)`` of a step to actions.

        Its answers are valid until the next call.
        """
        return lambda outputs, noise: self.mode(outputs)

    @abstractmethod
    def mode(self, outputs: Array) -> Array:
        """The most probable actions, of the outputs of a step."""

    def forbid(self, outputs: Array, allowed: Array) -> Array:
        """Outputs of a step, of which those are :data:`FORBIDDEN` that masks forbid, ``(rows, choices)``, 0 where they do."""
        return np.where(allowed, outputs, FORBIDDEN)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        """Logarithms of the probabilities of actions, ``(...)``, float32.

        Raises:
            TypeError: If nothing is drawn, so that there are no probabilities.
        """
        raise TypeError(f"the actions of {self} have no probabilities: nothing is drawn")

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        """The same with derivatives, by the extension; or the reason why it cannot compute them.

        Args:
            flat: The parameters that are learned.
            mean: The layer that gives means, of :class:`GaussianByRow` alone: then outputs are what that layer sees.
        """
        return f"nobody has derived gradients of {type(self).__name__}"

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        """The same by torch: distributions whose log-probabilities add up; ``()`` if nothing is drawn.

        Args:
            outputs: ``(rows, n)``.
            weights: Parameters by name.
        """
        return ()


@dataclass(frozen=True)
class Categorical(ActionDistribution):
    """One choice, or several that are independent of each other; outputs are logits.

    Attributes:
        sizes: Among how many is chosen, for each choice.
        several: Whether an action is an array of choices and not a number, even if it is of only one.
    """

    noise = "gumbel"
    dtype = np.dtype(np.int64)
    sizes: tuple[int, ...]
    several: bool

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return sum(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.sizes),) if self.several else ()

    @property
    def choices(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.sizes

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        """The largest logit after Gumbel noise has been added is drawn with the right probability."""
        if self.several:
            return lambda outputs, noise: self.mode(outputs + noise)
        return lambda outputs, noise: (outputs + noise).argmax(-1)

    def mode(self, outputs: Array) -> Array:
        if not self.several:
            return outputs.argmax(-1)  # type: ignore[no-any-return]
        return np.stack([part.argmax(-1) for part in self._parts(outputs)], -1)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        chosen = actions if self.several else actions[..., None]
        total = np.zeros(outputs.shape[:-1], np.float32)
        for number, part in enumerate(self._parts(outputs)):
            shifted = part - part.max(-1, keepdims=True)
            total -= np.log(np.exp(shifted).sum(-1))
            total += np.take_along_axis(shifted, chosen[..., number, None], -1)[..., 0]
        return total

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        return LearnedDistribution(partial(EvaluatedCategorical, self.sizes))

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        return tuple(of_torch.Categorical(logits=part) for part in torch.split(outputs, list(self.sizes), -1))

    def _parts(self, outputs: Array) -> list[Array]:
        return np.split(outputs, np.cumsum(self.sizes[:-1]), -1)


@dataclass(frozen=True)
class Bernoulli(ActionDistribution):
    """Numbers that are 0 or 1, independent of each other; outputs are logits.

    Attributes:
        count: How many there are.
    """

    noise = "logistic"
    dtype = np.dtype(np.int8)
    count: int

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.count,)

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        """A number is 1, with the right probability, where logistic noise lies below the logit."""
        dtype = self.dtype
        return lambda outputs, noise: (outputs > noise).astype(dtype)

    def mode(self, outputs: Array) -> Array:
        return (outputs > 0).astype(self.dtype)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        return -np.logaddexp(np.float32(0), np.where(actions == 1, -outputs, outputs)).sum(-1)  # type: ignore[no-any-return]

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        return LearnedDistribution(partial(EvaluatedBernoulli, self.count))

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        return (of_torch.Independent(of_torch.Bernoulli(logits=outputs), 1),)


@dataclass(frozen=True)
class _OfNumbers(ActionDistribution):
    """Actions of a ``Box``.

    Attributes:
        shape: Of an action.
    """

    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Numbers of an action."""
        return math.prod(self.shape)

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.count


@dataclass(frozen=True)
class Deterministic(_OfNumbers):
    """Outputs are the actions: TD3 (Fujimoto et al. 2018)."""

    def mode(self, outputs: Array) -> Array:
        return outputs.reshape(-1, *self.shape)


@dataclass(frozen=True)
class Gaussian(_OfNumbers):
    """Independent normal numbers; outputs are means, and the logarithms of their deviations are the parameter ``log_std``."""

    noise = "normal"

    def scaled(self, noise: Array, weights: Array) -> Array:
        return noise * np.exp(weights["log_std"])  # type: ignore[no-any-return]

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        shape = (rows, *self.shape)
        return lambda outputs, noise: (outputs + noise).reshape(shape)

    def mode(self, outputs: Array) -> Array:
        return outputs.reshape(-1, *self.shape)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        return _normal_log_prob(actions.reshape(outputs.shape) - outputs, weights["log_std"])

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        gradient = flat.gradient("log_std")
        if gradient is None or tuple(gradient.shape) != (self.count,):
            return "its log_std is not one number for each of an action's"
        return LearnedDistribution(partial(EvaluatedGaussian, flat))

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        return (of_torch.Independent(of_torch.Normal(outputs, weights["log_std"].exp().expand_as(outputs)), 1),)


@dataclass(frozen=True)
class SquashedGaussian(_OfNumbers):
    """tanh of independent normal numbers (Haarnoja et al. 2018); outputs are means, then logarithms of standard deviations.

    Attributes:
        low: The least of these logarithms; whatever is below stands for it.
        high: The largest of them.
    """

    noise = "normal"
    low: float = LOWEST
    high: float = HIGHEST

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return 2 * self.count

    @property
    def width(self) -> int:
        return self.count

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        low, high, shape, n = np.float32(self.low), np.float32(self.high), (rows, *self.shape), self.count
        drawn, exp, multiply, add, tanh = np.empty((rows, n), np.float32), np.exp, np.multiply, np.add, np.tanh
        shaped = drawn.reshape(shape)

        def draw(outputs: Array, noise: Array) -> Array:
            outputs[:, n:].clip(low, high, drawn)
            exp(drawn, drawn)
            multiply(drawn, noise, drawn)
            add(drawn, outputs[:, :n], drawn)
            tanh(drawn, drawn)
            return shaped

        return draw

    def mode(self, outputs: Array) -> Array:
        return np.tanh(outputs[..., : self.count]).reshape(-1, *self.shape)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        """As SB3 has it: actions are moved a little from the bounds, where tanh has no inverse."""
        n, edge = self.count, 1 - np.finfo(np.float32).eps
        squashed = actions.reshape(*outputs.shape[:-1], n)
        drawn = np.arctanh(np.clip(squashed, -edge, edge))
        of_drawn = _normal_log_prob(
            drawn - outputs[..., :n], np.clip(outputs[..., n:], np.float32(self.low), np.float32(self.high))
        )
        return of_drawn - np.log(1 - squashed**2 + np.float32(EPSILON)).sum(-1)  # type: ignore[no-any-return]

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        mean, log_std = torch.split(outputs, self.count, -1)
        drawn = of_torch.Independent(of_torch.Normal(mean, log_std.clamp(self.low, self.high).exp()), 1)
        return (of_torch.TransformedDistribution(drawn, [of_torch.TanhTransform()]),)


@dataclass(frozen=True)
class GaussianByRow(_OfNumbers):
    """Normal numbers whose noise depends on the row: gSDE (Raffin et al. 2021).

    The noise is the product of what the last layer sees and a random matrix, of which each row has its own. Outputs are means, then
    what the last layer sees; the parameter ``log_std`` has the logarithms of a matrix's deviations, ``(features, actions)``, or
    ``(features, 1)`` for those of all actions.

    Attributes:
        features: Numbers that the last layer sees.
        every: Steps that a matrix holds for; 0 for a whole round.
    """

    noise = "normal"
    features: int
    every: int

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.count + self.features

    @property
    def width(self) -> int:
        return self.features * self.count

    def scaled(self, noise: Array, weights: Array) -> Array:
        matrices = noise.reshape(*noise.shape[:-1], self.features, self.count)
        np.multiply(matrices, np.exp(weights["log_std"]), out=matrices)
        return matrices.reshape(noise.shape)

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        shape, matrices, n = (rows, *self.shape), (rows, self.features, self.count), self.count

        def draw(outputs: Array, noise: Array) -> Array:  # products of matrices have other last bits elsewhere
            spread = (outputs[:, n:, None] * noise.reshape(matrices)).sum(1)
            return (outputs[:, :n] + spread).reshape(shape)  # type: ignore[no-any-return]

        return draw

    def mode(self, outputs: Array) -> Array:
        return outputs[..., : self.count].reshape(-1, *self.shape)

    def log_prob(self, outputs: Array, actions: Array, weights: Array) -> Array:
        n, seen = self.count, outputs[..., self.count :]
        record = np.zeros((), [("spread.weight", np.float32, (n, self.features))])
        record["spread.weight"] = np.exp(2 * weights["log_std"]).T  # variances of a matrix's elements
        spread = DenseForward((Layer("linear", "spread", self.features, n),), self.features, one_hot=False)
        variances = spread.bind(record, {"": np.square(seen).reshape(1, -1, self.features)})(0).reshape(*seen.shape[:-1], n)
        distances = actions.reshape(variances.shape) - outputs[..., :n]
        return _normal_log_prob(distances, np.float32(0.5) * np.log(variances + np.float32(EPSILON)))

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        assert mean is not None
        # It adds up nothing: the derivative of an exponential is a factor of what is added up over rows.
        return LearnedDistribution(partial(EvaluatedGaussianByRow, Dense([mean], flat, passes_on=True), flat), adds_up=False)

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        mean, seen = outputs[:, : self.count], outputs[:, self.count :]
        variance = seen.square() @ (2 * weights["log_std"]).exp()
        return (of_torch.Independent(of_torch.Normal(mean, (variance + EPSILON).sqrt()), 1),)


@dataclass(frozen=True)
class Values(ActionDistribution):
    """Outputs are values of actions, or quantiles of returns, ``(quantiles, actions)``; the action of the highest mean is taken.

    Attributes:
        actions: How many actions there are.
        quantiles: How many numbers there are for each.
    """

    dtype = np.dtype(np.int64)
    shape = ()
    actions: int
    quantiles: int = 1

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.actions * self.quantiles

    @property
    def choices(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.actions,) if self.quantiles == 1 else ()

    def forbid(self, outputs: Array, allowed: Array) -> Array:
        return np.where(np.tile(allowed, self.quantiles), outputs, FORBIDDEN)

    def mode(self, outputs: Array) -> Array:
        if self.quantiles > 1:
            outputs = outputs.reshape(-1, self.quantiles, self.actions).mean(1)
        return outputs.argmax(1)  # type: ignore[no-any-return]


def distribution_of(space: gymnasium.Space[Any], numbers: type[_OfNumbers]) -> ActionDistribution:
    """The distribution of a network's actions: scores are logits, and numbers of a ``Box`` have the kind that is given.

    Raises:
        TypeError: If there is no distribution for a space.
    """
    match space:
        case spaces.Discrete(n=n):
            return Categorical((int(n),), several=False)
        case spaces.MultiDiscrete(nvec=sizes):
            return Categorical(tuple(map(int, sizes.flat)), several=True)
        case spaces.MultiBinary():
            return Bernoulli(math.prod(space.shape))
        case spaces.Box():
            return numbers(space.shape)
    raise TypeError(f"actions must be of a Discrete, MultiDiscrete, MultiBinary or Box space, got {space}")


def _normal_log_prob(distances: Array, log_std: Array) -> Array:
    """Logarithms of the probabilities of normal numbers, ``(...)``, by their distances from the means, ``(..., n)``."""
    apart = distances * np.exp(-log_std)
    return -(np.float32(0.5) * apart * apart + log_std + np.float32(HALF_LOG_2PI)).sum(-1)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- what is forbidden


def check_masks(allowed: Array, choices: tuple[int, ...], step: int) -> None:
    """Refuse masks that forbid everything.

    Args:
        allowed: ``(rows, sum(choices))``, bool.
        choices: Among how many is chosen, for each choice.
        step: For the error.

    Raises:
        ValueError: If a row has nothing left to choose.
    """
    begins = np.cumsum((0, *choices[:-1]))
    there = allowed.any(1) if len(choices) == 1 else np.logical_or.reduceat(allowed, begins, 1).all(1)
    if not there.all():
        raise ValueError(
            f"the masks of row {int(np.argmin(there))} forbid every choice at step {step}: action_masks() has to allow one at "
            "least; an episode that has nothing left to do should have ended"
        )
