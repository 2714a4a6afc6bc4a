"""Keep things that are made once for a number of rows. Each round may have another number, for example where agents die."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["keep"]

KEPT = 4
"""How many numbers of rows things are kept for. A round has few: those of a minibatch, of its last one, and of their slices."""
K = TypeVar("K")
V = TypeVar("V")


def keep(kept: dict[K, V], key: K, made: V, most: int = KEPT) -> V:
    """Keep what was made for a key, and forget all others if there are as many as there may be.

    Args:
        kept: What is kept, by key.
        key: The key.
        made: What was made.
        most: How many may be kept.

    Returns:
        What was made.
    """
    if len(kept) >= most:
        kept.clear()
    kept[key] = made
    return made
