"""Minibatches: what they are made of, row by row, may be cut and put in another order."""

from __future__ import annotations

from typing import Any, Self

import torch

__all__ = ["Batch", "some_rows"]


def some_rows(part: Any, rows: slice | torch.Tensor) -> Any:
    """Some of the rows of a tensor, or of each one in a dict: a view for a slice, a copy in the order of indices. Numbers stay."""
    if isinstance(part, torch.Tensor):
        return part[rows] if isinstance(rows, slice) else torch.index_select(part, 0, rows)
    return {key: some_rows(value, rows) for key, value in part.items()} if isinstance(part, dict) else part


class Batch:
    """The common part of classes of minibatches: dataclasses of tensors ``(rows, ...)``, dicts of such, and numbers."""

    actions: torch.Tensor

    def __getitem__(self, rows: slice | torch.Tensor) -> Self:
        """Some of the rows: views for a slice, copies in the order of indices."""
        return type(self)(*[some_rows(part, rows) for part in vars(self).values()])

    def __len__(self) -> int:
        return self.actions.shape[0]
