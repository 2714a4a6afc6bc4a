"""The parameters of a network as one fixed record: what travels from the learner to the actors.

One array port carries it, and every parameter of an actor's network is a view of what the learner has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["FILLING", "packed", "parameter_record", "tensors", "write_parameters"]

Array = npt.NDArray[Any]
FILLING = "(filling)"
"""What rounds a record up to a whole number of cache lines."""
LINE = 64
"""Bytes of a cache line."""


def packed(fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> np.dtype[Any]:
    """A record without gaps (a fingerprint would see what is in them), whose fields are aligned nevertheless: wide ones first.

    It is a whole number of cache lines long: in an array of records each field then always lies alike, which the last bits of what
    linear algebra computes from it depend on.
    """
    ordered = sorted(fields, key=lambda field: -field[1].itemsize)
    size = np.dtype(ordered).itemsize
    return np.dtype([*ordered, (FILLING, np.uint8, (-size % LINE,))] if size % LINE else ordered)


def parameter_record(state: Mapping[str, torch.Tensor]) -> np.dtype[Any]:
    """The parameters and buffers of a network, by name."""
    return packed(
        [(name, np.dtype(str(tensor.dtype).removeprefix("torch.")), tuple(tensor.shape)) for name, tensor in state.items()]
    )


def tensors(record: Array) -> Iterator[tuple[str, torch.Tensor]]:
    """The fields of a record that may be written, as tensors that share its memory."""
    for name in record.dtype.names or ():
        if name != FILLING:
            yield name, torch.from_numpy(record[name])


def write_parameters(record: Array, state: Mapping[str, torch.Tensor]) -> None:
    """Fill a record with parameters."""
    if FILLING in (record.dtype.names or ()):
        record[FILLING] = 0
    with torch.no_grad():
        for name, target in tensors(record):
            target.copy_(state[name])
