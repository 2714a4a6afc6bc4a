"""Which outputs cross from node to node, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reactor_rl import graph as graphs
from reactor_rl.topology import BOUNDARY, Topology

__all__ = ["HOME", "Link", "links_of", "node_of"]

HOME = 0


@dataclass(frozen=True)
class Link:
    """What one node sends another at one point of every pass.

    Attributes:
        index: Its place in the order of all links, which is that of ``level``: who follows it never waits in a circle.
        level: The highest level, in the graph of the whole program, of a reaction that writes one of the outputs; -1 for boundary
            inputs, which are known before a pass begins.
        source, target: The two nodes.
        late: Whether the target only reads them with a delay, so that they may arrive any time before the next tick.
        outputs: What crosses, by the indices of the whole program.
    """

    index: int
    level: int
    source: int
    target: int
    late: bool
    outputs: tuple[int, ...]

    @property
    def early(self) -> bool:
        """Whether it is there before the pass begins."""
        return self.level < 0


def node_of(reactor: int, nodes: Sequence[int]) -> int:
    """The node of a reactor; the boundary's is home."""
    return HOME if reactor == BOUNDARY else nodes[reactor]


def links_of(topology: Topology, nodes: Sequence[int]) -> tuple[Link, ...]:
    """What crosses, if each reactor is on the node that ``nodes`` says."""
    level = graphs.build(topology).level
    readers: dict[tuple[int, int], bool] = {}  # output and node that reads it -> whether only with a delay
    for port in topology.inputs:
        target = node_of(port.reactor, nodes)
        for part in port.parts:
            output = topology.outputs[part.output]
            written = topology.writers[output.index] or output.reactor == BOUNDARY
            if written and node_of(output.reactor, nodes) != target:
                late = port.delay > 0 and output.reactor != BOUNDARY
                readers[output.index, target] = readers.get((output.index, target), True) and late
    found: dict[tuple[int, bool, int, int], list[int]] = {}
    for (index, target), late in sorted(readers.items()):
        source = node_of(topology.outputs[index].reactor, nodes)
        highest = max((level[writer] for writer in topology.writers[index]), default=-1)
        found.setdefault((highest, late, source, target), []).append(index)
    return tuple(
        Link(index, highest, source, target, late, tuple(outputs))
        for index, ((highest, late, source, target), outputs) in enumerate(sorted(found.items()))
    )
