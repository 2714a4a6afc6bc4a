"""Whether the compiled kernel for Atari's frames is in use here, for ``python -m reactor_rl doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.plugin import compiled_kernel

__all__ = ["frames"]


def frames() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, if it is missing, a warning."""
    return compiled_kernel(
        "Atari frames", "reactor_gymnasium.atari._frames", "portable", "OpenCV makes them, in about ten times as long"
    )
