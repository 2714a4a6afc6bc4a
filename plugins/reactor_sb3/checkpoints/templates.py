"""Templates: what a checkpoint may hold, entry by entry.

What is written has passed the templates that it is read by: there is no file of ours that we refuse. And a file can say anything.
Nothing in it becomes an attribute, a size or a position before it has been compared with its template, and what is to be made new
is first held against what the file really contains.

A template is

* an :class:`ArrayOf`, a :class:`Kind`, or :class:`Each` for a list of any length;
* a dict of templates with the same keys, a list or tuple of templates with the same length;
* a class, of which the value has to be;
* a function that is given the value and its name, and checks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from reactor_sb3.checkpoints.archive import CorruptError

__all__ = [
    "ANYTHING", "COUNT", "LARGE", "NUMBER", "REAL", "ArrayOf", "Each", "Kind", "check", "exactly", "like", "stream",
    "want", "whole",
]  # fmt: skip

LARGE = 2**62
"""Whole numbers in a document are below it: sums and differences of two of them still fit into 64 bits."""


class Kind(NamedTuple):
    """Values of which some function says whether they fit.

    Attributes:
        said: What they are, in words.
        fits: The function.
    """

    said: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class ArrayOf:
    """Arrays or tensors of one shape and dtype.

    Attributes:
        kind: ``"array"`` or ``"tensor"``.
        dtype: Their dtype.
        shape: Their shape.
    """

    kind: str
    dtype: Any
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Any) -> ArrayOf:
        """Describe an array or a tensor."""
        return cls("tensor" if isinstance(value, torch.Tensor) else "array", value.dtype, tuple(value.shape))

    def fits(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return _is_array(value) and ArrayOf.of(value) == self

    def __str__(self) -> str:
        return f"{_a(str(self.dtype).removeprefix('torch.'))} {self.kind} of shape {self.shape}"


@dataclass(frozen=True)
class Each:
    """Lists of any length.

    Attributes:
        item: The template of each of their items.
    """

    item: Any


def check(value: Any, template: Any, name: str) -> None:
    """Refuse a value that does not fit a template.

    Args:
        value: The value in a file, or that is to be in one.
        template: See above.
        name: Of the value, for the error.

    Raises:
        CorruptError: If it does not. Says what it must be, and is.
    """
    match template:
        case Kind(said, fits):
            want(fits(value), name, said, value)
        case ArrayOf():
            want(template.fits(value), name, template, value)
        case Each(item):
            want(type(value) is list, name, "a list", value)
            for number, part in enumerate(value):
                check(part, item, f"{name}.{number}")
        case dict():
            want(type(value) is dict and value.keys() == template.keys(), name, f"a dict of {_listed(template)}", value)
            for key, part in value.items():
                check(part, template[key], f"{name}.{key}")
        case list() | tuple():
            kind, length = type(template), len(template)
            want(type(value) is kind and len(value) == length, name, f"a {kind.__name__} of {length} values", value)
            for number, (part, one) in enumerate(zip(value, template, strict=True)):
                check(part, one, f"{name}.{number}")
        case type():
            want(type(value) is template, name, "None" if template is type(None) else _a(template.__name__), value)
        case _:
            template(value, name)


def want(holds: bool, name: str, said: Any, value: Any) -> None:
    """Refuse a value, unless it is what it must be.

    Raises:
        CorruptError: If it is not.
    """
    if not holds:
        raise CorruptError(f"{name} must be {said}, got {_described(value)}")


def like(fresh: Any) -> Any:
    """The template of what has the kind, keys, length, shape and dtype of a fresh value; numbers may differ."""
    match fresh:
        case torch.Tensor() | np.ndarray():
            return ArrayOf.of(fresh)
        case float():  # an infinite one stays as it is
            return Kind("a number", lambda value: _is_number(value) or (type(value) is float and value == fresh))
        case dict():
            return {key: like(part) for key, part in fresh.items()}
        case list() | tuple():
            return type(fresh)([like(part) for part in fresh])
    return type(fresh)


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, torch.Tensor))


def _is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) < LARGE) or (type(value) is float and math.isfinite(value))


def _described(value: Any) -> str:
    if _is_array(value):
        return str(ArrayOf.of(value)) if value.ndim else repr(value)[:200]
    return f"a dict of {_listed(value)}" if type(value) is dict else repr(value)[:200]


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" else f"a {word}"


def _listed(keys: Any) -> str:
    return ", ".join(map(str, keys))[:400] or "nothing"


# ---------------------------------------------------------------------- those that many entries have


def whole(low: int, below: int = LARGE) -> Kind:
    """Whole numbers from ``low`` on."""
    said = f"a whole number from {low} on" if below == LARGE else f"a whole number from {low} to {below - 1}"
    return Kind(said, lambda value: type(value) is int and low <= value < below)


def exactly(value: Any) -> Kind:
    """One value."""
    return Kind(repr(value), lambda other: type(other) is type(value) and other == value)


ANYTHING = Kind("anything", lambda _: True)
COUNT = whole(0)
"""How many of something there are."""
NUMBER = Kind("a finite number", _is_number)
REAL = Kind("a number", lambda value: type(value) in (int, float))


def stream(value: Any, name: str) -> None:
    """Template of the state of a random stream."""
    generator = np.random.PCG64()
    check(value, like(dict(generator.state)), name)
    try:
        generator.state = value
    except (ValueError, TypeError, OverflowError) as error:
        raise CorruptError(f"{name} must be the state of a PCG64, got {_described(value)}: {error}") from error
