"""A block of memory that several processes map, and that can grow.

On Linux it is an anonymous memory file (``memfd_create``): it has no name, so nothing can stay behind whatever dies, and the
size of ``/dev/shm`` does not matter. Elsewhere it is a temporary file. POSIX unlinks it as soon as every worker has it open;
Windows, where an open file cannot be removed, deletes it with its last handle, a view's included. The memory is reserved before
it is used, so that too little of it raises an error that says so, instead of a SIGBUS in the middle of a tick.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import secrets
import sys
import tempfile
import weakref
from collections.abc import Iterator
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.errors import ArenaError
from reactor_rl.runtime.limits import group_memory, shortage

__all__ = ["SharedMemory", "available_memory"]

_LINUX = sys.platform == "linux"
_POSIX = os.name == "posix"
_MAP_FIXED = 0x10  # on Linux, macOS and the BSDs
"""``MAP_FIXED``, the same on Linux, macOS and the BSDs; :mod:`mmap` does not have it."""
_SHARED = os.O_RDWR if _POSIX else os.O_RDWR | os.O_BINARY | os.O_NOINHERIT | os.O_TEMPORARY  # type: ignore[attr-defined]
"""Flags of the temporary file. On Windows every process that opens it must agree that it is deleted with the last handle."""


class SharedMemory:
    """A growable shared mapping. Its file is closed with the last reference to it, if not before.

    On POSIX only the block has the file open: Python's own ``mmap`` would keep a descriptor for as long as views exist.

    A block can be pickled only while a process is being started; the copy there maps the same memory.

    Args:
        size: Bytes to reserve, may be 0.
        purpose: Use of the memory, for error messages.
    """

    _fd = -1
    _path: str | None = None

    def __init__(self, size: int, purpose: str) -> None:
        self.purpose, self.size = purpose, 0
        self._owner = os.getpid()
        # Views are of an array, not of the mapping: without a GIL mmap miscounts its views (CPython 3.13).
        self._map: npt.NDArray[np.uint8] | None = None
        self._maps: list[weakref.ref[mmap.mmap]] = []
        if _LINUX:
            with self._no_memory_named("make"):
                self._fd = os.memfd_create("reactor_rl", os.MFD_CLOEXEC)
        else:
            self._path = str(Path(tempfile.gettempdir()) / f"reactor_rl-{secrets.token_hex(8)}")
            self._fd = os.open(self._path, _SHARED | os.O_CREAT | os.O_EXCL, 0o600)
        self.grow(size)

    def grow(self, size: int) -> None:
        """Reserve at least ``size`` bytes in all. The content stays, and earlier views stay valid.

        Raises:
            ArenaError: If not enough memory is available.
        """
        if size <= self.size:
            return
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        free = available_memory()
        if free is not None and size - self.size > free:
            raise ArenaError(self._too_small(size, f"{_human(free)} of memory is available to this process"))
        try:
            if hasattr(os, "posix_fallocate"):
                # Reserved now. With ftruncate() alone, a lack of memory would be a SIGBUS in the middle of a tick.
                os.posix_fallocate(self._fd, self.size, size - self.size)
            else:
                os.ftruncate(self._fd, size)
        except OSError as error:
            raise ArenaError(self._too_small(size, error.strerror or str(error))) from error
        self.size = size

    def _too_small(self, size: int, why: str) -> str:
        return (
            f"cannot reserve {_human(size)} of shared memory for {self.purpose}: {why}. "
            "Use fewer or smaller ports (fewer environments, smaller observations), shorter delays, or a machine with more memory"
        )

    @contextlib.contextmanager
    def _no_memory_named(self, do: str) -> Iterator[None]:
        """Turn an error in the block that says that there is no memory into one that says for what, and what helps."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise ArenaError(f"cannot {do} shared memory for {self.purpose}: {error.strerror}. {shortage(error)}") from error

    def view(self, size: int) -> memoryview:
        """Return the first ``size`` bytes, writable. Threads that share a block may call this at any time.

        Raises:
            ArenaError: If there are not so many, or they cannot be mapped.
        """
        memory = self._map
        if memory is None or len(memory) < size:
            end = os.fstat(self._fd).st_size
            if size > end:
                raise ArenaError(f"{self.purpose}: cannot view {size} bytes of a block of {end}")
            # An older map lives as long as views of it.
            if _POSIX:
                with self._no_memory_named(f"map {_human(end)} of"):
                    mapped = mmap.mmap(-1, end, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                self.map_over(mapped)
            else:
                mapped = mmap.mmap(self._fd, end)
            self._maps.append(weakref.ref(mapped))
            memory = np.frombuffer(mapped, np.uint8)
            self._map = memory  # only once it is mapped, because other threads read it here
        return memory.data

    @property
    def reserved(self) -> int:
        """Bytes reserved by now, in any process."""
        return os.fstat(self._fd).st_size

    def map_over(self, memory: mmap.mmap) -> None:
        """Exchange the pages of an anonymous mapping for this block's, at the same address: its views become views of the block.

        Raises:
            ArenaError: If there is no memory for that.
            OSError: If the system refuses for another reason. (POSIX only.)
        """
        with self._no_memory_named(f"map {_human(len(memory))} of"):
            _exchange(memory, mmap.MAP_SHARED, self._fd)

    def unlink(self) -> None:
        """Remove the file's name, if it has one. Called once every worker has it open."""
        path, self._path = self._path, None
        if path is not None and _POSIX and os.getpid() == self._owner:
            Path(path).unlink(missing_ok=True)

    def close(self, *, readable: bool = False) -> None:
        """Close the file once no other process writes. Views keep the content, on POSIX in memory of their own.

        Args:
            readable: Whether views of the content can be made afterwards, too.
        """
        try:
            if readable and self._fd >= 0 and (reserved := self.reserved):
                self.view(reserved)
        finally:
            self._close(readable)

    def _close(self, readable: bool) -> None:
        kept, self._map = self._map if readable else None, None
        maps, self._maps = self._maps, []
        if _POSIX:
            for one in maps:
                memory = one()
                if memory is not None:
                    _detach(memory)
        self._map = kept
        self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self.unlink()

    def __del__(self) -> None:
        self._release()

    def __getstate__(self) -> dict[str, Any]:
        context.assert_spawning(self)
        handle: Any = reduction.DupFd(self._fd) if _POSIX else self._path
        return {"purpose": self.purpose, "size": self.size, "handle": handle}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.purpose, self.size, self._owner, self._path, self._map = state["purpose"], state["size"], -1, None, None
        self._maps = []
        handle = state["handle"]
        self._fd = os.open(handle, _SHARED) if isinstance(handle, str) else handle.detach()


def _exchange(memory: mmap.mmap, kind: int, fd: int) -> None:
    """Put other pages in the place of a mapping's, at the same address.

    Raises:
        OSError: If the system refuses. (POSIX only.)
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # The default is an int, which would cut the address in half.
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if libc.mmap(address, len(memory), mmap.PROT_READ | mmap.PROT_WRITE, kind | _MAP_FIXED, fd, 0) != address:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot exchange the pages of a mapping: {os.strerror(number)}")


def _detach(memory: mmap.mmap) -> None:
    """Give a mapping pages of its own, with the same content."""
    # Before the exchange, which drops the old pages.
    content = bytes(memory)
    with contextlib.suppress(OSError):  # if this fails, the pages live as long as the last view
        _exchange(memory, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        memory[:] = content


def available_memory() -> int | None:
    """Estimate the bytes that this process can still use, by the kernel and its control groups' limits. ``None``: unknown."""
    if not _LINUX:
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    allowed = group_memory()
    return min(available if allowed is None else [*available, allowed], default=None)


def _human(size: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]
    raise AssertionError
