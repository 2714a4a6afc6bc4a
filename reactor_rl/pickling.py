"""Pickling of values, functions and classes, so that any worker can load them and no two reactors share an object.

Numbers, strings, bytes, booleans and None are immutable and travel as they are; every other value travels as a pickle.

Classes that cloudpickle sends by value need care in the caller's process. cloudpickle sends a class of ``__main__`` (or of a
function's body) as its definition with an id, and a process that has seen the id before reuses the class it already has. In the
process that defined the class, that would be the class itself: reactors there would see later changes to it, and reactors in
helper processes would not. Workers in the caller's process therefore get copies of such classes, kept by id in a table for each
worker. What comes back to the caller is of the caller's own classes again.
"""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from cloudpickle import cloudpickle

__all__ = [
    "IMMUTABLE",
    "KEPT",
    "Handed",
    "Pickled",
    "decode",
    "dumps",
    "encode",
    "loads",
    "Copies",
    "ClassOwner",
    "enrol",
    "for_good",
    "inside",
    "adopt_class",
]

IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


class Pickled:
    """A value as its pickle."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Pickled, (self.data,)


class Handed:
    """A value that its writer no longer uses, for one reader, which gets the object itself if both are on one worker."""

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
        # What is of __main__ has to go by value. A user's own text that spells it only makes a slower pickle.
        if b"__main__" not in data:
            return data
    except (pickle.PicklingError, AttributeError, TypeError):
        pass
    return cloudpickle.dumps(value)  # type: ignore[no-any-return]


def encode(value: Any) -> Any:
    """Encode a value for keeping: unchanged if it is immutable or encoded already, else as its pickle."""
    return value if type(value) in KEPT else Pickled(dumps(value))


def decode(kept: Any) -> Any:
    """Decode the reader's own copy of an encoded value."""
    if type(kept) is Pickled:
        return loads(kept.data)
    return kept.value if type(kept) is Handed else kept


Copies = dict[str, Any]
"""The classes of one worker by cloudpickle's id."""

_NUMBER = {"_make_skeleton_class": 4, "_make_skeleton_enum": 5, "_make_typevar": 5}
"""Functions that make a class in a pickle, and which argument is the id. Pickles name them, so cloudpickle keeps them."""
_MARK = b"cloudpickle.cloudpickle"


class ClassOwner(Protocol):
    """The owner of copied classes: a worker that runs reactions in the thread that made it.

    Attributes:
        copies: Its copies of classes.
        reacting: Whether a reaction is running.
    """

    copies: Copies

    @property
    def reacting(self) -> bool: ...


class _Here(threading.local):
    """The classes that this thread loads: those of a worker, or (None) the caller's own."""

    copies: Copies | None = None

    def __init__(self) -> None:
        self.workers: list[weakref.ref[ClassOwner]] = []


_here = _Here()
_alone = False


def for_good() -> None:
    """Declare this process a helper, where every class that cloudpickle finds is a copy already."""
    global _alone
    _alone = True


def enrol(worker: ClassOwner) -> None:
    """Let classes that this thread loads while a reaction of this worker runs belong to the worker."""
    _here.workers = [one for one in _here.workers if one() is not None]
    _here.workers.append(weakref.ref(worker))


@contextmanager
def inside(copies: Copies) -> Iterator[None]:
    """Let classes that this thread loads within the block belong to the worker with these copies."""
    before, _here.copies = _here.copies, copies
    try:
        yield
    finally:
        _here.copies = before


def _whose() -> Copies | None:
    """Find whose classes to load. Looked up when needed, which is rare: setting it before every tick would cost every tick."""
    if _here.copies is not None:
        return _here.copies
    for one in reversed(_here.workers):  # a run that a reaction has started comes before that reaction's own
        worker = one()
        if worker is not None and worker.reacting:
            return worker.copies
    return None


def loads(data: bytes | memoryview) -> Any:
    """Unpickle, with the classes of the worker that this thread runs now or the caller's own."""
    if not _alone:
        data = bytes(data)
        if _MARK in data:
            return _Unpickler(io.BytesIO(data)).load()
    return pickle.loads(data)


def adopt_class(error: BaseException) -> None:
    """Turn an exception of a reactor's copied class into one of the caller's own class, so that ``except`` finds it."""
    number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(type(error))
    own = None if number is None else cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if own is not None and own is not type(error):
        error.__class__ = own


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._copies = _whose()
        self._known: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        if module == "cloudpickle.cloudpickle":
            if name in _NUMBER:
                return partial(self._make, getattr(cloudpickle, name), _NUMBER[name])
            if name == "_class_setstate":
                return self._fill
        return super().find_class(module, name)

    def _make(self, make: Any, place: int, *args: Any) -> Any:
        number = args[place]
        if self._copies is None:
            known = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
            if known is None:
                return make(*args)
            self._known.append(known)
            return known
        if number not in self._copies:
            # Without the id, cloudpickle makes a class and does not note it as the one of that id.
            cls = self._copies.setdefault(number, make(*args[:place], None, *args[place + 1 :]))
            with cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
                cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls] = number
        return self._copies[number]

    def _fill(self, cls: Any, state: Any) -> Any:
        # A class of the caller's is as the caller has left it, whatever it was when it was sent.
        if any(cls is known for known in self._known):
            return cls
        return cloudpickle._class_setstate(cls, state)
