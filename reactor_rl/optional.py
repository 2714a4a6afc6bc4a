"""Optional parts: extras that pip installs, and C extensions, each of which has a portable fallback beside it.

Not every installation has a C compiler, so a missing extension is never an error; ``doctor`` reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["needs", "extension", "compiled_kernel"]

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


_log = logging.getLogger(__name__)


def extension(name: str) -> Any:
    """A compiled module, ``None`` where nobody has compiled it."""
    try:
        return import_module(name)
    except ImportError as error:
        _log.info("%s is not in use, what it does is done in Python: %s", name, error)
        return None


def compiled_kernel(label: str, module: str, portable: str, without: str) -> Iterator[tuple[str, str, str | None]]:
    """One line of its report.

    Args:
        label: What the kernel is for.
        module: Its module, which has an attribute ``AVX2``.
        portable: What it is where the processor has no AVX2.
        without: What happens without it.

    Yields:
        Label, value and, where it is missing, a warning.
    """
    compiled = extension(module)
    if compiled is None:
        advice = "install a C compiler and install reactor_rl again (without REACTOR_RL_NO_EXTENSION)"
        yield label, f"not compiled: {without}", f"the kernel for {label} was not compiled; {advice}"
    else:
        yield label, f"compiled kernel, {'AVX2' if compiled.AVX2 else portable}", None
