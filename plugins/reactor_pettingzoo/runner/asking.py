"""How policies are asked for the actions of many agents: networks, with noise of the agents' own; functions; and at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces
from numpy import vdot

from reactor_pettingzoo.agents import AgentGroup
from reactor_pettingzoo.reading import MASK, choices_of, segments
from reactor_pettingzoo.runner.policies import PolicyPart, RandomPolicy
from reactor_rl.plugin import NoiseKind, aligned_zeros
from reactor_torch import (
    AskedNet,
    Bernoulli,
    Categorical,
    DenseNet,
    ModuleCalls,
    OneStream,
    Stacked,
    TorchNet,
    Values,
    choices_among,
    drawn_by_torch,
    naming_spoilt,
    spoilt_rows,
)

__all__ = ["GroupPolicy", "asked", "illegal"]

Array = npt.NDArray[Any]
LINE = 64
"""Bytes of a cache line: each observation begins at one."""
TOGETHER = 2**15
"""Bytes of observations that memory is taken for at once: 32 KB, so that small observations of many rows share a few pages and an
allocation.
"""
_SMALL = 1e6
"""Bounds up to that are subtracted from each other in their own precision: a float32 has eight digits, so a difference of such
bounds is known to a tenth or better.
"""
_TINY = 2.0**-54
"""In place of 0, which the inverse of a distribution function has no number for; half of the smallest other number that is drawn
(2**-53).
"""


class GroupPolicy:
    """A policy, or several of one kind, ready to be asked about all rows that they act for.

    Attributes:
        noise: Kind of noise that an action is drawn with.
        width: Numbers of it for a row.
        every: Ticks that they hold for.
        sound: Whether whatever it answers is an action that an agent may take.
        keeps_room: Whether :meth:`room` is always the same.
        held: The user's objects that are asked, if there are any.
        spoilt: Which rows were answered by numbers that are not finite, and those numbers; ``None`` if none was.
    """

    noise: NoiseKind = "none"
    width = 0
    every = 1
    sound = False
    keeps_room = True
    held: Any = None
    spoilt: tuple[Array, Array] | None = None

    def room(self) -> Mapping[str, Array]:
        """Where to write observations before the next call: by key of the agents' observations, ``(rows, *shape)``."""
        return {}

    def scaled(self, noise: Array, number: int) -> Array:
        """Noise as a call takes it, of a policy by its number; it may be overwritten."""
        return noise

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        """Answer for all rows.

        Args:
            masks: Of choices, ``(rows, choices)``, 0 where one is forbidden; ``None`` if none is.
            noise: ``(rows, width)``; ``None`` if it needs none.

        Returns:
            ``(rows, *shape)``, valid until the next call.

        Raises:
            Exception: What a policy raised.
            ValueError, TypeError: If it gives something that is no action.
        """
        raise NotImplementedError


def asked(
    names: Sequence[Any], parts: Sequence[PolicyPart], group: AgentGroup, rows: int, greedy: bool, own: AbstractContextManager[Any]
) -> GroupPolicy:
    """Policies ready to be asked.

    Args:
        names: Their names.
        parts: What has travelled of them; several are networks of one kind.
        group: The agents that they act for.
        rows: Rows of each.
        greedy: Whether the best action is taken, or one drawn.
        own: Lends them the global generators, where they may draw from those.
    """
    (part, *_) = parts
    if part.policy is not None:
        network = part.policy.network
        module = isinstance(network, TorchNet) and isinstance(network.calls, ModuleCalls)
        kind = _Drawing if part.policy.distribution is None else _Module if module else _Networks
        return kind(names, parts, group, rows, greedy, own)
    if isinstance(part.other, RandomPolicy):
        return _Random(group.action_space)
    return _Function(names[0], part.other, group, rows, own)


# ---------------------------------------------------------------------- networks


