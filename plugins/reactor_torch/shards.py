"""A learner in several reactors: each computes the gradients of its slice of a minibatch, one adds them in order and steps.

The number of slices is part of the algorithm, for sums of floating-point numbers depend on how they are cut. Where the slices are
computed is not. A shard keeps nothing from one round to the next: weights come with each minibatch, everything else with a round.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_torch.arrays import array_of, get, put
from reactor_torch.flat import FlatParameters
from reactor_torch.sliceable import draws
from reactor_torch.slices import SliceLayout, SliceView
from reactor_torch.streams import torch_state, torch_stream
from reactor_torch.threads import torch_threads
from reactor_torch.updater import UpdaterLoss

__all__ = ["LearnerShard", "LossMaker", "Round", "ShardPlan", "others_of", "reads_of", "weights_of"]

Array = npt.NDArray[Any]


class LossMaker(Protocol):
    """What makes a learner's losses where they are to live; picklable."""

    def __call__(self, device: torch.device) -> tuple[tuple[UpdaterLoss, ...], nn.Module]:
        """The losses, and the module that all their parameters and buffers belong to, in the mode in which it learns.

        Parameters that several of them have are the same :class:`~reactor_torch.FlatParameters`.

        Args:
            device: Where they are to be.
        """


@dataclass(frozen=True)
class ShardPlan:
    """What each of some shards, that compute slices of the same minibatches, is made from.

    Attributes:
        make: Function that makes the losses.
        layout: The layout of slices.
        slices: How many there are of a minibatch.
        first: Number of the first shard's slice: 1 if the learner computes one itself, else 0.
        losses: Numbers of the losses that they are for.
        weights: How many numbers a loss needs with each minibatch, at most.
        computed: How many numbers its gradients and statistics are, at most.
        threads: Threads of torch in each shard.
        device: Where each shard computes. What is exchanged goes through a processor's memory in any case.
    """

    make: LossMaker
    layout: SliceLayout
    slices: int
    first: int
    losses: tuple[int, ...]
    weights: int
    computed: int
    threads: int
    device: torch.device

    @property
    def shards(self) -> int:
        """How many there are."""
        return self.slices - self.first


@dataclass(frozen=True)
class Round:
    """What shards get to know at the beginning of a round.

    Attributes:
        settings: Settings of each loss, by the names of its attributes.
        others: What the modules have besides parameters that losses know: frozen ones and buffers.
        reads: Parameters that losses only read, ``(size,)`` each.
        seeds: Seed of each shard's random stream in this round.
    """

    settings: dict[int, dict[str, Any]]
    others: list[Array]
    reads: list[Array]
    seeds: list[int]


def others_of(losses: Iterable[UpdaterLoss], module: nn.Module) -> list[torch.Tensor]:
    """What a module has besides the parameters that losses know."""
    flats = [flat for loss in losses for flat in (loss.flat, *loss.reads, *loss.follows)]
    known = {id(parameter) for flat in flats for parameter in flat.parameters}
    return [part.detach() for part in (*module.parameters(), *module.buffers()) if id(part) not in known]


def reads_of(losses: Iterable[UpdaterLoss]) -> list[FlatParameters]:
    """Parameters that some losses read and that stay as they are during a round, each once."""
    return list({id(flat): flat for loss in losses for flat in loss.reads}.values())


def weights_of(loss: UpdaterLoss) -> list[Any]:
    """The weights that a loss needs with each minibatch: its own, and those that it follows; see :func:`array_of`."""
    return [array_of(flat.data) for flat in (loss.flat, *loss.follows)]


class LearnerShard(Reactor):
    """Computes the gradients of one slice of each minibatch."""

    weights = Input()
    """The weights for the minibatch, float32: see :func:`weights_of`."""
    slice = Input()
    round = Input()
    """A :class:`Round`, at its first minibatch."""
    computed = Output((0,), np.float32)
    """Gradients, and behind them the statistics."""

    def __init__(self, plan: ShardPlan, bank_index: int) -> None:
        self.plan, self.index = plan, bank_index
        self.computed = Output((plan.computed,), np.float32)
        self.losses: Sequence[UpdaterLoss] = ()

    @reaction(startup)
    def build(self) -> None:
        """Make the losses, here where they will live."""
        self.losses, self.module = self.plan.make(self.plan.device)
        self.weights_of = {number: weights_of(self.losses[number]) for number in self.plan.losses}
        self.gradients_of = {number: array_of(self.losses[number].flat.gradients) for number in self.plan.losses}
        self.here = self.plan.device == torch.device("cpu")
        self.in_place = self.here and len(self.plan.losses) == 1  # each has its weights where it finds them
        self.aside = draws(self.module) or self.plan.threads > 1
        self.stream = torch_state(0)
        self.record: Array | None = None

    @reaction(slice, uses=(weights, round), effects=computed)
    def compute(self) -> None:
        """The gradients of a slice; zeros where a last minibatch is so small that there is nothing for this one."""
        if self.round.present:
            self._begin(self.round.value)
        record, weights, out = self.slice.value, self.weights.value, self.computed.buffer
        if record is not self.record:  # the first time: a port has one slot, and always hands out the same view of it
            self.record, self.view = record, SliceView(self.plan.layout, record)
            if self.in_place:
                self._move(self.losses[self.plan.losses[0]], weights, out)
        number, batch, of = self.view.read()
        if not len(batch):
            out[:] = 0
            return
        if not self.here:
            batch = batch.to(self.plan.device)
        loss, at = self.losses[number], 0
        if not self.in_place:
            for data in self.weights_of[number]:
                put(data, weights[at : at + len(data)])
                at += len(data)
        for name, value in zip(loss.moving, self.view.moving.tolist(), strict=False):  # another loss may have more
            setattr(loss, name, value)
        statistics = self._statistics(loss, batch, of) if self.aside else loss.gradients(batch, of)
        gradients = self.gradients_of[number]
        size = len(gradients)
        if not self.in_place:
            get(gradients, out[:size])
        out[size : size + len(statistics)] = statistics

    def _move(self, loss: UpdaterLoss, weights: Array, out: Array) -> None:
        """Let a loss read its weights where the learner has written them, and write gradients where the learner reads them."""
        at, size = 0, len(loss.flat.data)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            for flat in (loss.flat, *loss.follows):
                end = at + len(flat.data)
                flat.move(torch.from_numpy(weights[at:end]), torch.from_numpy(out[:size]) if flat is loss.flat else None)
                at = end

    def _statistics(self, loss: UpdaterLoss, batch: Any, of: int) -> Array:
        """The gradients, where that takes several threads or random numbers."""
        with torch_threads(self.plan.threads), torch_stream(self.stream):
            return loss.gradients(batch, of)

    def _begin(self, given: Round) -> None:
        for number, settings in given.settings.items():
            for name, value in settings.items():
                setattr(self.losses[number], name, value)
        for part, values in zip(others_of(self.losses, self.module), given.others, strict=True):
            part.copy_(torch.from_numpy(values))
        for flat, values in zip(reads_of(self.losses[number] for number in self.plan.losses), given.reads, strict=True):
            flat.data.copy_(torch.from_numpy(values))
        self.stream = torch_state(given.seeds[self.index])

    # Between two rounds it knows nothing that is not told again; before the start, it travels as it is.

    def __getstate__(self) -> dict[str, Any]:
        return {} if self.losses else self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
