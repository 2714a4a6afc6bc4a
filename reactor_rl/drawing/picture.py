"""Boxes and arrows: the content of a drawing, whatever its format.

A bank whose members are wired alike is one box. The ports of an arrow are written as the user wrote them (``candidates.rows``
to ``params``), so that a picture can be read against the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from reactor_rl.schedule import Schedule
from reactor_rl.topology import BOUNDARY, OutputSpec, PortRows, ReactionSpec, ReactorSpec, Topology

__all__ = ["Arrow", "Box", "Picture", "picture"]

Places = Literal["worker", "node"]

COLOURS = (
    "#cfe2f3", "#fde0c5", "#d5ecd0", "#f8d0d0", "#e2d5f0", "#e8dccb", "#fbd5e8", "#d9e4a8", "#bfe8ea", "#f7eaa8",
    "#c9d3ea", "#e3e3e3",
)  # fmt: skip
"""Fill of the reactors of each worker, again from the start after the last: the label tells, the colour only helps."""


@dataclass(frozen=True)
class Box:
    """A reactor, a bank whose members are wired alike, or a port of the boundary.

    Attributes:
        key: Identifier in Mermaid and DOT.
        shape: Kind of box: a reactor, a bank, or a port of the boundary.
        title: Its name, and the size of a bank.
        kind: Name of the reactor's class, empty for the boundary.
        inputs: Names of its input ports, in the order of declaration.
        outputs: Names of its output ports, in the order in which they were connected.
        reactions: One line for each reaction, in order.
        workers: Workers (or nodes) that hold it, ascending; empty without a schedule and for the boundary.
        places: Whether ``workers`` are workers or nodes.
    """

    key: str
    shape: Literal["reactor", "bank", "input", "output"]
    title: str
    kind: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    reactions: tuple[str, ...] = ()
    workers: tuple[int, ...] = ()
    places: Places = "worker"

    @property
    def colours(self) -> tuple[str, ...]:
        return tuple(COLOURS[worker % len(COLOURS)] for worker in self.workers)

    @property
    def placed(self) -> str:
        """``worker 1``, ``workers 0-3`` or ``nodes 1, 2``; empty without a schedule."""
        return _names(self.workers, self.places)


@dataclass(frozen=True)
class Arrow:
    """Connections between the same two ports of two boxes.

    Attributes:
        source: Index of the box that it leaves.
        target: Index of the box that it enters.
        source_port: Name of the port that it leaves.
        target_port: Name of the port that it enters.
        delay: In ticks, 0 for the same tag.
        member: The member of the source, unless it is obvious: ``[3]``, ``[i-1]``.
        scatter: ``.rows``, ``.rows[2]``, ``.rows[2:5]`` or nothing.
        gather: The same for the target.
        content: Shape and dtype of the values.
    """

    source: int
    target: int
    source_port: str
    target_port: str
    delay: int
    member: str
    scatter: str
    gather: str
    content: str

    @property
    def ports(self) -> str:
        """Both ends as the user wrote them."""
        dot = "." if self.member else ""
        return f"{self.member}{dot}{self.source_port}{self.scatter} → {self.target_port}{self.gather}"

    @property
    def marks(self) -> tuple[str, ...]:
        """Delay and rows, for a label beside the target."""
        labels = []
        if self.member:
            labels.append(f"from {self.member}")
        if self.scatter:
            labels.append("scatter" if self.scatter == ".rows" else self.scatter)
        if self.gather:
            labels.append("gather")
        if self.delay:
            labels.append(f"after {self.delay}")
        return tuple(labels)


@dataclass(frozen=True)
class Picture:
    """All boxes and arrows. ``workers`` is the number of workers, or of nodes (``places`` says which); 0 without a schedule."""

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    workers: int
    places: Places = "worker"

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Label and colour of each worker, or node."""
        return tuple((_label(worker, self.places), COLOURS[worker % len(COLOURS)]) for worker in range(self.workers))


def picture(topology: Topology, schedule: Schedule | None = None, nodes: Sequence[int] | None = None) -> Picture:
    """Make the picture of a program, with the worker of each reactor, with its node, or with neither."""
    if nodes is not None:
        return _Painter(topology, nodes, max(nodes, default=0) + 1, "node").picture()
    if schedule is not None:
        return _Painter(topology, schedule.placement, schedule.workers, "worker").picture()
    return _Painter(topology, None, 0, "worker").picture()


