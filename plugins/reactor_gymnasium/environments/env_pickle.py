"""Pickles of live environments that hold their state, or an error."""

from __future__ import annotations

import io
from typing import Any

import cloudpickle
from gymnasium.utils import EzPickle

__all__ = ["pickled"]


def pickled(value: Any) -> bytes:
    """A pickle of live environments and what belongs to them, which ``pickle.loads`` makes again as they are now.

    Raises:
        TypeError: If an object in it would be made anew instead, as at the beginning: those of classes that leave pickling to
            ``EzPickle``, which keeps nothing but the arguments of the constructor. MuJoCo's and Atari's environments are such.
        Exception: What a part of it raises that cannot be pickled.
    """
    out = io.BytesIO()
    _Pickler(out, protocol=5).dump(value)
    return out.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, EzPickle) and type(obj).__getstate__ is EzPickle.__getstate__:
            raise TypeError(
                f"{type(obj).__name__} is an EzPickle, whose pickle keeps the arguments of its constructor and loses its state"
            )
        return super().reducer_override(obj)
