"""Minibatches are the rows that they are said to be, copied where they are few, and seen where they lie where they are many."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reactor_torch import QBatch, TransitionBatch
from reactor_torch.batches import MOST, MinibatchSlicer


def batch_of(rows: int, observations: Any) -> QBatch:
    return QBatch(observations, torch.arange(rows), torch.randn(rows))


@pytest.mark.parametrize("width", [3, MOST])
def test_rows(width: int) -> None:
    cut = MinibatchSlicer()
    first, second = (batch_of(11, torch.randn(11, width)) for _ in range(2))
    given = []
    for batch in (first, second, first):
        for rows in (slice(0, 4), slice(4, 8), slice(8, 11), slice(0, 11)):
            minibatch = cut(batch, rows)
            given.append(minibatch)
            expected = batch[rows]
            for name, part in vars(expected).items():
                found = getattr(minibatch, name)
                assert torch.equal(found, part) and found.dtype == part.dtype, name
            assert len(minibatch) == rows.stop - rows.start
    assert (given[0] is given[1] is given[4]) == (width == 3)  # tensors are made once
    assert given[3] is first
    assert given[0].observations.data_ptr() % 64 == 0


def test_what_is_not_only_tensors_is_cut_as_ever() -> None:
    cut = MinibatchSlicer()
    keyed = batch_of(6, {"a": torch.randn(6, 2), "b": torch.randn(6)})
    assert torch.equal(cut(keyed, slice(2, 4)).observations["a"], keyed.observations["a"][2:4])
    column = torch.randn(6, 1)
    numbered = TransitionBatch(torch.randn(6, 2), column.long(), torch.randn(6, 2), column, column, 0.9)
    minibatch = cut(numbered, slice(1, 3))
    assert minibatch.discounts == 0.9 and torch.equal(minibatch.rewards, column[1:3])
