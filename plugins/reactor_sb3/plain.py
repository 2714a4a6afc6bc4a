"""Convert numpy's numbers to Python's: in the arguments of a trainer, and in what a file can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """The same value without numpy's numbers, booleans and strings, also within lists, tuples and dicts; else as it is."""
    if isinstance(value, np.generic):
        item = value.item()
        return float(item) if isinstance(item, np.floating) else item  # a long double is one still
    if type(value) in (list, tuple):
        return type(value)([plain(part) for part in value])
    if type(value) is dict:
        return {plain(key): plain(part) for key, part in value.items()}
    return value
