"""Copies of what environments give: they may write into the same arrays and dicts again, in another environment's step too."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from copy import deepcopy
from typing import Any
from weakref import getweakrefcount

import numpy as np

from reactor_rl.plugin import dumps, loads

__all__ = ["ALONE", "IMMUTABLE", "SOLE", "as_number", "looked_at", "own", "ours_alone", "parts_alone", "same_bits", "shared"]

_NUMBERS = {kind for kind in np.sctypeDict.values() if issubclass(kind, np.number)}
IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None), np.bool_, *_NUMBERS})
"""Types whose values nobody can change."""


def _sole() -> int:
    fresh = object()
    return sys.getrefcount(fresh)


SOLE = _sole()
"""The count of :func:`sys.getrefcount` for an object that one local variable alone refers to."""


class _Holder:
    def __init__(self) -> None:
        self.env = object()


_holder = _Holder()
ALONE = sys.getrefcount(_holder.env)
"""The same for an object that one attribute refers to and nothing else."""
_DICT = sys.getrefcount(vars(_holder))
"""The same for an object's attributes."""


def _counts(values: Iterable[Any]) -> tuple[int, int]:
    """The highest reference counts of some objects, and of what those of them that are arrays are views of."""
    counts, bases = [0], [0]
    for value in values:
        counts.append(sys.getrefcount(value))
        if type(value) is np.ndarray and value.base is not None:
            bases.append(sys.getrefcount(value.base))
    return max(counts), max(bases)


_PART, _BASE = _counts({"view": np.zeros(2)[:1]}.values())


def shared(values: Iterable[Any]) -> bool:
    """Whether somebody refers to one of some objects, or to the memory of an array, besides one container.

    Args:
        values: The container's own iterator: a list of them would be one reference more.
    """
    count, base = _counts(values)
    return count > _PART or base > _BASE


def _arrays_alone(parts: dict[Any, Any], most: int) -> bool:
    """Whether arrays of a dict have so many references at most and memory of their own, and all else in it cannot change."""
    for part in parts.values():
        if type(part) is np.ndarray:
            if sys.getrefcount(part) > most or part.base is not None or part.dtype.hasobject:
                return False
        elif type(part) not in IMMUTABLE:
            return False
    return True


_OF_DICT = next(count for count in range(1, 10) if _arrays_alone({"array": np.zeros(1)}, count))
"""The count of :func:`sys.getrefcount` in there for an array that one dict alone refers to."""


def parts_alone(parts: dict[Any, Any]) -> bool:
    """Whether nobody else can change what is in a dict that nobody else refers to."""
    return _arrays_alone(parts, _OF_DICT)


def looked_at(env: Any) -> bool:
    """Whether somebody may look at an object's attributes without a reference to it that counts."""
    return getweakrefcount(env) > 0 or sys.getrefcount(vars(env)) > _DICT


def ours_alone(outer: Any, besides: int = 0) -> bool:
    """Whether only ``outer`` refers to its ``env``, and nobody has put another ``step`` or ``reset`` on it, so that nobody will.

    Args:
        outer: What has the environment.
        besides: How many references more are known, and harmless.
    """
    if sys.getrefcount(outer.env) > ALONE + besides or looked_at(outer.env):
        return False
    own = vars(outer.env)
    return "step" not in own and "reset" not in own


def own(value: Any) -> Any:
    """A copy of what an environment has returned, which nobody else can change: dicts, lists, tuples and arrays throughout.

    Raises:
        Exception: If something in it can neither be copied nor pickled.
    """
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if kind is dict:
        return {key: part if type(part) in IMMUTABLE else own(part) for key, part in value.items()}
    if kind is tuple:
        return tuple([part if type(part) in IMMUTABLE else own(part) for part in value])
    if kind is list:
        return [part if type(part) in IMMUTABLE else own(part) for part in value]
    try:
        return deepcopy(value)
    except Exception:  # a module, say, which travels to other workers all the same
        return loads(dumps(value))


def as_number(reward: Any) -> Any:
    """A reward as a number; an array of one element may be the environment's own, which it writes into again.

    Raises:
        ValueError: If it is not one number.
    """
    if isinstance(reward, (float, int, np.generic)):
        return reward
    array = np.asarray(reward)
    if array.size != 1:
        raise ValueError(f"the reward must be a number, got {reward!r}")
    return array.item()


def same_bits(a: Any, b: Any) -> bool:
    """Whether two values are the same to the bit. Gymnasium's ``data_equivalence`` takes -0.0 for 0.0, and no NaN for itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return all(map(same_bits, a.flat, b.flat)) if a.dtype.hasobject else bool(a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return bool(a.hex() == b.hex())
    return bool(a == b)
