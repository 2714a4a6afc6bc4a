"""The dependency graph of reactions within one tick, its levels and its cycles.

An edge runs from each reaction to the next one of its reactor in declaration order, and from each reaction that may write an
output to each reaction that reads it without delay. Delayed connections add no edge: their slots keep writer and reader apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from reactor_rl.errors import CausalityLoopError
from reactor_rl.topology import BOUNDARY, Topology

__all__ = ["Graph", "build"]


@dataclass(frozen=True)
class Graph:
    """Edges and levels, by index of reaction. ``level`` is the length of the longest path that leads to a reaction."""

    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]


def build(topology: Topology) -> Graph:
    """Build the dependency graph.

    Raises:
        CausalityLoopError: If reactions wait for each other within one tick.
    """
    before: list[set[int]] = [set() for _ in topology.reactions]
    for reactor in topology.reactors:
        for first, second in pairwise(reactor.reactions):
            before[second].add(first)
    for inp in topology.inputs:
        if inp.reactor != BOUNDARY and inp.delay == 0:
            for piece in inp.sources:
                for reader in topology.readers[inp.index]:
                    before[reader].update(topology.writers[piece.output])
    sorter = TopologicalSorter({index: sorted(earlier) for index, earlier in enumerate(before)})
    try:
        order = tuple(sorter.static_order())
    except CycleError as error:
        raise CausalityLoopError(_explain(topology, error.args[1])) from None
    level = [0] * len(before)
    after: list[list[int]] = [[] for _ in before]
    for index in order:
        level[index] = max((level[other] + 1 for other in before[index]), default=0)
    for index, earlier in enumerate(before):
        for other in earlier:
            after[other].append(index)
    return Graph(tuple(tuple(sorted(earlier)) for earlier in before), tuple(tuple(later) for later in after), tuple(level))


def _explain(topology: Topology, cycle: list[int]) -> str:
    """Walk a cycle by reactor, reaction and port names, starting at its first reaction in program order."""
    loop = cycle[:-1]  # graphlib lists predecessors first and repeats the first node at the end
    start = loop.index(min(loop))
    loop = loop[start:] + loop[:start] + [loop[start]]
    lines = []
    for here, there in pairwise(loop):
        lines.append(f"  {topology.reaction_name(here)} {_reason(topology, here, there)}")
    return (
        "these reactions wait for each other within one tick:\n"
        + "\n".join(lines)
        + f"\n  {topology.reaction_name(loop[0])}\n"
        + "Break the loop with a delay: connect(..., after=1)."
    )


def _reason(topology: Topology, here: int, there: int) -> str:
    effects = set(topology.reactions[here].effects)
    for index in (*topology.reactions[there].triggers, *topology.reactions[there].uses):
        inp = topology.inputs[index]
        for piece in inp.sources:
            if inp.delay == 0 and piece.output in effects:
                return f"writes {topology.port_name(topology.outputs[piece.output])}, which is {topology.port_name(inp)}, read by"
    return "comes, in the order of declaration, before"
