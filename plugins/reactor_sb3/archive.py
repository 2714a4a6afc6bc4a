"""A file of named arrays, one document of plain data, and pickles that are kept apart: written at once or not at all.

It is an ordinary, uncompressed zip. Arrays are ``.npy`` and the document is JSON, so that both load without executing anything;
what only pickle can hold has entries of its own, which the document lists under ``"pickles"``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CorruptError", "read", "write"]

Array = npt.NDArray[Any]
_DOCUMENT = "manifest.json"


class CorruptError(ValueError):
    """A file that is no archive, or not what was written."""


def write(
    path: str | os.PathLike[str], document: Mapping[str, Any], arrays: Mapping[str, Array], pickles: Mapping[str, bytes]
) -> None:
    """Write an archive. Whenever the process ends, what is at ``path`` is the old file or the new one, whole.

    Args:
        path: Where. Its folder is made if there is none.
        document: Plain data.
        arrays: Arrays without objects, by name.
        pickles: Pickled values, by name.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
                archive.writestr(_DOCUMENT, json.dumps({**document, "pickles": sorted(pickles)}))
                for entry, array in arrays.items():
                    with archive.open(f"arrays/{entry}.npy", "w", force_zip64=True) as out:
                        np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
                for entry, data in pickles.items():
                    archive.writestr(f"pickles/{entry}", data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    if os.name == "posix":  # the new name must outlive a power failure too
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path: str | os.PathLike[str], *, allow_pickle: bool) -> tuple[dict[str, Any], dict[str, Array], dict[str, bytes]]:
    """Read an archive; nothing in it is executed.

    Args:
        path: Where it is.
        allow_pickle: Whether archives that hold pickles are read at all.

    Returns:
        The document, the arrays and the pickles.

    Raises:
        FileNotFoundError: If there is none.
        CorruptError: If it is damaged or something else.
        ValueError: If it holds pickles and they are not allowed.
    """
    arrays: dict[str, Array] = {}
    pickles: dict[str, bytes] = {}
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                document: dict[str, Any] = json.loads(archive.read(_DOCUMENT))
                listed = document["pickles"]
                if allow_pickle or not listed:
                    for info in archive.infolist():
                        data = archive.read(info)  # to the end: checks the entry's sum, and its name against the directory's
                        kind, _, entry = info.filename.partition("/")
                        if kind == "arrays":
                            arrays[entry.removesuffix(".npy")] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
                        elif kind == "pickles":
                            pickles[entry] = data
                    missing = sorted(set(listed) - set(pickles))
                    if missing:
                        raise KeyError(missing[0])
        except Exception as error:  # zipfile raises a dozen kinds
            raise CorruptError(f"{path} is damaged or no checkpoint ({type(error).__name__}: {error})") from error
    if listed and not allow_pickle:
        raise ValueError(
            f"{path} holds pickles, which execute code when they are loaded: {', '.join(listed)}. Load it with "
            "allow_pickle=True if you trust where it comes from"
        )
    return document, arrays, pickles
