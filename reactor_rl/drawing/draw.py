"""Write a program as Mermaid, DOT or SVG, all from one model of boxes and arrows, or as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Literal

from reactor_rl.drawing.picture import Picture, picture
from reactor_rl.drawing.svg import svg
from reactor_rl.errors import ProgramError
from reactor_rl.schedule import Schedule
from reactor_rl.topology import Topology

__all__ = ["html_figure", "html_table", "draw"]

WIDE = "overflow-x:auto;max-width:100%"
CAPTION = "font-family:monospace;white-space:pre-wrap;margin:0 0 .5em"


def html_figure(caption: str, content: str) -> str:
    """HTML of a figure with a line of text above it. Wide content scrolls.

    Args:
        caption: Plain text.
        content: HTML or SVG.
    """
    return f'<div><p style="{CAPTION}">{escape(caption)}</p><div style="{WIDE}">{content}</div></div>'


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], shades: Sequence[Sequence[float]] | None = None) -> str:
    """HTML of a table of plain text.

    Args:
        head: Names of the columns.
        rows: The cells; the first of each row is its name.
        shades: How dark the other cells are, each from 0 to 1; ``None`` for all alike.
    """
    lines = ["<table><thead><tr>", *(f"<th>{escape(cell)}</th>" for cell in head), "</tr></thead><tbody>"]
    for at, (name, *cells) in enumerate(rows):
        lines.append(f"<tr><th>{escape(name)}</th>")
        for column, cell in enumerate(cells):
            # One translucent colour is legible on a light page and on a dark one.
            style = "" if shades is None else f' style="background:rgba(64,128,224,{0.6 * shades[at][column]:.2f})"'
            lines.append(f"<td{style}>{escape(cell)}</td>")
        lines.append("</tr>")
    return "".join([*lines, "</tbody></table>"])


Format = Literal["mermaid", "dot", "svg"]

ENDINGS: dict[str, Format] = {".mmd": "mermaid", ".dot": "dot", ".svg": "svg"}


def draw(
    topology: Topology, path: str | None = None, format: Format | None = None, *, schedule: Schedule | None = None,
    nodes: Sequence[int] | None = None,
) -> str:  # fmt: skip
    """Draw a program; see :meth:`reactor_rl.Program.draw`.

    Args:
        topology: The program.
        path: File to write; ``None`` to write none.
        format: ``"mermaid"``, ``"dot"`` or ``"svg"``. Without it the ending of ``path`` chooses, and without that Mermaid.
        schedule: Schedule from which the worker of each reactor is shown.
        nodes: Node of each reactor, shown in place of the worker.

    Returns:
        The text of the picture.

    Raises:
        ProgramError: If the format is unknown. Nothing is written then.
        OSError: If the file cannot be written.
    """
    writers = {"mermaid": _mermaid, "dot": _dot, "svg": svg}
    if format is None:
        ending = Path(path).suffix.lower() if path is not None else ".mmd"
        if ending not in ENDINGS:
            raise ProgramError(
                f"the format does not follow from the ending of {str(path)!r}: use .mmd, .dot or .svg, or give format="
            )
        format = ENDINGS[ending]
    elif format not in writers:
        raise ProgramError(f"format must be 'mermaid', 'dot' or 'svg', got {format!r}")
    text = writers[format](picture(topology, schedule, nodes))
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _mermaid(picture: Picture) -> str:
    shapes = {"reactor": '["{}"]', "bank": '[["{}"]]', "input": '(["{}"])', "output": '(["{}"])'}
    lines = ["flowchart LR", f"    %% program {_mermaid_text(picture.name)}"]
    for box in picture.boxes:
        rows = [f"<b>{_mermaid_text(box.title)}</b>"]
        if box.kind:
            rows.append(f"<i>{_mermaid_text(box.kind)}</i>")
        rows += map(_mermaid_text, (*box.reactions, *filter(None, [box.placed])))
        lines.append(f"    {box.key}{shapes[box.shape].format('<br/>'.join(rows))}")
    for arrow in picture.arrows:
        label = _mermaid_text(" · ".join((arrow.ports, *arrow.marks)))
        source, target = picture.boxes[arrow.source].key, picture.boxes[arrow.target].key
        lines.append(f'    {source} -. "{label}" .-> {target}' if arrow.delay else f'    {source} -- "{label}" --> {target}')
    lines.append("    classDef boundary fill:#fff,stroke:#444,stroke-width:2px,color:#111")
    if boundary := [box.key for box in picture.boxes if box.shape in ("input", "output")]:
        lines.append(f"    class {','.join(boundary)} boundary")
    if picture.legend:
        lines.append("    subgraph legend")
    for worker, (label, _) in enumerate(picture.legend):
        lines.append(f'        worker{worker}["{label}"]')
    if picture.legend:
        lines.append("    end")
    for worker, (_, colour) in enumerate(picture.legend):
        held = [box.key for box in picture.boxes if box.workers == (worker,)]  # a bank on several workers has its label only
        lines.append(f"    classDef on{worker} fill:{colour},stroke:#444,color:#111")
        lines.append(f"    class {','.join([*held, f'worker{worker}'])} on{worker}")
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """Escape text for Mermaid, whose entity codes are written with # in place of &."""
    codes = {
        "#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "`": "#96;", "\\": "#92;",
        "{": "#123;", "}": "#125;",  # which begin and end a directive in a comment
    }  # fmt: skip
    return "".join(codes.get(c, c) for c in _line(text))


def _dot(picture: Picture) -> str:
    lines = [f"digraph {_quoted(picture.name)} {{"]
    lines.append('    graph [rankdir=LR, bgcolor="white", fontname="Helvetica"]')
    lines.append('    node [fontname="Helvetica", fontsize=11, style=filled, fillcolor="#f4f4f4", shape=box]')
    lines.append('    edge [fontname="Helvetica", fontsize=9]')
    shapes = {"reactor": "shape=box", "bank": "shape=box, peripheries=2", "input": "shape=cds", "output": "shape=cds"}
    for box in picture.boxes:
        # \l ends a line and sets it flush left.
        rows = [box.title, *filter(None, [box.kind]), *box.reactions, *filter(None, [box.placed])]
        label = '"' + "".join(_quoted(row)[1:-1] + "\\l" for row in rows) + '"' if box.kind else _quoted(box.title)
        attributes = shapes[box.shape]
        if len(box.workers) > 1:
            attributes += f', style=striped, fillcolor="{":".join(box.colours)}"'
        elif box.workers:
            attributes += f', fillcolor="{box.colours[0]}"'
        elif not box.kind:
            attributes += ', fillcolor="white"'
        lines.append(f"    {box.key} [label={label}, {attributes}]")
    for arrow in picture.arrows:
        label = _quoted(arrow.ports)[:-1] + "".join(f"\\n{_quoted(mark)[1:-1]}" for mark in arrow.marks) + '"'
        style = ", style=dashed" if arrow.delay else ""
        lines.append(f"    {picture.boxes[arrow.source].key} -> {picture.boxes[arrow.target].key} [label={label}{style}]")
    if picture.legend:
        lines.append(f'    subgraph cluster_legend {{ label="{picture.places}s"; color="#888888"')
        lines += [f'        worker{w} [label="{label}", fillcolor="{colour}"]' for w, (label, colour) in enumerate(picture.legend)]
        lines.append("    }")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """Quote text for DOT. Graphviz reads entities in labels, and names must not become markup in a page that shows this text."""
    return '"' + escape(_line(text), quote=False).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _line(text: str) -> str:
    """Put text on one line, without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
