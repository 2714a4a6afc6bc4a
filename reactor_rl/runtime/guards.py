"""Guards against interrupts and forks: locks that an interrupt cannot lose, and objects that notice an interrupt or a fork.

Threads do not survive a fork and helper processes belong to the parent, so an object that owns workers must say so in the child
instead of waiting for them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import wraps
from operator import methodcaller
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = ["FORKED", "POISONED", "InterruptGuard", "holding", "when_forked"]

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

_acquire, _release = methodcaller("acquire"), methodcaller("release")


def holding(lock: Any) -> Callable[[Callable[_Params, _Result]], Callable[_Params, _Result]]:
    """Decorate a function to hold a lock while it runs, and to release it even if a signal handler raises at any moment.

    ``with lock:`` keeps the lock for ever if a handler raises right after it was taken, from Python 3.14 on (cpython#148874).

    Args:
        lock: A ``threading.Lock`` or ``threading.RLock``.

    Returns:
        The decorator.
    """

    def decorate(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
        @wraps(function)
        def call(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
            # Handlers run when a call has returned, but not within list.extend() or an assignment to a slice. So no handler
            # runs between taking the lock and noting it, nor between releasing it and noting that.
            held: list[Any] = []
            released = filter(_release, held)  # release() returns None, so it will yield nothing
            try:
                try:
                    held.extend(filter(_acquire, (lock,)))
                    return function(*args, **kwargs)
                finally:
                    held[:] = released
            finally:
                held[:] = released  # where a trace function, which runs before each line, raised before the first of these two

        return call

    return decorate


FORKED = (
    "it belongs to the process that made it, and this is a forked child, which does not have its workers. Make another one in the "
    "child, after the fork"
)


class Forkable(Protocol):
    """An object that must know when it is a copy in a forked child."""

    def _forked(self) -> None:
        """Mark this copy as foreign. Called in the child before anything else happens there."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def when_forked(thing: Forkable) -> None:
    """Have ``thing._forked()`` called in every forked child of this process."""
    _known.add(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing._forked()


if hasattr(os, "register_at_fork"):  # other systems cannot fork
    os.register_at_fork(after_in_child=_in_child)


POISONED = "a call was interrupted, or another thread is in the middle of one"


class InterruptGuard:
    """Says whether an object can still be used: put ``with guard:`` around a call that must not be left in its middle.

    An interrupt may strike at any line. If one leaves the block, the object can only be closed. An ordinary error leaves it
    usable, unless the code that raises it sets :attr:`unusable`.

    Attributes:
        unusable: Why the object cannot be used any more; empty if it can.
    """

    __slots__ = ("unusable",)

    def __init__(self) -> None:
        self.unusable = ""

    def __enter__(self) -> None:
        self.unusable = POISONED

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if kind is None or issubclass(kind, Exception):
            self.survive()

    def survive(self) -> None:
        """End the block: the object can be used again, unless another reason was set."""
        if self.unusable is POISONED:
            self.unusable = ""
