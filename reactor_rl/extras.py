"""What a plugin says when the library that it is for is not installed: which extra brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs"]

OURS = "reactor_"


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Within it, a module that is missing is reported with the extra that brings it.

    Args:
        extra: As in ``pyproject.toml``: ``"sb3"``.
        what: What cannot be done without it: ``"reactor_sb3"``, ``"frames of this kind"``.

    Raises:
        ModuleNotFoundError: Naming module, extra and command, if a module is missing that is not part of this distribution.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(OURS):
            raise
        raise ModuleNotFoundError(
            f"{what} needs {error.name.partition('.')[0]}, which is not installed. The extra [{extra}] brings it: "
            f"in a checkout pip install '.[{extra}]', else pip install 'reactor-rl[{extra}] @ git+URL' with the URL of a clone",
            name=error.name,
        ) from error
