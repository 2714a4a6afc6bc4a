"""What ``python -m reactor_rl doctor`` says of a compiled kernel of a plugin."""

from __future__ import annotations

from collections.abc import Iterator

from reactor_rl.extension import extension

__all__ = ["compiled_kernel"]


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
