"""A file of named arrays, one document of plain data, and pickles that are kept apart: written at once or not at all.

It is an ordinary, uncompressed zip. Arrays are ``.npy`` and the document is JSON, so that both load without executing anything;
what only pickle can hold has entries of its own, which the document lists under ``"pickles"`` for whoever looks at it. Nothing in
a file is believed when it is read: what there is, is what its entries are, and none is larger than the part of the file it takes.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from reactor_sb3.plain import plain
from reactor_sb3.replacing import replacing

__all__ = ["DOCUMENT", "Archive", "CorruptError", "RefusedError", "blaming", "check_saved", "opened", "write"]

Array = npt.NDArray[Any]
DOCUMENT = "manifest.json"
"""Name of the entry that is the document."""
_CHUNK = 1 << 20
"""Bytes that are read at a time: they are unpacked straight into the array, and a file that is interrupted has taken no more memory
than it says.
"""
_LONGEST_HEADER = 1 << 18
"""Bytes that describe an array; numpy itself takes 10,000 unless told otherwise, too few for records of many fields.
``literal_eval`` takes long for a long text, so there is a limit.
"""


class CorruptError(ValueError):
    """A file that is not an archive, or not what was written.

    Attributes:
        named: Whether it says which file it is.
    """

    named = False


class RefusedError(ValueError):
    """A file that wants to do more than it may: it holds pickles, or names a module that nobody has imported."""


def write(
    path: str | os.PathLike[str], document: Mapping[str, Any], arrays: Mapping[str, Array], pickles: Mapping[str, bytes]
) -> None:
    """Write an archive. Whenever the process ends, what is at ``path`` is the old file or the new one, whole.

    Args:
        path: Where. Its folder is made if it does not exist.
        document: Plain data.
        arrays: Arrays without objects, by name.
        pickles: Pickled values, by name.

    Raises:
        OSError: If it cannot be written, because the disk is full, say.
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(DOCUMENT, json.dumps({**plain(dict(document)), "pickles": sorted(pickles)}))
        for entry, array in arrays.items():
            with archive.open(f"arrays/{entry}.npy", "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
        for entry, data in pickles.items():
            archive.writestr(f"pickles/{entry}", data)


def check_saved(path: str | os.PathLike[str], instead: str) -> None:
    """Refuse a file that SB3's ``save()`` has not written, or in which something was changed.

    Args:
        path: Where it is.
        instead: What to do with a checkpoint.

    Raises:
        FileNotFoundError: If it does not exist.
        CorruptError: If it is damaged or something else.
        RefusedError: If it is a checkpoint, damaged or not.
    """
    with open(path, "rb") as file, blaming(path, "no file that save() has written"), zipfile.ZipFile(file) as archive:
        if DOCUMENT in archive.namelist():
            raise RefusedError(f"is a checkpoint: {instead}")
        if (damaged := archive.testzip()) is not None:
            raise CorruptError(f"{damaged} is not what was written")
        if "data" not in archive.namelist():
            raise CorruptError("it has no data")


class Archive:
    """An archive that is being read. Each entry is read once, when somebody asks for it.

    Attributes:
        document: The plain data.
        size: Bytes of the file.

    Raises:
        RefusedError: If it holds pickles and must not.
        CorruptError: If an entry is not as it would have been written.
    """

    def __init__(
        self, archive: zipfile.ZipFile, size: int, path: str | os.PathLike[str], *, allow_pickle: bool, loader: str
    ) -> None:
        if {"data", "policy.pth"} <= set(archive.namelist()):
            raise RefusedError(f"was written by save(): it has weights and settings, and no run to go on with. Use {loader}")
        self._archive, self.size, self.path, self._allow_pickle = archive, size, path, allow_pickle
        self._unread: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            name = info.filename
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise CorruptError(f"{name} is compressed or encrypted, which nothing in a checkpoint is")
            if name in self._unread or not (name == DOCUMENT or name.startswith(("arrays/", "pickles/"))):
                raise CorruptError(f"{name} is there twice, or belongs to something else")
            self._unread[name] = info
        total = sum(info.file_size for info in self._unread.values())
        if total > size:
            raise CorruptError(f"its entries are larger than the file ({total} bytes, {size} bytes)")
        pickles = sorted(name.removeprefix("pickles/") for name in self._unread if name.startswith("pickles/"))
        if pickles:
            self._needs_pickle(", ".join(pickles))
        self.document: Any = json.loads(archive.read(self._taken(DOCUMENT)))
        if not isinstance(self.document, dict):
            raise CorruptError(f"{DOCUMENT} is not an object")
        if self.document.pop("pickles", None) != pickles:
            raise CorruptError(f'"pickles" in {DOCUMENT} does not name the pickles that there are')

    def _taken(self, entry: str) -> zipfile.ZipInfo:
        if entry not in self._unread:
            raise CorruptError(f"there is no {entry[:100]}, or it is wanted twice")
        return self._unread.pop(entry)

    def _needs_pickle(self, names: str) -> None:
        if not self._allow_pickle:
            raise RefusedError(
                f"holds pickles, which execute code when they are loaded: {names}. Load it with allow_pickle=True if you trust "
                "where it comes from"
            )

    def array(self, name: str) -> Array:
        """An array, which nobody else has asked for."""
        with blaming(self.path):
            info = self._taken(f"arrays/{name}.npy")
            with self._archive.open(info) as file:
                return _read(file, info)

    def pickled(self, name: str) -> bytes:
        """A pickle, which nobody else has asked for.

        Raises:
            RefusedError: If there must not be any.
        """
        self._needs_pickle(name[:100])
        with blaming(self.path):
            return self._archive.read(self._taken(f"pickles/{name}"))

    def check_all_read(self) -> None:
        """Refuse entries that nobody has asked for."""
        for entry in self._unread:
            raise CorruptError(f"nothing in {DOCUMENT} belongs to {entry}")


def _read(file: Any, info: zipfile.ZipInfo) -> Array:
    shape, fortran, dtype = _header(file)
    count = 1
    for length in shape:
        if type(length) is not int or length < 0:
            raise CorruptError(f"{info.filename} has the shape {shape}")
        count *= length
    # Before anything is made of that size.
    if dtype.hasobject or dtype.itemsize == 0 or count * dtype.itemsize != info.file_size - file.tell():
        raise CorruptError(f"{info.filename} is not an array of shape {shape} and {dtype}")
    flat = np.empty(count, dtype)
    room, at = flat.view(np.uint8) if count else np.empty(0, np.uint8), 0
    while at < len(room):
        if not (length := file.readinto(room[at : at + _CHUNK].data)):
            raise CorruptError(f"{info.filename} ends early")
        at += length
    file.read(1)  # the end, where its sum is checked
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[Any, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype that an array says it has. (numpy's own function refuses the long ones of large networks.)"""
    version = np.lib.format.read_magic(file)
    kind = "<H" if version == (1, 0) else "<I"
    (length,) = struct.unpack(kind, file.read(struct.calcsize(kind)))
    if length > _LONGEST_HEADER:
        raise CorruptError(f"an array begins with {length} bytes that describe it")
    header = ast.literal_eval(file.read(length).decode("utf-8" if version == (3, 0) else "latin-1"))
    if type(header) is not dict or header.keys() != {"descr", "fortran_order", "shape"} or type(header["shape"]) is not tuple:
        raise CorruptError("an array does not say what it is")
    return header["shape"], header["fortran_order"] is True, np.lib.format.descr_to_dtype(header["descr"])


@contextlib.contextmanager
def blaming(path: str | os.PathLike[str], otherwise: str = "no checkpoint") -> Iterator[None]:
    """Say of whatever the block raises that the file is damaged.

    But for what it refuses, for imports that fail, too little memory, warnings that are errors, and what the system says of files.

    Args:
        path: The file.
        otherwise: What it may be instead.

    Raises:
        CorruptError: If it is damaged or something else.
        RefusedError: If it wants what it must not.
    """
    try:
        yield
    except RefusedError as error:
        raise RefusedError(f"{path} {error}") from None
    except (ImportError, MemoryError, Warning):
        raise
    except Exception as error:  # zipfile alone raises a dozen kinds
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # that is a place that there cannot be
            raise
        if isinstance(error, CorruptError) and error.named:
            raise
        said = str(error) if isinstance(error, CorruptError) else f"{type(error).__name__}: {str(error)[:500]}"
        named = CorruptError(f"{path} is damaged or {otherwise} ({said})")
        named.named = True
        raise named from error


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], *, allow_pickle: bool, loader: str = "load()") -> Iterator[Archive]:
    """Open an archive, which executes nothing. What goes wrong in the block is the file's fault, see :func:`blaming`.

    Args:
        path: Where it is.
        allow_pickle: Whether archives that hold pickles are read at all.
        loader: What loads a file of SB3's ``save()``.

    Raises:
        FileNotFoundError: If the file does not exist.
        CorruptError: If it is damaged or something else.
        RefusedError: If it holds pickles and they are not allowed, or ``save()`` has written it.
    """
    with open(path, "rb") as file, blaming(path), zipfile.ZipFile(file) as archive:
        yield Archive(archive, os.fstat(file.fileno()).st_size, path, allow_pickle=allow_pickle, loader=loader)
