"""Whether the compiled kernels for networks are in use here, for ``python -m reactor_rl doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.plugin import compiled_kernel, compiled_module
from reactor_torch import kernels

__all__ = ["networks"]


def networks() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, if it is missing, a warning."""
    yield from compiled_kernel(
        "small networks", "reactor_torch._network", "portable; large batches by numpy",
        "numpy evaluates them, in up to fifteen times as long",
    )  # fmt: skip
    if kernels.compiled is None and not kernels.disagreeing and compiled_module("reactor_torch._products") is None:
        yield from compiled_kernel("learners", "reactor_torch._products", "", "torch computes dense layers, in twice the time")
    else:
        value = "torch: this processor has no fused multiply-adds"
        if kernels.compiled is not None:
            value = f"compiled kernel, {kernels.differentiating().removeprefix('compiled, ')}"
        wrong = ", ".join(kernels.disagreeing)
        warning = f"the kernel for learners has other bits as {wrong} than as portable C, and is not used so" if wrong else None
        yield "learners", value, warning
