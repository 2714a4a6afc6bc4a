"""Parameters arrive in records whole, whether they lie in one piece or not, and whatever has become of them meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch import FILLING, FlatParameters, ParameterWriter, parameter_record, write_parameters


def dirty(state: dict[str, torch.Tensor]) -> npt.NDArray[Any]:
    layout = parameter_record(state)
    return np.full(layout.itemsize, 255, np.uint8).view(layout).reshape(())


def check(record: npt.NDArray[Any], state: dict[str, torch.Tensor]) -> None:
    expected = dirty(state)
    write_parameters(expected, state)
    for name, tensor in state.items():
        assert np.array_equal(expected[name], tensor.detach().numpy())
    assert record.tobytes() == expected.tobytes()


def test_flat_ones_are_one_copy_and_any_others_are_written_too() -> None:
    module = nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 2, bias=False), nn.LayerNorm(2))
    module[2].weight.data = torch.randn(7, 2).T  # its rows lie across
    state = module.state_dict(keep_vars=True)
    record = dirty(state)
    writer = ParameterWriter(state, record.dtype)
    assert set(writer.parameters) == set(state) and record[FILLING].any()
    writer.write(record)
    check(record, state)
    flat = FlatParameters(module.named_parameters())
    flat.data.normal_()
    writer.write(record)
    check(record, state)
    assert len(writer._pieces) == 1
    module[0].bias.data = torch.randn(7)  # no view of the array any more
    writer.write(record)
    check(record, state)
    assert len(writer._pieces) == 3
    flat.bind()
    writer.write(record)
    check(record, state)
    assert len(writer._pieces) == 1


def test_memory_in_another_order_is_several_copies() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))
    flat = FlatParameters(reversed(list(module.named_parameters())))
    flat.data.normal_()
    state = module.state_dict(keep_vars=True)
    record = dirty(state)
    writer = ParameterWriter(state, record.dtype)
    writer.write(record)
    check(record, state)
    assert len(writer._pieces) == 4


def test_buffers_are_left_to_others() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    state = module.state_dict(keep_vars=True)
    record = dirty(state)
    writer = ParameterWriter(state, record.dtype)
    assert [name for name in state if name not in writer.parameters] == [
        "1.running_mean", "1.running_var", "1.num_batches_tracked",
    ]  # fmt: skip
    writer.write(record)
    assert np.isnan(record["1.running_mean"]).all()
    write_parameters(record, {name: tensor for name, tensor in state.items() if name not in writer.parameters})
    check(record, state)


def test_no_gap_is_left_at_the_end() -> None:
    state = {"one": nn.Parameter(torch.randn(3))}
    record = dirty(dict(state))
    ParameterWriter(state, record.dtype).write(record)
    assert record.dtype.itemsize == 64 and record[FILLING].tolist() == [0] * (64 - 3 * 4)
