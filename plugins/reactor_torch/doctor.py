"""Whether the compiled kernel for small networks is in use here, for ``python -m reactor_rl doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.plugin import compiled_kernel

__all__ = ["networks"]


def networks() -> Iterator[tuple[str, str, str | None]]:
    """Label, value and, if it is missing, a warning."""
    return compiled_kernel(
        "small networks", "reactor_torch._network", "portable; large batches by numpy",
        "numpy evaluates them, in up to fifteen times as long",
    )  # fmt: skip
