"""Lay out a picture in columns and write it as a self-contained SVG of rectangles, paths and text.

The layout is layered, from left to right, with nothing but straight lines between ports. Columns follow the flow within a tick;
a delayed connection is a step to the right too, unless it closes a cycle. Every connection has a vertical track of its own
between two columns, so that lines cross but never run on top of each other. A connection that does not lead to the next column
takes a lane: forward above all boxes, backward below them. Text is monospaced, so that its width is known without a font.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from reactor_rl.drawing.picture import Arrow, Box, Picture

__all__ = ["MARGIN", "ROW", "SIZE", "SMALL", "STACK", "Layout", "PlacedBox", "text_width", "svg"]

# Pixels, chosen by eye; nothing but the looks depends on them.
ROW = 20  # lines end on this grid, so that ports of neighbouring boxes can face each other
MARGIN = 20  # around the picture, and below its name
TRACK = 10  # between upright lines beside each other
LANE = 12  # between level lines above or below all boxes
STACK = 8  # visible part of a bank's other members, above and to the right
SPACE = 40  # between boxes of one column
WRAP = 52  # characters of a reaction before it is broken
SIZE, SMALL = 12, 10.5  # of text, and of what is said besides
EM = 0.62  # width of a character of the widest monospaced font in use, by its size

Net = tuple[object, ...]


def text_width(text: str, size: float) -> float:
    cells = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return cells * size * EM


@dataclass
class PlacedBox:
    """A box with its position and size."""

    box: Box
    lines: list[str]
    column: int = 0
    x: float = 0
    y: int = 0
    width: float = 0
    height: int = 0
    nudged: dict[str, int] = field(default_factory=dict)  # inputs that are a little off the grid, see Layout._ordered

    @classmethod
    def of(cls, box: Box) -> PlacedBox:
        lines: list[str] = []
        for reaction in box.reactions:
            lines += textwrap.wrap(reaction, WRAP, subsequent_indent="     ", break_long_words=False, break_on_hyphens=False)
        if not box.kind:
            return cls(box, [], width=text_width(box.title, SIZE) + 44, height=ROW)
        ports = max(len(box.inputs), len(box.outputs))
        columns = [max((text_width(name, SMALL) for name in names), default=0) for names in (box.inputs, box.outputs)]
        width = max(
            text_width(box.title, SIZE + 1) + 20, text_width(box.kind, SMALL) + 20, text_width(box.placed, SMALL) + 20,
            sum(columns) + 52, *(text_width(line, SMALL) + 20 for line in lines),
        )  # fmt: skip
        node = cls(box, lines, width=math.ceil(width))
        node.height = node.header + ROW * (ports + len(lines)) + (ROW if lines else 0)
        return node

    @property
    def header(self) -> int:
        return ROW * (3 if self.box.workers else 2)

    def port(self, name: str, *, output: bool) -> int:
        """Height of a port, from the top of the box."""
        if not self.box.kind:
            return ROW // 2
        nudge = 0 if output else self.nudged.get(name, 0)
        return self.header + ROW * (self.box.outputs if output else self.box.inputs).index(name) + ROW // 2 + nudge


@dataclass
class _Track:
    """A vertical line between two columns, with the ends that it joins on the left and on the right."""

    left: set[int] = field(default_factory=set)
    right: set[int] = field(default_factory=set)
    lane: int | None = None  # height of the lane that it comes from or leads to
    x: float = 0

    @property
    def straight(self) -> bool:
        return self.lane is None and self.left == self.right and len(self.left) == 1

    @property
    def rank(self) -> int:
        """Sort key for fewest crossings: of tracks that lead down the highest is rightmost, of those that lead up the lowest."""
        start = min(self.left) if self.left else self.lane or 0
        end = min(self.right) if self.right else self.lane or 0
        return -start if end > start else start


class Layout:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.nodes = [PlacedBox.of(box) for box in picture.boxes]
        self._columns()
        self.columns: list[list[PlacedBox]] = [[] for _ in range(max((node.column for node in self.nodes), default=0) + 1)]
        for node in self.nodes:
            self.columns[node.column].append(node)
        self._heights()
        self._route()

    # ------------------------------------------------------------------ columns

    def _columns(self) -> None:
        """Assign columns by longest paths over an acyclic subset of the connections, those without delay first."""
        after: list[set[int]] = [set() for _ in self.nodes]

        def reaches(start: int, goal: int) -> bool:
            seen, todo = {start}, [start]
            while todo:
                here = todo.pop()
                if here == goal:
                    return True
                fresh = after[here] - seen
                seen |= fresh
                todo += fresh
            return False

        for arrow in sorted(self.picture.arrows, key=lambda a: a.delay > 0):  # stable: the program's order otherwise
            if not reaches(arrow.target, arrow.source):
                after[arrow.source].add(arrow.target)
        waiting = [0] * len(self.nodes)
        for targets in after:
            for target in targets:
                waiting[target] += 1
        ready = [index for index, count in enumerate(waiting) if not count]
        for here in ready:  # grows as it is walked
            for target in sorted(after[here]):
                self.nodes[target].column = max(self.nodes[target].column, self.nodes[here].column + 1)
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        for here in reversed(ready):  # what only feeds others, the boundary's inputs above all, stands next to its reader
            if after[here] and not any(here in targets for targets in after):
                self.nodes[here].column = min(self.nodes[target].column for target in after[here]) - 1

    # ------------------------------------------------------------------ heights

    def _heights(self) -> None:
        """Stack the columns, then let each follow its neighbours so that most connections are straight."""
        for column in self.columns:
            top = 0
            for node in column:
                node.y, top = top, top + node.height + SPACE
        last = len(self.columns) - 1
        sweeps = [*range(1, last + 1), *range(last - 1, -1, -1), *range(1, last + 1)]
        for sweep, column in enumerate(sweeps):
            self._follow(column, leftward=not last <= sweep < 2 * last)
        top = min((node.y for node in self.nodes), default=0)
        for node in self.nodes:
            node.y -= top

    def _follow(self, column: int, *, leftward: bool) -> None:
        wanted: dict[int, list[int]] = defaultdict(list)
        for arrow in self.picture.arrows:
            source, target = self.nodes[arrow.source], self.nodes[arrow.target]
            if source.column >= target.column:
                continue
            out, inp = source.port(arrow.source_port, output=True), target.port(arrow.target_port, output=False)
            if leftward and target.column == column:
                wanted[id(target)].append(source.y + out - inp)
            elif not leftward and source.column == column:
                wanted[id(source)].append(target.y + inp - out)
        nodes = self.columns[column]
        goal = {id(node): sorted(wanted[id(node)])[len(wanted[id(node)]) // 2] if wanted[id(node)] else node.y for node in nodes}
        nodes.sort(key=lambda node: goal[id(node)])  # stable: the program's order breaks ties
        bottom = None
        for node in nodes:
            node.y = goal[id(node)] if bottom is None else max(goal[id(node)], bottom + SPACE)
            bottom = node.y + node.height
        drift = sum(node.y - goal[id(node)] for node in nodes) // len(nodes)
        for node in nodes:
            node.y -= drift // ROW * ROW

    # ------------------------------------------------------------------ lines

    def _route(self) -> None:
        """Give every connection its tracks and its lane, then everything its coordinates."""
        self.tracks: list[dict[Net, _Track]] = [defaultdict(_Track) for _ in range(len(self.columns) + 1)]
        self.nets = self._nets()
        lanes = self._lanes()
        below = max((node.y + node.height for node in self.nodes), default=0)
        self.lane_y = {key: -STACK - LANE * (lane + 1) if key[1] else below + LANE * (lane + 1) for key, lane in lanes.items()}
        for arrow, net in zip(self.picture.arrows, self.nets, strict=True):
            source, target = self.nodes[arrow.source], self.nodes[arrow.target]
            out, inp = self._ends(arrow)
            if target.column == source.column + 1:
                track = self.tracks[target.column][net]
                track.left.add(out)
                track.right.add(inp)
                continue
            lane = self.lane_y[net, target.column > source.column]
            for gap, way, left, right in ((source.column + 1, "out", {out}, set()), (target.column, "in", set(), {inp})):
                track = self.tracks[gap][*net, way]
                track.left |= left
                track.right |= right
                track.lane = lane
        self._across()
        self.top = min([0, *(y - LANE for y in self.lane_y.values())])
        self.bottom = max([below, *(y + LANE for y in self.lane_y.values())])

    def _ends(self, arrow: Arrow) -> tuple[int, int]:
        source, target = self.nodes[arrow.source], self.nodes[arrow.target]
        return source.y + source.port(arrow.source_port, output=True), target.y + target.port(arrow.target_port, output=False)

    def _nets(self) -> list[Net]:
        """Group connections that share lines: those of one output, or those that meet in one input and have no other reader."""
        leaving: dict[tuple[int, str], int] = defaultdict(int)
        entering: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        for arrow in self.picture.arrows:
            leaving[arrow.source, arrow.source_port] += 1
            entering[arrow.target, arrow.target_port].append((arrow.source, arrow.source_port))
        nets: list[Net] = []
        for arrow in self.picture.arrows:
            sources = entering[arrow.target, arrow.target_port]
            if len(sources) > 1 and all(leaving[source] == 1 for source in sources):
                nets.append(("target", arrow.target, arrow.target_port, arrow.delay > 0))
            else:
                nets.append(("source", arrow.source, arrow.source_port, arrow.delay > 0))
        return nets

    def _lanes(self) -> dict[tuple[Net, bool], int]:
        """The lane of each net that needs one (above: True), short ones next to the boxes."""
        spans: dict[tuple[Net, bool], list[int]] = defaultdict(list)
        for arrow, net in zip(self.picture.arrows, self.nets, strict=True):
            source, target = self.nodes[arrow.source].column + 1, self.nodes[arrow.target].column
            if source != target:
                spans[net, target > source] += [source, target]
        lanes: dict[tuple[Net, bool], int] = {}
        for key, columns in sorted(spans.items(), key=lambda item: max(item[1]) - min(item[1])):
            taken = {
                lane
                for other, lane in lanes.items()
                if other[1] == key[1] and min(spans[other]) <= max(columns) and min(columns) <= max(spans[other])
            }
            lanes[key] = next(lane for lane in range(len(taken) + 1) if lane not in taken)
        return lanes

    def _across(self) -> None:
        """Coordinates from left to right: the tracks of a gap, the labels before its column, the column."""
        x = float(MARGIN)
        for gap, tracks in enumerate(self.tracks):
            column = self.columns[gap] if gap < len(self.columns) else []
            bent = self._ordered([track for track in tracks.values() if not track.straight])
            x += TRACK if gap and tracks else 0
            x += STACK if any(node.box.shape == "bank" for node in self.columns[gap - 1]) and gap else 0
            for track in bent:
                track.x = x
                x += TRACK
            labels = [text_width(self.label(a), SMALL) for a in self.picture.arrows if self.nodes[a.target].column == gap]
            if column:
                x += max(labels, default=-20) + 20
                for node in column:
                    node.x = x
                x += max(node.width for node in column)
        self.width = x + MARGIN
        for node in self.nodes:  # outputs of a column leave at its common edge
            node.width = max(other.width for other in self.columns[node.column] if bool(other.box.kind) == bool(node.box.kind))

    def _ordered(self, tracks: list[_Track]) -> list[_Track]:
        """Order tracks for least crossings, but keep a track that comes in at some height left of one that leaves at that height.

        If two tracks need to be left of each other, the second one's line is moved a little instead.
        """
        waiting = sorted(tracks, key=lambda track: track.rank)
        order: list[_Track] = []
        while waiting:
            free = [t for t in waiting if not any(o is not t and o.left & t.right for o in waiting)]
            chosen = free[0] if free else waiting[0]
            if not free:
                taken = set().union(*(other.left for other in waiting if other is not chosen))
                for y in chosen.right & taken:
                    self._nudge(chosen, y)
            waiting.remove(chosen)
            order.append(chosen)
        return order

    def _nudge(self, track: _Track, y: int) -> None:
        for arrow, net in zip(self.picture.arrows, self.nets, strict=True):
            gap = self.tracks[self.nodes[arrow.target].column]
            if track in (gap.get(net), gap.get((*net, "in"))) and self._ends(arrow)[1] == y:
                self.nodes[arrow.target].nudged[arrow.target_port] = -5

    def label(self, arrow: Arrow) -> str:
        """Label of the arrows that enter one input; an input that gathers many boxes is labelled once."""
        marks: dict[str, None] = {}
        for other in self.picture.arrows:
            if (other.target, other.target_port) == (arrow.target, arrow.target_port):
                marks.update(dict.fromkeys(other.marks))
        members = [mark for mark in marks if mark.startswith("from ")]
        return " · ".join(mark for mark in marks if len(members) <= 1 or mark not in members)

    def points(self, index: int) -> list[tuple[float, float]]:
        """The corners of a connection."""
        arrow, net = self.picture.arrows[index], self.nets[index]
        source, target = self.nodes[arrow.source], self.nodes[arrow.target]
        out, inp = self._ends(arrow)
        begin, end = (source.x + source.width, out), (target.x - (3 if target.box.kind else 1), inp)
        if target.column == source.column + 1:
            track = self.tracks[target.column][net]
            return [begin, end] if track.straight else [begin, (track.x, out), (track.x, inp), end]
        first, last = self.tracks[source.column + 1][*net, "out"], self.tracks[target.column][*net, "in"]
        lane = self.lane_y[net, target.column > source.column]
        return [begin, (first.x, out), (first.x, lane), (last.x, lane), (last.x, inp), end]


FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
INK, FAINT, EDGE, PAPER, PLAIN = "#1b1f24", "#57606a", "#3b4550", "#ffffff", "#eef1f4"


def svg(picture: Picture) -> str:
    """Draw a picture as a self-contained SVG."""
    layout = Layout(picture)
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
    """Elements of the legend, its width and its number of rows."""
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


def _node(node: PlacedBox) -> Iterable[str]:
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


def _header(node: PlacedBox) -> Iterable[str]:
    """One stripe for each worker."""
    colours = node.box.colours or (PLAIN,)
    stripe = (node.width - 2) / len(colours)
    for number, colour in enumerate(colours):
        x, height = node.x + 1 + number * stripe, node.header - 4
        yield f'<rect x="{x:.2f}" y="{node.y + 1}" width="{stripe:.2f}" height="{height}" fill="{colour}"/>'


def _arrow(layout: Layout, index: int, arrow: Arrow, labelled: set[tuple[int, str]]) -> Iterable[str]:
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