class _Seen:
    """Observations of agents, as policies are shown them.

    Args:
        group: The agents.
        part: The policy, or one of several of one kind.
        total: Rows of all together.
        place: Where they look, ``(total, *shape)``; ``None`` for anywhere.

    Attributes:
        room: See :meth:`Asked.room`.
        changes: Whether they are shown more than what is written there.
    """

    def __init__(self, group: AgentGroup, part: PolicyPart, total: int, place: Array | None) -> None:
        self.observed, self.normalizer = part.observed, part.normalizer
        whole = part.looks_at_masks(group)
        single = next(key for key in part.observed.spaces if key != MASK) if whole and group.single else ""
        spaces_of: dict[str, Any] = group.parts
        kinds = {key: np.float32 if part.wants_fractions(one) else one.dtype for key, one in spaces_of.items()}
        if place is not None and self.normalizer is None:
            self.room = {"": place}
        else:
            self.room = {key: aligned_zeros((total, *one.shape), kinds[key]) for key, one in spaces_of.items()}
        self.told = {key or single: array for key, array in self.room.items()}  # as the environment of a model tells it
        if whole:
            space = part.observed.spaces[MASK]
            self.told[MASK] = aligned_zeros((total, *space.shape), space.dtype)
        self.masks = self.told.get(MASK) if whole else None
        self.shown, self.changes = self.told, whole or self.normalizer is not None
        if self.normalizer is not None:
            self.shown = {key: aligned_zeros(one.shape, one.dtype) for key, one in self._normalized().items()}
            if place is not None:
                self.shown = {"": place}

    def _normalized(self) -> Mapping[str, Array]:
        found = self.normalizer(self.told.get("", self.told))
        return found if isinstance(found, Mapping) else {"": found}

    def of(self, rows: slice) -> dict[str, Array]:
        """Some rows as a policy is bound to them, ``(1, rows, *shape)``; SB3 has the channels of images first."""
        seen = {}
        for key, array in self.shown.items():
            shape = self.observed[key].shape if isinstance(self.observed, spaces.Dict) else self.observed.shape
            seen[key] = array[rows][None] if array.shape[1:] == shape else np.moveaxis(array[rows][None], -1, 2)
        return seen

    def show(self, masks: Array | None) -> None:
        """Show what has been written, and masks, if those are a part of it."""
        if self.masks is not None:
            self.masks[...] = 1 if masks is None else masks
        if self.normalizer is not None:
            for key, part in self._normalized().items():
                self.shown[key][...] = part.reshape(self.shown[key].shape)