@dataclass(frozen=True)
class _Link:
    """One source of one input, with its ends."""

    output: OutputSpec
    target: int  # reactor or BOUNDARY
    target_port: str
    delay: int
    piece: PortRows


class _Painter:
    def __init__(self, topology: Topology, placement: Sequence[int] | None, workers: int, places: Places) -> None:
        self.topology, self.placement, self.workers, self.places = topology, placement, workers, places
        self.links = [
            _Link(topology.outputs[piece.output], inp.reactor, inp.name, inp.delay, piece)
            for inp in topology.inputs
            for piece in inp.sources
        ]
        self.boxes: list[Box] = []
        self.box_of: dict[tuple[int, str], int] = {}  # (reactor, "") or (BOUNDARY, name of the port) -> box
        self.ports: dict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for inp in topology.inputs:
            self.ports[inp.reactor][0].append(inp.name)
        for out in sorted(topology.outputs, key=lambda o: o.index):
            self.ports[out.reactor][1].append(out.name)

    def picture(self) -> Picture:
        for out in self.topology.boundary_inputs:
            self._boundary(Box(f"in_{out.name}", "input", out.name, outputs=(out.name,)))
        banks: dict[str | int, list[ReactorSpec]] = defaultdict(list)
        for node in self.topology.reactors:
            banks[node.bank[0] if node.bank else node.index].append(node)
        for members in banks.values():
            if len(members) > 1 and len({self._signature(node) for node in members}) == 1:
                self._reactors(members, f"{(members[0].bank or ('',))[0]} \N{MULTIPLICATION SIGN}{len(members)}", "bank")
            else:
                for node in members:
                    self._reactors([node], node.name, "reactor")
        for inp in self.topology.boundary_outputs:
            self._boundary(Box(f"out_{inp.name}", "output", inp.name, inputs=(inp.name,)))
        return Picture(self.topology.name, tuple(self.boxes), self._arrows(), self.workers, self.places)

    def _boundary(self, box: Box) -> None:
        self.box_of[BOUNDARY, box.title] = len(self.boxes)
        self.boxes.append(box)

    def _reactors(self, nodes: Sequence[ReactorSpec], title: str, shape: Literal["reactor", "bank"]) -> None:
        first = nodes[0]
        for node in nodes:
            self.box_of[node.index, ""] = len(self.boxes)
        inputs, outputs = self.ports[first.index]
        workers = sorted({self.placement[node.index] for node in nodes}) if self.placement is not None else []
        lines = tuple(f"{n}. {self._reaction(self.topology.reactions[i])}" for n, i in enumerate(first.reactions, 1))
        ports = tuple(inputs), tuple(outputs)
        self.boxes.append(Box(f"r{first.index}", shape, title, first.kind, *ports, lines, tuple(workers), self.places))

    def _reaction(self, node: ReactionSpec) -> str:
        """``name: triggers (+ uses) → effects``."""
        topology = self.topology
        triggers = ["startup"] * node.startup + ["shutdown"] * node.shutdown
        triggers += [topology.inputs[i].name for i in node.triggers]
        triggers += [self._timer(i) for i in node.trigger_timers]
        triggers += [topology.actions[i].name for i in node.trigger_actions]
        uses = [topology.inputs[i].name for i in node.uses] + [topology.actions[i].name for i in node.use_actions]
        uses += [topology.timers[i].name for i in node.use_timers]
        effects = [topology.outputs[i].name for i in node.effects] + [topology.actions[i].name for i in node.effect_actions]
        text = f"{node.name}: {', '.join(triggers)}"
        if uses:
            text += f" (+ {', '.join(uses)})"
        return text + (f" → {', '.join(effects)}" if effects else "")

    def _timer(self, index: int) -> str:
        timer = self.topology.timers[index]
        if timer.period is None:
            return f"{timer.name} (at {timer.offset})"
        every = "every tick" if timer.period == 1 else f"every {timer.period} ticks"
        return f"{timer.name} ({every}{f' from {timer.offset}' if timer.offset else ''})"

    # ------------------------------------------------------------------ banks

    def _bank(self, reactor: int) -> tuple[str, int, int]:
        """Name, index and size of a reactor's bank. A reactor outside of banks counts as a bank of its own."""
        if reactor == BOUNDARY:
            return "", 0, 1
        return self.topology.reactors[reactor].bank or (f"{reactor}", 0, 1)

    def _signature(self, node: ReactorSpec) -> tuple[object, ...]:
        """A value equal for members of a bank that fit into one box: same reactions, and wired alike but for their own row."""
        neighbours: dict[tuple[object, ...], set[int]] = defaultdict(set)
        _, index, size = self._bank(node.index)
        for link in self.links:
            for own, other, side in ((link.target, link.output.reactor, "in"), (link.output.reactor, link.target, "out")):
                if own != node.index:
                    continue
                bank, there, length = self._bank(other)
                rows = (link.piece.lo is not None, link.piece.at is not None)
                ends = (link.output.name, link.target_port, link.delay, rows, other == BOUNDARY)
                # In a bank of the same size only the distance between the indices counts: 0 is one to one, 1 a ring.
                neighbours[(side, *ends, bank, length)].add((there - index) % size if length == size else there)
        reactions = tuple(self._reaction(self.topology.reactions[i]) for i in node.reactions)
        wiring = frozenset((key, frozenset(others)) for key, others in neighbours.items())
        return node.kind, reactions, *(tuple(sorted(names)) for names in self.ports[node.index]), wiring

    # ------------------------------------------------------------------ arrows

    def _arrows(self) -> tuple[Arrow, ...]:
        groups: dict[tuple[int, int, str, str, int, str], list[_Link]] = defaultdict(list)
        for link in self.links:
            source, target = self._end(link.output.reactor, link.output.name), self._end(link.target, link.target_port)
            # Members of a bank that is one box go separate ways only to members that are not.
            member = ""
            if self.boxes[source].shape == "bank" and self.boxes[target].shape == "reactor" and link.piece.at is None:
                member = f"[{self._bank(link.output.reactor)[1]}]"
            groups[source, target, link.output.name, link.target_port, link.delay, member].append(link)
        arrows = []
        for (source, target, source_port, target_port, delay, member), links in groups.items():
            scatter = _rows(
                [(k.piece.lo, k.piece.hi, k.piece.single) for k in links if k.piece.lo is not None], self.boxes[target].shape
            )
            gather = _rows(
                [(k.piece.at, k.piece.at + k.piece.width, not k.piece.block) for k in links if k.piece.at is not None],
                self.boxes[source].shape,
            )
            out = links[0].output
            content = "object" if out.dtype is None else f"{out.dtype}{list(out.shape or ())}"
            member = member or self._offset(links, source, target)
            arrows.append(Arrow(source, target, source_port, target_port, delay, member, scatter, gather, content))
        return tuple(arrows)

    def _offset(self, links: Sequence[_Link], source: int, target: int) -> str:
        """``[i-1]`` if each member of a bank reads from its neighbour in a bank of the same size."""
        if self.boxes[source].shape != "bank" or self.boxes[target].shape != "bank":
            return ""
        size = self._bank(links[0].target)[2]
        offsets = {(self._bank(k.output.reactor)[1] - self._bank(k.target)[1]) % size for k in links}
        if size != self._bank(links[0].output.reactor)[2] or len(offsets) == size or offsets == {0}:
            return ""
        return ", ".join(
            f"[i{offset - size if offset > size // 2 else offset:+d}]" if offset else "[i]" for offset in sorted(offsets)
        )

    def _end(self, reactor: int, port: str) -> int:
        return self.box_of[reactor, port if reactor == BOUNDARY else ""]


def _rows(blocks: Sequence[tuple[int | None, int | None, bool]], other: str) -> str:
    """Write the rows of one end: one each for the members of a bank, else the row or rows connected."""
    if not blocks:
        return ""
    spans = [(lo or 0, hi or 0) for lo, hi, _ in blocks]
    if other == "bank" and len(spans) > 1 and all(a[1] <= b[0] for a, b in pairwise(spans)):
        return ".rows"
    if len(set(blocks)) > 1:
        return ".rows[...]"
    lo, hi, single = blocks[0]
    return f".rows[{lo}]" if single else f".rows[{lo}:{hi}]"


def _label(worker: int, places: Places) -> str:
    first = "caller" if places == "worker" else "home"
    return f"{places} {worker} ({first})" if worker == 0 else f"{places} {worker}"


def _names(workers: Sequence[int], places: Places) -> str:
    """``worker 0``, or ``workers 0-3, 5``."""
    runs: list[list[int]] = []
    for worker in workers:
        if runs and worker == runs[-1][-1] + 1:
            runs[-1].append(worker)
        else:
            runs.append([worker])
    text = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"{places}{'s' if len(workers) > 1 else ''} {text}" if text else ""
