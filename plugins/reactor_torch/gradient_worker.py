"""Gradients in several reactors: each computes its slices of minibatches, the learner adds them up and steps.

A worker keeps nothing from one round to the next: weights come with each minibatch, everything else with a round.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_rl import Input, Output, Reactor, reaction, startup
from reactor_torch.batches import MinibatchSlicer
from reactor_torch.flat import array_of, get, put
from reactor_torch.loss import Loss, Task
from reactor_torch.networks import Networks, blocks_of, halved
from reactor_torch.slicing import LINE, Lanes, SliceLayout, SliceView, WeightLayout, nodes, parts_of, rows_of_slices

__all__ = ["GradientWorker", "Round", "SlicedGradients", "WorkerConfig", "torch_threads"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WorkerConfig:
    """The configuration of gradient workers.

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
    """The news for gradient workers at the beginning of a round.

    Attributes:
        losses: The round's losses, by name.
        fixed: Parameters of networks that stay as they are during a round, ``(size,)`` each, by name.
        others: What modules have besides: frozen parameters, constant buffers.
        seed: What networks draw from in this round that have dropout, say.
    """

    losses: Mapping[str, Loss]
    fixed: Mapping[str, Array]
    others: Sequence[Array]
    seed: int


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
        self.kept = {} if self.nets.compiled else self.nets.kept()
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
        name, batch, of, block, nets.task = self.view.read()
        if not self.here:
            batch = batch.to(self.device)
            config.weights.read(nets, weights)
        learns = nets.loss(name).learns
        size = nets.flat(learns).gradients.numel()
        buffers = nets.buffers(learns)
        if config.weights.buffers:
            config.weights.read_buffers(nets, weights)
        counts = [one.clone() for one in buffers if not one.is_floating_point()]
        versions = [one._version for one in self.kept.values()]
        with torch_threads(config.threads) if config.threads > 1 else nullcontext():
            statistics = nets.gradients(name, batch, of, block)
        if self.kept:
            self._check_kept(versions)
        if not self.here:
            get(array_of(nets.flat(learns).gradients), out[:size])
        end = size + len(statistics)
        out[size:end] = statistics
        if buffers:
            _put_buffers(buffers, counts, out[end:])

    def _check_kept(self, versions: Sequence[int]) -> None:
        """Refuse what nobody has seen when blocks were planned: a buffer that changes now and then.

        Raises:
            ValueError: If one has changed.
        """
        for (name, one), before in zip(self.kept.items(), versions, strict=True):
            if one._version != before:
                raise ValueError(
                    f"the buffer {name!r} changes while gradients are computed, and this gradient worker has one of its own: use "
                    "n_learners=1 and split=False"
                )

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

    def _begin(self, nets: Networks, given: Round) -> None:
        nets.losses |= given.losses
        for part, values in zip(nets.others(), given.others, strict=True):
            part.copy_(torch.from_numpy(values))
        for name, values in given.fixed.items():
            put(array_of(nets.flat(name).data), values)
        nets.seed = given.seed

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
        slices: Slices of a minibatch, at most; see :func:`reactor_torch.slicing.nodes`.
        split: Whether losses are computed side by side.

    Raises:
        ValueError: If a loss looks at a field that its minibatches have not.
    """

    def __init__(self, nets: Networks, example: Any, slices: int, split: bool) -> None:
        self.nets = nets
        losses = nets.losses
        self.lanes = Lanes(tuple(losses), slices, split)
        examples = example if isinstance(example, Mapping) else dict.fromkeys(losses, example)
        self.layout = SliceLayout(examples, slices, losses, {name: nets.block(name) for name in losses})
        self.weights = WeightLayout(nets)
        self._slots = [self.lanes.slot_of(worker) for worker in range(self.workers)]
        self._numbers = {name: number for number, name in enumerate(losses)}
        self._lanes = {name: self.lanes.lane_of(name) for name in losses}
        self._workers = {name: tuple(self.lanes.workers_of(lane)) for name, lane in self._lanes.items()}
        self._gradients = {name: array_of(nets.flat(loss.learns).gradients) for name, loss in losses.items()}
        self._sent: tuple[Any, ...] = ()
        self._views: list[SliceView] = []
        self._copies: dict[str, tuple[Any, Array]] = {}  # parameters, and where they are sent
        self._begins = True  # whether nothing has been sent in this round
        self._parts: dict[int, tuple[Any, dict[str, Array]]] = {}
        self._own: Array = np.zeros(0)
        self._slicers = {name: MinibatchSlicer() for name in losses}

    @property
    def workers(self) -> int:
        """How many gradient workers there are."""
        return self.lanes.workers

    def config(self, threads: int, devices: Sequence[torch.device]) -> WorkerConfig:
        """The configuration of the workers.

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

    def begin_round(self) -> Round:
        """The message to workers with the first minibatch of a round."""
        self._parts, self._slicers, self._begins = {}, {name: MinibatchSlicer() for name in self._slicers}, True
        nets = self.nets
        fixed = {name: nets.flat(name).data.cpu().numpy() for name, part in nets.parts.items() if part.fixed}
        return Round(nets.losses, fixed, [part.cpu().numpy() for part in nets.others()], nets.seed)

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
            # An array without dimensions, because slices[index] would be a scalar of numpy's.
            self._views = [SliceView(self.layout, slices[index : index + 1].reshape(())) for index in range(len(slices))]
            self._copies, self._begins = self.weights.copies(self.nets, weights), True
            weights[:] = 0  # what lies between two networks is hashed too
        losses = [self.nets.loss(task.loss) for task in tasks]
        read = {name for loss in losses for name in (loss.learns, *loss.reads)}
        for name, (parameters, out) in self._copies.items():
            if self._begins or name in read:  # at the others nobody looks
                get(parameters, out)
        self._begins = False
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
        self.nets.task += 1
        rows_of = {lane: self._rows_of(task) for lane, task in of_lane.items()}
        for (lane, index), view in zip(self._slots, self._views, strict=True):
            if index >= len(rows_of.get(lane, ())):
                view.clear()
                continue
            found, rows = of_lane[lane], rows_of[lane][index]
            of, block = found.rows.stop - found.rows.start, self.nets.block(found.loss)
            if rows.stop - rows.start > self.layout.rows:
                raise ValueError(
                    f"a minibatch has {of} rows, and gradient workers were made for {self.layout.rows} each: call close() after "
                    "changing batch_size, and they are made anew"
                )
            first = 0 if block is None else (rows.start - found.rows.start) // block
            view.write(self._numbers[found.loss], self._parts[id(found.batch)][1], rows, of, first, self.nets.task)

    def _rows_of(self, task: Task) -> list[slice]:
        return rows_of_slices(task.rows, self.lanes.slices, self.nets.block(task.loss))

    def compute(self, tasks: Sequence[Task]) -> None:
        """The gradients of the learner's own slice, if the first lane has something to do.

        Args:
            tasks: What is to be computed.
        """
        for task in tasks:
            if not self._lanes[task.loss]:
                own = self._slicers[task.loss](task.batch, self._rows_of(task)[0])
                self._own = self.nets.gradients(task.loss, own, task.rows.stop - task.rows.start)

    def add(self, tasks: Sequence[Task], computed: Array) -> list[Mapping[str, float]]:
        """Add up what has been computed, in the order of the tree.

        Args:
            tasks: What was to be computed.
            computed: What workers have computed, ``(workers, config.computed)``, float32.

        Returns:
            Statistics of each task, by name.
        """
        return [self.nets.named(task.loss, self._added(task, computed)) for task in tasks]

    def _added(self, task: Task, computed: Array) -> Array:
        loss, lane, gradients = self.nets.loss(task.loss), self._lanes[task.loss], self._gradients[task.loss]
        size, buffers = len(gradients), self.nets.buffers(loss.learns)
        end = size + len(loss.statistics)
        block = self.nets.block(task.loss)
        of_slices = nodes(blocks_of(task.rows.stop - task.rows.start, block), self.lanes.slices)
        # Of the first lane, the first slice is the learner's own and comes from no worker.
        rows = [computed[worker, :end] for worker in self._workers[task.loss]][: len(of_slices) - (not lane)]
        if lane:
            _take_buffers(buffers, computed[self._workers[task.loss][0], end:])
        elif not rows:  # all of it is the learner's own
            return self._own
        own = [] if lane else [(gradients, self._own)]
        parts = [*own, *((row[:size], row[size:]) for row in rows)]
        if isinstance(gradients, np.ndarray):
            _sum([one for one, _ in parts], of_slices, gradients)
        else:
            total = np.empty(size, np.float32)
            _sum([one for one, _ in parts], of_slices, total)
            put(gradients, total)
        statistics = np.empty(end - size, np.float32)
        _sum([one for _, one in parts], of_slices, statistics)
        return statistics


