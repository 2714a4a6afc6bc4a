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
from reactor_torch import kernels
from reactor_torch.dense import Dense, Layer
from reactor_torch.flat import FlatParameters
from reactor_torch.forward import views_of_read_only
from reactor_torch.learned_distributions import (
    EPSILON,
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
    "SquashedGaussianByRow",
    "Values",
    "check_masks",
    "distribution_of",
]

Array = npt.NDArray[Any]
FORBIDDEN = np.float32(-1e8)
"""The score of a choice that a mask forbids, as sb3-contrib has it: its probability is 0 in float32, and unlike infinity it makes
no NaN of 0 times itself.
"""


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
        """Logarithms of the probabilities of actions, ``(...)``, float32: where the extension learns, its very bits.

        Raises:
            TypeError: If nothing is drawn, so that there are no probabilities.
        """
        if self.noise == "none":
            raise TypeError(f"the actions of {self} have no probabilities: nothing is drawn")
        rows = np.ascontiguousarray(outputs).reshape(-1, outputs.shape[-1])
        taken = np.ascontiguousarray(actions).reshape(len(rows), math.prod(self.shape))
        found = None if kernels.compiled is None else self.compiled_log_prob(kernels.compiled, rows, taken, weights)
        if found is None:
            with views_of_read_only():
                of = self.by_torch(
                    torch.from_numpy(rows), {name: torch.from_numpy(weights[name]) for name in weights.dtype.names or ()}
                )
            chosen = torch.from_numpy(taken if self.choices else taken.astype(np.float32))
            parts = chosen.unbind(1) if self.choices else (chosen,)
            logs = [one.log_prob(part) for one, part in zip(of, parts, strict=True)]
            found = torch.stack(logs).sum(0).numpy()
        return found.reshape(outputs.shape[:-1])

    def compiled_log_prob(self, compiled: Any, outputs: Array, actions: Array, weights: Array) -> Array | None:
        """The same by the extension, of ``(rows, n)`` and ``(rows, m)``; ``None`` if it does not compute them."""
        return None

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

    def compiled_log_prob(self, compiled: Any, outputs: Array, actions: Array, weights: Array) -> Array:
        rows, choices = len(outputs), len(self.sizes)
        logs, probabilities, entropies = np.empty_like(outputs), np.empty_like(outputs), np.empty((rows, choices), np.float32)
        log_prob, entropy = np.empty((2, rows), np.float32)
        sizes, taken = np.array(self.sizes), actions.astype(np.int64, copy=False)
        compiled.categorical(sizes, outputs, taken, None, logs, probabilities, entropies, log_prob, entropy)
        return log_prob

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

    def compiled_log_prob(self, compiled: Any, outputs: Array, actions: Array, weights: Array) -> Array:
        probabilities, terms = np.empty_like(outputs), np.empty_like(outputs)
        log_prob, entropy = np.empty((2, len(outputs)), np.float32)
        compiled.bernoulli(outputs, actions.astype(np.float32), probabilities, terms, log_prob, entropy)
        return log_prob

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

    def compiled_log_prob(self, compiled: Any, outputs: Array, actions: Array, weights: Array) -> Array | None:
        if weights["log_std"].shape != (self.count,):
            return None
        inverse, distances = np.empty(self.count, np.float32), np.empty_like(outputs)
        log_prob, entropy = np.empty((2, len(outputs)), np.float32)
        compiled.gaussian(outputs, actions, weights["log_std"], inverse, distances, log_prob, entropy)
        return log_prob

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
        return self._sampled

    def mode(self, outputs: Array) -> Array:
        return self._sampled(outputs, None)

    def _sampled(self, outputs: Array, noise: Array | None) -> Array:
        n = self.count
        actions = np.empty((len(outputs), n), np.float32)
        if kernels.compiled is not None:
            given = np.ascontiguousarray(outputs), None if noise is None else np.ascontiguousarray(noise)
            kernels.compiled.squashed_gaussian_sample(n, *given, actions, self.low, self.high)
        else:
            moved = 0.0 if noise is None else noise * np.exp(outputs[:, n:].clip(self.low, self.high))
            np.tanh(outputs[:, :n] + moved, actions)
        return actions.reshape(-1, *self.shape)

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        mean, log_std = torch.split(outputs, self.count, -1)
        drawn = of_torch.Independent(of_torch.Normal(mean, log_std.clamp(self.low, self.high).exp()), 1)
        return (of_torch.TransformedDistribution(drawn, [of_torch.TanhTransform()]),)


