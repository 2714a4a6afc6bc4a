"""Optional parts: extras that pip installs, and C extensions, each of which has a portable fallback beside it.

Not every installation has a C compiler, so a missing extension is never an error; ``doctor`` reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["compiled_kernel", "compiled_module", "require_extra", "require_module"]

OURS = "reactor_"


@contextmanager
def require_extra(extra: str, what: str) -> Iterator[None]:
    """Report a module that is missing within the block together with the extra that installs it.

    Args:
        extra: Name of the extra in ``pyproject.toml``: ``"sb3"``.
        what: Feature that needs it, for the message: ``"reactor_sb3"``, ``"frames of this kind"``.

    Raises:
        ModuleNotFoundError: Naming module, extra and command, if a module outside of this distribution is missing.
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


def require_module(name: str, what: str) -> Any:
    """Import a library that is in no extra, for it serves a single method.

    Args:
        name: Of the library, and of its distribution.
        what: Feature that needs it, for the message.

    Raises:
        ModuleNotFoundError: Naming the command, if it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what} needs {name}: pip install {name}", name=name) from error


_log = logging.getLogger(__name__)


def compiled_module(name: str) -> Any:
    """Import a compiled module; ``None`` if it was not compiled."""
    try:
        return import_module(name)
    except ImportError as error:
        _log.info("%s was not compiled, using Python instead: %s", name, error)
        return None


def compiled_kernel(label: str, module: str, portable: str, without: str) -> Iterator[tuple[str, str, str | None]]:
    """Report a compiled kernel to ``doctor``, in one line.

    Args:
        label: Purpose of the kernel.
        module: Its module, which has an attribute ``AVX2``.
        portable: Name of the variant for processors without AVX2.
        without: Consequence if it is missing.

    Yields:
        Label, value and, if it is missing, a warning.
    """
    compiled = compiled_module(module)
    if compiled is None:
        advice = "install a C compiler and install reactor_rl again (without REACTOR_RL_NO_EXTENSION)"
        yield label, f"not compiled: {without}", f"the kernel for {label} was not compiled; {advice}"
    else:
        yield label, f"compiled kernel, {'AVX2' if compiled.AVX2 else portable}", None