def _sum(parts: Sequence[Array], of_slices: Sequence[tuple[int, int]], out: Array) -> None:
    """Add up slices as their tree says: all of a node's left half, all of its right half, and these two.

    Args:
        parts: What slices have come to, ``(size,)`` each.
        of_slices: Blocks of each, as :func:`reactor_torch.slicing.nodes` gives them.
        out: Where the sum goes, ``(size,)``; may be the first part.
    """
    if len(parts) == 1:
        if parts[0] is not out:
            out[...] = parts[0]
        return
    begin, end = of_slices[0][0], of_slices[-1][1]
    middle = begin + halved(end - begin)
    left = sum(last <= middle for _, last in of_slices)
    _sum(parts[:left], of_slices[:left], out)
    right = parts[left]
    if len(parts) > left + 1:
        right = np.empty_like(out)
        _sum(parts[left:], of_slices[left:], right)
    np.add(out, right, out=out)


def _put_buffers(buffers: Sequence[torch.Tensor], counts: Sequence[torch.Tensor], out: Array) -> None:
    """The buffers as they are now; of whole numbers their increase, which float32 holds exactly."""
    at, before = 0, iter(counts)
    for one in buffers:
        values = one.detach() if one.is_floating_point() else one - next(before)
        out[at : at + one.numel()] = values.flatten().cpu().numpy()
        at += one.numel()


def _take_buffers(buffers: Sequence[torch.Tensor], values: Array) -> None:
    at = 0
    for one in buffers:
        given = torch.from_numpy(values[at : at + one.numel()].copy()).reshape(one.shape).to(one.device)
        if one.is_floating_point():
            one.copy_(given)
        else:
            one.add_(given.to(one.dtype))
        at += one.numel()


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch's operations use so many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
