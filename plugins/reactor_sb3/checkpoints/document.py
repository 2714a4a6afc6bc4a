"""The one document of a checkpoint: who wrote it, and its state as plain data. Arrays and pickles have entries of their own.

A checkpoint of a trainer and a run of one of SB3's own algorithms differ only in what their state is, and in who reads them.
"""

from __future__ import annotations

import os
import pickle
import platform
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import numpy.typing as npt
import stable_baselines3
import torch

import reactor_rl
from reactor_rl.plugin import Pickled
from reactor_sb3.checkpoints import archive
from reactor_sb3.checkpoints.archive import Archive, CorruptError, RefusedError
from reactor_sb3.checkpoints.templates import ANYTHING, check
from reactor_sb3.plain import plain
from reactor_torch import differentiating

__all__ = ["check_format", "read", "take", "warn_if_elsewhere", "write"]

Array = npt.NDArray[Any]
FORMAT = 10
"""Number of the format that files are written in. It goes up whenever a reader of the one before would misread them."""
_PLAIN = (type(None), bool, int, float, str)


def write(
    path: str | os.PathLike[str],
    state: Mapping[str, Any],
    *,
    algorithm: str,
    reader: str,
    timesteps: int,
    environments: Mapping[str, int],
) -> None:
    """Write a checkpoint. Whenever the process ends, what is at ``path`` is the old file or the new one, whole.

    Args:
        path: Where.
        state: Its content.
        algorithm: Name of the algorithm.
        reader: Who goes on with it: ``"SyncDQN.resume()"``.
        timesteps: Steps that were taken.
        environments: How many environments were saved in which way.

    Raises:
        OSError: If it cannot be written.
    """
    content = _Content()
    document = {
        "format": FORMAT, "algorithm": algorithm, "reader": reader, "versions": _versions(), "machine": _machine(),
        "timesteps": timesteps, "environments": dict(environments), "state": content.put("state", dict(state)),
    }  # fmt: skip
    archive.write(path, document, content.arrays, content.pickles)


def read(
    path: str | os.PathLike[str], look: Callable[[Any, int], None], *, reader: str, loader: str, allow_pickle: bool
) -> tuple[dict[str, Any], Any]:
    """Read a checkpoint.

    Args:
        path: Where it is.
        look: Refuses states that cannot have been saved; is given the state and the bytes of the file.
        reader: Who asks, see :func:`write`.
        loader: What loads a file of SB3's ``save()``.
        allow_pickle: Whether checkpoints that hold pickles are read at all.

    Returns:
        The document, and the state.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is damaged or something else.
        ImportError: If a pickle needs what cannot be imported here.
    """
    with archive.opened(path, allow_pickle=allow_pickle, loader=loader) as opened:
        document = opened.document
        check_format(document)
        if document.get("reader") != reader:
            raise RefusedError(f"is a checkpoint of {_named(document, 'algorithm')}: use {_named(document, 'reader')}")
        check(document, _DOCUMENT, archive.DOCUMENT)
        state = take(document["state"], lambda kind, name: _stored(opened, kind, name))
        opened.check_all_read()
        look(state, opened.size)
    return document, state


_DOCUMENT = {
    "format": int, "algorithm": str, "reader": str, "timesteps": int, "environments": dict, "state": ANYTHING,
    "versions": dict.fromkeys(("reactor_rl", "stable_baselines3", "torch", "gymnasium", "numpy"), str),
    "machine": dict.fromkeys(("processor", "vector instructions (torch)", "learner's layers"), str),
}  # fmt: skip


def check_format(document: Mapping[str, Any]) -> None:
    """Refuse what another version has written.

    Raises:
        RefusedError: If it has. Says with which version to go on.
    """
    if document.get("format") == FORMAT:
        return
    wrote = document.get("versions")
    by = f"reactor_rl {_named(wrote, 'reactor_rl')}" if isinstance(wrote, dict) else "another version"
    raise RefusedError(
        f"has the checkpoint format {_named(document, 'format')} of {by}, and this version reads {FORMAT}: finish the "
        "run with that version, or save() its model there and load() that file here"
    )


def _named(document: Mapping[str, Any], name: str) -> str:
    return str(document.get(name))[:100]


# ---------------------------------------------------------------------- what computed


def _versions() -> dict[str, str]:
    """Versions of what computes."""
    return {
        "reactor_rl": reactor_rl.__version__, "stable_baselines3": stable_baselines3.__version__, "torch": str(torch.__version__),
        "gymnasium": gymnasium.__version__, "numpy": np.__version__,
    }  # fmt: skip


def _machine() -> dict[str, str]:
    """The parts of this machine that decide about the last bit of a sum, besides the versions."""
    return {
        "processor": platform.machine(),
        "vector instructions (torch)": torch.backends.cpu.get_cpu_capability(),
        "learner's layers": differentiating(),
    }


def warn_if_elsewhere(path: str | os.PathLike[str], document: Mapping[str, Any], stacklevel: int) -> None:
    """One warning of all that may give other numbers here."""
    now = _versions() | _machine()
    then = document["versions"] | document["machine"]
    different = ", ".join(f"{name} {then[name][:100]} (now {now[name]})" for name in now if then[name] != now[name])
    if different:
        warnings.warn(
            f"{path} was written with {different}; numbers may differ in their last bits from those that an uninterrupted run "
            "would have given there",
            stacklevel=stacklevel + 1,
        )


# ---------------------------------------------------------------------- values as plain data


class _Content:
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


def take(written: Any, stored: Callable[[str, str], Any]) -> Any:
    """The value that stands in a document.

    Args:
        written: What stands for it.
        stored: Called for each array and pickle, with its kind (``"tensor"``, ``"array"``, ``"pickled"``, ``"pickle"``) and name.

    Raises:
        CorruptError: If no value could have become this.
    """
    if type(written) is not dict or len(written) != 1:
        raise CorruptError("a value is not one kind with its content")
    ((kind, value),) = written.items()
    match kind, value:
        case "is", _ if type(value) in _PLAIN:
            return value
        case "tensor" | "array" | "pickled" | "pickle", str():
            return stored(kind, value)
        case "list", list():
            return [take(part, stored) for part in value]
        case "tuple", list():
            return tuple([take(part, stored) for part in value])
        case "dict", list():
            taken: dict[Any, Any] = {}
            for pair in value:
                if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, int) or pair[0] in taken:
                    raise CorruptError("a dict is not made of keys, each of them once, and values")
                taken[pair[0]] = take(pair[1], stored)
            return taken
    raise CorruptError(f"a checkpoint cannot hold {str(kind)[:100]!r} of {type(value).__name__}")


def _stored(opened: Archive, kind: str, name: str) -> Any:
    """An array or pickle of an archive."""
    if kind == "pickled":
        return Pickled(opened.pickled(name))
    if kind == "array":
        return opened.array(name)
    if kind == "tensor":
        return torch.from_numpy(opened.array(name))
    data = opened.pickled(name)
    try:
        return pickle.loads(data)
    except AttributeError as error:
        raise ImportError(f"a checkpoint needs what is not defined here: {error}") from error
