"""Whether the compiled kernels for networks are in use here, for ``python -m reactor_rl doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.plugin import compiled_kernel

__all__ = ["networks"]


def networks() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, if it is missing, a warning."""
    yield from compiled_kernel(
        "small networks", "reactor_torch._network", "portable; large batches by numpy",
        "numpy evaluates them, in up to fifteen times as long",
    )  # fmt: skip
    yield from compiled_kernel(
        "learners", "reactor_torch._layers", "portable", "torch computes activations, in several times as long"
    )
