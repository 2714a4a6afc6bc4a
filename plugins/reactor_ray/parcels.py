"""How messages travel as arguments and results of Ray's calls.

Ray sends what is below 100 KiB along with a call, and takes the rest through its object store, which costs some ten times a call.
So a message is one pickle, cut into pieces that go along with the call; that wins up to about two megabytes. Larger arrays are put
into the store, once for all who read them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reactor_rl.plugin import needs

with needs("ray", 'executor="ray"'):
    import ray

__all__ = ["LARGE", "PIECE", "Parcel", "Store", "fitted", "pieces_of", "unpacked", "whole"]

PIECE = 90_000
"""Bytes of a piece: below Ray's ``max_direct_call_object_size`` of 100 KiB, whatever it adds."""
LARGE = 2_000_000
"""Bytes of an array from which on it goes through the object store."""


class Parcel(NamedTuple):
    """A message as it travels.

    Attributes:
        pieces: Of its pickle, one after the other.
        large: What holds its large arrays, in order: references when sent, the arrays' bytes when it has come.
    """

    pieces: tuple[bytes, ...]
    large: tuple[Any, ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """For a call: how many pieces there are, and all of it. Ray exchanges references for what they stand for."""
        return len(self.pieces), *self.pieces, *self.large


class Store:
    """Large arrays of one tick, each put into the object store once."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Any, Any]] = {}  # the arrays too, lest others come to lie where they were

    def pack(self, message: Any) -> Parcel:
        """A message for somebody, whose large arrays may be those of messages for others."""
        large: list[Any] = []

        def in_band(buffer: pickle.PickleBuffer) -> bool:
            raw = np.frombuffer(buffer.raw(), np.uint8)
            if raw.nbytes < LARGE:
                return True
            large.append(self._reference(raw))
            return False

        data = pickle.dumps(message, protocol=5, buffer_callback=in_band)
        return Parcel(pieces_of(data), tuple(large))

    def _reference(self, raw: np.ndarray[Any, Any]) -> Any:
        key = (raw.ctypes.data, raw.nbytes)
        if key not in self._kept:
            self._kept[key] = ray.put(raw), raw
        return self._kept[key][0]


def pieces_of(data: bytes) -> tuple[bytes, ...]:
    """Cut a pickle, which has one piece at least; one that is too long for that to pay stays whole."""
    if not PIECE < len(data) < LARGE:
        return (data,)
    return tuple(data[at : at + PIECE] for at in range(0, len(data), PIECE))


def fitted(data: bytes, results: int) -> Any:
    """An answer as that many results of a call, the last ones empty if it is shorter, and the last one long if it is longer."""
    pieces = pieces_of(data)
    if results == 1:
        return data
    if len(pieces) > results:
        return *pieces[: results - 1], b"".join(pieces[results - 1 :])
    return *pieces, *(b"" for _ in range(results - len(pieces)))


def whole(pieces: Sequence[bytes]) -> bytes:
    """The answer again."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def unpacked(arguments: Sequence[Any]) -> Any:
    """The message, from :attr:`Parcel.arguments` as they arrive."""
    count, *rest = arguments
    pieces, large = rest[:count], rest[count:]
    return pickle.loads(whole(pieces), buffers=large)
