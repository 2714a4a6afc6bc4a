"""Cut a program into one ordinary topology for each node: who goes where, and what crosses between nodes.

An output that is read on another node than it is written on appears there too, with the same shape, rows, delays and ring: a
proxy. One extra reactor of each node, its *gateway*, writes all its proxies and reads what leaves. The reactions of a gateway
are the links, in the order of the levels that their writers have in the whole program. Reactions of one reactor run in the
order of declaration, so no two nodes ever wait for each other in a circle; and presence, gathers, delays and initial values
need nothing that an ordinary program does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reactor_rl import graph as graphs
from reactor_rl import topology as topo
from reactor_rl.errors import ProgramError
from reactor_rl.topology import BOUNDARY, ReactorSpec, Topology

__all__ = ["HOME", "Link", "links_of", "node_of", "On", "nodes_of", "spread_workers", "GATEWAY", "NodeProgram", "cut"]

HOME = 0
"""Number of the node that the caller is on; the others count on from it."""


@dataclass(frozen=True)
class Link:
    """Outputs that one node sends another at one point of every pass.

    Attributes:
        index: Its place in the order of all links, which is that of ``level``. Nodes that keep to it never wait in a circle.
        level: The highest level, in the graph of the whole program, of a reaction that writes one of the outputs; -1 for boundary
            inputs, which are known before a pass begins.
        source, target: The two nodes.
        late: Whether the target only reads them with a delay, so that they may arrive any time before the next tick.
        outputs: The outputs that cross, by index in the whole program.
    """

    index: int
    level: int
    source: int
    target: int
    late: bool
    outputs: tuple[int, ...]

    @property
    def early(self) -> bool:
        """Whether its values are known before the pass begins."""
        return self.level < 0


def node_of(reactor: int, nodes: Sequence[int]) -> int:
    """Return the node of a reactor; the boundary's is home."""
    return HOME if reactor == BOUNDARY else nodes[reactor]


def links_of(topology: Topology, nodes: Sequence[int]) -> tuple[Link, ...]:
    """List the links of a program whose reactors are on ``nodes``."""
    level = graphs.build(topology).level
    readers: dict[tuple[int, int], bool] = {}  # output and node that reads it -> whether only with a delay
    for port in topology.inputs:
        target = node_of(port.reactor, nodes)
        for piece in port.sources:
            output = topology.outputs[piece.output]
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


On = Mapping[str, int | Sequence[int]]
"""Nodes by name of a reactor, a member of a bank, or a bank: one node for all its members, or one for each."""


def nodes_of(topology: Topology, workers: Sequence[int], on: On | None = None) -> tuple[int, ...]:
    """Choose the node of each reactor.

    Reactors that ``on`` does not name are placed so that no node waits for another in the middle of a tick. A bank is spread in
    contiguous blocks, by the number of workers of each node, if its members' undelayed inputs come from the boundary or from
    reactors on the same node. Everything else is at home.

    Args:
        topology: The program.
        workers: How many workers each node has, home's first.
        on: The user's choice for some reactors.

    Raises:
        ProgramError: If ``on`` names a reactor or a node that does not exist.
    """
    said = _said(topology, len(workers), on or {})
    found = [said.get(reactor.index, HOME) for reactor in topology.reactors]
    level = graphs.build(topology).level
    banks: dict[str, list[ReactorSpec]] = {}
    for reactor in topology.reactors:
        if reactor.bank is not None and reactor.index not in said:
            banks.setdefault(reactor.bank[0], []).append(reactor)
    for members in sorted(banks.values(), key=lambda bank: (_level(bank, level), bank[0].index)):
        blocks = spread_workers(workers, len(members))
        spread = {reactor.index: node for reactor, node in zip(members, blocks, strict=True)}
        if _in_place(topology, found, spread):
            for index, node in spread.items():
                found[index] = node
    return tuple(found)


