"""Ratios as SVG that stands in an HTML page: its colours are the page's, and its letters are large enough for a phone.

A row is a rival: a dot for the median, a line from the lowest to the highest round. The axis is logarithmic; right of 1 ours is
faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from tabulated import digits

WIDTH, ROW, HEAD, FOOT, SIDE = 360, 36, 8, 26, 12
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
FEW = (0.01, 0.1, 1, 10, 100, 1000)


def ratios(found: Mapping[str, Mapping[str, float]]) -> str:
    """A chart of ratios.

    Args:
        found: By rival: ``median``, ``min`` and ``max`` of how many times as fast ours is.
    """
    rows = {name: one for name, one in found.items() if min(one["min"], one["median"]) > 0}
    if not rows:
        return ""
    low = min(0.8, *(one["min"] for one in rows.values()))
    high = max(1.25, *(one["max"] for one in rows.values()))

    def x(value: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE) * math.log(value / low) / math.log(high / low)

    height = HEAD + ROW * len(rows) + FOOT
    bottom = height - FOOT
    ticks = [tick for tick in (FEW if high / low > 100 else TICKS) if low <= tick <= high]
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="how many times as fast ours is">']
    for tick in ticks:
        kind = "one" if tick == 1 else "grid"
        parts.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{HEAD}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 9}">{tick:g}</text>')
    for number, (name, one) in enumerate(rows.items()):
        top = HEAD + number * ROW
        kind = "win" if one["median"] >= 1 else "loss"
        middle = top + 26
        parts.append(f'<text class="name" x="{SIDE}" y="{top + 14}">{escape(name)}</text>')
        parts.append(f'<text class="value" x="{WIDTH - SIDE}" y="{top + 14}">{digits(one["median"])}x</text>')
        parts.append(f'<line class="{kind} range" x1="{x(one["min"]):.1f}" x2="{x(one["max"]):.1f}" y1="{middle}" y2="{middle}"/>')
        parts.append(f'<circle class="{kind}" cx="{x(one["median"]):.1f}" cy="{middle}" r="4.5"/>')
    return "\n".join([*parts, "</svg>"])


def limit(found: Mapping[str, float]) -> str:
    """A bar from 0 to 1: what share of the physical limit was reached, the line from the lowest to the highest round."""
    top = max(1.0, found["max"])

    def x(value: float) -> float:
        return SIDE + (WIDTH - 2 * SIDE) * value / top

    return "\n".join(
        [
            f'<svg class="chart" viewBox="0 0 {WIDTH} 46" role="img" aria-label="share of the limit">',
            f'<text class="name" x="{SIDE}" y="14">of the limit: cores x the bare loop</text>',
            f'<text class="value" x="{WIDTH - SIDE}" y="14">{found["median"]:.2f}</text>',
            f'<rect class="empty" x="{x(0):.1f}" y="22" width="{x(1) - x(0):.1f}" height="12" rx="3"/>',
            f'<rect class="full" x="{x(0):.1f}" y="22" width="{x(found["median"]) - x(0):.1f}" height="12" rx="3"/>',
            f'<line class="range mark" x1="{x(found["min"]):.1f}" x2="{x(found["max"]):.1f}" y1="28" y2="28"/>',
            "</svg>",
        ]
    )
