"""Which code computes dense layers here: an extension of our own, in the form that suits the processor, or torch.

All forms of the extension (AVX-512, AVX2, NEON, portable C) give the same bits. ``REACTOR_RL_ISA`` names one that is to be used.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from reactor_rl.plugin import compiled_module

__all__ = ["compiled", "differentiating", "disagreeing"]

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
    """What computes dense layers and their gradients here: ``"compiled, AVX2"``, for instance, or ``"torch"``."""
    return "torch" if compiled is None else _LABELS[compiled.using()]