def spread_workers(workers: Sequence[int], shares: int) -> list[int]:
    """Choose the node of each of a number of equal shares: contiguous blocks, by the number of workers of each node.

    Args:
        workers: Workers of each node, home's first.
        shares: Number of shares.

    Example:
        >>> spread_workers([2, 4], 6)
        [0, 0, 1, 1, 1, 1]
        >>> spread_workers([2, 2, 2], 3)
        [0, 1, 2]
    """
    node_of = [node for node, count in enumerate(workers) for _ in range(count)]
    return [node_of[share * len(node_of) // shares] for share in range(shares)]


def _level(bank: list[ReactorSpec], level: Sequence[int]) -> int:
    return max((level[reaction] for reactor in bank for reaction in reactor.reactions), default=0)


def _in_place(topology: Topology, found: Sequence[int], spread: Mapping[int, int]) -> bool:
    """Whether all undelayed inputs of these reactors come from their own node."""
    for port in topology.inputs:
        if port.reactor in spread and port.delay == 0:
            for piece in port.sources:
                source = topology.outputs[piece.output].reactor
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
    for name in sorted(on, key=lambda name: name in names):  # the node of one member overrides that of its bank
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
                raise ProgramError(f"on[{name!r}] must be a node from 0, home, to {nodes - 1}, got {node!r}")
            said[index] = node
    return said


GATEWAY = "(gateway)"


@dataclass(frozen=True)
class NodeProgram:
    """The part of a program that is on one node.

    Attributes:
        node: The node.
        topology: The program that it runs; the last reactor is the gateway.
        links: The links that it takes part in.
        gateway_links: For each reaction of the gateway, its link.
        reactors, reactions, outputs, actions: Index in the whole program of each one here; -1 for reactions of the gateway.
    """

    node: int
    topology: Topology
    links: tuple[Link, ...]
    gateway_links: dict[int, Link]
    reactors: tuple[int, ...]
    reactions: tuple[int, ...]
    outputs: tuple[int, ...]
    actions: tuple[int, ...]

    @property
    def gateway(self) -> int:
        """Index of the gateway here."""
        return len(self.reactors)

    @property
    def own(self) -> tuple[int, ...]:
        """The outputs that are written here, by their index here."""
        return tuple(port.index for port in self.topology.outputs if port.reactor != self.gateway)


def cut(topology: Topology, nodes: Sequence[int], count: int | None = None) -> tuple[NodeProgram, ...]:
    """Cut a program into one part for each node.

    Args:
        topology: The program.
        nodes: The node of each reactor. The boundary is on node 0, home.
        count: Number of nodes; ``None`` for as many as ``nodes`` names.

    Returns:
        A part for each node.
    """
    links = links_of(topology, nodes)
    count = max(nodes, default=HOME) + 1 if count is None else count
    return tuple(_Cutter(topology, nodes, links, node).program() for node in range(count))


class _Cutter:
    def __init__(self, topology: Topology, nodes: Sequence[int], links: Sequence[Link], node: int) -> None:
        self.whole, self.node = topology, node
        self.links = tuple(link for link in links if node in (link.source, link.target))
        self.reactors = [reactor for reactor in topology.reactors if nodes[reactor.index] == node]
        self.gateway = len(self.reactors)
        self.reactor = {one.index: index for index, one in enumerate(self.reactors)}
        if node == HOME:
            self.reactor[BOUNDARY] = BOUNDARY
        inputs = [port for port in topology.inputs if port.reactor in self.reactor]
        read = {piece.output for port in inputs for piece in port.sources}
        kept = [port for port in topology.outputs if port.reactor in self.reactor or port.index in read]
        self.output = {port.index: index for index, port in enumerate(kept)}
        self.outputs = [
            replace(
                port, index=index, reactor=self.reactor.get(port.reactor, self.gateway),
                name=port.name if port.reactor in self.reactor else topology.port_name(port),
            )
            for index, port in enumerate(kept)
        ]  # fmt: skip
        self.input = {port.index: index for index, port in enumerate(inputs)}
        self.inputs = [
            replace(
                port, index=index, reactor=self.reactor[port.reactor],
                sources=tuple(replace(piece, output=self.output[piece.output]) for piece in port.sources),
            )
            for index, port in enumerate(inputs)
        ]  # fmt: skip
        self.timers = [timer for timer in topology.timers if timer.reactor in self.reactor]
        self.timer = {timer.index: index for index, timer in enumerate(self.timers)}
        self.actions = [action for action in topology.actions if action.reactor in self.reactor]
        self.action = {action.index: index for index, action in enumerate(self.actions)}
        self.reactions: list[topo.ReactionSpec] = []
        self.came_from: list[int] = []

    def program(self) -> NodeProgram:
        reactors = [self._own_reactor(reactor) for reactor in self.reactors]
        leaving = self._leaving()
        gateway_links = {len(self.reactions) + position: link for position, link in enumerate(filter(self._reacts, self.links))}
        for index, link in gateway_links.items():
            self._link_reaction(index, link, leaving)
        reactors.append(topo.ReactorSpec(self.gateway, GATEWAY, "Gateway", None, tuple(gateway_links)))
        readers: dict[int, list[int]] = {port.index: [] for port in self.inputs}
        writers: dict[int, list[int]] = {port.index: [] for port in self.outputs}
        for one in self.reactions:
            for port in dict.fromkeys(one.triggers + one.uses):
                readers[port].append(one.index)
            for port in dict.fromkeys(one.effects):
                writers[port].append(one.index)
        topology = Topology(
            self.whole.name, tuple(reactors), tuple(self.reactions), tuple(self.outputs), tuple(self.inputs),
            tuple(replace(timer, index=self.timer[timer.index], reactor=self.reactor[timer.reactor]) for timer in self.timers),
            tuple(replace(one, index=self.action[one.index], reactor=self.reactor[one.reactor]) for one in self.actions),
            {port: tuple(found) for port, found in writers.items()}, {port: tuple(found) for port, found in readers.items()},
        )  # fmt: skip
        return NodeProgram(
            self.node, topology, self.links, gateway_links, tuple(reactor.index for reactor in self.reactors),
            tuple(self.came_from), tuple(self.output), tuple(self.action),
        )  # fmt: skip

    def _own_reactor(self, reactor: topo.ReactorSpec) -> topo.ReactorSpec:
        first = len(self.reactions)
        for index in reactor.reactions:
            node = self.whole.reactions[index]
            self.came_from.append(index)
            self.reactions.append(
                replace(
                    node, index=len(self.reactions), reactor=self.reactor[reactor.index],
                    triggers=tuple(self.input[i] for i in node.triggers), uses=tuple(self.input[i] for i in node.uses),
                    effects=tuple(self.output[o] for o in node.effects),
                    trigger_timers=tuple(self.timer[t] for t in node.trigger_timers),
                    use_timers=tuple(self.timer[t] for t in node.use_timers),
                    trigger_actions=tuple(self.action[a] for a in node.trigger_actions),
                    use_actions=tuple(self.action[a] for a in node.use_actions),
                    effect_actions=tuple(self.action[a] for a in node.effect_actions),
                )
            )  # fmt: skip
        return replace(reactor, index=self.reactor[reactor.index], reactions=tuple(range(first, len(self.reactions))))

    def _leaving(self) -> dict[int, int]:
        """Make an input of the gateway for each output that leaves, by output of the whole program.

        Delayed readers elsewhere get inputs too. Nothing reads those; they make the times known at which values will arrive.
        """
        leaving: dict[int, int] = {}
        for output in sorted({output for link in self.links if link.source == self.node for output in link.outputs}):
            port = self.whole.outputs[output]
            for delay in (0, *(delay for delay in port.delays if delay)):
                index = len(self.inputs)
                name = f"{port.name} of {output} after {delay}"
                sources = (topo.PortRows(self.output[output]),)
                self.inputs.append(topo.InputSpec(index, self.gateway, name, port.shape, port.dtype, None, sources, delay))
                leaving.setdefault(output, index)
        return leaving

    def _reacts(self, link: Link) -> bool:
        """Whether the gateway has a reaction for a link: early ones are sent, and late ones taken in, between passes."""
        return not link.early if link.source == self.node else not link.late

    def _link_reaction(self, index: int, link: Link, leaving: dict[int, int]) -> None:
        leaves = link.source == self.node
        self.came_from.append(-1)
        self.reactions.append(
            topo.ReactionSpec(
                index, self.gateway, f"{'leave' if leaves else 'arrive'} {link.index}", None, True, True, (),
                tuple(leaving[output] for output in link.outputs) if leaves else (),
                () if leaves else tuple(self.output[output] for output in link.outputs), (), (), (), (), (),
            )
        )  # fmt: skip
