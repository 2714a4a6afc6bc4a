"""What a learner does with what its shards have computed."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reactor_torch.batches import Batch
from reactor_torch.flat import FlatParameters
from reactor_torch.sharing import SharedLosses
from reactor_torch.updater import UpdaterTask


@dataclass
class Numbers(Batch):
    observations: torch.Tensor
    actions: torch.Tensor


def shared(slices: int, own: bool, number: float = 0.0) -> tuple[SharedLosses, FlatParameters, UpdaterTask]:
    """A loss with one gradient and one statistic, which are this number, and a task of it."""
    module = nn.Linear(1, 1, bias=False)
    flat = FlatParameters(module.named_parameters())

    def gradients(batch: Any, of: int) -> Any:
        flat.gradients.fill_(number)
        return np.array([number], np.float32)

    loss: Any = SimpleNamespace(
        flat=flat, reads=(), follows=(), statistics=("sum",), settings=(), moving=(), ignores=(), gradients=gradients
    )
    batch = Numbers(torch.zeros(6, 1), torch.zeros(6, 1))
    return SharedLosses([loss], [0], module, batch, slices, own), flat, UpdaterTask(0, batch, slice(0, 6))


@pytest.mark.parametrize("own", [True, False])
def test_what_comes_back_is_added_in_the_order_of_slices(own: bool) -> None:
    summands = np.array([1e8, -1e8, 1], np.float32)  # in any other order the sum is another one
    losses, flat, task = shared(3, own, float(summands[0]))
    losses.compute(task, torch.zeros(0))
    computed = np.zeros((losses.shards, 16), np.float32)
    computed[:, :2] = summands[own:, None]
    assert losses.add(task, computed).tolist() == [1]
    assert flat.gradients.tolist() == [1]


def test_statistics_of_one_slice_are_not_a_view_of_what_comes_back_next() -> None:
    losses, _, task = shared(1, False)
    computed = np.full((1, 16), 3, np.float32)
    statistics = losses.add(task, computed)
    computed.fill(5)
    assert statistics.tolist() == [3]
