"""Minibatches: what they are made of, row by row, may be cut and put in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from reactor_rl.plugin import aligned_zeros
from reactor_torch.images import Images
from reactor_torch.kept import keep

__all__ = [
    "Batch",
    "MaskedBatch",
    "MinibatchSlicer",
    "PPOBatch",
    "QBatch",
    "TransitionBatch",
    "normalized",
    "on_device",
    "some_rows",
]

Array = npt.NDArray[Any]
MOST = 2**17
"""Bytes of rows that are copied in less time than it takes to make tensors of where they lie. 128 KB at some 10 GB/s are 13 us, as
long as a few calls of torch.
"""


def some_rows(part: Any, rows: slice | torch.Tensor) -> Any:
    """Some of the rows of a tensor, or of each one in a dict: a view for a slice, a copy in the order of indices. Numbers stay."""
    if isinstance(part, torch.Tensor):
        return part[rows] if isinstance(rows, slice) else torch.index_select(part, 0, rows)
    return {key: some_rows(value, rows) for key, value in part.items()} if isinstance(part, dict) else part


def on_device(part: Any, device: torch.device) -> Any:
    """A tensor, or each one in a dict, on a device. What lies in pinned memory is still on its way when this returns."""
    if isinstance(part, torch.Tensor):
        return part.to(device, non_blocking=True)
    return {key: on_device(value, device) for key, value in part.items()} if isinstance(part, dict) else part


def _channels_last(part: Any) -> Any:
    """Images ``(rows, channels, height, width)`` that lie in memory as height x width x channels; anything else as it is."""
    if isinstance(part, torch.Tensor):
        return part.contiguous(memory_format=torch.channels_last) if part.ndim == 4 else part
    return {key: _channels_last(value) for key, value in part.items()} if isinstance(part, dict) else part


def _images(part: Any) -> Any:
    """Bytes ``(rows, channels, height, width)`` that become numbers where they are needed; anything else as it is."""
    if isinstance(part, torch.Tensor):
        return Images.of(part) if part.ndim == 4 and part.dtype == torch.uint8 else part
    return {key: _images(value) for key, value in part.items()} if isinstance(part, dict) else part


def _aligned(part: Any) -> Any:
    """A tensor that begins with a cache line, as torch's own memory does, or each one in a dict; numbers stay."""
    if isinstance(part, torch.Tensor):
        return part if part.data_ptr() % 64 == 0 and part.is_contiguous() else part.clone(memory_format=torch.contiguous_format)
    return {key: _aligned(value) for key, value in part.items()} if isinstance(part, dict) else part


class Batch:
    """The common part of classes of minibatches: dataclasses of tensors ``(rows, ...)``, dicts of such, and numbers.

    Attributes:
        actions: What was done, ``(rows, ...)``.
        shared: Names of fields that are tensors of any shape, the same ones for all rows.
    """

    actions: torch.Tensor
    shared: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, rows: slice | torch.Tensor) -> Self:
        """Some of the rows: views for a slice, copies in the order of indices."""
        return type(self)(*[part if name in self.shared else some_rows(part, rows) for name, part in vars(self).items()])

    def to(self, device: torch.device) -> Self:
        """The same on a device; see :func:`on_device`."""
        return type(self)(*[on_device(part, device) for part in vars(self).values()])

    def aligned(self) -> Self:
        """The same where each part begins with a cache line: the last bits of a product depend on that."""
        return type(self)(*[_aligned(part) for part in vars(self).values()])

    def channels_last(self) -> Self:
        """The same with images in the order in which convolutions are fast: their gradients take a third less time."""
        return type(self)(*[_channels_last(part) for part in vars(self).values()])

    def images(self) -> Self:
        """The same with images of bytes as ``Images``."""
        return type(self)(*[_images(part) for part in vars(self).values()])

    def __len__(self) -> int:
        return self.actions.shape[0]


