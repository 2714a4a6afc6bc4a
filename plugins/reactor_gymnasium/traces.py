"""Make environments only to inspect, time or try them, without traces: restore generators, and keep files as they were.

A user's recorders and logs must not tell of episodes that nobody asked for. Others may write a file, too, if it exists already or
is appended to. When such an environment opens such a file for writing, it gets another one, which is thrown away. The file itself
is never touched, so nothing that others write meanwhile can be lost. New files are removed again. Log records are dropped.

Some files stay, because a module may remember that they exist: those that are made while a module is imported, in a package's
folder, in a hidden one, in a cache, and by the usual name in the folder of temporary files; and folders that a constructor makes
unless they exist. A file that stays open when the environment is gone (a log that a module keeps for all its environments) becomes
the file that was meant, with all that was written.

Only files that Python opens are seen, in the thread that makes the environment. Classes that write in another way have to be known;
see :func:`without_films`.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import gymnasium
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers import RecordVideo, vector

from reactor_rl.plugin import global_random_state, holding

__all__ = ["Traces", "looked_at", "no_traces", "without_films"]

_Env = TypeVar("_Env")
_Seen = TypeVar("_Seen")

FILMS: tuple[type, ...] = (RecordVideo, *filter(None, [getattr(vector, "RecordVideo", None)]))  # which came with Gymnasium 1.3
COPIED = 1 << 26
"""Bytes of the longest file that is copied to be appended to: a longer log would be felt at the start, and is hardly needed to
construct an environment. Chosen.
"""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


def looked_at(make: Callable[[], _Env], look: Callable[[_Env], _Seen]) -> _Seen:
    """Make an environment for ``look`` alone, without traces, and close it; return what ``look`` returns."""
    traces = Traces()
    try:
        with traces.kept_out(making=True):
            env = make()
        try:
            with traces.kept_out():
                return look(env)
        finally:
            with traces.kept_out():
                if hasattr(env, "close"):
                    env.close()
                del env
    finally:
        traces.close()


@contextmanager
def no_traces() -> Iterator[None]:
    """Within this, environments of the calling thread that are made, used and closed leave no traces."""
    outer = _kept()
    if outer is not None:  # which an environment may have come from
        with outer.kept_out():
            yield
        return
    traces = Traces()
    try:
        with traces.kept_out():
            yield
    finally:
        traces.close()


def without_films(env: Any) -> Any:
    """Return the part of an environment to time: the one inside all recorders, because an encoder's files cannot be undone."""
    inner = env
    while isinstance(inner, (gymnasium.Wrapper, VectorWrapper)):
        if isinstance(inner, FILMS):
            env = inner.env
        inner = inner.env
    return env


class _Opened(NamedTuple):
    """A file that was opened in the place of another one.

    Attributes:
        file: What was handed out.
        path: The path that was meant.
        instead: The path of what was opened.
        begin: The bytes that were there before.
    """

    file: weakref.ref[Any]
    path: str
    instead: str
    begin: int


