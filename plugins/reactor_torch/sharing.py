"""What a learner does that has shards: it hands out slices of minibatches, computes its own, and adds up what comes back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch.arrays import array_of, get, put
from reactor_torch.batches import MinibatchSlicer
from reactor_torch.shards import LossMaker, Round, ShardPlan, others_of, reads_of, weights_of
from reactor_torch.sliceable import draws
from reactor_torch.slices import SliceLayout, SliceView, parts_of, slice_of
from reactor_torch.streams import torch_stream
from reactor_torch.updater import UpdaterLoss, UpdaterTask

__all__ = ["SharedLosses", "shared_losses"]

Array = npt.NDArray[Any]
NUMBERS = 16
"""Of a cache line: each shard's gradients begin with one."""


class _Member(NamedTuple):
    """A loss with its arrays, or tensors on a device: the weights that go out, and the gradients that come back."""

    loss: UpdaterLoss
    weights: list[Any]
    gradients: Any


class SharedLosses:
    """Losses that one set of shards computes, as the learner sees them.

    Args:
        losses: All losses of the learner.
        numbers: Numbers of those that these shards compute, never two of them at once.
        module: The module that their parameters belong to.
        example: A minibatch, as large as there are any.
        slices: Slices of a minibatch.
        own: Whether the learner computes the first slice itself.
    """

    def __init__(
        self, losses: Sequence[UpdaterLoss], numbers: Sequence[int], module: nn.Module, example: Any, slices: int, own: bool = True
    ) -> None:
        self.losses, self.module, self.slices, self.own = losses, module, slices, own
        self._members = {
            number: _Member(losses[number], weights_of(losses[number]), array_of(losses[number].flat.gradients))
            for number in numbers
        }
        self.layout = SliceLayout(example, math.ceil(len(example) / slices), {number: losses[number] for number in numbers})
        self._draws = draws(module)
        self._slices: Array | None = None
        self._views: list[SliceView] = []
        self._batch: Any = None
        self._parts: dict[str, Array] = {}
        self._statistics: Array = np.zeros(0)
        self._cut = MinibatchSlicer()

    def plan(self, make: LossMaker, threads: int, device: torch.device) -> ShardPlan:
        """What the shards are made from; see :class:`ShardPlan`."""
        members = self._members.values()
        weights = max(sum(map(len, one.weights)) for one in members)
        computed = max(len(one.gradients) + len(one.loss.statistics) for one in members)
        computed += -computed % NUMBERS
        return ShardPlan(make, self.layout, self.slices, int(self.own), tuple(self._members), weights, computed, threads, device)

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self.slices - self.own

    def task_of(self, tasks: Sequence[UpdaterTask]) -> UpdaterTask | None:
        """Of some tasks the one that these shards do, if there is one."""
        for task in tasks:
            if task.loss in self._members:
                return task
        return None

    def begin_round(self, seeds: Sequence[int]) -> Round:
        """What shards are told first; their seeds are given."""
        self._batch, self._parts, self._cut = None, {}, MinibatchSlicer()
        members = {number: one.loss for number, one in self._members.items()}
        settings = {number: {name: getattr(loss, name) for name in loss.settings} for number, loss in members.items()}
        others = [part.cpu().numpy() for part in others_of(self.losses, self.module)]
        return Round(settings, others, [flat.data.cpu().numpy() for flat in reads_of(members.values())], list(seeds))

    def send(self, task: UpdaterTask, weights: Array, slices: Array) -> None:
        """Write weights, and the slices that shards compute.

        Args:
            task: What is to be computed.
            weights: Where they go, ``(plan.weights,)``.
            slices: Where they go, ``(plan.shards,)``, records.

        Raises:
            ValueError: If the minibatch has more rows than the shards were made for.
        """
        number, batch, rows = task
        loss, parts, _ = self._members[number]
        at = 0
        for part in parts:
            get(part, weights[at : at + len(part)])
            at += len(part)
        if batch is not self._batch:
            self._batch, self._parts = batch, parts_of(batch, self.layout.parts)
        if slices is not self._slices:  # a port has one slot, and always hands out the same view of it
            records = [slices[index : index + 1].reshape(()) for index in range(len(slices))]
            self._slices, self._views = slices, [SliceView(self.layout, record) for record in records]
        of = rows.stop - rows.start
        if of > self.layout.rows * self.slices:
            raise ValueError(
                f"a minibatch has {of} rows, and the shards were made for {self.layout.rows} each: call close() after changing "
                "batch_size, and they are made anew"
            )
        for index, view in enumerate(self._views, self.own):
            view.write(number, self._parts, slice_of(rows, self.slices, index), of)
            for at, name in enumerate(loss.moving):
                view.moving[at] = getattr(loss, name)

    def compute(self, task: UpdaterTask, stream: torch.Tensor) -> None:
        """The gradients of the learner's own slice, if it has one; what is drawn for them comes from a random stream."""
        if not self.own:
            return
        number, batch, rows = task
        loss, of = self._members[number].loss, rows.stop - rows.start
        own = self._cut(batch, slice_of(rows, self.slices, 0))
        if not self._draws:
            self._statistics = loss.gradients(own, of)
            return
        with torch_stream(stream):
            self._statistics = loss.gradients(own, of)

    def add(self, task: UpdaterTask, computed: Array) -> Array:
        """Add what shards have computed, in order, ``(plan.shards, plan.computed)``; returns the minibatch's statistics."""
        loss, _, gradients = self._members[task.loss]
        size, end = len(gradients), len(gradients) + len(loss.statistics)
        if self.own:
            statistics, rest = self._statistics, computed
        else:
            statistics, rest = computed[0, size:end].copy(), computed[1:]
            put(gradients, computed[0, :size])
        for row in rest:
            np.add(gradients, row[:size], out=gradients)
            statistics = statistics + row[size:end]
        return statistics


def shared_losses(
    losses: Sequence[UpdaterLoss], module: nn.Module, example: Any, slices: int, split: bool
) -> tuple[SharedLosses, ...]:
    """All losses of a learner in slices.

    Args:
        losses: The losses.
        module: The module that their parameters belong to.
        example: A minibatch, as large as there are any.
        slices: Slices of a minibatch.
        split: Whether the first loss and the others are computed at the same time, the others all by shards of their own.
    """
    numbers = tuple(range(len(losses)))
    if not split:
        return (SharedLosses(losses, numbers, module, example, slices),)
    first = SharedLosses(losses, numbers[:1], module, example, slices)
    return first, SharedLosses(losses, numbers[1:], module, example, slices, own=False)
