"""The one way to check what a checkpoint holds: comparing it with what is fresh, when it is written and when it is read.

What is written has passed the templates that it is read by: there is no file of ours that we refuse. And a file can say anything.
Nothing in it becomes an attribute, a size or a position before it has been compared with what is there
already, and what is to be made new is first held against what the file really contains; see
:mod:`reactor_sb3.checkpoints.expected`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reactor_sb3.checkpoints.archive import CorruptError

__all__ = ["LARGE", "Each", "Unlike", "alike", "anything", "at_least", "is_count", "is_number", "is_stream", "want", "writable"]

LARGE = 2**62


@dataclass(frozen=True)
class Each:
    """Stands for a list of any length.

    Attributes:
        item: The template of each of its items.
    """

    item: Any


_UNKNOWN = object()


class Unlike(CorruptError):
    """A value that cannot have been saved.

    Attributes:
        what: Its name.
        value: What it is, if that is known.
    """

    def __init__(self, what: str, value: Any = _UNKNOWN) -> None:
        super().__init__(f"{what} cannot have been saved")
        self.what, self.value = what, value


def want(holds: bool, what: str, value: Any = _UNKNOWN) -> None:
    """Say that something is not as it would have been saved, unless it is.

    Raises:
        Unlike: If it is not.
    """
    if not holds:
        raise Unlike(what, value)


@contextlib.contextmanager
def writable(owner: str) -> Iterator[None]:
    """In the block something is held against templates that is about to be written.

    Raises:
        TypeError: If it does not fit, naming it.
    """
    try:
        yield
    except Unlike as error:
        value = "something else than when it was made" if error.value is _UNKNOWN else repr(error.value)[:200]
        raise TypeError(
            f"a checkpoint of this {owner} could not be read again: {error.what} is {value}. Nothing was written"
        ) from None


def alike(saved: Any, fresh: Any, what: str) -> None:
    """Refuse a value that is not of the kind, the keys, the length, the shape and the dtype of a fresh one; numbers may differ.

    Args:
        saved: The value in a file, or that is to be in one.
        fresh: The value of a fresh trainer in its place. A function anywhere in it says of the value there whether it fits, and
            :class:`Each` stands for a list of any length.
        what: Name of the value, for the error.

    Raises:
        Unlike: If it is not.
    """
    match fresh:
        case Each(item):
            want(type(saved) is list, what, saved)
            for number, part in enumerate(saved):
                alike(part, item, f"{what}.{number}")
        case float():
            want(is_number(saved) or (type(saved) is float and saved == fresh), what, saved)  # infinite, perhaps
        case np.ndarray() | torch.Tensor():
            want(type(saved) is type(fresh) and saved.shape == fresh.shape and saved.dtype == fresh.dtype, what, _Described(saved))
        case dict():
            want(type(saved) is dict, what, saved)
            want(saved.keys() == fresh.keys(), what, _Keys(saved, fresh))
            for key, part in saved.items():
                alike(part, fresh[key], f"{what}.{key}")
        case list() | tuple():
            want(type(saved) is type(fresh) and len(saved) == len(fresh), what, saved)
            for part, like in zip(saved, fresh, strict=True):
                alike(part, like, what)
        case _ if callable(fresh):
            want(fresh(saved), what, saved)
        case _:
            want(type(saved) is type(fresh), what, saved)


class _Described:
    """The words of an error for an array: its dtype and shape."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = self.value
        arrays = isinstance(value, (np.ndarray, torch.Tensor))
        return f"{value.dtype} of shape {tuple(value.shape)}" if arrays else repr(value)


class _Keys:
    """The words of an error for a dict with other keys."""

    def __init__(self, saved: dict[Any, Any], fresh: dict[Any, Any]) -> None:
        self.more, self.less = ([str(key) for key in one if key not in other] for one, other in ((saved, fresh), (fresh, saved)))

    def __repr__(self) -> str:
        more, less = (", ".join(keys) or "nothing" for keys in (self.more, self.less))
        return f"a dict with {more} more and {less} less"


# ---------------------------------------------------------------------- what stands for a value that may be another


def anything(value: Any) -> bool:
    """A value of any kind."""
    return True


def is_number(value: Any) -> bool:
    """Whether it is a finite number, of usual size if it is a whole one."""
    return (type(value) is int and abs(value) < LARGE) or (type(value) is float and math.isfinite(value))


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
