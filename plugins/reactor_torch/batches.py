"""Minibatches: what they are made of, row by row, may be cut and put in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

__all__ = ["Batch", "TransitionBatch", "on_device", "some_rows"]


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


class Batch:
    """The common part of classes of minibatches: dataclasses of tensors ``(rows, ...)``, dicts of such, and numbers."""

    actions: torch.Tensor

    def __getitem__(self, rows: slice | torch.Tensor) -> Self:
        """Some of the rows: views for a slice, copies in the order of indices."""
        return type(self)(*[some_rows(part, rows) for part in vars(self).values()])

    def to(self, device: torch.device) -> Self:
        """The same on a device; see :func:`on_device`."""
        return type(self)(*[on_device(part, device) for part in vars(self).values()])

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
