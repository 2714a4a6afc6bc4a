"""A program, cut: one ordinary topology per node.

An output that is read on another node than it is written on appears there too, with the same shape, rows, delays and ring: a proxy.
All proxies of a node are written by one extra reactor, its *gateway*, which also reads what leaves. Its reactions are the links, in
the order of the levels that their writers have in the whole program. Since reactions of one reactor run in the order of
declaration, nobody ever waits in a circle; and presence, gathers, delays and initial values need nothing that an ordinary program
does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reactor_rl import topology as topo
from reactor_rl.federation.links import HOME, Link, links_of
from reactor_rl.topology import BOUNDARY, Topology

__all__ = ["GATEWAY", "Part", "cut"]

GATEWAY = "(gateway)"


@dataclass(frozen=True)
class Part:
    """What is on one node.

    Attributes:
        node: The node.
        topology: The program that it runs; the last reactor is the gateway.
        links: The links that it takes part in.
        gates: For each reaction of the gateway, its link.
        reactors, reactions, outputs, actions: Index in the whole program of each one here; of the gateway's reactions -1.
    """

    node: int
    topology: Topology
    links: tuple[Link, ...]
    gates: dict[int, Link]
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


def cut(topology: Topology, nodes: Sequence[int], count: int | None = None) -> tuple[Part, ...]:
    """Cut a program.

    Args:
        topology: The program.
        nodes: The node of each reactor. The boundary is on node 0, home.
        count: How many nodes there are; ``None`` for as many as are named.

    Returns:
        A part for each node.
    """
    links = links_of(topology, nodes)
    count = max(nodes, default=HOME) + 1 if count is None else count
    return tuple(_Cutter(topology, nodes, links, node).part() for node in range(count))


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
        read = {part.output for port in inputs for part in port.parts}
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
                parts=tuple(replace(part, output=self.output[part.output]) for part in port.parts),
            )
            for index, port in enumerate(inputs)
        ]  # fmt: skip
        self.timers = [timer for timer in topology.timers if timer.reactor in self.reactor]
        self.timer = {timer.index: index for index, timer in enumerate(self.timers)}
        self.actions = [action for action in topology.actions if action.reactor in self.reactor]
        self.action = {action.index: index for index, action in enumerate(self.actions)}
        self.reactions: list[topo.ReactionNode] = []
        self.came_from: list[int] = []

    def part(self) -> Part:
        reactors = [self._own_reactor(reactor) for reactor in self.reactors]
        leaving = self._leaving()
        gates = {len(self.reactions) + position: link for position, link in enumerate(filter(self._reacts, self.links))}
        for index, link in gates.items():
            self._gate(index, link, leaving)
        reactors.append(topo.ReactorNode(self.gateway, GATEWAY, "Gateway", None, tuple(gates)))
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
        return Part(
            self.node, topology, self.links, gates, tuple(reactor.index for reactor in self.reactors), tuple(self.came_from),
            tuple(self.output), tuple(self.action),
        )  # fmt: skip

    def _own_reactor(self, reactor: topo.ReactorNode) -> topo.ReactorNode:
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
        """An input of the gateway for each output that leaves, by output of the whole program.

        Delayed readers elsewhere are inputs too, which nothing reads: they make the times known at which something will arrive.
        """
        leaving: dict[int, int] = {}
        for output in sorted({output for link in self.links if link.source == self.node for output in link.outputs}):
            port = self.whole.outputs[output]
            for delay in (0, *(delay for delay in port.delays if delay)):
                index = len(self.inputs)
                name = f"{port.name} of {output} after {delay}"
                parts = (topo.Part(self.output[output]),)
                self.inputs.append(topo.InputNode(index, self.gateway, name, port.shape, port.dtype, None, parts, delay))
                leaving.setdefault(output, index)
        return leaving

    def _reacts(self, link: Link) -> bool:
        """Whether the gateway has a reaction for a link: early ones are sent, and late ones taken in, between passes."""
        return not link.early if link.source == self.node else not link.late

    def _gate(self, index: int, link: Link, leaving: dict[int, int]) -> None:
        leaves = link.source == self.node
        self.came_from.append(-1)
        self.reactions.append(
            topo.ReactionNode(
                index, self.gateway, f"{'leave' if leaves else 'arrive'} {link.index}", None, True, True, (),
                tuple(leaving[output] for output in link.outputs) if leaves else (),
                () if leaves else tuple(self.output[output] for output in link.outputs), (), (), (), (), (),
            )
        )  # fmt: skip
