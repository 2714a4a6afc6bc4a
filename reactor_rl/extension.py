"""Compiled extensions of a plugin, each of which has a portable way beside it: not every installation has a C compiler."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["extension"]


def extension(name: str) -> Any:
    """A compiled module, ``None`` where nobody has compiled it."""
    try:
        return import_module(name)
    except ImportError:
        return None
