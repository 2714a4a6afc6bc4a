"""From what a policy says to actions: the best one, or one drawn from a stream that belongs to its environment and agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces

from reactor_pettingzoo.reading import choices_of, segments
from reactor_pettingzoo.runner.streams import OwnStreams, global_generators
from reactor_torch import spoilt_rows

__all__ = ["ActionSampler", "Draws", "choose_discrete", "illegal", "uniform_choice", "width_of"]

Array = npt.NDArray[Any]
AHEAD = 256
"""Ticks for which numbers are drawn at once: a call of a generator costs more than many numbers of it."""
_SMALL = 1e6
"""Bounds up to that are subtracted from each other in their own precision."""
_TINY = 2.0**-54
"""In place of 0, which the inverse of a distribution function has no number for."""


class Draws:
    """Uniform random numbers for every environment and agent, each with a stream of its own, keyed by (seed, environment, agent).

    Args:
        first: Index of the first environment.
        copies: Environments.
        agents: Agents of each.
        width: Numbers for each agent at a tick.
    """

    def __init__(self, first: int, copies: int, agents: int, width: int) -> None:
        self.first, self.shape = first, (copies, agents, width)
        self._block: Array = np.empty((AHEAD, *self.shape))
        self._streams: list[list[np.random.Generator]] = []
        self._next = AHEAD

    def begin(self, seed: int) -> None:
        """Begin all streams of a seed."""
        copies, agents, _ = self.shape
        self._streams = [
            [np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(e, a)))) for a in range(agents)]
            for e in range(self.first, self.first + copies)
        ]
        self._next = AHEAD

    def next(self) -> Array:
        """The numbers of a tick, ``(copies, agents, width)``, float64 in [0, 1)."""
        if self._next == AHEAD:
            for e, of_copy in enumerate(self._streams):
                for a, stream in enumerate(of_copy):
                    self._block[:, e, a] = stream.random((AHEAD, self.shape[2]))
            self._next = 0
        self._next += 1
        return self._block[self._next - 1]  # type: ignore[no-any-return]


class ActionSampler:
    """Chooses actions for rows.

    Attributes:
        uniform: Random numbers for each row, ``(rows, width)``; ``None`` if nothing is drawn.
        own: What policies are asked with: what they draw from the global generators of torch and numpy is theirs alone.
        generator_state: State of torch's generator for what draws from it; begun with a run.
        spoilt: Which rows were answered by outputs that are not finite, and those outputs; ``None`` if none was, which it is set
            to again by whoever asks.
    """

    def __init__(self) -> None:
        self.uniform: Array | None = None
        self.spoilt: tuple[Array, Array] | None = None
        self.own = OwnStreams()
        self.generator_state: torch.Tensor | None = None

    def begin(self, seed: int, number: int) -> None:
        """Begin the streams of a group of policies for what draws by itself."""
        self.own.begin(seed, number)
        word = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0]
        self.generator_state = torch.Generator().manual_seed(int(word)).get_state()

    def by_torch(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Call something that draws from torch's global generator, with a stream in its place that goes on from call to call."""
        assert self.generator_state is not None
        with global_generators:
            before = torch.get_rng_state()
            torch.set_rng_state(self.generator_state)
            try:
                return function()
            finally:
                self.generator_state = torch.get_rng_state()
                torch.set_rng_state(before)

    def choose(self, name: str, space: Space[Any], values: Any, masks: Array | None, rows: int, greedy: bool) -> Array:
        """Choose by scores (unnormalised log-probabilities) or, for continuous actions, by mean and standard deviation.

        Raises:
            ValueError: If they are of another shape than ``(rows, ...)``.
            TypeError: If actions are drawn from something that has no distribution.
        """
        spread = None
        if isinstance(values, tuple):
            values, spread = values
        wanted = (rows, *_answer_shape(space))
        if values.shape != wanted:
            raise ValueError(f"the policy {name!r} returned values of shape {values.shape} for {rows} observations of {wanted}")
        if isinstance(space, spaces.Discrete):
            self.look(values, scores=True)
            return choose_discrete(values, masks, None if greedy else self.uniform, int(space.start))
        if isinstance(space, spaces.MultiDiscrete):
            if spoilt_rows(values) is not None:
                for part in segments(choices_of(space)):
                    self.look(values[:, part], scores=True)
            return _components(values, masks, space, None if greedy else self.uniform)
        if isinstance(space, spaces.MultiBinary):
            if spoilt_rows(values) is not None:
                self.look(np.maximum(values, np.finfo(values.dtype).min))  # what is never 1 has -inf
            return self.binary(values, masks, greedy)
        if not greedy and spread is not None:
            assert self.uniform is not None
            values = values + spread * _normal(self.uniform, values[0].size).reshape(values.shape)
        assert isinstance(space, spaces.Box)
        self.look(values)
        if self.spoilt is not None:  # NaN is no whole number
            values = np.nan_to_num(values)
        return np.asarray(np.clip(values, space.low, space.high), space.dtype)

    def look(self, outputs: Array, scores: bool = False) -> None:
        """Note which rows of a policy's outputs are not finite; arguments as for :func:`reactor_torch.spoilt_rows`."""
        found = spoilt_rows(outputs, scores)
        if found is not None:
            self.spoilt = (found if self.spoilt is None else found | self.spoilt[0]), outputs

    def refuse_spoilt(self, name: str, agent: Any, actions: Array, alive: Array) -> None:
        """Refuse actions of an agent that are not finite, or are chosen by what is not, where it is there; arrays by row.

        Raises:
            ValueError: Naming the policy and the agent.
        """
        self.look(actions)
        if self.spoilt is None:
            return
        (spoilt, outputs), self.spoilt = self.spoilt, None
        wrong = np.flatnonzero(spoilt & alive)
        if len(wrong):
            raise ValueError(
                f"the policy {name!r} answered {outputs[wrong[0]].tolist()}, which are not finite numbers, for agent {agent!r}"
            )

    def binary(self, values: Array, masks: Array | None, greedy: bool) -> Array:
        """Choices of 0 or 1, by how much more likely 1 is, ``(rows, ...)``; masks have two numbers for each."""
        if masks is not None:
            no, yes = np.moveaxis(masks.reshape(*values.shape, 2) != 0, -1, 0)
            values = np.where(no == yes, values, np.where(yes, np.inf, -np.inf))
        if greedy:
            return np.asarray(values > 0, np.int8)
        assert self.uniform is not None
        uniform = self.uniform[:, : values[0].size].reshape(values.shape)
        return np.asarray(uniform < 1 / (1 + np.exp(-values.astype(np.float64))), np.int8)


