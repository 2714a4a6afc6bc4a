"""What is made once for a number of rows, and kept: there may be another number in every round, where agents die say."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["keep"]

KEPT = 8
"""How many numbers of rows things are kept for. A round has few: those of a minibatch, of its last one, and of slices."""
K = TypeVar("K")
V = TypeVar("V")


def keep(kept: dict[K, V], key: K, made: V) -> V:
    """Keep what was made for a key, and forget all others if they have become too many. Returns it."""
    if len(kept) >= KEPT:
        kept.clear()
    kept[key] = made
    return made
