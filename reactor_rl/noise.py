"""Noise for many rows, each of which has a generator of its own: in what is drawn for one, the others do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["NoiseKind", "draw_rows", "drawn_noise"]

Array = npt.NDArray[Any]
NoiseKind = Literal["none", "uniform", "normal", "gumbel", "logistic"]
"""Kinds of noise; ``"uniform"`` numbers are in [0, 1) and float64, all others float32."""
_TINY = np.float32(1e-30)
"""In place of 0, whose logarithm is infinite. A draw below it, other than 0, is out of reach in practice, and it is still a normal
float32, whose logarithm all processors take in the same way.
"""


def draw_rows(kind: NoiseKind, generators: Iterable[np.random.Generator | None], shape: tuple[int, ...]) -> Array:
    """Draw noise for some rows. The numbers of many draws from a generator are those of a large one, in order.

    Args:
        kind: Its kind.
        generators: Of each row; ``None`` for one that draws nothing, and has any noise.
        shape: ``(rows, ...)``.
    """
    noise = np.zeros(shape, np.float64 if kind == "uniform" else np.float32)
    draw = _DRAWS.get(kind)
    if draw is not None:
        for row, generator in zip(noise, generators, strict=True):
            if generator is not None:
                draw(generator, row)
    if kind == "gumbel":  # -log of exponential numbers
        np.maximum(noise, _TINY, out=noise)
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def drawn_noise(kind: NoiseKind, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw noise of any shape from one generator; see :func:`draw_rows`."""
    noise: Array = draw_rows(kind, (random,), (1, *shape))[0]
    return noise


def _logistic(random: np.random.Generator, out: Array) -> None:
    out[...] = random.logistic(size=out.shape)


_DRAWS: dict[str, Callable[[np.random.Generator, Array], object]] = {
    "uniform": lambda random, out: random.random(out=out),
    "normal": lambda random, out: random.standard_normal(out=out, dtype=np.float32),
    "gumbel": lambda random, out: random.standard_exponential(out=out, dtype=np.float32),
    "logistic": _logistic,
}