def _components(values: Array, masks: Array | None, space: spaces.MultiDiscrete, uniform: Array | None) -> Array:
    """A choice of each component, by the scores of all of them one after the other; so are masks."""
    parts = segments(choices_of(space))
    chosen = np.empty((len(values), len(parts)), np.int64)
    for at, part in enumerate(parts):
        allowed = None if masks is None else masks[:, part]
        chosen[:, at] = choose_discrete(values[:, part], allowed, None if uniform is None else uniform[:, at : at + 1])
    return chosen.reshape(-1, *space.nvec.shape) + space.start


def _answer_shape(space: Space[Any]) -> tuple[int, ...]:
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return (int(space.nvec.sum()),)
    return space.shape or ()


def width_of(space: Space[Any]) -> int:
    """How many uniform numbers it takes to draw an action of a space."""
    if isinstance(space, spaces.Discrete):
        return 1
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.size)
    size = int(np.prod(space.shape or ()))
    return size if isinstance(space, spaces.MultiBinary) else size + size % 2


def choose_discrete(scores: Array, masks: Array | None, uniform: Array | None, start: int = 0) -> Array:
    """The best legal action, or by inverse transform of a uniform number one that is drawn with probability ``exp(score)``.

    Args:
        scores: ``(rows, actions)``.
        masks: ``(rows, actions)``, nonzero where an action is legal.
        uniform: ``(rows, 1)``, or ``None`` for the highest score.
        start: The first action's number.
    """
    if masks is not None:
        scores = np.where(masks, scores, -np.inf)
    if uniform is None:
        best: Array = scores.argmax(1)
        return best + start if start else best
    with np.errstate(invalid="ignore"):  # of a row with no legal action, which is padding
        weights = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    heap = np.cumsum(weights, 1)
    drawn: Array = np.minimum((heap <= uniform * heap[:, -1:]).sum(1), scores.shape[1] - 1)
    return drawn + start