class Traces:
    """Keeps out the traces of environments that are made to be looked at; call :meth:`close` when they are gone."""

    def __init__(self) -> None:
        self._making = False
        self._instead: dict[str, str] = {}  # what is opened in the place of a file, by its path
        self._opened: list[_Opened] = []
        self._made: list[str] = []  # files and folders that are removed
        self._left: dict[str, Any] = {}  # as what they were left
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        tempfile.gettempdir()  # which it finds out by writing, the first time

    @contextmanager
    def kept_out(self, making: bool = False) -> Iterator[None]:
        """Within this, of the calling thread: generators are put back when it ends, and what is written goes elsewhere.

        Args:
            making: Whether this is the environment's constructor, which will be called again.
        """
        me, before, was = threading.get_ident(), _keeping.get(threading.get_ident()), self._making
        with global_random_state():
            _enter()
            try:
                self._making, _keeping[me] = making, weakref.ref(self)
                yield
            finally:
                _keeping.pop(me, None)
                if before is not None:
                    _keeping[me] = before
                self._making = was
                self._left = {path: _state_of(path) for path in self._made}
                _leave()

    def close(self) -> None:
        """Remove what there is; where a file is still open, it is somebody else's, and goes on as what it was meant to be."""
        for thread, keeper in list(_keeping.items()):  # of a block that an interrupt has left in its last lines
            if keeper() is self:
                del _keeping[thread]
        if any(one.file() is not None for one in self._opened):
            with global_random_state():
                gc.collect()
        for one in self._opened:
            with contextlib.suppress(Exception):
                _hand_over(one)
        self.tidy()
        self._opened.clear()
        self._instead.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def tidy(self) -> None:
        """Remove files and folders that were made, before somebody comes upon them; not what somebody else has written since."""
        held = [one.path for one in self._opened if (file := one.file()) is not None and not file.closed]
        for path in reversed(self._made):
            if path not in held and self._left.get(path) == _state_of(path):
                with contextlib.suppress(OSError):
                    (os.rmdir if os.path.isdir(path) else os.remove)(path)
        self._made.clear()

    # ------------------------------------------------------------------ what is called in the place of the system's functions

    def open(self, file: Any, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The builtin function ``open``."""
        if (args[5:] and args[5]) or kwargs.get("opener"):  # which opens by os.open()
            return _open(file, mode, *args, **kwargs)
        writes = isinstance(mode, str) and not {"w", "a", "x", "+"}.isdisjoint(mode)
        path = _ordinary(file) if writes or self._instead else None
        instead = None if path is None else self._place_of(path, writes, "a" in mode, "w" in mode, "x" in mode)
        if path is None or instead is None:
            opened = _open(file, mode, *args, **kwargs)
            if path in self._made:
                self._opened.append(_Opened(weakref.ref(opened), str(path), str(path), 0))
            return opened
        begin = os.path.getsize(instead) if os.path.exists(instead) and "w" not in mode else 0
        opened = _open(instead, mode, *args, **kwargs)
        if writes:
            self._opened.append(_Opened(weakref.ref(opened), path, instead, begin))
        return opened

    def os_open(self, file: Any, flags: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function ``os.open``."""
        concerned = (flags & _WRITING or self._instead) and kwargs.get("dir_fd") is None
        path = _ordinary(file) if concerned else None
        if path is not None:
            new = bool(flags & os.O_EXCL)
            instead = self._place_of(path, bool(flags & _WRITING), bool(flags & os.O_APPEND), bool(flags & os.O_TRUNC), new)
            file = file if instead is None else instead
        return _os_open(file, flags, *args, **kwargs)

    def mkdir(self, file: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shared: bool) -> None:
        """The function ``os.mkdir``."""
        _mkdir(file, *args, **kwargs)
        path = None if kwargs.get("dir_fd") is not None else _ordinary(file)
        if path is not None and not (shared and self._making):
            self._made.append(path)

    def _place_of(self, path: str, writes: bool, appends: bool, empties: bool, new: bool) -> str | None:
        """Return the path to open in place of a file, ``None`` for the file itself."""
        if path in self._instead or not writes:
            return self._instead.get(path)
        if os.path.exists(path):
            if new or path in self._made or (self._making and empties and not appends):
                return None
        elif not appends:
            self._made.append(path)
            return None
        if not os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK):
            return None  # for the system's own error
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="rrl-", ignore_cleanup_errors=True)
        instead = os.path.join(self._scratch.name, str(len(self._instead)))
        if os.path.exists(path) and not empties and os.path.getsize(path) <= COPIED:
            with _open(path, "rb") as given, _open(instead, "wb") as copy:
                shutil.copyfileobj(given, copy)
        self._instead[path] = instead
        return instead

    def rename(self, function: Callable[..., None], source: Any, target: Any, kwargs: dict[str, Any]) -> None:
        """The functions ``os.rename`` and ``os.replace``."""
        old, new = _ordinary(source), _ordinary(target)
        if old is None or new is None or self._making or not (old in self._made or old in self._instead):
            function(source, target, **kwargs)
        elif old in self._made and not os.path.exists(new):
            function(source, target, **kwargs)
            self._made[self._made.index(old)] = new
        # Else it stays where it is: what is there already is somebody's.


