"""A learner in several reactors: each computes the gradients of its slice of a minibatch, one adds them in order and steps.

The number of slices is part of the algorithm, for sums of floating-point numbers depend on how they are cut. Where the slices are
computed is not. A shard keeps nothing from one round to the next: weights come with each minibatch, everything else with a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_torch.slices import SliceLayout, SliceView, parts_of, slice_of
from reactor_torch.streams import torch_state, torch_stream
from reactor_torch.threads import torch_threads
from reactor_torch.updater import Loss, Task

__all__ = ["LearnerShard", "LossMaker", "Round", "SharedLoss", "ShardPlan", "check_sliceable", "draws"]

Array = npt.NDArray[Any]

_CERTAIN = ("linear", "conv", "activation", "container", "flatten", "normalization", "pooling")
"""Torch's families of layers that draw nothing, but for those named next."""
_DRAWING = (nn.RReLU, nn.MultiheadAttention)


def draws(module: nn.Module) -> bool:
    """Whether a module may draw from torch's generator while it learns: whether it has dropout, or parts that nobody knows."""

    def certain(part: nn.Module) -> bool:
        package, _, family = type(part).__module__.rpartition(".")
        torch_s = package == "torch.nn.modules" and family in _CERTAIN and not isinstance(part, _DRAWING)
        return torch_s or type(part).__module__.startswith("stable_baselines3.")

    return not all(map(certain, module.modules()))


def check_sliceable(module: nn.Module) -> None:
    """Refuse what makes slices of a minibatch something else than the minibatch.

    Raises:
        ValueError: If there is batch normalisation.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"n_learners > 1 cuts minibatches into slices, each of which {name!r} ({type(part).__name__}) would normalise by "
                "itself, which is another loss: use LayerNorm or GroupNorm, or n_learners=1"
            )


class LossMaker(Protocol):
    """What makes a learner's losses where they are to live; picklable."""

    def __call__(self) -> tuple[tuple[Loss, ...], nn.Module]:
        """The losses, and the module that all their parameters and buffers belong to.

        Parameters that several of them have are the same :class:`~reactor_torch.FlatParameters`.
        """


@dataclass(frozen=True)
class ShardPlan:
    """What every shard is made from.

    Attributes:
        make: Function that makes the loss.
        layout: The layout of slices.
        slices: How many there are, the learner's own one included.
        size: How many numbers the parameters are.
        statistics: How many statistics the loss has.
        threads: Threads of torch in each shard.
    """

    make: LossMaker
    layout: SliceLayout
    slices: int
    size: int
    statistics: int
    threads: int


@dataclass(frozen=True)
class Round:
    """What shards get to know at the beginning of a round.

    Attributes:
        settings: Settings of the loss, by the names of its attributes.
        others: What the modules have besides parameters that learn: frozen ones and buffers.
        reads: Parameters that the loss only reads, ``(size,)`` each.
        seeds: Seed of each shard's random stream in this round.
    """

    settings: dict[str, Any]
    others: list[Array]
    reads: list[Array]
    seeds: list[int]


def _others(loss: Loss, module: nn.Module) -> list[torch.Tensor]:
    known = {id(parameter) for flat in (loss.flat, *loss.reads) for parameter in flat.parameters}
    return [part.detach() for part in (*module.parameters(), *module.buffers()) if id(part) not in known]


