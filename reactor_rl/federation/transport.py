"""The protocol between home and the nodes of a federated run, and wrappers of it.

A *node* is a place with workers of its own that runs a part of a program; *home*, node 0, is where the caller is. Every message
has home at one end. Home gives a node a :class:`NodeRequest`; the node does as much of it as it can and returns one
:class:`NodeReply`. At most one request to a node is under way at a time. A transport moves requests and replies and does not
look into them.

A pass of the whole program (a tick's first one, one of its further microsteps, the startup or the shutdown reactions) is one
request to each node. The request brings what the node needs from the beginning: boundary inputs, and values that others wrote
earlier and that are read with a delay. The reply brings what the node wrote. If the node needs something in the middle of the
pass that is not there yet, it replies with the number of the link that it waits for, and home sends another request, ``"on"``,
as soon as that has arrived. A program whose reactors on the nodes read from home only delayed values and boundary inputs
(vector environments, trainers) therefore needs exactly one request per node and tick. Messages between two nodes go through
home, so home is the only one that must be reachable, and the state of a node follows from the requests that home has made to it.

To write a transport: on each node, make a :class:`~reactor_rl.federation.node.NodeHost` in the thread or actor that will do all
its requests. Hand it each request, ``host.handle(request)``, and bring back what that returns; at the end
``host.close(timeout)``. ``handle`` never raises, whatever goes wrong in the program. Requests come one after the other: none
arrives while another is being done.

A plugin offers its transport by an entry point of the group ``reactor_rl.transports``, whose name is the ``executor`` that the
user writes. The entry point is a function of ``nodes`` and ``workers`` that returns a :class:`NodeTransport`. ``nodes`` is what
the user has given to :meth:`reactor_rl.Program.start`: an int, None, or settings that only the transport knows; ``workers`` is
an int or None. A user may also pass a transport itself as ``executor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from reactor_rl.errors import Failure
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.settings import NamedExecutor

__all__ = [
    "Command",
    "Message",
    "NodeLostError",
    "NodeReply",
    "NodeRequest",
    "NodeTransport",
    "PortData",
    "TimedTransport",
    "TransportWrapper",
]

Command = Literal["start", "first", "again", "stop", "on", "ask"]
"""Run the startup reactions; the first pass of a tick; a further microstep; the shutdown reactions; go on with the pass that waits;
answer a question between two passes."""


class PortData(NamedTuple):
    """The values written to one output in one pass.

    Attributes:
        output: Index of the output in the whole program.
        rows: The rows that were written one by one; empty if all of it was written.
        values: A value for each of those rows; else the array, or the object of each row, or the object. Objects are encoded.
    """

    output: int
    rows: tuple[int, ...]
    values: list[Any]


class Message(NamedTuple):
    """The values that cross on one link in one pass. ``link`` is its index among the links of the whole program."""

    link: int
    contents: tuple[PortData, ...]


class NodeRequest(NamedTuple):
    """A request of home to a node.

    Attributes:
        command: The thing to do.
        time: The tick that begins (``"first"``), or that was the last one (``"stop"``).
        number: The number of the pass, the same on all nodes.
        messages: Messages that have arrived for this node since the request before.
        question: For ``"ask"``: the name of the request to the workers, and its argument.
    """

    command: Command
    time: int = 0
    number: int = 0
    messages: tuple[Message, ...] = ()
    question: tuple[str, Any] | None = None


class NodeReply(NamedTuple):
    """The reply of a node to a request.

    Attributes:
        messages: Messages for others since its last reply, in the order in which they were written.
        waits: The link whose message it needs to go on with this pass; ``None`` if the pass is done.
        again: Whether the tick needs a further microstep.
        stop: Whether a reaction has requested a stop.
        failures: Failures of reactions in the pass, by index in the whole program.
        next: The next time at which this node has something to do of its own.
        replies: Replies of its workers to a request.
        error: The failure that has ended the node's part of the run, such as the death of one of its workers.
    """

    messages: tuple[Message, ...] = ()
    waits: int | None = None
    again: bool = False
    stop: bool = False
    failures: tuple[Failure, ...] = ()
    next: int = 0
    replies: tuple[Reply, ...] = ()
    error: Failure | None = None


class NodeLostError(Exception):
    """A transport has lost a node. The run turns this into an error that names the node's reactors, or replaces the node.

    Attributes:
        node: Its number.
        how: The cause, worded to follow its name: "was killed by SIGKILL".
        hung: Whether the node still exists but does not answer in time.
    """

    def __init__(self, node: int, how: str, hung: bool = False) -> None:
        super().__init__(f"node {node} {how}")
        self.node, self.how, self.hung = node, how, hung


class NodeTransport(Protocol):
    """Makes the nodes and carries requests to them. Node 0, home, is not the transport's concern.

    Only the thread that drives the run calls it. It serves one run: :meth:`launch` comes first and once, :meth:`close` last.

    Attributes:
        name: As the user spells it, for messages and ``repr``.
        nodes: Number of nodes, home included.
        inside: The executor that home and the nodes use for their own workers.
        workers: Number of workers of each node, home's first; known before the start, to divide work among them.
    """

    name: str
    inside: NamedExecutor

    @property
    def workers(self) -> tuple[int, ...]: ...

    @property
    def nodes(self) -> int: ...

    def launch(self, configs: Sequence[bytes]) -> None:
        """Begin to make nodes 1, 2, ... from these configs. May return before they are up.

        Raises:
            RunError: If the nodes cannot be made.
        """

    def send(self, node: int, request: NodeRequest) -> None:
        """Send a node a request. Does not wait for the reply."""

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        """Return the next reply of any node that has been called, and the node.

        Args:
            timeout: Most seconds to wait; 0 not to wait.

        Raises:
            TimeoutError: If no reply has come.
            NodeLostError: If one of the nodes that have been called cannot answer any more.
        """

    def replace(self, node: int) -> None:
        """Make a node anew from its config, in place of one that is lost, or that hangs and is ended; its request is dropped.

        Raises:
            RunError: If no machine has room for it.
        """

    def describe(self, node: int) -> str:
        """Describe where a node is, for messages: a host's name or address, or an empty string."""

    def close(self, timeout: float | None) -> None:
        """End all nodes (``NodeHost.close(timeout)``), then their processes. May be called again, even if it was interrupted.

        Args:
            timeout: Seconds to wait for work in progress; ``None``: no limit.
        """


