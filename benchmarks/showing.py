"""Results as tables and plots."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """An aligned table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for row in (head, *rows):
        first, *others = (
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join((first, *others)))
    sys.stdout.flush()


def rate_rows(found: Mapping[str, Any], ours: str, *, per_item: bool = False) -> list[list[str]]:
    """Rows of a table: contender, its rate (or time per item), how many times as fast ours is, lowest and highest round."""
    rows = []
    for name, rate in found["rates"].items():
        value = f"{1e6 / rate['median']:,.2f} us" if per_item else f"{rate['median']:,.0f}/s"
        ratio = found.get("ratios", {}).get(name)
        compared = [f"{ratio['median']:.2f}x", f"{ratio['min']:.2f}-{ratio['max']:.2f}"] if ratio else ["", ""]
        rows.append([name, value, *compared])
    rows += [[name, "skipped", why[:50], ""] for name, why in found.get("skipped", {}).items()]
    return rows


PANELS = 6
"""Most panels of a plot; tables have all cases."""


def bar_plot(path: Path, title: str, groups: Mapping[str, Mapping[str, float]], label: str) -> None:
    """Grouped horizontal bars from zero: one panel for each of the first six groups, one bar for each contender."""
    if os.environ.get("REACTOR_RL_NO_PLOTS"):  # the report draws its own
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, MaxNLocator

    groups = dict([(name, bars) for name, bars in groups.items() if bars][:PANELS])
    if not groups:
        return
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    height = max(1.2, 0.28 * max(len(bars) for bars in groups.values()) + 0.7)
    figure, axes = plt.subplots(rows, columns, figsize=(5.2 * columns, height * rows + 0.6), squeeze=False, layout="constrained")
    for axis in axes.flat[len(groups) :]:
        axis.axis("off")
    for axis, (name, bars) in zip(axes.flat, groups.items(), strict=False):
        names = list(bars)[::-1]
        values = [bars[one] for one in names]
        colours = ["#c44e52" if one.lower().startswith("reactor") else "#8c9bb5" for one in names]
        labels = [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values]
        axis.bar_label(axis.barh(names, values, color=colours), labels=labels, fontsize=7, padding=2)
        axis.set_title(name, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.margins(x=0.25)  # room for the figures beside the bars
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.suptitle(f"{title}\n{label}; {machine()['cores']} cores, {machine()['cpu']}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")
