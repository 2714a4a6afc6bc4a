"""One transport for several runs: each node of it is the one other node of a run of its own.

The nodes of one run begin and end their ticks together. What takes its own time on each of them, as whole trainings do, is a run
for each node; what is reserved and started for them is one transport all the same, which knows of one node when another is lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from reactor_rl.federation.transport import NodeLostError, NodeReply, NodeRequest, NodeTransport

__all__ = ["SplitTransport"]


class SplitTransport:
    """Splits a transport into one for each node. All runs must be of the same program: its nodes are made with the first run.

    Args:
        transport: The transport, which nothing was launched on. Closing it is up to whoever has it, after all runs have ended.
    """

    def __init__(self, transport: NodeTransport) -> None:
        self.transport = transport
        self._launched = False
        self._used: set[int] = set()
        self._replies: dict[int, NodeReply] = {}
        self._lost: dict[int, NodeLostError] = {}

    def only(self, node: int) -> NodeTransport:
        """A transport with home and one node, for one run at a time; a further run begins on a node that is made anew."""
        return _OneNode(self, node)

    def launch(self, node: int, config: bytes) -> None:
        """Make all nodes, or this one anew."""
        if not self._launched:
            self._launched = True
            self.transport.launch([config] * (self.transport.nodes - 1))
        elif node in self._used or node in self._lost:
            self.replace(node)
        self._used.add(node)

    def replace(self, node: int) -> None:
        """Make a node anew."""
        self._replies.pop(node, None)
        self._lost.pop(node, None)
        self.transport.replace(node)

    def receive(self, node: int, timeout: float) -> NodeReply:
        """The next reply of a node; those of others are kept for them."""
        until = time.monotonic() + timeout
        while node not in self._replies:
            if node in self._lost:
                lost = self._lost[node]
                raise NodeLostError(_OneNode.NUMBER, lost.how, lost.hung)
            try:
                other, reply = self.transport.receive(max(0.0, until - time.monotonic()))
            except NodeLostError as error:
                self._lost[error.node] = error
            else:
                self._replies[other] = reply
        return self._replies.pop(node)


class _OneNode:
    """Home and one node of a transport.

    Args:
        split: The transport.
        node: The node there.
    """

    NUMBER = 1
    """Of the node, in its own run."""

    nodes = 2

    def __init__(self, split: SplitTransport, node: int) -> None:
        self._split, self._node = split, node
        self.name, self.inside = split.transport.name, split.transport.inside
        self.workers = 1, 1

    def launch(self, configs: Sequence[bytes]) -> None:
        self._split.launch(self._node, configs[0])

    def send(self, node: int, request: NodeRequest) -> None:
        self._split.transport.send(self._node, request)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        return self.NUMBER, self._split.receive(self._node, timeout)

    def replace(self, node: int) -> None:
        self._split.replace(self._node)

    def describe(self, node: int) -> str:
        return self._split.transport.describe(self._node)

    def close(self, timeout: float | None) -> None:
        """Leave the node to whoever has the transport."""
