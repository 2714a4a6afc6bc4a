"""Guards against interrupts and forks: a lock that an interrupt cannot lose, and objects that notice an interrupt or a fork.

Threads do not survive a fork and helper processes belong to the parent, so an object that owns workers must say so in the child
instead of waiting for them.
"""

from __future__ import annotations

import os
import weakref
from types import TracebackType
from typing import Any, Protocol

__all__ = ["LockGuard", "InterruptGuard", "FORKED", "POISONED", "when_forked"]


class LockGuard:
    """Hold a lock as ``with lock:`` does, and release it even if an interrupt strikes between the end of the block and the release.

    Only the block refers to this object, so it is deleted when the block is left, in whatever way, and releases the lock. Taking
    the lock and noting that it was taken are one line, for the same reason; so is the release.
    """

    _held = False

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._held = self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._held = self._held and bool(self._lock.release())

    def __del__(self) -> None:
        self._held = self._held and bool(self._lock.release())


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
