"""Values as plain data: what JSON can hold is in the document of an archive, arrays and pickles are in entries of their own."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from reactor_rl.plugin import Pickled
from reactor_sb3.checkpoints.archive import Archive, CorruptError
from reactor_sb3.plain import plain

__all__ = ["Bag", "check_written", "take"]

Array = npt.NDArray[Any]
_PLAIN = (type(None), bool, int, float, str)


class Bag:
    """The content of an archive that is to be written, value by value.

    Attributes:
        arrays: By name.
        pickles: By name.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.pickles: dict[str, bytes] = {}

    def put(self, name: str, value: Any) -> Any:
        """Keep a value. Returns what stands for it in the document."""
        while name in self.arrays or name in self.pickles:  # keys may be 1 and "1", or have dots
            name += "'"
        if isinstance(value, torch.Tensor):
            self.arrays[name] = value.detach().cpu().numpy()
            return {"tensor": name}
        if type(value) is np.ndarray and not value.dtype.hasobject and value.dtype.itemsize:
            self.arrays[name] = value
            return {"array": name}
        value = plain(value) if isinstance(value, np.generic) else value
        if type(value) in _PLAIN:
            return {"is": value}
        if type(value) in (list, tuple):
            parts = [self.put(f"{name}.{number}", part) for number, part in enumerate(value)]
            return {type(value).__name__: parts}
        if type(value) is dict and all(type(key) in (str, int) for key in value):
            return {"dict": [[key, self.put(f"{name}.{key}", part)] for key, part in value.items()]}
        if type(value) is Pickled:  # stays one when it is taken out: whoever gets it knows what is in it
            self.pickles[name] = value.data
            return {"pickled": name}
        self.pickles[name] = cloudpickle.dumps(value)
        return {"pickle": name}


def check_written(written: Any) -> None:
    """Refuse what cannot stand for a value, without reading any array or pickle.

    Raises:
        CorruptError: If it cannot.
    """
    if type(written) is not dict or len(written) != 1:
        raise CorruptError("a value is not one kind with its content")
    ((kind, value),) = written.items()
    match kind, value:
        case "list" | "tuple", list():
            parts = value
        case "dict", list() if all(type(pair) is list and len(pair) == 2 and type(pair[0]) in (str, int) for pair in value):
            parts = [part for _, part in value]
        case "is", _ if type(value) in _PLAIN:
            parts = []
        case "tensor" | "array" | "pickle" | "pickled", str():
            parts = []
        case _:
            raise CorruptError(f"a checkpoint cannot hold {str(kind)[:100]!r} of {type(value).__name__}")
    for part in parts:
        check_written(part)


def take(written: Any, archive: Archive) -> Any:
    """The inverse of :meth:`Bag.put`.

    Raises:
        CorruptError: If no value could have become this.
        RefusedError: If it needs a pickle and the archive must not have any.
        ImportError: If a pickle needs what cannot be imported here.
    """
    if type(written) is not dict or len(written) != 1:
        raise CorruptError("a value is not one kind with its content")
    ((kind, value),) = written.items()
    match kind, value:
        case "is", _ if type(value) in _PLAIN:
            return value
        case "tensor", str():
            return torch.from_numpy(archive.array(value))
        case "array", str():
            return archive.array(value)
        case "list", list():
            return [take(part, archive) for part in value]
        case "tuple", list():
            return tuple([take(part, archive) for part in value])
        case "dict", list():
            return _dict(value, archive)
        case "pickled", str():
            return Pickled(archive.pickled(value))
        case "pickle", str():
            data = archive.pickled(value)
            try:
                return pickle.loads(data)
            except AttributeError as error:
                raise ImportError(f"a checkpoint needs what is not defined here: {error}") from error
    raise CorruptError(f"a checkpoint cannot hold {str(kind)[:100]!r} of {type(value).__name__}")


def _dict(pairs: list[Any], archive: Archive) -> dict[Any, Any]:
    taken: dict[Any, Any] = {}
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, int) or pair[0] in taken:
            raise CorruptError("a dict is not made of keys, each of them once, and values")
        taken[pair[0]] = take(pair[1], archive)
    return taken
