"""A lock that an interrupt cannot lose."""

from __future__ import annotations

from typing import Any

__all__ = ["LockGuard"]


class LockGuard:
    """``with LockGuard(lock):`` as ``with lock:``, but what strikes between the end of the block and the release loses nothing.

    Nothing but the block refers to this object, so that it goes with the block, however that is left, and the lock with it. Taking
    the lock and noting that it was taken are one line each way, for the same reason.
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