class _Networks(GroupPolicy):
    """Policies whose outputs a distribution chooses by; see :class:`~reactor_torch.Policy`. Arguments as for :func:`asked`."""

    sound = True

    def __init__(
        self, names: Sequence[Any], parts: Sequence[PolicyPart], group: AgentGroup, rows: int, greedy: bool, own: Any
    ) -> None:
        policy = parts[0].policy
        assert policy is not None
        self.name, self.policy, self.parts, self.space, self.greedy = names[0], policy, parts, group.action_space, greedy
        self.rows, self.total, self.fit = rows, rows * len(parts), policy.fitting
        self.shape = (self.total, *(group.action_space.shape or ()))
        self.own = own
        distribution = policy.distribution
        if distribution is not None:
            self.distribution, self.choose = distribution, distribution.drawing(self.total)
            if not greedy:
                self.noise, self.width, self.every = distribution.noise, distribution.width, max(distribution.every, 1)
        self._bind(group)

    def _bind(self, group: AgentGroup) -> None:
        network = self.policy.network
        assert not isinstance(network, AskedNet)
        self.best: Array | None = None  # the best choices, where they are found with the outputs
        if type(network) is DenseNet and not network.heads and not network.body.one_hot and not network.body.keys:
            stacked = Stacked(network.body, [part.weights for part in self.parts], self.rows)
            shape: Any = group.parts[""].shape
            self.seen = _Seen(group, self.parts[0], self.total, stacked.inputs.reshape(self.total, *shape))
            scores: Array = stacked.scores.reshape(self.total, -1)
            if len(self.distribution.choices) == 1 and self.distribution.shape == ():
                self.best = stacked.best.reshape(-1)

            def evaluate_all() -> Array:
                stacked()
                return scores

            self.outputs: Callable[[], Array] = evaluate_all
            return
        self.seen = _Seen(group, self.parts[0], self.total, None)
        bounds = [
            network.bind(part.weights, self.seen.of(slice(at * self.rows, (at + 1) * self.rows)), judges=False)
            for at, part in enumerate(self.parts)
        ]
        self.held = [getattr(one, "module", None) for one in bounds]
        several, own = [one.outputs for one in bounds], nullcontext() if self.policy.by_row else self.own

        def evaluate_each() -> Array:
            with own:
                return several[0](0) if len(several) == 1 else np.concatenate([one(0) for one in several])

        self.outputs = evaluate_each

    def room(self) -> Mapping[str, Array]:
        return self.seen.room

    def scaled(self, noise: Array, number: int) -> Array:
        return self.distribution.scaled(noise, self.parts[number].weights)

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        if self.seen.changes:
            self.seen.show(masks)
        return self._chosen(self.outputs(), masks, noise)

    def _chosen(self, outputs: Array, masks: Array | None, noise: Array | None) -> Array:
        """Actions by outputs."""
        distribution = self.distribution
        if outputs.shape[1] != distribution.outputs:
            raise self._misshapen(outputs.shape, (self.total, distribution.outputs))
        # The sum of squares takes less time than to call what looks at each row.
        self.spoilt = None if isfinite(vdot(outputs, outputs)) else self._look(outputs)
        if noise is None and masks is None and self.best is not None:
            return self.best if self.fit is None else self.fit(self.best)
        if masks is not None:
            outputs = distribution.forbid(outputs, masks)
        return self._fitted(distribution.mode(outputs) if noise is None else self.choose(outputs, noise))

    def _misshapen(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> ValueError:
        return ValueError(f"the policy {self.name!r} returned values of shape {shape} for {self.total} observations of {wanted}")

    def _look(self, outputs: Array) -> tuple[Array, Array] | None:
        """See :attr:`Asked.spoilt`."""
        match self.distribution:
            case Categorical(sizes=sizes):
                found = [spoilt_rows(outputs[:, part], scores=True) for part in segments(sizes)]
            case Values():
                found = [spoilt_rows(outputs, scores=True)]
            case Bernoulli():
                found = [spoilt_rows(np.maximum(outputs, np.finfo(outputs.dtype).min))]  # what is never 1 has -inf
            case _:
                found = [spoilt_rows(outputs)]
        wrong = [rows for rows in found if rows is not None]
        return (np.logical_or.reduce(wrong), outputs) if wrong else None

    def _fitted(self, actions: Array) -> Array:
        actions = actions if self.fit is None else self.fit(actions)
        return actions if actions.shape == self.shape else actions.reshape(self.shape)


class _Module(_Networks):
    """A module of torch, which may return a distribution."""

    sound = False

    def _bind(self, group: AgentGroup) -> None:
        network: Any = self.policy.network
        self.best, self.seen = None, _Seen(group, self.parts[0], self.total, None)
        self.module = self.held = network.forward.with_weights(self.parts[0].weights)
        self.calls = network.calls
        self.steps = network.forward.steps(self.seen.of(slice(None)))
        scored = isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete)
        self.wanted = (self.total, self.distribution.outputs) if scored else self.shape

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        self.seen.show(masks)
        with self.own, torch.inference_mode(), naming_spoilt(self.module, f"the policy {self.name!r}"):
            found = self.calls.answer(self.module, self.steps(0))
            if isinstance(found, torch.distributions.Distribution):
                drawn = drawn_by_torch(found, self.space, self.total, masks, best=self.greedy, named=self.name)
                spoilt = spoilt_rows(drawn)
                self.spoilt = None if spoilt is None else (spoilt, drawn)
                drawn = drawn if spoilt is None else np.nan_to_num(drawn)
                return self._fitted(drawn if isinstance(self.space, spaces.Box) else drawn.astype(np.int64))
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"the policy {self.name!r} returned {type(found).__name__}, not a tensor or a distribution")
        if tuple(found.shape) != self.wanted:
            raise self._misshapen(tuple(found.shape), self.wanted)
        return self._chosen(found.numpy().reshape(self.total, -1), masks, noise)


class _Drawing(_Networks):
    """A policy that draws actions by itself, by torch."""

    sound = False

    def _bind(self, group: AgentGroup) -> None:
        policy = self.policy
        self.seen = _Seen(group, self.parts[0], self.total, None)
        self.allowed = np.ones((1, self.total, sum(choices_among(self.space))), np.bool_) if policy.masked else None
        bound: Any = policy.bind(self.parts[0].weights, self.seen.of(slice(None)), masks=self.allowed, allow_none=True)
        self.module = self.held = bound.module
        self.draw = bound.mode
        if not self.greedy:
            self.draw = bound.begin(OneStream(np.random.default_rng(0)))  # which torch does not draw from

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        self.seen.show(masks)
        if self.allowed is not None:
            self.allowed[...] = True if masks is None else masks != 0
        elif masks is not None:
            raise TypeError(
                f"the policy {self.name!r} draws its actions in a way of its own, in which nobody can tell it what an action mask "
                "forbids: pass a function of observations and masks"
            )
        with self.own, naming_spoilt(self.module, f"the policy {self.name!r}"):
            actions = self.draw(0)
        spoilt = spoilt_rows(actions)
        self.spoilt = None if spoilt is None else (spoilt, actions)
        return self._fitted(actions)


