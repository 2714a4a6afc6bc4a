"""A model of federation: home calls the nodes, passes messages on, and brings back nodes that are lost.

What a node does with a request concerns nobody else until its reply, so that is one step. Home receives replies in any order. A
message carries the number of the pass in which it was packed; a reaction that reads it knows which one it must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .state import FAULT, ViolationError, up

__all__ = ["BROKEN_NODES", "NODE_FAULTS", "NODE_PROGRAMS", "NodeModel", "NodeScenario", "node_scenarios"]

HOME = 0
EARLY, NOW, LATE = "early", "now", "late"
"""Known before a tick begins; written and read in one pass; read at the next tick."""
EXEC, LINK = "exec", "link"


class Link(NamedTuple):
    """A link from one node to another."""

    source: int
    target: int
    kind: str


@dataclass(frozen=True)
class NodeScenario:
    """A program that is cut.

    Attributes:
        lists: For each node its reactions and links, in order: a link leaves at its source and arrives at its target.
        links: All links.
        reads: For each reaction the links that it reads.
        ticks: How many ticks there are.
        again: Pairs of a reaction and the pass, counted from 1, in which it asks for a further microstep.
        losses, saves: How often nodes are lost at any moment, and how often the state of one is kept.
        broken: What is wrong with the protocol; empty for the real one.
    """

    lists: tuple[tuple[tuple[str, int], ...], ...]
    links: tuple[Link, ...]
    reads: tuple[tuple[int, ...], ...]
    ticks: int = 2
    again: frozenset[tuple[int, int]] = frozenset()
    losses: int = 0
    saves: int = 0
    broken: str = ""


Message = tuple[int, int]
"""A link, and the pass in which it was packed (0: nothing was written)."""


class Request(NamedTuple):
    command: str
    number: int = 0
    messages: tuple[Message, ...] = ()
    state: Any = None


class Reply(NamedTuple):
    messages: tuple[Message, ...] = ()
    waits: int = -1
    again: bool = False
    state: Any = None


class Host(NamedTuple):
    """A node, or home's own part.

    Attributes:
        at: Where it is in its list; -1 between passes.
        number: The pass.
        passes: How many it has done.
        seen: For each link the pass of what arrived last.
        arrived: Messages that have arrived in this pass and were not taken in.
        again: Whether a reaction has asked for another microstep.
    """

    at: int
    number: int
    passes: int
    seen: tuple[int, ...]
    arrived: tuple[Message, ...] = ()
    again: bool = False


class Peer(NamedTuple):
    """A node, as home sees it: see `_Node` of the code. ``begun`` counts the passes in which it took part."""

    called: bool = False
    open: bool = False
    waits: int = -1
    again: bool = False
    held: tuple[Message, ...] = ()
    late: tuple[Message, ...] = ()
    begun: int = 0


class Line(NamedTuple):
    """Between home and a node.

    Attributes:
        requests, reply: What is under way.
        replays: How many of the requests were made before, so that home ignores the replies.
        log: What a new node must be told again.
        under_way: The request that has not been answered.
        lost: Whether the node is lost, and home does not know it.
        died: The pass in which it was lost last.
    """

    requests: tuple[Request, ...] = ()
    reply: Reply | None = None
    replays: int = 0
    log: tuple[Request, ...] = ()
    under_way: Request | None = None
    lost: bool = False
    died: int = -1


class NodeState(NamedTuple):
    """``c`` is where home is, ``parts`` who takes part in the pass, ``due`` what late links must have brought by this tick."""

    c: tuple[Any, ...]
    tick: int
    hosts: tuple[Host, ...]
    peers: tuple[Peer, ...]
    lines: tuple[Line, ...]
    late: tuple[Message, ...]
    parts: frozenset[int]
    written: tuple[int, ...]
    due: tuple[int, ...]
    first: int
    b: tuple[int, int]


class NodeModel:
    """Home is between two ticks ("i"), keeps the state of a node ("k"), goes through its list ("l"), is over ("over") or has failed
    ("failed"), as a node was lost twice in one pass."""

    def __init__(self, scenario: NodeScenario) -> None:
        self.sc, self.broken = scenario, scenario.broken
        self.nodes = range(1, len(scenario.lists))
        self.fed = {link.target for link in scenario.links if link.kind == NOW} - {HOME}
        if self.broken == "who is fed takes part only if it has asked":
            self.fed = set()

    def initial(self) -> NodeState:
        n, links = len(self.sc.lists), len(self.sc.links)
        zero = (0,) * links
        hosts, peers = (Host(-1, 0, 0, zero),) * n, (Peer(),) * n
        budget = (self.sc.losses, self.sc.saves)
        return NodeState(("i",), 0, hosts, peers, (Line(),) * n, (), frozenset(), zero, zero, 0, budget)

    def is_over(self, s: NodeState) -> bool:
        return s.c[0] in ("over", "failed")

    def steps(self, s: NodeState) -> Iterator[tuple[str, NodeState]]:
        if s.c[0] == "i":
            yield from self.idle_steps(s)
        elif s.c[0] == "k":
            yield from self.keeping_steps(s)
        elif s.c[0] == "l":
            yield from self.home_steps(s)
        if not self.is_over(s):
            for node in self.nodes:
                yield from self.node_steps(s, node)

    # ------------------------------------------------------------------ home

    def idle_steps(self, s: NodeState) -> Iterator[tuple[str, NodeState]]:
        if s.tick == self.sc.ticks:
            yield "home is done", s._replace(c=("over",))
            return
        if s.b[1] and s.tick:
            for node in self.nodes:
                yield f"home keeps {node}", self.keep(s._replace(b=(s.b[0], s.b[1] - 1)), node)
        s = s._replace(due=s.written, first=s.hosts[HOME].number + 1)
        yield "home begins a tick", self.begin(s, "first")

    def keep(self, s: NodeState, node: int) -> NodeState:
        """Ask a node for its state."""
        line, question = s.lines[node], Request("keep")
        line = line._replace(requests=(question,), under_way=question)
        return s._replace(c=("k", node), lines=up(s.lines, node, line))

    def keeping_steps(self, s: NodeState) -> Iterator[tuple[str, NodeState]]:
        node = s.c[1]
        line = s.lines[node]
        if line.reply is not None and not line.replays:
            state = Request("bring back", state=line.reply.state)
            line = line._replace(log=(state,), under_way=None, reply=None)
            yield f"home has kept {node}", s._replace(c=("i",), lines=up(s.lines, node, line))
        elif line.lost:  # the question is not asked again: the log stays as it is
            line = line._replace(under_way=None)
            yield from self.bring_back(s._replace(c=("i",), lines=up(s.lines, node, line)), node)

    def begin(self, s: NodeState, command: str) -> NodeState:
        """A pass begins: who takes part is called, with what is known."""
        number = s.hosts[HOME].number + 1
        peers: list[Peer] = []
        for node, peer in enumerate(s.peers):
            if peer.open:
                raise ViolationError(f"pass {number} begins, and node {node} is in pass {s.hosts[node].number}")
            takes_part = node != HOME and (command == "first" or peer.again or node in self.fed)
            held, late = (peer.late, ()) if command == "first" else ((), peer.late)
            if self.broken == "late messages wait for the tick after the next" and command == "first" and s.tick % 2:
                held, late = (), peer.late
            peers.append(peer._replace(open=takes_part, again=False, waits=-1, held=held, late=late, begun=peer.begun + takes_part))
        parts = frozenset({HOME, *(node for node in self.nodes if peers[node].open)})
        for index, (source, target, kind) in enumerate(self.sc.links):
            if target == HOME or kind == LATE or not peers[target].open:
                continue
            if kind == EARLY and command == "first":
                peers[target] = peers[target]._replace(held=(*peers[target].held, (index, number)))
            elif kind != EARLY and source != HOME and source not in parts and self.broken != "nothing is said of who takes no part":
                peers[target] = peers[target]._replace(held=(*peers[target].held, (index, 0)))
        home = s.hosts[HOME]._replace(number=number, at=0, again=False, arrived=())
        s = s._replace(c=("l",), hosts=up(s.hosts, HOME, home), peers=tuple(peers), parts=parts)
        for node in self.nodes:
            if peers[node].open:
                s = self.call(s, node, Request(command, number, peers[node].held))
        return s

    def call(self, s: NodeState, node: int, request: Request) -> NodeState:
        peer, line = s.peers[node], s.lines[node]
        if peer.called:
            raise ViolationError(f"node {node} is called twice")
        log = (*line.log, request)
        line = line._replace(requests=(*line.requests, request), log=log, under_way=request)
        return s._replace(peers=up(s.peers, node, peer._replace(called=True, held=())), lines=up(s.lines, node, line))

    def home_steps(self, s: NodeState) -> Iterator[tuple[str, NodeState]]:
        home, ops = s.hosts[HOME], self.sc.lists[HOME]
        further = home._replace(at=home.at + 1)
        ends = home.at == len(ops)
        if ends:
            if not any(peer.open for peer in s.peers) or self.broken == "home does not wait for the end of the nodes":
                yield "home ends the pass", self.end(s)
        elif ops[home.at][0] == EXEC:
            r = ops[home.at][1]
            self.check(s, home, HOME, r)
            again = home.again or (r, home.number) in self.sc.again
            yield f"home runs {r}", s._replace(hosts=up(s.hosts, HOME, further._replace(again=again)))
            return
        else:
            index = ops[home.at][1]
            link = self.sc.links[index]
            if link.source == HOME:
                s = s._replace(hosts=up(s.hosts, HOME, further), written=up(s.written, index, home.number))
                yield f"home leaves {index}", self.pass_on(s, (index, home.number))
                return
            found = [number for one, number in home.arrived if one == index]
            if found or not s.peers[link.source].open:
                seen = up(home.seen, index, found[-1]) if found and found[-1] else home.seen
                rest = tuple(message for message in home.arrived if message[0] != index)
                yield f"home takes {index} in", s._replace(hosts=up(s.hosts, HOME, further._replace(seen=seen, arrived=rest)))
        for node in self.nodes:
            yield from self.receive(s, node)

    def end(self, s: NodeState) -> NodeState:
        """The pass is over at home. What came late is read from the next tick on."""
        home = s.hosts[HOME]
        again = home.again or any(peer.again for peer in s.peers)
        home = home._replace(at=-1, passes=home.passes + 1)
        if again and self.broken != "microsteps of nodes are forgotten":
            return self.begin(s._replace(hosts=up(s.hosts, HOME, home)), "again")
        for index, number in s.late:
            home = home._replace(seen=up(home.seen, index, number))
        s = s._replace(hosts=up(s.hosts, HOME, home), late=())
        if any((r, home.number) in self.sc.again for ops in self.sc.lists for kind, r in ops if kind == EXEC):
            raise ViolationError(f"the microstep after pass {home.number} is lost")
        return s._replace(c=("i",), tick=s.tick + 1)

    def receive(self, s: NodeState, node: int) -> Iterator[tuple[str, NodeState]]:
        """A reply, or that a node is lost."""
        line, peer = s.lines[node], s.peers[node]
        if line.lost:
            yield from self.bring_back(s, node)
        if line.reply is None or line.replays:
            return
        reply = line.reply
        s = s._replace(lines=up(s.lines, node, line._replace(reply=None, under_way=None)))
        s = s._replace(peers=up(s.peers, node, peer._replace(called=False)))
        for message in reply.messages:
            s = self.pass_on(s, message)
        peer = s.peers[node]
        if reply.waits >= 0:
            yield (
                f"home hears that {node} waits",
                self.go_on(s._replace(peers=up(s.peers, node, peer._replace(waits=reply.waits))), node),
            )
        else:
            peer = peer._replace(open=False, again=reply.again)
            yield f"home hears that {node} has ended", s._replace(peers=up(s.peers, node, peer))

    def pass_on(self, s: NodeState, message: Message) -> NodeState:
        link = self.sc.links[message[0]]
        if link.target == HOME:
            if link.kind == LATE:
                return s._replace(late=(*s.late, message))
            home = s.hosts[HOME]
            return s._replace(hosts=up(s.hosts, HOME, home._replace(arrived=(*home.arrived, message))))
        peer = s.peers[link.target]
        if link.kind == NOW and link.target not in s.parts:
            raise ViolationError(f"a message for node {link.target}, which takes no part in pass {message[1]}")
        if link.kind == LATE:
            return s._replace(peers=up(s.peers, link.target, peer._replace(late=(*peer.late, message))))
        s = s._replace(peers=up(s.peers, link.target, peer._replace(held=(*peer.held, message))))
        return self.go_on(s, link.target)

    def go_on(self, s: NodeState, node: int) -> NodeState:
        """Call a node that waits, if what it waits for is here."""
        peer = s.peers[node]
        if peer.waits < 0 or all(index != peer.waits for index, _ in peer.held):
            return s
        held = peer.held[-1:] if self.broken == "only the last message goes on" else peer.held
        return self.call(s._replace(peers=up(s.peers, node, peer._replace(waits=-1))), node, Request("on", messages=held))

    # ------------------------------------------------------------------ losses

    def bring_back(self, s: NodeState, node: int) -> Iterator[tuple[str, NodeState]]:
        """Another node is told again what the lost one was told; the request under way comes last."""
        line, number = s.lines[node], s.hosts[HOME].number
        if line.died == number:
            yield f"home gives up as {node} is lost again", s._replace(c=("failed",))
            return
        last = line.under_way
        done = line.log[:-1] if line.log and line.log[-1] is last and self.broken != "what is under way is told twice" else line.log
        requests = (*done, last) if last is not None else done
        replays = 0 if self.broken == "replies given again count" else len(done)
        line = line._replace(requests=requests, reply=None, replays=replays, lost=False, died=number)
        fresh = Host(-1, 0, 0, (0,) * len(self.sc.links))
        yield f"home replaces {node}", s._replace(hosts=up(s.hosts, node, fresh), lines=up(s.lines, node, line))

    # ------------------------------------------------------------------ nodes

    def node_steps(self, s: NodeState, node: int) -> Iterator[tuple[str, NodeState]]:
        line = s.lines[node]
        if line.lost:
            return
        if s.b[0] and line.under_way is not None:
            lost = line._replace(requests=(), reply=None, replays=0, lost=True)
            yield f"{FAULT}node {node} is lost", s._replace(b=(s.b[0] - 1, s.b[1]), lines=up(s.lines, node, lost))
        if not line.requests or line.reply is not None:
            return
        request, *others = line.requests
        replay = line.replays > 0
        s, reply = self.handle(s, node, request, replay)
        kept = None if replay else reply
        line = line._replace(requests=tuple(others), reply=kept, replays=line.replays - replay)
        again = " again" if replay else ""
        yield f"node {node} does {request.command}{again}", s._replace(lines=up(s.lines, node, line))

    def handle(self, s: NodeState, node: int, request: Request, replay: bool) -> tuple[NodeState, Reply]:
        """Do a request as far as it goes."""
        host = s.hosts[node]
        if request.command == "keep":
            return s, Reply(state=host)
        if request.command == "bring back":
            return s._replace(hosts=up(s.hosts, node, request.state)), Reply()
        seen, arrived = host.seen, host.arrived
        for index, number in request.messages:
            if self.sc.links[index].kind == LATE:
                seen = up(seen, index, number)
            else:
                arrived = (*arrived, (index, number))
        host = host._replace(seen=seen, arrived=arrived)
        if request.command != "on":
            if host.at >= 0:
                raise ViolationError(f"node {node} is to begin pass {request.number} in the middle of {host.number}")
            if not replay and host.passes != s.peers[node].begun - 1:
                raise ViolationError(f"node {node} begins its pass {s.peers[node].begun} having done {host.passes}")
            host = host._replace(at=0, number=request.number, again=False)
        return self.go(s, node, host, replay)

    def go(self, s: NodeState, node: int, host: Host, replay: bool) -> tuple[NodeState, Reply]:
        leaving: list[Message] = []
        ops = self.sc.lists[node]
        while host.at < len(ops):
            kind, which = ops[host.at]
            if kind == EXEC:
                if not replay:
                    self.check(s, host, node, which)
                host = host._replace(again=host.again or (which, host.number) in self.sc.again)
            elif self.sc.links[which].source == node:
                leaving.append((which, host.number))
                s = s._replace(written=up(s.written, which, max(s.written[which], host.number)))
            else:
                found = [number for index, number in host.arrived if index == which]
                early = self.sc.links[which].kind == EARLY
                if not found and not early:
                    return s._replace(hosts=up(s.hosts, node, host)), Reply(tuple(leaving), which)
                rest = tuple(message for message in host.arrived if message[0] != which)
                host = host._replace(seen=up(host.seen, which, found[-1]) if found and found[-1] else host.seen, arrived=rest)
            host = host._replace(at=host.at + 1)
        reply = Reply(tuple(leaving), again=host.again)
        host = host._replace(at=-1, passes=host.passes + 1, arrived=())
        return s._replace(hosts=up(s.hosts, node, host)), reply

    def check(self, s: NodeState, host: Host, node: int, r: int) -> None:
        """A reaction must read what a single program would give it."""
        for index in self.sc.reads[r]:
            source, _, kind = self.sc.links[index]
            has = host.seen[index]
            if kind == NOW:
                right = has == host.number if source in s.parts else has < host.number
            else:
                right = has == (s.first if kind == EARLY else s.due[index])
            if not right:
                raise ViolationError(f"reaction {r} on node {node} reads of {kind} link {index} what was packed in pass {has}")


# ---------------------------------------------------------------------- programs


@dataclass(frozen=True)
class NodeProgram:
    """Lists, links, and who reads what."""

    lists: tuple[tuple[tuple[str, int], ...], ...]
    links: tuple[Link, ...]
    reads: tuple[tuple[int, ...], ...]


def _shards() -> NodeProgram:
    """Two shards of environments: actions go out before a tick begins, what they return is gathered at home."""
    links = (Link(0, 1, EARLY), Link(0, 2, EARLY), Link(1, 0, NOW), Link(2, 0, NOW))
    lists = (((LINK, 2), (LINK, 3), (EXEC, 2)), ((LINK, 0), (EXEC, 0), (LINK, 2)), ((LINK, 1), (EXEC, 1), (LINK, 3)))
    return NodeProgram(lists, links, ((0,), (1,), (2, 3)))


def _chain() -> NodeProgram:
    """Home, node 1, node 2, home, in one pass."""
    links = (Link(0, 1, NOW), Link(1, 2, NOW), Link(2, 0, NOW))
    lists = (((EXEC, 0), (LINK, 0), (LINK, 2), (EXEC, 3)), ((LINK, 0), (EXEC, 1), (LINK, 1)), ((LINK, 1), (EXEC, 2), (LINK, 2)))
    return NodeProgram(lists, links, ((), (0,), (1,), (2,)))


def _apart() -> NodeProgram:
    """Two nodes that read each other with a delay, and home that reads one with a delay and the other without."""
    links = (Link(1, 0, NOW), Link(0, 2, LATE), Link(1, 2, LATE), Link(2, 0, LATE), Link(2, 1, LATE))
    lists = (((LINK, 0), (EXEC, 0), (LINK, 1)), ((EXEC, 1), (LINK, 0), (LINK, 2)), ((EXEC, 2), (LINK, 3), (LINK, 4)))
    return NodeProgram(lists, links, ((0, 3), (4,), (1, 2)))


def _gather() -> NodeProgram:
    """A node that reads two others, one of which reads home in the middle of a pass."""
    links = (Link(0, 1, NOW), Link(2, 1, NOW), Link(1, 0, NOW))
    lists = (((EXEC, 0), (LINK, 0), (LINK, 2), (EXEC, 3)), ((LINK, 0), (LINK, 1), (EXEC, 1), (LINK, 2)), ((EXEC, 2), (LINK, 1)))
    return NodeProgram(lists, links, ((), (0, 1), (), (2,)))


NODE_PROGRAMS: dict[str, Callable[[], NodeProgram]] = {
    "shards": _shards, "chain": _chain, "apart": _apart, "gather": _gather,
}  # fmt: skip
NODE_FAULTS: dict[str, dict[str, Any]] = {
    "nothing wrong": {},
    "node lost": {"losses": 1},
    "node lost, kept": {"losses": 1, "saves": 1},
    "2 nodes lost, kept": {"losses": 2, "saves": 1},
}


def node_scenarios(name: str, **more: Any) -> Iterator[tuple[str, NodeScenario]]:
    """Scenarios of a program on several nodes: plain, and with a microstep that one reaction asks for."""
    found = NODE_PROGRAMS[name]()
    yield "plain", NodeScenario(found.lists, found.links, found.reads, **more)
    for r in range(len(found.reads)):
        yield f"again {r}", NodeScenario(found.lists, found.links, found.reads, again=frozenset({(r, 1)}), **more)


@dataclass(frozen=True)
class BrokenNodes:
    """A mistake, the program in which it shows, and what has to go wrong."""

    program: str
    how: dict[str, Any] = field(default_factory=dict)


BROKEN_NODES: dict[str, BrokenNodes] = {
    "nothing is said of who takes no part": BrokenNodes("gather"),
    "who is fed takes part only if it has asked": BrokenNodes("chain"),
    "home does not wait for the end of the nodes": BrokenNodes("apart"),
    "late messages wait for the tick after the next": BrokenNodes("apart"),
    "only the last message goes on": BrokenNodes("gather"),
    "microsteps of nodes are forgotten": BrokenNodes("shards"),
    "what is under way is told twice": BrokenNodes("shards", {"losses": 1}),
    "replies given again count": BrokenNodes("chain", {"losses": 1}),
}
