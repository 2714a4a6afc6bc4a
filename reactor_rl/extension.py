"""Compiled extensions of a plugin, each of which has a portable way beside it: not every installation has a C compiler."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

__all__ = ["extension"]

_log = logging.getLogger(__name__)


def extension(name: str) -> Any:
    """A compiled module, ``None`` where nobody has compiled it."""
    try:
        return import_module(name)
    except ImportError as error:
        _log.info("%s is not in use, what it does is done in Python: %s", name, error)
        return None
