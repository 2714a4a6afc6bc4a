"""What travels between a processor's memory and whatever else there may be: the copies themselves need no other device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reactor_torch.batches import TransitionBatch
from reactor_torch.flat import array_of, get, put


@pytest.mark.parametrize("seen", [array_of, lambda tensor: tensor], ids=["array", "tensor"])
def test_there_and_back(seen: object) -> None:
    """Tensors of a device are asked as tensors, those of a processor as arrays: both give what was put."""
    assert callable(seen)
    given, tensor, back = np.arange(6, dtype=np.float32), torch.zeros(6), np.zeros(8, np.float32)
    given.flags.writeable = False  # as what has arrived at a port
    put(seen(tensor), given)
    get(seen(tensor), back[1:7])
    assert tensor.tolist() == given.tolist() and back.tolist() == [0, *given.tolist(), 0]
    assert (tensor.numpy().base is None) or not np.shares_memory(tensor.numpy(), given)


def test_a_minibatch_on_a_device() -> None:
    """Each tensor, those of a dict too; what is a number, or not needed, stays."""
    batch = TransitionBatch({"a": torch.ones(3, 2)}, torch.ones(3, 1), None, torch.ones(3), torch.ones(3), 0.9)
    there = batch.to(torch.device("meta"))
    assert there.observations["a"].device.type == there.actions.device.type == there.rewards.device.type == "meta"
    assert there.next_observations is None and there.discounts == 0.9 and len(there) == 3
