"""The one way to check what a checkpoint holds: comparing it with what is fresh.

A file can say anything. Nothing in it becomes an attribute, a size or a position before it has been compared with what is there
already, and what is to be made new is first held against what the file really contains; see
:mod:`reactor_sb3.checkpoints.expected`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reactor_sb3.checkpoints.archive import CorruptError

__all__ = ["LARGE", "Each", "alike", "anything", "at_least", "is_count", "is_number", "is_stream", "want"]

LARGE = 2**62


@dataclass(frozen=True)
class Each:
    """Stands for a list of any length.

    Attributes:
        item: The template of each of its items.
    """

    item: Any


def want(holds: bool, what: str) -> None:
    """Say that something is not as it would have been saved, unless it is.

    Raises:
        CorruptError: If it is not.
    """
    if not holds:
        raise CorruptError(f"{what} cannot have been saved")


def alike(saved: Any, fresh: Any, what: str) -> None:
    """Refuse a value that is not of the kind, the keys, the length, the shape and the dtype of a fresh one; numbers may differ.

    Args:
        saved: The value in a file.
        fresh: The value of a fresh trainer in its place. A function anywhere in it says of the value there whether it fits, and
            :class:`Each` stands for a list of any length.
        what: Name of the value, for the error.

    Raises:
        CorruptError: If it is not.
    """
    match fresh:
        case Each(item):
            want(type(saved) is list, what)
            for number, part in enumerate(saved):
                alike(part, item, f"{what}.{number}")
        case float():
            want(is_number(saved), what)
        case np.ndarray() | torch.Tensor():
            want(type(saved) is type(fresh) and saved.shape == fresh.shape and saved.dtype == fresh.dtype, what)
        case dict():
            want(type(saved) is dict and saved.keys() == fresh.keys(), what)
            for key, part in saved.items():
                alike(part, fresh[key], f"{what}.{key}")
        case list() | tuple():
            want(type(saved) is type(fresh) and len(saved) == len(fresh), what)
            for part, like in zip(saved, fresh, strict=True):
                alike(part, like, what)
        case _ if callable(fresh):
            want(fresh(saved), what)
        case _:
            want(type(saved) is type(fresh), what)


# ---------------------------------------------------------------------- what stands for a value that may be another


def anything(value: Any) -> bool:
    """A value of any kind."""
    return True


def is_number(value: Any) -> bool:
    """Whether it is a finite number of usual size."""
    return type(value) in (int, float) and abs(value) < LARGE and math.isfinite(value)


def is_count(value: Any, low: int = 0) -> bool:
    """Whether it is a whole number from ``low`` on."""
    return type(value) is int and low <= value < LARGE


def at_least(low: int) -> Callable[[Any], bool]:
    """Whether a value is a whole number from ``low`` on."""
    return lambda value: is_count(value, low)


def is_stream(value: Any) -> bool:
    """Whether it is the state of a random stream.

    Raises:
        CorruptError, ValueError: If it is not.
    """
    generator = np.random.PCG64()
    alike(value, dict(generator.state), "a random stream")
    generator.state = value
    return True