def illegal(space: Space[Any], actions: Array, masks: Array | None) -> npt.NDArray[np.bool_]:
    """Find actions, ``(..., *shape)``, outside of their space, or forbidden by masks, ``(..., choices)``: ``(...)``, bool."""
    low, high = _bounds(space)
    wrong = ~((actions >= low) & (actions <= high))  # a NaN is neither
    rows = actions.shape[: actions.ndim - len(space.shape or ())]
    if masks is not None:
        chosen = np.where(wrong, 0, actions - low).astype(np.int64).reshape(*rows, -1)
        if chosen.shape[-1] > 1:
            chosen = chosen + [part.start for part in segments(choices_of(space))]
        wrong = wrong.reshape(*rows, -1) | (np.take_along_axis(masks, chosen, -1) == 0)
    return wrong if wrong.shape == rows else wrong.reshape(*rows, -1).any(-1)  # type: ignore[no-any-return]


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def uniform_choice(space: Space[Any], masks: Array | None, sampler: ActionSampler) -> Array:
    """An action of each row at random, every legal one as likely."""
    uniform = sampler.uniform
    assert uniform is not None
    if isinstance(space, spaces.Discrete):
        return choose_discrete(np.zeros((len(uniform), int(space.n))), masks, uniform[:, :1]) + np.int64(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        if masks is not None:
            return _components(np.zeros((len(uniform), masks.shape[1])), masks, space, uniform)
        parts = uniform[:, : space.nvec.size].reshape(-1, *space.nvec.shape)
        return np.asarray(np.floor(parts * space.nvec), np.int64) + space.start
    if isinstance(space, spaces.MultiBinary):
        if masks is not None:
            return sampler.binary(np.zeros((len(uniform), *space.shape)), masks, greedy=False)
        return (uniform[:, : int(np.prod(space.shape))] < 0.5).astype(np.int8).reshape(-1, *space.shape)
    assert isinstance(space, spaces.Box)
    parts = uniform[:, : space.low.size].reshape(-1, *space.low.shape)
    return _anywhere(space, parts)


def _anywhere(space: spaces.Box, uniform: Array) -> Array:
    """Actions of a ``Box`` as its ``sample()`` draws them: uniform between bounds, exponential from one bound on, else normal.

    Args:
        space: The space.
        uniform: A number for each of an action's, ``(rows, *shape)``.
    """
    dtype: Any = np.dtype(space.dtype)
    whole = dtype.kind in "iu"
    low, high = (space.low.astype(np.float64), space.high.astype(np.float64)) if whole else (space.low, space.high)
    if max(float(np.abs(bound).max(initial=0)) for bound in (low, high)) <= _SMALL:
        if whole:
            return np.asarray(np.floor(low + uniform * (high - low + 1.0)), dtype)
        return np.asarray(low + uniform * (high - low), dtype)
    low, high = low.astype(np.float64), high.astype(np.float64)
    below, above = space.bounded_below, space.bounded_above
    tail = -np.log1p(-uniform)
    drawn = torch.special.ndtri(torch.from_numpy(np.maximum(uniform, _TINY))).numpy()
    drawn = np.where(below & ~above, np.where(below, low, 0) + tail, drawn)
    drawn = np.where(above & ~below, np.where(above, high + whole, 0) - tail, drawn)
    within = below & above
    drawn = np.where(within, np.where(within, low, 0) * (1 - uniform) + (np.where(within, high, 0) + whole) * uniform, drawn)
    limits: Any = np.iinfo(dtype) if whole else np.finfo(dtype)
    least, most = float(limits.min), float(limits.max)
    if not whole:
        return np.asarray(np.clip(drawn, np.maximum(low, least), np.minimum(high, most)), dtype)
    most = most if int(most) <= limits.max else float(np.nextafter(most, 0))  # no float64 is the largest int64
    return np.asarray(np.clip(np.asarray(np.clip(np.floor(drawn), least, most), dtype), space.low, space.high))


def _normal(uniform: Array, size: int) -> Array:
    """Normal numbers from pairs of uniform ones (Box and Muller 1958), ``(rows, size)``."""
    half = (size + 1) // 2
    radius = np.sqrt(-2 * np.log1p(-uniform[:, :half]))
    angle = 2 * np.pi * uniform[:, half : 2 * half]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1)[:, :size]
