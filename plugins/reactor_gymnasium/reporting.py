"""Tables, figures and confidence intervals of all reports, printed and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import html_figure, html_table, require_extra

__all__ = ["Table", "histogram", "interval_of", "intervals_told", "saved_figure"]

BARS, WIDTH, HEIGHT = 20, 420, 120
"""Most bars of a histogram, and pixels of it: what fits beside a table on half a page."""


@dataclass(frozen=True)
class Table:
    """A table of a report, with the lines around it: plain text by ``str()``, HTML for a notebook.

    Attributes:
        title: The line above; empty for none.
        head: Names of the columns.
        rows: The cells, as many in each row; the first of a row is its name.
        notes: The lines below.
        shades: How dark the cells beside the names are in a notebook, each from 0 to 1; ``None`` for all alike.
        flush_right: Whether the text is flush right, as numbers are.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    shades: Sequence[Sequence[float]] | None = None
    flush_right: bool = False

    def __str__(self) -> str:
        table = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        fill = str.rjust if self.flush_right else str.ljust
        lines = ["  ".join(map(fill, row, widths)).rstrip() for row in table]
        return "\n".join([*([self.title] if self.title else []), *lines, *self.notes])

    def html(self, figure: str = "") -> str:
        """The same in a notebook, with a figure below: HTML or SVG."""
        return html_figure("\n".join([self.title, *self.notes]), html_table(self.head, self.rows, self.shades) + figure)


# ---------------------------------------------------------------------- figures


def histogram(values: npt.NDArray[Any], name: str) -> str:
    """Draw a histogram of the finite numbers, as SVG. Returns an empty string if no number is finite.

    Args:
        values: The numbers, ``(n,)``.
        name: What they are, for the axis.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    counts, edges = np.histogram(finite, min(BARS, len(finite)))
    width = WIDTH / len(counts)
    bars = "".join(
        f'<rect x="{at * width + 1:.1f}" y="{HEIGHT * (1 - count / counts.max()):.1f}" width="{width - 2:.1f}" '
        f'height="{HEIGHT * count / counts.max():.1f}" fill="#4080e0"><title>{count} of {edges[at]:.4g} to '
        f"{edges[at + 1]:.4g}</title></rect>"
        for at, count in enumerate(counts.tolist())
    )
    axis = (
        f'<text x="0" y="{HEIGHT + 14}" font-size="11" fill="currentColor">{edges[0]:.4g}</text><text x="{WIDTH}" '
        f'y="{HEIGHT + 14}" font-size="11" fill="currentColor" text-anchor="end">{name} {edges[-1]:.4g}</text>'
    )
    return f'<svg width="{WIDTH}" height="{HEIGHT + 20}" xmlns="http://www.w3.org/2000/svg" role="img">{bars}{axis}</svg>'


@contextmanager
def saved_figure(path: str | Path, what: str) -> Iterator[Any]:
    """Matplotlib's axes to draw on; when the block ends, the figure is written.

    Args:
        path: Of the file.
        what: Feature that needs it, for messages.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    with require_extra("pettingzoo", what):
        plt: Any = import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(layout="constrained")
    try:
        yield axes
        figure.savefig(path, dpi=120, bbox_inches="tight")
    finally:
        plt.close(figure)


# ---------------------------------------------------------------------- confidence intervals


def interval_of(values: Sequence[float] | npt.NDArray[Any], level: float = 0.95) -> tuple[float, float]:
    """The confidence interval of a mean.

    Args:
        values: What the mean is of, ``(n,)``. For numbers it is Student's interval, for an array of truth values Wilson's. If scipy
            is not installed, it is the normal one for both, which is narrower where there are few; that of a rate ends at 0 and 1.
        level: How sure it is to be, between 0 and 1.

    Returns:
        Its ends; of fewer than two values, NaN, but for Wilson's of one.

    Raises:
        ValueError: If the level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    given = np.asarray(values)
    count, rate = len(given), given.dtype == np.bool_
    if rate and count and (stats := _scipy("stats")) is not None:
        found = stats.binomtest(int(given.sum()), count).proportion_ci(level, "wilson")
        return float(found.low), float(found.high)
    if count < 2:
        return math.nan, math.nan
    numbers = given.astype(np.float64)
    if (numbers == numbers[0]).all():  # their mean may be rounded to another one
        return float(numbers[0]), float(numbers[0])
    special, upper = _scipy("special"), (1 + level) / 2  # `stats.t.ppf` calls this, and takes a second to be imported
    quantile = NormalDist().inv_cdf(upper) if special is None else float(special.stdtrit(count - 1, upper))
    with np.errstate(invalid="ignore"):  # of infinite ones
        middle, half = float(numbers.mean()), quantile * float(numbers.std(ddof=1)) / math.sqrt(count)
    return (max(0.0, middle - half), min(1.0, middle + half)) if rate else (middle - half, middle + half)


def intervals_told(rates: bool = False) -> str:
    """Which 95 % intervals a report shows.

    Args:
        rates: Whether there are rates among its numbers.
    """
    if _scipy("special") is None:
        return "95 % intervals are normal ones, for scipy is not installed"
    return "95 % intervals are Student's" + (", and Wilson's of rates" if rates else "")


def _scipy(name: str) -> Any:
    """A package of scipy's, ``None`` if scipy is not installed."""
    try:
        return getattr(import_module("scipy"), name)
    except ImportError:
        return None
