"""What a notebook shows of an object: its picture or its table, below the line that a terminal would have."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["html_figure", "html_table"]

WIDE = "overflow-x:auto;max-width:100%"
CAPTION = "font-family:monospace;white-space:pre-wrap;margin:0 0 .5em"


def html_figure(caption: str, content: str) -> str:
    """Something to look at, with a line of text above; what is too wide can be scrolled.

    Args:
        caption: Plain text.
        content: HTML or SVG.
    """
    return f'<div><p style="{CAPTION}">{escape(caption)}</p><div style="{WIDE}">{content}</div></div>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], shades: Sequence[Sequence[float]] | None = None) -> str:
    """A table of plain text.

    Args:
        head: Names of the columns.
        rows: The cells; the first of each row is its name.
        shades: How dark the other cells are, each from 0 to 1; ``None`` for all alike.
    """
    lines = ["<table><thead><tr>", *(f"<th>{escape(cell)}</th>" for cell in head), "</tr></thead><tbody>"]
    for at, (name, *cells) in enumerate(rows):
        lines.append(f"<tr><th>{escape(name)}</th>")
        for column, cell in enumerate(cells):
            # A veil of one colour is legible on a light page and on a dark one.
            style = "" if shades is None else f' style="background:rgba(64,128,224,{0.6 * shades[at][column]:.2f})"'
            lines.append(f"<td{style}>{escape(cell)}</td>")
        lines.append("</tr>")
    return "".join([*lines, "</tbody></table>"])