@dataclass(frozen=True)
class _ByMatrix(_OfNumbers):
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

    def deviations(self, log_std: Array) -> Array:
        """Standard deviations of a matrix's elements."""
        return np.exp(log_std)

    def scaled(self, noise: Array, weights: Array) -> Array:
        matrices = noise.reshape(*noise.shape[:-1], self.features, self.count)
        np.multiply(matrices, self.deviations(weights["log_std"]), out=matrices)
        return matrices.reshape(noise.shape)

    def spread(self, outputs: Array, noise: Array) -> Array:
        """Noise that is added to means, ``(rows, actions)``; products of matrices have other last bits elsewhere."""
        matrices = noise.reshape(len(outputs), self.features, self.count)
        return (outputs[:, self.count :, None] * matrices).sum(1)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GaussianByRow(_ByMatrix):
    """Normal numbers whose noise depends on the row, as those of SB3's actor and critic with gSDE."""

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        shape, n, spread = (rows, *self.shape), self.count, self.spread
        return lambda outputs, noise: (outputs[:, :n] + spread(outputs, noise)).reshape(shape)

    def mode(self, outputs: Array) -> Array:
        return outputs[..., : self.count].reshape(-1, *self.shape)

    def compiled_log_prob(self, compiled: Any, outputs: Array, actions: Array, weights: Array) -> Array:
        n, log_std, rows = self.count, weights["log_std"], len(outputs)
        of_elements = np.empty_like(log_std)
        compiled.exp_2x(log_std, of_elements)
        matrix, variances = np.empty((n, self.features), np.float32), np.empty((rows, n), np.float32)
        matrix[...] = of_elements.T
        layer = ("linear", 0, self.features, n, 0.0, matrix, None, None, None, variances, None, None)
        compiled.Network(rows, (layer,)).run(np.square(outputs[:, n:]))
        distances, inverse = np.empty_like(variances), np.empty_like(variances)
        log_prob, entropy = np.empty((2, rows), np.float32)
        means = np.ascontiguousarray(outputs[:, :n])
        compiled.gaussian_by_row(means, actions, variances, EPSILON, distances, inverse, log_prob, entropy)
        return log_prob

    def learned(self, flat: FlatParameters, mean: Layer | None = None) -> LearnedDistribution | str:
        assert mean is not None
        # It adds up nothing: the derivative of an exponential is a factor of what is added up over rows.
        return LearnedDistribution(partial(EvaluatedGaussianByRow, Dense([mean], flat, passes_on=True), flat), adds_up=False)

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        mean, seen = outputs[:, : self.count], outputs[:, self.count :]
        variance = seen.square() @ (2 * weights["log_std"]).exp()
        return (of_torch.Independent(of_torch.Normal(mean, (variance + EPSILON).sqrt()), 1),)


@dataclass(frozen=True)
class SquashedGaussianByRow(_ByMatrix):
    """tanh of normal numbers whose noise depends on the row, as those of SB3's soft actor-critic with gSDE.

    Attributes:
        low: The least of the means; whatever is below stands for it.
        high: The largest of them.
        expln: Whether deviations grow by a logarithm where they are above 1 (SB3's ``use_expln``).
    """

    low: float = -math.inf
    high: float = math.inf
    expln: bool = False

    def deviations(self, log_std: Array) -> Array:
        if not self.expln:
            return super().deviations(log_std)
        return np.where(log_std > 0, np.log1p(np.maximum(log_std, 0) + EPSILON) + 1, np.exp(np.minimum(log_std, 0)))

    def drawing(self, rows: int) -> Callable[[Array, Array], Array]:
        spread = self.spread
        return lambda outputs, noise: self._squashed(outputs, spread(outputs, noise))

    def mode(self, outputs: Array) -> Array:
        return self._squashed(outputs, 0)

    def _squashed(self, outputs: Array, spread: Any) -> Array:
        """Actions, by the extension's tanh where there is one: NumPy's has other last bits elsewhere."""
        n = self.count
        given, actions = np.zeros((len(outputs), 2 * n), np.float32), np.empty((len(outputs), n), np.float32)
        np.add(outputs[:, :n].clip(self.low, self.high), spread, out=given[:, :n])
        if kernels.compiled is not None:
            kernels.compiled.squashed_gaussian_sample(n, given, None, actions, LOWEST, HIGHEST)
        else:
            np.tanh(given[:, :n], actions)
        return actions.reshape(-1, *self.shape)

    def by_torch(self, outputs: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> tuple[of_torch.Distribution, ...]:
        mean, seen = outputs[:, : self.count].clamp(self.low, self.high), outputs[:, self.count :]
        deviations = torch.from_numpy(self.deviations(weights["log_std"].numpy()))
        variance = (seen.square() @ deviations.square()).expand_as(mean)
        drawn = of_torch.Independent(of_torch.Normal(mean, (variance + EPSILON).sqrt()), 1)
        return (of_torch.TransformedDistribution(drawn, [of_torch.TanhTransform()]),)


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
