"""Serialising values so that no two reactors ever share one, and so that any worker can load them.

Numbers, strings, bytes, booleans and None cannot be changed and travel as they are; anything else as a pickle.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle

from reactor_rl.by_value import loads

__all__ = ["IMMUTABLE", "KEPT", "Handed", "Pickled", "decode", "dumps", "encode", "loads"]

IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


class Pickled:
    """The pickle of a value."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Pickled, (self.data,)


class Handed:
    """A value that whoever made it keeps nothing of, for one reader, who is given it as it is where both are on one worker."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_is, (self.value,)


def _as_it_is(value: Any) -> Any:
    return value


KEPT = IMMUTABLE | {Pickled, Handed}
"""Types whose values are kept as they are."""


def dumps(value: Any) -> bytes:
    """Pickle a value so that any worker can load it, whatever ``__main__`` is there."""
    try:
        data = pickle.dumps(value, protocol=5)
        if b"__main__" not in data:
            return data
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    return cloudpickle.dumps(value)  # type: ignore[no-any-return]


def encode(value: Any) -> Any:
    """What is kept of a value: itself if nobody can change it or it has been encoded already, else its pickle."""
    return value if type(value) in KEPT else Pickled(dumps(value))


def decode(kept: Any) -> Any:
    """The reader's own copy of a value."""
    if type(kept) is Pickled:
        return loads(kept.data)
    return kept.value if type(kept) is Handed else kept