# ---------------------------------------------------------------------- functions


class _Function(GroupPolicy):
    """A function of observations, and of action masks where there are any, that returns actions."""

    keeps_room = False

    def __init__(self, name: Any, function: Callable[..., Any], group: AgentGroup, rows: int, own: Any) -> None:
        self.name, self.group, self.rows, self.own = name, group, rows, own
        self.function = self.held = function
        self.whole = np.dtype(group.action_space.dtype).kind in "iu"
        self.unused: dict[str, list[Array]] = {key: [] for key in group.parts}
        self.given: dict[str, Array] = {}

    def room(self) -> Mapping[str, Array]:
        """Arrays that nobody has seen before, and that are the function's to keep.

        They begin with a cache line: the last bits of what a function multiplies them with depend on where they begin.
        """
        for key, space in self.group.parts.items():
            unused = self.unused[key]
            if not unused:
                unused += _aligned_arrays((self.rows, *(space.shape or ())), np.dtype(space.dtype))
            self.given[key] = unused.pop()
        return self.given

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        observations = self.given[""] if self.group.single else dict(self.given)
        with self.own:
            given = self.function(observations) if masks is None else self.function(observations, masks)
        rows, shape = self.rows, self.group.action_space.shape or ()
        try:
            actions = np.asarray(given.detach().cpu() if isinstance(given, torch.Tensor) else given)
        except ValueError as error:  # lists of several lengths
            raise ValueError(
                f"the policy {self.name!r} returned {given!r:.200} for {rows} observations; expected is an array of shape "
                f"{(rows, *shape)}"
            ) from error
        if actions.shape != (rows, *shape):
            raise ValueError(
                f"the policy {self.name!r} returned actions of shape {actions.shape} for {rows} observations; expected is "
                f"{(rows, *shape)}"
            )
        spoilt = actions.dtype.kind == "f" and not np.isfinite(actions).all()
        if actions.dtype.kind not in ("iub" if self.whole else "biuf"):
            finite = ", some of which are not finite numbers" if spoilt else ""
            raise ValueError(
                f"the policy {self.name!r} returned actions of type {actions.dtype}{finite}; expected are "
                f"{'whole ' if self.whole else ''}numbers"
            )
        return actions


def _aligned_arrays(shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[Array]:
    """Some arrays of zeros that begin with a cache line each; to make one by itself takes as long as many a policy."""
    size = math.prod(shape) * dtype.itemsize
    step = max(-(-size // LINE), 1) * LINE
    block = aligned_zeros((max(1, TOGETHER // step), step), np.uint8)
    return [row[:size].view(dtype).reshape(shape) for row in block]


# ---------------------------------------------------------------------- at random


class _Random(GroupPolicy):
    """Any legal action, each as likely."""

    noise = "uniform"

    def __init__(self, space: Space[Any]) -> None:
        self.space: Any = space
        self.sizes = np.array(() if isinstance(space, spaces.Box) else choices_among(space))
        self.parts, self.start = segments(choices_of(space)), np.asarray(getattr(space, "start", 0))
        self.width = len(self.sizes) or math.prod(space.shape or ())

    def __call__(self, masks: Array | None, noise: Array | None) -> Array:
        assert noise is not None
        shape = (len(noise), *(self.space.shape or ()))
        if isinstance(self.space, spaces.Box):
            return _anywhere(self.space, noise.reshape(shape))
        if masks is None:
            chosen = np.floor(noise * self.sizes).astype(np.int64)
        else:  # of those that are allowed the one of that number; the first one if none is
            chosen = np.empty(noise.shape, np.int64)
            for at, part in enumerate(self.parts):
                there = np.cumsum(masks[:, part] != 0, 1)
                chosen[:, at] = (there > np.floor(noise[:, at : at + 1] * there[:, -1:])).argmax(1)
        actions: Array = chosen.reshape(shape) + self.start
        return actions


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


# ---------------------------------------------------------------------- what is legal


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