class SharedLoss:
    """A loss as the learner sees it that has shards.

    Args:
        losses: The losses of the learner itself.
        module: The module that its parameters belong to.
        layout: The layout of slices.
        slices: How many there are.
    """

    def __init__(self, losses: Sequence[Loss], module: nn.Module, layout: SliceLayout, slices: int) -> None:
        (loss,) = losses
        self.loss, self.module, self.layout, self.slices = loss, module, layout, slices
        self._size = len(loss.flat.data)
        self._weights, self._gradients = loss.flat.data.numpy(), loss.flat.gradients.numpy()
        self._draws = draws(module)
        self._slices: Array | None = None
        self._views: list[SliceView] = []
        self._batch: Any = None
        self._parts: dict[str, Array] = {}
        self._statistics: Array = np.zeros(0)

    def plan(self, make: LossMaker, threads: int) -> ShardPlan:
        """What shards are made from; see :class:`ShardPlan`."""
        return ShardPlan(make, self.layout, self.slices, self._size, len(self.loss.statistics), threads)

    def begin_round(self, seeds: Sequence[int]) -> Round:
        """What shards are told first; their seeds are given."""
        self._batch, self._parts = None, {}
        settings = {name: getattr(self.loss, name) for name in self.loss.settings}
        others = [part.cpu().numpy() for part in _others(self.loss, self.module)]
        return Round(settings, others, [flat.data.numpy() for flat in self.loss.reads], list(seeds))

    def send(self, tasks: Sequence[Task], weights: Array, slices: Array) -> None:
        """Write weights, and all slices but the first.

        Args:
            tasks: What is to be computed.
            weights: Where they go, ``(size,)``.
            slices: Where they go, ``(slices - 1,)``, records.
        """
        ((_, batch, rows),) = tasks
        weights[:] = self._weights
        if batch is not self._batch:
            self._batch, self._parts = batch, parts_of(batch)
        if slices is not self._slices:  # a port has one slot, and always hands out the same view of it
            records = [slices[index : index + 1].reshape(()) for index in range(len(slices))]
            self._slices, self._views = slices, [SliceView(self.layout, record) for record in records]
        of = rows.stop - rows.start
        if of > self.layout.rows * self.slices:
            raise ValueError(
                f"a minibatch has {of} rows, and the shards were made for {self.layout.rows} each: call close() after changing "
                "batch_size, and they are made anew"
            )
        for index, view in enumerate(self._views):
            view.write(self._parts, slice_of(rows, self.slices, 1 + index), of)

    def compute(self, tasks: Sequence[Task], stream: torch.Tensor) -> None:
        """The first slice's gradients; what is drawn for them comes from a random stream."""
        ((_, batch, rows),) = tasks
        own, of = batch[slice_of(rows, self.slices, 0)], rows.stop - rows.start
        if not self._draws:
            self._statistics = self.loss.gradients(own, of)
            return
        with torch_stream(stream):
            self._statistics = self.loss.gradients(own, of)

    def add(self, computed: Array) -> tuple[Array, ...]:
        """Add what shards have computed, in order, ``(slices - 1, size + statistics)``; returns each task's statistics."""
        statistics = self._statistics
        for row in computed:
            np.add(self._gradients, row[: self._size], out=self._gradients)
            statistics = statistics + row[self._size :]
        return (statistics,)


class LearnerShard(Reactor):
    """Computes the gradients of one slice of each minibatch."""

    weights = Input()
    """The weights for the minibatch, ``(size,)``, float32."""
    slice = Input()
    round = Input()
    """A :class:`Round`, at its first minibatch."""
    computed = Output((0,), np.float32)
    """Gradients, and behind them the statistics, ``(size + statistics,)``."""

    def __init__(self, plan: ShardPlan, bank_index: int) -> None:
        self.plan, self.index = plan, bank_index
        self.computed = Output((plan.size + plan.statistics,), np.float32)
        self.loss: Loss | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the loss, here where it will live."""
        (self.loss,), self.module = self.plan.make()
        self.module.train(True)
        self.aside = draws(self.module) or self.plan.threads > 1
        self.stream = torch_state(0)
        self.data, self.gradients = self.loss.flat.data.numpy(), self.loss.flat.gradients.numpy()
        self.record: Array | None = None

    @reaction(slice, uses=(weights, round), effects=computed)
    def compute(self) -> None:
        """The gradients of a slice; zeros where a last minibatch is so small that there is nothing for this one."""
        loss = self.loss
        assert loss is not None
        if self.round.present:
            self._begin(loss, self.round.value)
        record, out = self.slice.value, self.computed.buffer
        if record is not self.record:
            self.record, self.view = record, SliceView(self.plan.layout, record)
        batch, of = self.view.read()
        if not len(batch):
            out[:] = 0
            return
        self.data[:] = self.weights.value
        size = self.plan.size
        out[size:] = self._statistics(loss, batch, of) if self.aside else loss.gradients(batch, of)
        out[:size] = self.gradients

    def _statistics(self, loss: Loss, batch: Any, of: int) -> Array:
        """The gradients, where that takes several threads or random numbers."""
        with torch_threads(self.plan.threads), torch_stream(self.stream):
            return loss.gradients(batch, of)

    def _begin(self, loss: Loss, given: Round) -> None:
        for name, value in given.settings.items():
            setattr(loss, name, value)
        for part, values in zip(_others(loss, self.module), given.others, strict=True):
            part.copy_(torch.from_numpy(values))
        for flat, values in zip(loss.reads, given.reads, strict=True):
            flat.data.copy_(torch.from_numpy(values))
        self.stream = torch_state(given.seeds[self.index])

    # Between two rounds it knows nothing that is not told again; before the start, it travels as it is.

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy() if self.loss is None else {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
