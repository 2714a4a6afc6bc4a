"""Which reactor goes to which node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reactor_rl import graph as graphs
from reactor_rl.errors import ProgramError
from reactor_rl.federation.links import HOME
from reactor_rl.topology import BOUNDARY, ReactorNode, Topology

__all__ = ["On", "nodes_of", "shared_out"]

On = Mapping[str, int | Sequence[int]]
"""Nodes by name of a reactor, a member of a bank, or a bank: one node for all its members, or one for each."""


def nodes_of(topology: Topology, workers: Sequence[int], on: On | None = None) -> tuple[int, ...]:
    """The node of each reactor.

    What ``on`` does not name is placed so that nobody waits for another node in the middle of a tick: banks are spread in
    contiguous blocks, by the number of workers of each node, if what their members read at once comes from the boundary or from
    reactors that are on the same node, and everything else is at home.

    Args:
        topology: The program.
        workers: How many workers each node has, home's first.
        on: Where the user wants what.

    Raises:
        ProgramError: If ``on`` names a reactor that the program does not have, or a node that there is not.
    """
    said = _said(topology, len(workers), on or {})
    found = [said.get(reactor.index, HOME) for reactor in topology.reactors]
    level = graphs.build(topology).level
    banks: dict[str, list[ReactorNode]] = {}
    for reactor in topology.reactors:
        if reactor.bank is not None and reactor.index not in said:
            banks.setdefault(reactor.bank[0], []).append(reactor)
    for members in sorted(banks.values(), key=lambda bank: (_level(bank, level), bank[0].index)):
        blocks = shared_out(workers, len(members))
        spread = {reactor.index: node for reactor, node in zip(members, blocks, strict=True)}
        if _in_place(topology, found, spread):
            for index, node in spread.items():
                found[index] = node
    return tuple(found)


def shared_out(workers: Sequence[int], shares: int) -> list[int]:
    """The node of each of so many equal shares of something: contiguous blocks, by the number of workers of each node.

    Args:
        workers: Of each node, home's first.
        shares: How many there are.

    Example:
        >>> shared_out([2, 4], 6)
        [0, 0, 1, 1, 1, 1]
        >>> shared_out([2, 2, 2], 3)
        [0, 1, 2]
    """
    node_of = [node for node, count in enumerate(workers) for _ in range(count)]
    return [node_of[share * len(node_of) // shares] for share in range(shares)]


def _level(bank: list[ReactorNode], level: Sequence[int]) -> int:
    return max((level[reaction] for reactor in bank for reaction in reactor.reactions), default=0)


def _in_place(topology: Topology, found: Sequence[int], spread: Mapping[int, int]) -> bool:
    """Whether all that these reactors read without a delay is on their node already."""
    for port in topology.inputs:
        if port.reactor in spread and port.delay == 0:
            for part in port.parts:
                source = topology.outputs[part.output].reactor
                if source != BOUNDARY and spread.get(source, found[source]) != spread[port.reactor]:
                    return False
    return True


def _said(topology: Topology, nodes: int, on: On) -> dict[int, int]:
    said: dict[int, int] = {}
    members: dict[str, list[int]] = {}
    names = {reactor.name: reactor.index for reactor in topology.reactors}
    for reactor in topology.reactors:
        if reactor.bank is not None:
            members.setdefault(reactor.bank[0], []).append(reactor.index)
    for name in sorted(on, key=lambda name: name in names):  # what is said of one member counts more than what of all
        where = on[name]
        indices = [names[name]] if name in names else members.get(name)
        if indices is None:
            known = ", ".join(dict.fromkeys(reactor.bank[0] if reactor.bank else reactor.name for reactor in topology.reactors))
            raise ProgramError(f"on names {name!r}, which the program does not have; it has: {known}")
        each = [where] * len(indices) if isinstance(where, int) else list(where)
        if len(each) != len(indices):
            raise ProgramError(
                f"on[{name!r}] has {len(each)} node(s) for {len(indices)} reactor(s): give one for each, or one for all"
            )
        for index, node in zip(indices, each, strict=True):
            if isinstance(node, bool) or not isinstance(node, int) or not 0 <= node < nodes:
                raise ProgramError(f"on[{name!r}] names node {node!r}: nodes are counted from 0, home, to {nodes - 1}")
            said[index] = node
    return said