@dataclass
class TransitionBatch(Batch):
    """Transitions from a replay buffer, as SB3's ``ReplayBufferSamples``: each ``(rows, 1)`` or ``(rows,)`` unless it says more.

    Attributes:
        observations: ``(rows, ...)``.
        actions: int64; or float32 in [-1, 1], ``(rows, n)``.
        next_observations: ``(rows, ...)``.
        dones: Whether nothing follows, float32.
        rewards: float32, of n steps where there are n.
        discounts: Discount of what follows: a number, or one for each row.
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | float


@dataclass
class PPOBatch(Batch):
    """Transitions of a round, or some of them; ``(rows,)`` and float32 unless it says more.

    Attributes:
        observations: As the policy takes them, ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)`` or ``(rows, n)``.
        advantages: Advantages, normalised already if that is wanted.
        returns: What values are to become.
        old_log_prob: Log-probabilities with which the actions were chosen.
        old_values: Values when they were chosen.
    """

    observations: Any
    actions: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    old_log_prob: torch.Tensor
    old_values: torch.Tensor


@dataclass
class MaskedBatch(PPOBatch):
    """Transitions, with what was allowed before each action.

    Attributes:
        action_masks: ``(rows, choices)``, bool.
    """

    action_masks: torch.Tensor


@dataclass
class QBatch(Batch):
    """Observations, actions, and the returns that the actions' values are to become.

    Attributes:
        observations: ``(rows, ...)``, or a dict of such.
        actions: ``(rows,)``, int64.
        returns: ``(rows,)``, float32.
    """

    observations: Any
    actions: torch.Tensor
    returns: torch.Tensor


class MinibatchSlicer:
    """Takes minibatches out of batches of one kind: small ones as copies in tensors that are made once, large ones as views.

    A minibatch is valid until the next one with as many rows.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        self._parts: list[Array] = []
        self._kept: dict[int, tuple[Any, list[Array]]] = {}

    def __call__(self, batch: Any, rows: slice) -> Any:
        """Some rows of a batch; see :class:`~reactor_torch.batches.Batch`."""
        count = rows.stop - rows.start
        if count == len(batch):
            return batch
        if batch is not self._batch:
            self._batch, self._parts = batch, _arrays(batch)
        if not self._parts:
            return batch[rows]
        kept = self._kept.get(count)
        if kept is None:
            kept = keep(self._kept, count, self._room(batch, count))
        minibatch, blocks = kept
        if not blocks:
            return batch[rows]
        for block, part in zip(blocks, self._parts, strict=True):
            # Copied into the same memory each time, which torch knows already: making tensors of slices takes longer than the copy.
            block[...] = part[rows]
        return minibatch

    def _room(self, batch: Any, count: int) -> tuple[Any, list[Array]]:
        """A minibatch of so many rows, and its arrays; none if it is a large one."""
        if sum(part.nbytes // len(part) for part in self._parts) * count > MOST:
            return None, []
        blocks = [aligned_zeros((count, *part.shape[1:]), part.dtype) for part in self._parts]
        return type(batch)(*map(torch.from_numpy, blocks)), blocks


def _arrays(batch: Any) -> list[Array]:
    """The parts of a batch as arrays; none unless all of them are tensors of its rows in a processor's memory."""
    parts = list(vars(batch).values())
    if not batch.shared and all(isinstance(part, torch.Tensor) and part.device.type == "cpu" for part in parts):
        return [np.asarray(part) for part in parts]
    return []


def normalized(advantages: torch.Tensor, batch_size: int, kernels: Any = None) -> torch.Tensor:
    """Advantages of each minibatch with mean 0 and standard deviation 1, as SB3 does it; those of a minibatch of one stay.

    Args:
        advantages: Advantages of minibatches that follow each other, ``(rows,)``; the last one may be shorter.
        batch_size: How many rows a minibatch has.
        kernels: The extension, if it is to be used.
    """
    if kernels:
        given = np.ascontiguousarray(advantages.numpy())
        found = given.copy()
        for at in range(0, len(given), batch_size):
            if len(given) - at > 1 < batch_size:
                kernels.standardize(given[at : at + batch_size], found[at : at + batch_size])
        return torch.from_numpy(found)
    whole = len(advantages) // batch_size * batch_size
    parts = [advantages[:whole].view(-1, batch_size), advantages[whole:].view(1, -1)]
    done = []
    for part in parts:
        if part.shape[1] > 1 and part.numel():
            std, mean = torch.std_mean(part, 1, keepdim=True)
            part = (part - mean) / (std + 1e-8)
        done.append(part.flatten())
    return torch.cat(done)
