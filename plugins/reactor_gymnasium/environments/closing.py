"""Closing environments when the reactor that holds them ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["close_all"]


def close_all(envs: Iterable[tuple[int, Any]], unit: str = "environment") -> None:
    """Close every environment, even if closing one fails; the first error is raised.

    Args:
        envs: Each with its index.
        unit: What each is called in messages.
    """
    errors = []
    for index, env in envs:
        try:
            env.close()
        except Exception as error:
            error.add_note(f"while {unit} {index} was closed")
            errors.append(error)
    if errors:
        raise errors[0]
