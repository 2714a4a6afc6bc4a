"""What belongs to the process that made it says so in a forked child, where there are no workers of its own."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["FORKED", "when_forked"]

FORKED = (
    "it belongs to the process that made it, and this is a forked child: its workers, and what they hold, are only there once. "
    "Make another one in the child, after the fork"
)


class Forkable(Protocol):
    """What can be found in a forked child."""

    def _forked(self) -> None:
        """Called in the child, on its copy, before anything else happens there."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def when_forked(thing: Forkable) -> None:
    """Have ``thing._forked()`` called in every forked child of this process."""
    _known.add(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing._forked()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_in_child)
