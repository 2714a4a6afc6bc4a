"""Which of the compiled kernels are in use here, for ``python -m reactor_rl doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

__all__ = ["kernels"]

KERNELS = (
    ("Atari frames", "_frames", "portable", "OpenCV makes them, in about ten times as long"),
    ("small networks", "_network", "portable; large batches by numpy", "numpy evaluates them, in up to fifteen times as long"),
)
"""What each is for, its module, what it is where the processor has no AVX2, and what happens without it."""


def kernels() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, where something is missing, a warning."""
    for label, name, portable, without in KERNELS:
        module = _compiled(name)
        if module is None:
            advice = "install a C compiler and install reactor_rl again (without REACTOR_RL_NO_EXTENSION)"
            yield label, f"not compiled: {without}", f"the kernel for {label} was not compiled; {advice}"
        else:
            yield label, f"compiled kernel, {'AVX2' if module.AVX2 else portable}", None


def _compiled(name: str) -> ModuleType | None:
    try:
        return import_module(f"reactor_gymnasium.{name}")
    except ImportError:
        return None
