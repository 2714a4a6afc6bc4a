"""The SVG writer: self-contained, with nothing but rectangles, paths and text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from reactor_rl.drawing.layout import MARGIN, ROW, SIZE, SMALL, STACK, Arrangement, Node, text_width
from reactor_rl.drawing.picture import Arrow, Picture

__all__ = ["svg"]

FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
INK, FAINT, EDGE, PAPER, PLAIN = "#1b1f24", "#57606a", "#3b4550", "#ffffff", "#eef1f4"


def svg(picture: Picture) -> str:
    """The picture as a self-contained SVG."""
    layout = Arrangement(picture)
    legend, legend_width, legend_rows = _legend(picture.legend, max(layout.width, 480))
    width = max(layout.width, legend_width, text_width(picture.name, SIZE + 3) + 2 * MARGIN)
    head = 2 * MARGIN + ROW * legend_rows + 20
    height = head + layout.bottom - layout.top + MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{FONT}" font-size="{SIZE}" fill="{INK}">',
        f"<title>{_escaped(picture.name)}</title>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',  # a page in dark mode shows it as it is
        _text(MARGIN, 32, picture.name, size=SIZE + 3, weight="bold"),
        *legend,
        f'<g transform="translate(0 {head - layout.top})">',
    ]
    for node in layout.nodes:
        parts += _node(node)
    labelled: set[tuple[int, str]] = set()
    for index, arrow in enumerate(picture.arrows):
        parts += _arrow(layout, index, arrow, labelled)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _legend(entries: Sequence[tuple[str, str]], width: float) -> tuple[list[str], float, int]:
    """Its elements, the width that it takes and its rows."""
    parts: list[str] = []
    x, row, widest = float(MARGIN), 1, 0.0
    for label, colour in entries:
        step = 34 + text_width(label, SMALL)
        if x > MARGIN and x + step > width:
            x, row = MARGIN, row + 1
        y = 2 * MARGIN + ROW * (row - 1) + 6
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="14" height="14" rx="3" fill="{colour}" stroke="{EDGE}"/>')
        parts.append(_text(x + 20, y + 11, label, size=SMALL))
        x += step
        widest = max(widest, x)
    return parts, widest + MARGIN if entries else 0, row if entries else 0


def _node(node: Node) -> Iterable[str]:
    box, x, y, width, height = node.box, node.x, node.y, node.width, node.height
    yield f'<g id="{_escaped(box.key)}">'
    if not box.kind:
        # A flag that points the way of the flow: into the program, or out of it.
        tip = 10
        yield (
            f'<path d="M{x} {y - 4}h{width - tip}l{tip} {height / 2 + 4}l{-tip} {height / 2 + 4}h{tip - width}z" '
            f'fill="{PAPER}" stroke="{EDGE}" stroke-width="1.6"/>'
        )
        yield _text(x + 12, y + 14, box.title, weight="bold")
    else:
        frame = f'width="{width}" height="{height}" rx="5"'
        if box.shape == "bank":
            for back in (STACK, STACK // 2):
                yield f'<rect x="{x + back}" y="{y - back}" {frame} fill="{PAPER}" stroke="{FAINT}"/>'
        yield f'<rect x="{x}" y="{y}" {frame} fill="{PAPER}"/>'
        yield from _header(node)
        yield f'<rect x="{x}" y="{y}" {frame} fill="none" stroke="{EDGE}" stroke-width="1.3"/>'
        yield _text(x + 10, y + 16, box.title, size=SIZE + 1, weight="bold")
        yield _text(x + 10, y + 33, box.kind, size=SMALL, style="italic", fill=FAINT)
        if box.placed:
            yield _text(x + 10, y + 53, box.placed, size=SMALL)
        for name in box.inputs:
            at = y + node.port(name, output=False)
            yield f'<circle cx="{x}" cy="{at}" r="3" fill="{PAPER}" stroke="{EDGE}"/>'
            yield _text(x + 10, at + 4, name, size=SMALL)
        for name in box.outputs:
            at = y + node.port(name, output=True)
            yield f'<circle cx="{x + width}" cy="{at}" r="3" fill="{EDGE}"/>'
            yield _text(x + width - 10, at + 4, name, size=SMALL, anchor="end")
        first = y + height - ROW * len(node.lines) - 8
        if node.lines:
            yield f'<path d="M{x} {first - 4}h{width}" stroke="{FAINT}" stroke-width="0.6"/>'
        for number, line in enumerate(node.lines):
            yield _text(x + 10, first + ROW * number + 12, line, size=SMALL)
    yield "</g>"


def _header(node: Node) -> Iterable[str]:
    """One stripe for each worker."""
    colours = node.box.colours or (PLAIN,)
    stripe = (node.width - 2) / len(colours)
    for number, colour in enumerate(colours):
        x, height = node.x + 1 + number * stripe, node.header - 4
        yield f'<rect x="{x:.2f}" y="{node.y + 1}" width="{stripe:.2f}" height="{height}" fill="{colour}"/>'


def _arrow(layout: Arrangement, index: int, arrow: Arrow, labelled: set[tuple[int, str]]) -> Iterable[str]:
    points = layout.points(index)
    tip_x, tip_y = points[-1]
    points[-1] = (tip_x - 7, tip_y)
    if layout.nets[index][0] == "target":
        points.reverse()  # dashes of lines that share their end must agree there
    dashes = ' stroke-dasharray="6 4"' if arrow.delay else ""
    yield "<g>"
    yield f"<title>{_escaped(' · '.join((arrow.ports, arrow.content, *arrow.marks)))}</title>"
    yield f'<path d="{_path(points)}" fill="none" stroke="{EDGE}" stroke-width="1.4"{dashes}/>'
    yield f'<path d="M{tip_x:.1f} {tip_y}l-8 -4v8z" fill="{EDGE}"/>'
    label = layout.label(arrow)
    if label and (arrow.target, arrow.target_port) not in labelled:
        labelled.add((arrow.target, arrow.target_port))
        yield _text(tip_x - 9, tip_y - 4, label, size=SMALL, anchor="end", fill=FAINT)
    yield "</g>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A line with rounded corners."""
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(5.0, *(max(abs(here[0] - p[0]), abs(here[1] - p[1])) / 2 for p in (before, after)))
        (ax, ay), (bx, by) = (_towards(here, p, radius) for p in (before, after))
        path.append(f"L{ax:.1f} {ay:.1f}Q{here[0]:.1f} {here[1]:.1f} {bx:.1f} {by:.1f}")
    return "".join(path) + f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"


def _towards(here: tuple[float, float], there: tuple[float, float], distance: float) -> tuple[float, float]:
    dx, dy = there[0] - here[0], there[1] - here[1]
    length = max(abs(dx), abs(dy)) or 1.0
    return here[0] + dx / length * distance, here[1] + dy / length * distance


def _text(
    x: float, y: float, text: str, *, size: float = SIZE, weight: str = "", style: str = "", anchor: str = "", fill: str = ""
) -> str:
    attributes = (("font-weight", weight), ("font-style", style), ("text-anchor", anchor), ("fill", fill))
    extra = "".join(f' {name}="{value}"' for name, value in attributes if value)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" xml:space="preserve"{extra}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    # Control characters have no place in XML, not even escaped.
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(text, quote=False).replace('"', "&quot;")
