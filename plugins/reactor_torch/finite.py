"""Check that networks answer finite numbers: ``argmax`` makes an action even of the NaN of a spoilt network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy import vdot
from torch import nn

__all__ = ["naming_spoilt", "refuse_spoilt", "spoilt_parameter", "spoilt_rows"]

Array = npt.NDArray[Any]


def spoilt_rows(numbers: Array, scores: bool = False) -> Array | None:
    """The rows that are not finite, ``(rows,)``, bool; ``None`` if all are.

    Args:
        numbers: Outputs of a network, ``(rows, ...)``.
        scores: Whether they are what one of several choices is made by: -inf is one that is forbidden then, unless all are.
    """
    # Their sum of squares takes half the time of np.isfinite, and other products than this one warn of what overflows.
    if numbers.dtype.kind != "f" or isfinite(vdot(numbers, numbers)):
        return None
    rows = numbers.reshape(len(numbers), -1)
    spoilt = np.logical_not(np.isfinite(rows.max(1)) if scores else np.isfinite(rows).all(1))
    return spoilt if spoilt.any() else None


def spoilt_parameter(module: nn.Module) -> str:
    """The name of the first parameter of a network that has a NaN or an infinite number; empty if none has."""
    with torch.no_grad():
        for name, one in module.named_parameters():
            if one.is_floating_point() and not bool(torch.isfinite(one).all()):
                return name
    return ""


def refuse_spoilt(module: nn.Module, policy: str) -> None:
    """Refuse a policy whose weights are not finite numbers, where what it chooses by cannot be seen.

    Raises:
        ValueError: Naming it and its weights.
    """
    found = spoilt_parameter(module)
    if found:
        raise ValueError(f"{policy} cannot act: its weights {found!r} are not finite numbers")


@contextlib.contextmanager
def naming_spoilt(module: nn.Module, policy: str) -> Iterator[None]:
    """Name the policy in place of what torch's distributions raise of NaN, whose words are of their own parameters.

    Args:
        module: The policy that is asked in the ``with`` block.
        policy: What it is called, for the message.

    Raises:
        ValueError: Naming it and its weights.
    """
    try:
        yield
    except ValueError as error:
        refuse_spoilt(module, policy)
        if policy not in str(error):
            error.add_note(f"in {policy}")
        raise
