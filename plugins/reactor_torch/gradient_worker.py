"""Gradients in several reactors: each computes its slices of minibatches, the learner adds them in order and steps.

A worker keeps nothing from one round to the next: weights come with each minibatch, everything else with a round.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_torch.batches import MinibatchSlicer
from reactor_torch.flat import add, array_of, get, put
from reactor_torch.loss import Loss, Task
from reactor_torch.networks import Networks
from reactor_torch.slicing import LINE, Lanes, SliceLayout, SliceView, WeightLayout, draws, parts_of, rows_of_slice
from reactor_torch.streams import torch_state, torch_stream
from reactor_torch.threads import torch_threads

__all__ = ["GradientWorker", "Round", "SlicedGradients", "WorkerConfig"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WorkerConfig:
    """What gradient workers are made from.

    Attributes:
        nets: A copy of networks and losses.
        lanes: Which worker computes which slice of which loss.
        layout: Layout of slices.
        weights: Layout of what comes with each minibatch.
        computed: Length of what a worker gives: gradients, statistics and buffers of its loss, float32.
        threads: Threads of torch in each worker.
        devices: Where each lane computes. What is exchanged goes through a processor's memory in any case.
    """

    nets: Networks
    lanes: Lanes
    layout: SliceLayout
    weights: WeightLayout
    computed: int
    threads: int
    devices: tuple[torch.device, ...]


@dataclass(frozen=True)
class Round:
    """What gradient workers get to know at the beginning of a round.

    Attributes:
        losses: The round's losses, by name.
        fixed: Parameters of networks that stay as they are during a round, ``(size,)`` each, by name.
        others: What modules have besides: frozen parameters, constant buffers.
        seeds: Seed of each worker's random stream in this round.
    """

    losses: Mapping[str, Loss]
    fixed: Mapping[str, Array]
    others: Sequence[Array]
    seeds: Sequence[int]


class GradientWorker(Reactor):
    """Computes the gradients of one slice of each minibatch of its lane.

    Args:
        config: What it is made from.
        bank_index: Its number.
    """

    weights = Input()
    """The networks for this minibatch, ``(config.weights.size,)``, float32."""
    slice = Input()
    """A record of ``config.layout``; of no rows if there is nothing to compute."""
    round = Input()
    """A :class:`Round`, at its first minibatch."""
    computed = Output((0,), np.float32)
    """Gradients, and behind them statistics and changed buffers."""

    def __init__(self, config: WorkerConfig, bank_index: int) -> None:
        self.config, self.index = config, bank_index
        self.computed = Output((config.computed,), np.float32)
        self.nets: Networks | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the networks, here where they will live."""
        config = self.config
        self.lane, self.number = config.lanes.slot_of(self.index)
        self.device = config.devices[self.lane]
        self.here = self.device == torch.device("cpu")
        nets = copy.deepcopy(config.nets)
        self.nets = nets if self.here else nets.to(self.device)
        self.nets.set_training_mode(True)
        self.aside = draws(self.nets) or config.threads > 1
        self.stream = torch_state(0)
        self.seen: tuple[Any, ...] = (None, None, None)

    @reaction(slice, uses=(weights, round), effects=computed)
    def compute(self) -> None:
        """The gradients of a slice; zeros if it has no rows."""
        assert self.nets is not None
        nets, config = self.nets, self.config
        if self.round.present:
            self._begin(nets, self.round.value)
        record, weights, out = self.slice.value, self.weights.value, self.computed.buffer
        seen = self.seen
        if record is not seen[0] or weights is not seen[1] or out is not seen[2]:
            self.seen = record, weights, out  # once: each port has one slot, and always hands out the same view of it
            self.view = SliceView(config.layout, record)
            if self.here:
                self._bind(nets, weights, out)
        if not self.view.rows:
            out[:] = 0
            return
        name, batch, of = self.view.read()
        if not self.here:
            batch = batch.to(self.device)
            config.weights.read(nets, weights)
        learns = nets.loss(name).learns
        size = nets.flat(learns).gradients.numel()
        buffers = nets.buffers(learns)
        if config.weights.buffers:
            config.weights.read_buffers(nets, weights)
        counts = [one.clone() for one in buffers if not one.is_floating_point()]
        statistics = self._statistics(nets, name, batch, of) if self.aside else nets.gradients(name, batch, of)
        if not self.here:
            get(array_of(nets.flat(learns).gradients), out[:size])
        end = size + len(statistics)
        out[size:end] = statistics
        if buffers:
            _put_buffers(buffers, counts, len(batch) / of, self.number == 0, out[end:])

    def _bind(self, nets: Networks, weights: Array, out: Array) -> None:
        """Let networks be where the learner has written them, and gradients where it reads them."""
        learned = {nets.loss(name).learns for name in self.config.lanes.losses_of(self.lane)}
        places: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            for name, where in self.config.weights.networks.items():
                size = len(nets.flat(name).data)
                places[name] = torch.from_numpy(weights[where]), torch.from_numpy(out[:size]) if name in learned else None
        nets.move(places)

    def _statistics(self, nets: Networks, loss: str, batch: Any, of: int) -> Array:
        """The gradients, where that takes several threads or random numbers."""
        with torch_threads(self.config.threads), torch_stream(self.stream):
            return nets.gradients(loss, batch, of)

    def _begin(self, nets: Networks, given: Round) -> None:
        for name, loss in given.losses.items():
            nets.formulas[name].loss = loss
        for part, values in zip(nets.others(), given.others, strict=True):
            part.copy_(torch.from_numpy(values))
        for name, values in given.fixed.items():
            put(array_of(nets.flat(name).data), values)
        self.stream = torch_state(given.seeds[self.index])

    # Between two rounds it knows nothing that is not told again; before the start, it travels as it is.

    def __getstate__(self) -> dict[str, Any]:
        return {} if self.nets is not None else self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class SlicedGradients:
    """Gradients of a learner that has gradient workers: it hands out slices, computes one itself, and adds up what comes back.

    Args:
        nets: The networks, with the losses in the order of their lanes.
        example: A minibatch, as large as there are any; or one for each loss, by name.
        slices: Slices of a minibatch.
        split: Whether losses are computed side by side.

    Raises:
        ValueError: If a loss looks at a field that its minibatches have not.
    """

    def __init__(self, nets: Networks, example: Any, slices: int, split: bool) -> None:
        self.nets = nets
        losses = nets.losses
        self.lanes = Lanes(tuple(losses), slices, split)
        self.layout = SliceLayout(example if isinstance(example, Mapping) else dict.fromkeys(losses, example), slices, losses)
        self.weights = WeightLayout(nets)
        self._draws = draws(nets)
        self._slots = [self.lanes.slot_of(worker) for worker in range(self.workers)]
        self._numbers = {name: number for number, name in enumerate(losses)}
        self._lanes = {name: self.lanes.lane_of(name) for name in losses}
        self._workers = {name: tuple(self.lanes.workers_of(lane)) for name, lane in self._lanes.items()}
        self._gradients = {name: array_of(nets.flat(loss.learns).gradients) for name, loss in losses.items()}
        self._sent: tuple[Any, ...] = ()
        self._views: list[SliceView] = []
        self._copies: list[tuple[Any, Array]] = []  # parameters, and where they are sent
        self._parts: dict[int, tuple[Any, dict[str, Array]]] = {}
        self._own: Array = np.zeros(0)
        self._slicer = MinibatchSlicer()

    @property
    def workers(self) -> int:
        """How many gradient workers there are."""
        return self.lanes.workers

    def config(self, threads: int, devices: Sequence[torch.device]) -> WorkerConfig:
        """What the workers are made from.

        Args:
            threads: Threads of torch in each worker.
            devices: Where the first lane computes, and where all others do.
        """
        nets, lanes = self.nets, self.lanes
        sizes = [
            len(nets.flat(loss.learns).gradients) + len(loss.statistics) + sum(one.numel() for one in nets.buffers(loss.learns))
            for loss in nets.losses.values()
        ]
        computed = max(sizes) + -max(sizes) % LINE
        of_lanes = (devices[0], *[devices[-1]] * (len(lanes.losses) - 1))
        return WorkerConfig(copy.deepcopy(nets), lanes, self.layout, self.weights, computed, threads, of_lanes)

    def begin_round(self, seeds: Sequence[int]) -> Round:
        """What workers are told with the first minibatch of a round.

        Args:
            seeds: Seed of each worker's random stream.
        """
        self._parts, self._slicer = {}, MinibatchSlicer()
        nets = self.nets
        fixed = {name: nets.flat(name).data.cpu().numpy() for name, part in nets.parts.items() if part.fixed}
        return Round(nets.losses, fixed, [part.cpu().numpy() for part in nets.others()], list(seeds))

    def send(self, tasks: Sequence[Task], weights: Array, slices: Array) -> None:
        """Write weights, and the slices that workers compute.

        Args:
            tasks: What is to be computed.
            weights: Where the networks go, ``(weights.size,)``, float32.
            slices: Where the slices go, ``(workers,)``, records.

        Raises:
            ValueError: If two of the losses have one lane, or a minibatch has more rows than there is room for.
        """
        if not self._sent or self._sent[0] is not weights or self._sent[1] is not slices:
            self._sent = weights, slices  # once: each port has one slot
            self._views = [SliceView(self.layout, slices[index : index + 1].reshape(())) for index in range(len(slices))]
            self._copies = self.weights.copies(self.nets, weights)
            weights[:] = 0  # what lies between two networks is hashed too
        for parameters, out in self._copies:
            get(parameters, out)
        if self.weights.buffers:
            self.weights.write_buffers(self.nets, weights)
        of_lane = {self._lanes[task.loss]: task for task in tasks}
        if len(of_lane) < len(tasks):
            raise ValueError(
                f"losses {[task.loss for task in tasks]} at the same time: only with split=True each has a lane of its own"
            )
        parts: dict[int, tuple[Any, dict[str, Array]]] = {}
        for task in tasks:
            known = parts.get(id(task.batch)) or self._parts.get(id(task.batch))
            parts[id(task.batch)] = known or (task.batch, parts_of(task.batch, self.layout.parts))
        self._parts = parts
        for (lane, index), view in zip(self._slots, self._views, strict=True):
            if (found := of_lane.get(lane)) is None:
                view.clear()
                continue
            of = found.rows.stop - found.rows.start
            if of > self.layout.rows * self.lanes.slices:
                raise ValueError(
                    f"a minibatch has {of} rows, and gradient workers were made for {self.layout.rows} each: call close() after "
                    "changing batch_size, and they are made anew"
                )
            rows = rows_of_slice(found.rows, self.lanes.slices, index)
            view.write(self._numbers[found.loss], self._parts[id(found.batch)][1], rows, of)

    def compute(self, tasks: Sequence[Task], drawing: Callable[[], AbstractContextManager[None]]) -> None:
        """The gradients of the learner's own slice, if the first lane has something to do.

        Args:
            tasks: What is to be computed.
            drawing: Opens the random stream that dropout draws from; opened only if there is some.
        """
        for task in tasks:
            if self._lanes[task.loss]:
                continue
            own = self._slicer(task.batch, rows_of_slice(task.rows, self.lanes.slices, 0))
            of = task.rows.stop - task.rows.start
            if self._draws:
                with drawing():
                    self._own = self.nets.gradients(task.loss, own, of)
            else:
                self._own = self.nets.gradients(task.loss, own, of)

    def add(self, tasks: Sequence[Task], computed: Array) -> list[Mapping[str, float]]:
        """Add up what has been computed, in the order of slices.

        Args:
            tasks: What was to be computed.
            computed: What workers have computed, ``(workers, config.computed)``, float32.

        Returns:
            Statistics of each task, by name.
        """
        return [self.nets.named(task.loss, self._added(task, computed)) for task in tasks]

    def _added(self, task: Task, computed: Array) -> Array:
        statistics: Array
        loss, lane, gradients = self.nets.loss(task.loss), self._lanes[task.loss], self._gradients[task.loss]
        size = len(gradients)
        end = size + len(loss.statistics)
        rows = [computed[worker] for worker in self._workers[task.loss]]
        if lane:
            statistics = rows[0][size:end].copy()
            put(gradients, rows[0][:size])
            others = rows[1:]
        else:
            statistics, others = self._own, rows
        for row in others:
            add(gradients, row[:size])
            statistics = statistics + row[size:end]
        if buffers := self.nets.buffers(loss.learns):
            if lane:
                changed = rows[0][end:].copy()
            else:
                changed = np.zeros(computed.shape[1] - end, np.float32)
                own = rows_of_slice(task.rows, self.lanes.slices, 0)
                _put_buffers(buffers, [], (own.stop - own.start) / (task.rows.stop - task.rows.start), False, changed)
            for row in others:
                changed += row[end:]
            _take_buffers(buffers, changed)
        return statistics


def _put_buffers(buffers: Sequence[torch.Tensor], counts: Sequence[torch.Tensor], share: float, first: bool, out: Array) -> None:
    """A slice's share of what buffers are to become: the rows-weighted mean of slices; of counts, what the first one has added.

    A running statistic is linear in that of the batch, so the mean of what it becomes in each slice is the exact update with the
    mean of the slices' statistics.
    """
    at, before = 0, iter(counts)
    for one in buffers:
        if one.is_floating_point():
            values = one.detach() * share
        elif counts:
            values = (one - next(before)) * first
        else:
            values = torch.zeros_like(one)
        out[at : at + one.numel()] = values.flatten().cpu().numpy()
        at += one.numel()


def _take_buffers(buffers: Sequence[torch.Tensor], values: Array) -> None:
    at = 0
    for one in buffers:
        given = torch.from_numpy(values[at : at + one.numel()]).reshape(one.shape).to(one.device)
        if one.is_floating_point():
            one.copy_(given)
        else:
            one.add_(given.to(one.dtype))
        at += one.numel()
