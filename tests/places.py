"""Where what is tested runs."""

from __future__ import annotations

from typing import Any

INLINE: dict[str, Any] = {"executor": "inline"}
THREADS: dict[str, Any] = {"executor": "threads", "workers": 2}
PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 2}
PLACES = [INLINE, THREADS, PROCESSES]
WAITING: dict[str, Any] = {"caller_works": False}
"""Besides: the caller takes no part of the work."""