class TransportWrapper:
    """Base of transports that wrap another one and change some of what it does.

    Args:
        transport: The transport to wrap.
    """

    def __init__(self, transport: NodeTransport) -> None:
        self._transport = transport
        self.name, self.inside = transport.name, transport.inside

    @property
    def workers(self) -> tuple[int, ...]:
        return self._transport.workers

    @property
    def nodes(self) -> int:
        return self._transport.nodes

    def launch(self, configs: Sequence[bytes]) -> None:
        self._transport.launch(configs)

    def send(self, node: int, request: NodeRequest) -> None:
        self._transport.send(node, request)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        return self._transport.receive(timeout)

    def replace(self, node: int) -> None:
        self._transport.replace(node)

    def describe(self, node: int) -> str:
        return self._transport.describe(node)

    def close(self, timeout: float | None) -> None:
        self._transport.close(timeout)


class TimedTransport(TransportWrapper):
    """Wrap a transport so that a node that does not answer in time counts as lost. Startup reactions are not limited.

    Only the time that home spends waiting counts. A node that has a reply ready while home does something else is not late.

    Args:
        transport: The transport to wrap.
        limit: Most seconds that home waits for a reply.
    """

    def __init__(self, transport: NodeTransport, limit: float) -> None:
        super().__init__(transport)
        self._limit = limit
        self._starting: set[int] = set()
        self._waited: dict[int, float] = {}  # seconds, for each node that is called

    def send(self, node: int, request: NodeRequest) -> None:
        """Send a node a request, and start its limit."""
        if request.command == "start":
            self._starting.add(node)
        elif request.command != "on":
            self._starting.discard(node)
        self._waited[node] = 0.0
        super().send(node, request)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        """Return the next reply of any node that has been called, and the node.

        Raises:
            NodeLostError: If a node is lost, or has not answered in time.
        """
        try:
            node, reply = super().receive(timeout)
        except TimeoutError:
            for node in self._waited.keys() - self._starting:
                self._waited[node] += timeout  # not the real time, which may be longer if the wrapped transport starts a node anew
                if self._waited[node] > self._limit:
                    raise NodeLostError(node, f"has not answered for {self._limit} s", hung=True) from None
            raise
        del self._waited[node]
        return node, reply

    def replace(self, node: int) -> None:
        """Make a node anew, without a limit for its request."""
        self._waited.pop(node, None)
        super().replace(node)
