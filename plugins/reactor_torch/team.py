"""Threads that help with dense layers: they share out rows and outputs of a network, or networks that do not need each other."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from reactor_torch import kernels

__all__ = ["Team"]


class Team:
    """Threads that help the one that enters it, in the extension alone; who computes what changes no bit.

    Within the ``with`` block they look for work all the time; before and after it they sleep. A child of ``fork()`` has no such
    threads.

    Args:
        threads: How many there are, with the one that enters it. With one, or without the extension, nobody helps.
    """

    def __init__(self, threads: int) -> None:
        self._compiled: Any = None if threads == 1 or kernels.compiled is None else kernels.compiled.Team(threads)

    def __enter__(self) -> None:
        if self._compiled is not None:
            self._compiled.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._compiled is not None:
            self._compiled.__exit__(kind, error, traceback)

    def close(self) -> None:
        """End the threads; nobody helps from then on."""
        if self._compiled is not None:
            self._compiled.close()
