"""Settings of the calling process that change the results of arithmetic, so that helpers can have the same.

The rounding mode, and whether numbers that are nearly 0 become 0, belong to each thread; so does what numpy does at an
overflow. Torch's default dtype and its choice of algorithms belong to a process. They are read when a run starts, and only
settings that differ from the defaults travel.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import os
import platform
import sys
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Arithmetic", "arithmetic", "take"]

_SIZE = 256
"""Bytes reserved for the processor's settings: ``fenv_t`` takes 32 in glibc on x86-64, fewer elsewhere. Nobody asks the C library
how many, so there are many more.
"""
_ERRORS: dict[str, Any] = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_TORCH = {"dtype": "float32", "deterministic": (False, False)}


class Arithmetic(NamedTuple):
    """Settings that change the result of a calculation; each is empty unless it differs from its default.

    Attributes:
        machine: The kind of processor and system that ``floats`` belongs to.
        floats: The processor's settings for this thread (``fegetenv``).
        errors: numpy's reaction to each floating-point error (``np.geterr()``).
        torch: Settings of torch.
    """

    machine: str
    floats: bytes
    errors: dict[str, Any]
    torch: dict[str, Any]


def arithmetic() -> Arithmetic:
    """Read the settings of the calling thread. Imports nothing."""
    # Functions that numpy calls at an error do not travel.
    errors = {kind: "warn" if answer in ("call", "log") else answer for kind, answer in np.geterr().items()}
    return Arithmetic(_machine(), _floats(), {} if errors == _ERRORS else errors, _of_torch(sys.modules.get("torch")))


def take(settings: Arithmetic, alone: bool = False) -> None:
    """Apply settings to this thread, which is a helper's. Torch is imported if any of its settings differ from the defaults.

    Args:
        settings: Settings of the caller.
        alone: Whether the process belongs to the helper alone.

    Raises:
        ImportError: If torch has to be imported and is not installed.
    """
    if settings.errors:
        np.seterr(**settings.errors)
    if _of_torch(sys.modules.get("torch")) != settings.torch:
        torch: Any = importlib.import_module("torch")
        wanted: dict[str, Any] = {**_TORCH, **settings.torch}
        torch.set_default_dtype(getattr(torch, wanted["dtype"]))
        always, warn_only = wanted["deterministic"]
        torch.use_deterministic_algorithms(always, warn_only=warn_only)
    if settings.floats and settings.machine == _machine():
        if alone:
            _read_source_as_usual()
        _put(settings.floats)


def _of_torch(torch: Any) -> dict[str, Any]:
    if not hasattr(torch, "is_deterministic_algorithms_warn_only_enabled"):  # not loaded, or not to its end
        return {}
    found = {
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value != _TORCH[name]}


# ---------------------------------------------------------------------- the processor


def _c_library() -> Any:
    try:
        library = ctypes.CDLL(None if os.name == "posix" else "ucrtbase")
    except (OSError, TypeError):
        return None
    # A system without these functions cannot change the settings either.
    return library if all(hasattr(library, name) for name in ("fegetenv", "fesetenv", "fegetround")) else None


_libc = _c_library()


def _machine() -> str:
    return f"{sys.platform} {platform.machine()}"


def _floats() -> bytes:
    smallest, one, half = sys.float_info.min, 1.0, 0.5  # in variables: what is written out is computed by the compiler
    # The defaults: to nearest (0 on every processor that we know), and denormal numbers are neither results nor inputs of 0.
    if _libc is None or (_libc.fegetround() == 0 and smallest * half > 0.0 and smallest * sys.float_info.epsilon * one != 0.0):
        return b""
    return _now()


def _now() -> bytes:
    found = ctypes.create_string_buffer(_SIZE)
    _libc.fegetenv(found)
    return found.raw


def _put(floats: bytes) -> None:
    _libc.fesetenv(ctypes.create_string_buffer(floats, _SIZE))


def _read_source_as_usual() -> None:
    """Compile modules from here on with default rounding, as in the caller, which imported them before it changed that."""
    usual, loader, compiled = _now(), importlib.machinery.SourceFileLoader, importlib.machinery.SourceFileLoader.source_to_code

    def source_to_code(self: Any, *args: Any, **kwargs: Any) -> Any:
        mine = _now()
        _put(usual)
        try:
            return compiled(self, *args, **kwargs)
        finally:
            _put(mine)

    loader.source_to_code = source_to_code  # type: ignore[method-assign]