def _ordinary(file: Any) -> str | None:
    """The path of a file that may be somebody's; ``None`` for devices, and for what modules may count on later."""
    try:
        path = os.path.abspath(os.fsdecode(file))
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            return None
    except (TypeError, ValueError, OSError):
        return None
    folder = os.path.dirname(path)
    if folder == os.path.abspath(tempfile.gettempdir()):
        return None  # what modules remember for their own use is made there
    if any(part.startswith(".") or "cache" in part.lower() for part in path.split(os.sep)):
        return None
    if os.path.exists(os.path.join(folder, "__init__.py")) or _importing():
        return None
    return path


def _state_of(path: str) -> Any:
    """Return numbers that change when somebody writes a file; those of a folder stay, as it is only removed when it is empty."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino if stat.S_ISDIR(found.st_mode) else (found.st_ino, found.st_size, found.st_mtime_ns)


def _importing() -> bool:
    """Whether a module is being imported, which it is only once, by what was called from here."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and name.startswith("reactor_gymnasium."):
            return False
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _hand_over(one: _Opened) -> None:
    """Let a file that is still open be the one that was meant."""
    file = one.file()
    if file is None or file.closed or one.path == one.instead:
        return
    file.flush()
    with _open(one.instead, "rb") as written:
        written.seek(one.begin)
        data = written.read()
    real = _os_open(one.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(real, data)
        os.dup2(real, file.fileno())
    finally:
        os.close(real)


# ---------------------------------------------------------------------- the system's functions, and what they are replaced by

_lock = threading.Lock()
_inside = 0
_keeping: dict[int, weakref.ref[Traces]] = {}
"""Whose traces are kept out, by thread."""
_open, _os_open, _mkdir, _rename, _replace = builtins.open, os.open, os.mkdir, os.rename, os.replace
_handle = logging.Logger.handle


def _kept() -> Traces | None:
    keeper = _keeping.get(threading.get_ident())
    return None if keeper is None else keeper()


def _open_elsewhere(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    traces = _kept()
    return _open(file, mode, *args, **kwargs) if traces is None else traces.open(file, mode, args, kwargs)


def _os_open_elsewhere(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
    traces = _kept()
    return _os_open(path, flags, *args, **kwargs) if traces is None else traces.os_open(path, flags, args, kwargs)


def _mkdir_noted(path: Any, *args: Any, **kwargs: Any) -> None:
    traces = _kept()
    if traces is None:
        _mkdir(path, *args, **kwargs)
    else:
        caller = sys._getframe(1)  # os.makedirs or pathlib, for whom it may be there already
        traces.mkdir(path, args, kwargs, bool(caller.f_locals.get("exist_ok")) and caller.f_code.co_name in ("makedirs", "mkdir"))


def _handle_nothing(self: logging.Logger, record: logging.LogRecord) -> None:
    if _kept() is None:
        _handle(self, record)


def _rename_noted(src: Any, dst: Any, **kwargs: Any) -> None:
    traces = _kept()
    _rename(src, dst, **kwargs) if traces is None else traces.rename(_rename, src, dst, kwargs)


def _replace_noted(src: Any, dst: Any, **kwargs: Any) -> None:
    traces = _kept()
    _replace(src, dst, **kwargs) if traces is None else traces.rename(_replace, src, dst, kwargs)


@holding(_lock)
def _enter() -> None:
    global _inside, _open, _os_open, _mkdir, _rename, _replace, _handle
    if not _inside and builtins.open is not _open_elsewhere:
        _open, _os_open, _mkdir, _rename, _replace = builtins.open, os.open, os.mkdir, os.rename, os.replace
        _handle = logging.Logger.handle
        _set(_open_elsewhere, _os_open_elsewhere, _mkdir_noted, _rename_noted, _replace_noted, _handle_nothing)
    _inside += 1


@holding(_lock)
def _leave() -> None:
    global _inside
    _inside -= 1
    if not _inside and builtins.open is _open_elsewhere:
        _set(_open, _os_open, _mkdir, _rename, _replace, _handle)


def _set(open: Any, os_open: Any, mkdir: Any, rename: Any, replace: Any, handle: Any) -> None:
    builtins.open = io.open = open
    logging.Logger.handle = handle  # type: ignore[method-assign]
    os.open, os.mkdir, os.rename, os.replace = os_open, mkdir, rename, replace
