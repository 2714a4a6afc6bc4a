"""One name for the arithmetic of a loss on either kind of memory: numpy's functions take half the time of torch's to get going."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["array_of", "functions_for", "get", "numbers", "put"]

Array = npt.NDArray[Any]


def functions_for(device: torch.device) -> Any:
    """What has ``exp``, ``multiply``, ... with ``out=``: numpy for a processor's memory, torch for any other."""
    return np if device.type == "cpu" else torch


def array_of(tensor: torch.Tensor) -> Any:
    """A tensor as those functions take it; the memory is shared."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def put(into: Any, values: Array) -> None:
    """Overwrite what :func:`array_of` has given, wherever it lies, by numbers in a processor's memory."""
    if isinstance(into, np.ndarray):
        into[...] = values
    else:
        into.copy_(torch.tensor(values))  # which copies: others may not be written to, and torch warns of views of those


def get(source: Any, out: Array) -> None:
    """Copy what :func:`array_of` has given, from wherever it lies, into a processor's memory."""
    if isinstance(source, np.ndarray):
        out[...] = source
    else:
        torch.from_numpy(out).copy_(source)


def numbers(values: list[Any]) -> npt.NDArray[np.float32]:
    """Scalars of either kind, ``(len(values),)``; waits for the device once."""
    if isinstance(values[0], torch.Tensor):
        return torch.stack([torch.as_tensor(one, dtype=torch.float32) for one in values]).cpu().numpy()
    return np.array(values, np.float32)
