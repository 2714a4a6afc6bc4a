"""Minibatches shared out among gradient workers: which of them has which slice, and how a slice lies in an array port.

A minibatch is a sequence of blocks of rows, whose gradients are added up as a tree (:func:`reactor_torch.networks.halved`). A slice
is a node of that tree. So the bits of the sum depend neither on the number of slices nor on who computes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch.flat import array_of
from reactor_torch.kept import keep
from reactor_torch.loss import Loss
from reactor_torch.networks import Networks, blocks_of, halved
from reactor_torch.parameters import FILLING, packed

__all__ = [
    "LINE",
    "Lanes",
    "SliceLayout",
    "SliceView",
    "WeightLayout",
    "check_split",
    "exchanged_bytes",
    "nodes",
    "parts_of",
    "rows_of_slices",
]

Array = npt.NDArray[Any]
HEAD = "(loss, rows, of, block, task)"
"""Number of the loss, rows of the slice and of its minibatch, number of its first block, and of the task in the round."""
LINE = 16
"""Float32 numbers of a cache line, where each network begins: the last bits of a product depend on that."""

# ---------------------------------------------------------------------- who computes what


@dataclass(frozen=True)
class Lanes:
    """Which gradient worker computes which slice of which loss.

    Losses of one lane are computed one after the other, those of different lanes at the same time. The learner itself computes the
    first slice of the first lane.

    Attributes:
        losses: Names of the losses, in order.
        slices: Slices of a minibatch, at most.
        split: Whether each loss has a lane of its own; else all have one.
    """

    losses: tuple[str, ...]
    slices: int
    split: bool

    @property
    def workers(self) -> int:
        """How many gradient workers there are."""
        return (len(self.losses) if self.split else 1) * self.slices - 1

    def lane_of(self, loss: str) -> int:
        """Number of a loss's lane."""
        return self.losses.index(loss) if self.split else 0

    def slot_of(self, worker: int) -> tuple[int, int]:
        """Lane and slice of a worker."""
        return divmod(worker + 1, self.slices)

    def workers_of(self, lane: int) -> range:
        """The workers of a lane, in the order of its slices."""
        return range(max(lane * self.slices - 1, 0), (lane + 1) * self.slices - 1)

    def losses_of(self, lane: int) -> tuple[str, ...]:
        """Names of the losses of a lane."""
        return tuple(loss for loss in self.losses if self.lane_of(loss) == lane)


@lru_cache(maxsize=1024)
def nodes(blocks: int, slices: int) -> tuple[tuple[int, int], ...]:
    """The nodes of the tree of so many blocks that its slices are, in order: the largest one is halved until there are enough.

    Args:
        blocks: How many blocks a minibatch has.
        slices: How many slices it is to have, at most.

    Returns:
        Of each slice the first block, and the one behind its last.
    """
    found = [(0, blocks)]
    while len(found) < min(slices, blocks):
        widths = [end - begin for begin, end in found]
        index = widths.index(max(widths))
        begin, end = found[index]
        middle = begin + halved(end - begin)
        found[index : index + 1] = [(begin, middle), (middle, end)]
    return tuple(found)


def rows_of_slices(rows: slice, slices: int, block: int | None) -> list[slice]:
    """The rows of each slice; there are fewer than ``slices`` where a minibatch has fewer blocks.

    Args:
        rows: Rows of the minibatch, with a beginning and an end.
        slices: How many slices there are to be, at most.
        block: Rows of a block, see :meth:`reactor_torch.Networks.block`.
    """
    count = rows.stop - rows.start
    size = block or count
    return [
        slice(rows.start + begin * size, rows.start + min(end * size, count))
        for begin, end in nodes(blocks_of(count, block), slices)
    ]


def check_split(nets: Networks) -> None:
    """Refuse networks of which losses side by side make something else than one after the other.

    Raises:
        ValueError: If a network without ``buffers=True`` has batch normalisation, or changes buffers while it learns.
    """
    for name, part in nets.parts.items():
        modules = part.module.named_modules() if isinstance(part.module, nn.Module) and not part.buffers else ()
        for path, module in modules:
            if not isinstance(module, nn.modules.batchnorm._BatchNorm):
                continue
            layer = f"{name}.{path}" if path else name
            raise ValueError(
                f"split=True lets the losses' gradients be computed apart, and {layer!r} ({type(module).__name__}) would collect "
                "its statistics in two places: use LayerNorm or GroupNorm, or split=False"
            )
    if nets.writes:
        raise ValueError(
            f"split=True lets the losses' gradients be computed apart, and the buffer {nets.writes[0]!r} changes with them, as "
            "running statistics do: it would change in two places; use split=False"
        )


# ---------------------------------------------------------------------- weights in a port


