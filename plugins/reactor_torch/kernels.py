"""Which code computes networks here: an extension of our own, in the form that suits the processor, or torch.

The forms of the extension (AVX-512, AVX2, NEON, portable C) are written to give the same bits; one that does not give those of
portable C is not used. ``REACTOR_RL_ISA`` names one that is to be used.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import compiled_kernel, compiled_module

__all__ = ["Team", "compiled", "differentiating", "disagreeing", "gather", "networks"]

Array = npt.NDArray[Any]

VARIABLE = "REACTOR_RL_ISA"
KINDS = ("avx512", "avx2", "neon", "portable")
_LABELS = {"avx512": "compiled, AVX-512", "avx2": "compiled, AVX2", "neon": "compiled, NEON", "portable": "compiled, portable"}
_FUSED = ("aarch64", "arm64")
"""Machines on which portable C has fused multiply-adds; elsewhere they are calls of a function, and torch is faster."""


def _chosen(module: Any, wanted: str) -> tuple[Any, list[str]]:
    """The extension with its kind chosen, ``None`` for torch; and the kinds that do not give the portable one's bits."""
    if wanted and wanted not in KINDS:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(KINDS)}, got {wanted!r}")
    if module is None:
        return None, []
    kinds, wrong = module.kinds(), []
    if wanted and wanted not in kinds:
        raise ValueError(f"{VARIABLE}={wanted}: this processor has {', '.join(kinds)}")
    for kind in [wanted] if wanted else kinds:
        if kind != "portable" and not module.check(kind):
            wrong.append(kind)
            continue
        if kind == "portable" and not wanted and platform.machine() not in _FUSED:
            break
        module.use(kind)
        return module, wrong
    return None, wrong


compiled: Any
compiled, disagreeing = _chosen(compiled_module("reactor_torch._products"), os.environ.get(VARIABLE, ""))
"""The extension, ``None`` for torch; and kinds of it that are not used because their bits are not the portable ones."""


def differentiating() -> str:
    """The code that computes networks and their gradients here: ``"compiled, AVX2"``, for instance, or ``"torch"``."""
    return "torch" if compiled is None else _LABELS[compiled.using()]


class Team:
    """Threads that help the one that enters it with dense layers, by the extension alone. Who computes what changes no bit.

    Within the ``with`` block they look for work all the time; before and after it they sleep. A child of ``fork()`` has no such
    threads.

    Args:
        threads: How many there are, with the one that enters it. With one, or without the extension, nobody helps.
    """

    def __init__(self, threads: int) -> None:
        self._threads: Any = None if threads == 1 or compiled is None else compiled.Team(threads)

    def __enter__(self) -> None:
        if self._threads is not None:
            self._threads.__enter__()

    def __exit__(self, *exception: object) -> None:
        if self._threads is not None:
            self._threads.__exit__(*exception)

    def close(self) -> None:
        """End the threads; nobody helps from then on."""
        if self._threads is not None:
            self._threads.close()


def _gathered(rows: npt.NDArray[np.int64], sources: tuple[Array, ...], targets: tuple[Array, ...]) -> None:
    """Copy the same rows of several arrays.

    Args:
        rows: Their numbers, ``(n,)``.
        sources: Arrays without gaps, ``(any, ...)``.
        targets: Where the rows of each go, ``(n, ...)`` of its type.
    """
    for source, target in zip(sources, targets, strict=True):
        source.take(rows, 0, target, "clip")  # `mode="raise"` would gather into other memory first


gather = _gathered if compiled is None else compiled.gather
"""Copies the same rows of several arrays, see :func:`_gathered`."""


def networks() -> Iterator[tuple[str, str, str | None]]:
    """Report to ``doctor`` which kernels for networks are in use here: label, value and, if one is missing, a warning."""
    if compiled is None and not disagreeing and compiled_module("reactor_torch._products") is None:
        slower = "torch computes them, and autograd learns: small networks take many times as long"
        yield from compiled_kernel("networks", "reactor_torch._products", "", slower)
    else:
        value = "torch, and autograd learns: this processor has no fused multiply-adds"
        if compiled is not None:
            value = f"compiled kernel, {differentiating().removeprefix('compiled, ')}"
        wrong = ", ".join(disagreeing)
        warning = f"the kernel for networks has other bits as {wrong} than as portable C, and is not used so" if wrong else None
        yield "networks", value, warning
