"""A file that is replaced as a whole or not at all, whatever happens to the process that writes it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl as _fcntl
except ImportError:  # on Windows, where an open file cannot be removed anyway
    _fcntl = None  # type: ignore[assignment]

__all__ = ["locked", "replacing", "sweep"]

_locks: Any = _fcntl
_OLD = 86_400.0
"""Seconds after which nobody writes a file any more, where files cannot be locked: a day, as a checkpoint is written in seconds,
and a file that is left over for a day does no harm.
"""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file that takes the place of another one when the block ends, or is removed if it fails.

    It is written beside the old one (``file.name``), under a lock that ends with its writer: what is not locked was left by one
    that was killed, and is removed first. Permissions are those that ``open(path, "wb")`` would have given or left.

    Args:
        path: Of the file. Its folder is made if it does not exist. Of a symbolic link, the file that it leads to is replaced, as
            ``open(path, "wb")`` would write it.

    Raises:
        OSError: If it cannot be written; what is at ``path`` is then what was there. Or if the disk does not take the folder's
            change: then the new file is there, as the message says, and may be lost in a power failure.
    """
    target = Path(path)
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent, re.escape(target.name))
    name, file = _begun(target)
    folder = -1
    try:
        with file:
            yield file
            file.flush()
            # Before the rename: otherwise a power failure may keep the new name and lose the bytes, and the old file is gone too.
            os.fsync(file.fileno())
            if os.name == "posix":
                folder = os.open(target.parent, os.O_RDONLY)  # as long as this may still fail
                os.replace(name, target)  # while it is locked, so that nobody takes it for a leftover
        # Windows renames no file that is open, so there it is closed first.
        if os.name != "posix":
            os.replace(name, target)
    except BaseException as error:
        if folder >= 0:
            os.close(folder)
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a write says why it failed, but not where
            error.filename = str(target)
        raise
    if folder >= 0:  # the new name must outlive a power failure too
        try:
            os.fsync(folder)
        except OSError as error:
            why = f"{error.strerror}. The new file is there and whole, but its name may not outlive a power failure: save it again"
            raise OSError(error.errno, why, str(target)) from error
        finally:
            os.close(folder)


def locked(file: IO[Any]) -> bool:
    """Lock an open file for this process, as long as it is open. Returns ``False`` if another process has it."""
    if _locks is not None:
        try:
            _locks.flock(file.fileno(), _locks.LOCK_EX | _locks.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system without locks
    return True


def _begun(target: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside the target, locked."""
    while True:
        name = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            if _locks is None:
                return name, open(name, "wb", opener=_given(handle))
            with contextlib.suppress(OSError):  # a file system without locks: then leftovers stay
                _locks.flock(handle, _locks.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(handle, stat.S_IMODE(os.stat(target).st_mode))
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(name), os.fstat(handle)):
                    return name, open(name, "wb", opener=_given(handle))
        except BaseException:
            os.close(handle)
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        os.close(handle)  # somebody took it for a leftover before it was locked


def _given(handle: int) -> Callable[[str, int], int]:
    """Has :func:`open` take what is open already: the file knows its name then."""
    return lambda name, flags: handle


def sweep(folder: Path, names: str) -> None:
    """Remove what writers of files that were killed have left.

    Args:
        folder: Where the files are.
        names: A regular expression of their names.
    """
    ours = re.compile(rf"\.{names}\.[0-9a-f]{{16}}\.tmp")
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)]
    for path in paths:
        with contextlib.suppress(OSError):  # locked, not ours to remove, or gone
            if _locks is None:
                if time.time() - os.stat(path).st_mtime > _OLD:
                    os.unlink(path)
                continue
            # Not through links: somebody else's link of such a name must not have us lock or remove anything.
            handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                _locks.flock(handle, _locks.LOCK_EX | _locks.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(handle)