class WeightLayout:
    """Where networks and their changing buffers lie in an array of float32, which goes out with each minibatch.

    Args:
        nets: The networks. What is fixed during a round is not there.

    Attributes:
        networks: Where the parameters of each network are.
        buffers: Where its buffers are, each by itself; of networks with ``buffers=True``.
        size: Length of the array.
    """

    def __init__(self, nets: Networks) -> None:
        self.networks: dict[str, slice] = {}
        self.buffers: dict[str, list[slice]] = {}
        self.size = 0
        named = {name for loss in nets.losses.values() for name in (loss.learns, *loss.reads)}
        for name, part in nets.parts.items():
            if part.fixed or (name not in named and not isinstance(part.module, nn.Module)):
                continue
            self.networks[name] = self._place(len(nets.flat(name).data))
            if part.buffers:
                self.buffers[name] = [self._place(-(-one.nbytes // 4)) for one in nets.buffers(name)]

    def _place(self, count: int) -> slice:
        begin = self.size
        self.size += count + -count % LINE
        return slice(begin, begin + count)

    def copies(self, nets: Networks, weights: Array) -> dict[str, tuple[Any, Array]]:
        """The parameters of each network as :func:`~reactor_torch.flat.get` takes them, and where in an array they go."""
        return {name: (array_of(nets.flat(name).data), weights[where]) for name, where in self.networks.items()}

    def write_buffers(self, nets: Networks, weights: Array) -> None:
        """Copy buffers into an array, from wherever they lie."""
        for name, places in self.buffers.items():
            for buffer, where in zip(nets.buffers(name), places, strict=True):
                _write(buffer, _view(weights[where], buffer))

    def read(self, nets: Networks, weights: Array) -> None:
        """Copy parameters from an array."""
        for name, where in self.networks.items():
            _read(nets.flat(name).data, weights[where])

    def read_buffers(self, nets: Networks, weights: Array) -> None:
        """Copy buffers from an array."""
        for name, places in self.buffers.items():
            for buffer, where in zip(nets.buffers(name), places, strict=True):
                _read(buffer, _view(weights[where], buffer))


def exchanged_bytes(nets: Networks) -> int:
    """Bytes that go to a gradient worker and back for a minibatch: weights, and gradients."""
    return 4 * (WeightLayout(nets).size + max(len(nets.flat(loss.learns).gradients) for loss in nets.losses.values()))


def _view(numbers: Array, like: torch.Tensor) -> Array:
    """Memory of numbers as an array of a buffer's type and shape."""
    dtype = np.dtype(str(like.dtype).removeprefix("torch."))
    return numbers.view(np.uint8)[: like.nbytes].view(dtype).reshape(like.shape)


def _write(tensor: torch.Tensor, out: Array) -> None:
    if tensor.device.type == "cpu":
        out[...] = tensor.detach().numpy()
    else:
        torch.from_numpy(out).copy_(tensor)


def _read(tensor: torch.Tensor, values: Array) -> None:
    if tensor.device.type == "cpu":
        tensor.detach().numpy()[...] = values
    else:
        tensor.copy_(torch.tensor(values))  # which copies: the array may not be written to, and torch warns of views of such


# ---------------------------------------------------------------------- slices in a port


def parts_of(batch: Any, wanted: Container[str] | None = None) -> dict[str, Array]:
    """The parts of a minibatch as arrays, on the same memory if that is a processor's.

    Args:
        batch: The minibatch.
        wanted: Names of parts, those of a dict being called ``field/key``; ``None`` for all.
    """
    parts: dict[str, Array] = {}
    for field, value in vars(batch).items():
        for key, part in value.items() if isinstance(value, dict) else [(None, value)]:
            name = field if key is None else f"{field}/{key}"
            if wanted is None or name in wanted:
                parts[name] = part.cpu().numpy() if isinstance(part, torch.Tensor) else np.asarray(part, np.float64)
    return parts


class SliceLayout:
    """How a slice lies in a record: a block of memory for each part that one of the losses looks at.

    Losses with minibatches of the same parts share their blocks: a record has one slice at a time.

    Args:
        examples: For each loss a minibatch, as large as there are any; see :class:`~reactor_torch.Batch`.
        slices: Slices of a minibatch, at most.
        losses: The losses, by name.
        blocks: Rows of each one's blocks; see :meth:`reactor_torch.Networks.block`.

    Attributes:
        losses: Names of the losses; a record has their numbers.
        rows: The most rows that a slice has.
        parts: Names of parts of minibatches that any loss looks at.
        blocks: For each loss, the block of each part.
        record: The type of the record.

    Raises:
        ValueError: If a loss names a field that its minibatches have not.
    """

    def __init__(
        self, examples: Mapping[str, Any], slices: int, losses: Mapping[str, Loss], blocks: Mapping[str, int | None]
    ) -> None:
        self.losses = tuple(losses)
        self.rows = max(_most_rows(len(example), slices, blocks[name]) for name, example in examples.items())
        self.kinds = [type(examples[name]) for name in losses]
        self.fields = [tuple(vars(examples[name])) for name in losses]
        self.keyed = [tuple(key for key, part in vars(examples[name]).items() if isinstance(part, dict)) for name in losses]
        self.blocks: list[dict[str, str]] = [{} for _ in losses]
        found: dict[str, tuple[str, np.dtype[Any], tuple[int, ...]]] = {}
        for example in {id(examples[name]): examples[name] for name in losses}.values():
            users = [number for number, name in enumerate(losses) if examples[name] is example]
            needs = {number: _fields_of(self.losses[number], losses[self.losses[number]], example) for number in users}
            for part, values in parts_of(example).items():
                looking = [number for number in users if part.partition("/")[0] in needs[number]]
                if not looking:
                    continue
                shape = values.shape if not values.ndim or part in example.shared else (self.rows, *values.shape[1:])
                block = part
                if block in found and found[block][1:] != (values.dtype, shape):
                    block = f"{part} of {self.losses[looking[0]]}"
                found[block] = (block, values.dtype, shape)
                for number in looking:
                    self.blocks[number][part] = block
        self.parts = frozenset(part for blocks in self.blocks for part in blocks)
        self.record = packed([*found.values(), (HEAD, np.dtype(np.int64), (5,))])


def _most_rows(rows: int, slices: int, block: int | None) -> int:
    """Rows of the largest slice of a minibatch of so many rows or fewer."""
    size = block or rows
    return max(end - begin for blocks in range(1, blocks_of(rows, block) + 1) for begin, end in nodes(blocks, slices)) * size


def _fields_of(name: str, loss: Loss, example: Any) -> set[str]:
    """Names of the fields of a minibatch that a loss looks at."""
    there = set(vars(example))
    wanted = there if loss.fields is None else {*loss.fields, "actions"}
    if not wanted <= there:
        raise ValueError(
            f"loss {name!r} looks at {sorted(wanted - there)}, and its minibatches ({type(example).__name__}) have {sorted(there)}"
        )
    return wanted


class SliceView:
    """A record on either side of a port.

    Args:
        layout: Layout of the record.
        record: The record, ``()``.
    """

    def __init__(self, layout: SliceLayout, record: Array) -> None:
        self.layout = layout
        self._head: Array = record[HEAD]
        self._of_rows: list[list[tuple[str, Array]]] = []
        self._shared: list[list[tuple[str, Array]]] = []
        self._numbers: list[list[tuple[str, Array]]] = []
        for blocks, kind in zip(layout.blocks, layout.kinds, strict=True):
            views = [(part, record[block]) for part, block in blocks.items()]
            self._shared.append([(part, view) for part, view in views if part in kind.shared])
            self._of_rows.append([(part, view) for part, view in views if view.ndim and part not in kind.shared])
            self._numbers.append([(part, view) for part, view in views if not view.ndim])
        self._batches: dict[tuple[int, int], Any] = {}
        if FILLING in (record.dtype.names or ()) and record.flags.writeable:
            record[FILLING] = 0

    @property
    def rows(self) -> int:
        """How many rows the slice has."""
        return int(self._head[1])

    def clear(self) -> None:
        """Say that there is nothing to compute."""
        self._head[1] = 0

    def write(self, loss: int, parts: Mapping[str, Array], rows: slice, of: int, block: int, task: int) -> None:
        """Copy a slice in.

        Args:
            loss: Number of the loss that it is for.
            parts: Parts of the batch, or of more: see :func:`parts_of`.
            rows: Rows of the slice.
            of: Rows of the minibatch.
            block: Number of its first block.
            task: Number of the task in the round.
        """
        head, count = self._head, rows.stop - rows.start
        head[0], head[1], head[2], head[3], head[4] = loss, count, of, block, task  # sooner done than all at once
        for name, place in self._of_rows[loss]:
            place[:count] = parts[name][rows]
        for name, place in (*self._shared[loss], *self._numbers[loss]):
            place[...] = parts[name]

    def read(self) -> tuple[str, Any, int, int, int]:
        """Name of the loss, the slice with tensors that are views of the record, and the rest of the head."""
        loss, count, of, block, task = self._head.tolist()
        batch = self._batches.get((loss, count))
        if batch is None:
            batch = keep(self._batches, (loss, count), self._batch(loss, count), most=64)  # views, which weigh nothing
        for name, place in self._numbers[loss]:
            vars(batch)[name] = float(place)
        return self.layout.losses[loss], batch, of, block, task

    def _batch(self, loss: int, count: int) -> Any:
        """Parts that the loss does not look at are ``None``."""
        keyed = self.layout.keyed[loss]
        values: dict[str, Any] = {name: {} if name in keyed else None for name in self.layout.fields[loss]}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            for name, block in self._of_rows[loss]:
                field, _, key = name.partition("/")
                if field in keyed:
                    values[field][key] = torch.from_numpy(block[:count])
                else:
                    values[field] = torch.from_numpy(block[:count])
            values |= {name: torch.from_numpy(block) for name, block in self._shared[loss]}
        return self.layout.kinds[loss](**values)
