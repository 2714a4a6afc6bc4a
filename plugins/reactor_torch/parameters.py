"""The parameters of a network as one fixed record: what travels from the learner to the actors.

One array port carries it, and every parameter of an actor's network is a view of what the learner has written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

__all__ = [
    "FILLING",
    "ParameterWriter",
    "computed_in",
    "first_names",
    "packed",
    "parameter_record",
    "tensors_of",
    "write_parameters",
]

Array = npt.NDArray[Any]
FILLING = "(filling)"
"""The name of the field that rounds a record up to a whole number of cache lines."""
LINE = 64
"""Bytes of a cache line of x86-64 and most ARMs. Where it is another, only speed is lost."""


def packed(fields: list[tuple[str, np.dtype[Any], tuple[int, ...]]]) -> np.dtype[Any]:
    """A record without gaps (a fingerprint would see what is in them), whose fields are aligned nevertheless: wide ones first.

    It is a whole number of cache lines long: in an array of records each field then always lies alike, which the last bits of what
    linear algebra computes from it depend on.
    """
    # sorted() keeps the order of equal ones, so that parameters that follow each other in memory do so here.
    ordered = sorted(fields, key=lambda field: -field[1].itemsize)
    size = np.dtype(ordered).itemsize
    return np.dtype([*ordered, (FILLING, np.uint8, (-size % LINE,))] if size % LINE else ordered)


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a network, all of them, each by its first name: what is shared has several.

    Raises:
        ValueError: If a module has an extra state, which is no tensor.
    """
    names = first_names(module)
    state = _all_tensors(module)
    return {name: tensor for name, tensor in state.items() if names[name] == name}


def first_names(module: nn.Module) -> dict[str, str]:
    """For each name of a parameter or buffer the first name of the same tensor."""
    firsts: dict[int, str] = {}
    return {name: firsts.setdefault(id(tensor), name) for name, tensor in _all_tensors(module).items()}


def _all_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    state: dict[str, Any] = module.state_dict(keep_vars=True)
    for name, one in state.items():
        if not isinstance(one, torch.Tensor):
            raise ValueError(
                f"{name!r} is no tensor, but the extra state of a module (get_extra_state), of which actors would not be told: "
                "keep it as a buffer (register_buffer)"
            )
    return {**state, **{name: one for name, one in module.named_buffers(remove_duplicate=False) if name not in state}}


def computed_in(module: nn.Module) -> dict[int, Any]:
    """Copy what torch does not copy, because it was computed: a memo for :func:`copy.deepcopy`, copies by ``id``.

    Tensors that modules keep are cut off from autograd's graph. SB3's distributions forget their last actions.
    """
    values = [value for part in module.modules() for value in vars(part).values() if isinstance(value, torch.Tensor)]
    memo: dict[int, Any] = {id(value): value.detach().clone() for value in values if value.grad_fn is not None}
    for part in module.modules():
        known = getattr(part, "action_dist", None)
        if known is not None:
            memo[id(known)] = distribution = copy.copy(known)
            vars(distribution).clear()
            vars(distribution).update((name, value) for name, value in vars(known).items() if not _is_computed(value))
    return memo


def _is_computed(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return any(isinstance(part, torch.Tensor | torch.distributions.Distribution) for part in parts)


def parameter_record(state: Mapping[str, torch.Tensor]) -> np.dtype[Any]:
    """The parameters and buffers of a network, by name.

    Raises:
        TypeError: If NumPy has no numbers of the type of one.
    """
    return packed([(name, _numpy_type(name, tensor.dtype), tuple(tensor.shape)) for name, tensor in state.items()])


def _numpy_type(name: str, dtype: torch.dtype) -> np.dtype[Any]:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype  # other packages teach NumPy the names of types that torch cannot share
    except TypeError:
        raise TypeError(
            f"{name!r} is {dtype}, and what actors get has to be of a type that NumPy has, too: use torch.float32"
        ) from None


def write_parameters(record: Array, state: Mapping[str, torch.Tensor]) -> None:
    """Fill a record, or some of its fields, with parameters and buffers."""
    if FILLING in (record.dtype.names or ()):
        record[FILLING] = 0
    with torch.no_grad():
        for name, tensor in state.items():
            torch.from_numpy(record[name]).copy_(tensor)


class ParameterWriter:
    """Fills a record with parameters again and again.

    What lies in one piece both in memory and in the record is one copy, as :class:`~reactor_torch.FlatParameters` do.

    Args:
        state: What the record has fields for, by name. Parameters are looked at again each time; what else there is (buffers)
            may be another tensor by then, and is left to others.
        record: The type of the record.

    Attributes:
        parameters: Names of what is written.
    """

    def __init__(self, state: Mapping[str, torch.Tensor], record: np.dtype[Any]) -> None:
        fields: Any = record.fields
        found = {name: tensor for name, tensor in state.items() if isinstance(tensor, nn.Parameter)}
        self.parameters = tuple(sorted(found, key=lambda name: fields[name][1]))
        self._filling = fields[FILLING][1] if FILLING in fields else record.itemsize
        self._offsets = [fields[name][1] for name in self.parameters]
        self._tensors = [found[name] for name in self.parameters]
        self._pointers: list[int] = []
        self._pieces: list[tuple[slice, torch.Tensor]] = []

    def write(self, record: Array) -> None:
        """Fill the fields of parameters."""
        pointers = [tensor.data_ptr() for tensor in self._tensors]
        # Pieces keep the memory that they are views of, so an address cannot come back as that of another tensor.
        if pointers != self._pointers:
            self._pointers, self._pieces = pointers, self._found()
        target = torch.from_numpy(record.reshape(1).view(np.uint8))
        for where, piece in self._pieces:
            target[where].view(piece.dtype).view(piece.shape).copy_(piece)
        target[self._filling :].zero_()

    def _found(self) -> list[tuple[slice, torch.Tensor]]:
        """Where in a record the pieces go, in bytes, and the pieces."""
        pieces: list[tuple[slice, torch.Tensor]] = []
        for offset, parameter in zip(self._offsets, self._tensors, strict=True):
            tensor, end = parameter.detach(), offset + parameter.nbytes
            if pieces and pieces[-1][0].stop == offset and _follows(tensor, pieces[-1][1]):
                where, piece = pieces[-1]
                pieces[-1] = slice(where.start, end), piece.as_strided((piece.numel() + tensor.numel(),), (1,))
            else:
                pieces.append((slice(offset, end), tensor))
        return pieces


def _follows(tensor: torch.Tensor, piece: torch.Tensor) -> bool:
    """Whether a tensor begins in memory where a piece ends."""
    return (
        tensor.dtype == piece.dtype
        and tensor.is_contiguous()
        and piece.is_contiguous()
        and tensor.data_ptr() == piece.data_ptr() + piece.nbytes
        and tensor.untyped_storage().data_ptr() == piece.untyped_storage().data_ptr()
    )
