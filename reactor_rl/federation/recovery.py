"""A transport that replaces lost nodes, so that the run that calls them does not notice.

The state of a node follows from the requests that it is given, so these are logged. A new node is given the same requests again,
one after the other; its replies repeat those given before and are ignored. The request that was under way when the node was lost
comes last, and its reply is passed on. When the log becomes too large, or replaying it would take too long, the node's state is
saved between two ticks and the log begins anew from there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reactor_rl.errors import WorkerDiedError, WorkerHungError
from reactor_rl.federation.transport import NodeLostError, NodeReply, NodeRequest, NodeTransport, TransportWrapper
from reactor_rl.pickling import Pickled
from reactor_rl.runtime.executor import SLICE
from reactor_rl.runtime.recovery import RecoveryBudget
from reactor_rl.settings import Recover, tell

__all__ = ["BRING_BACK", "KEEP", "RecoveringTransport"]

KEEP, BRING_BACK = "keep", "bring back"
"""Requests to a node: to return its state, for a new node in its place; and to go on from such a state."""
NOTED = frozenset({"restore", "trace"})
"""Requests that change a node."""
OVERHEAD = 200
"""Bytes of a request without its messages: an estimate of the objects around them. It only decides when a log is too large."""


@dataclass
class _NodeLog:
    """The log of one node.

    Attributes:
        budget: Size and age of the log.
        requests: All requests since its beginning, or since its state was last saved; the last one may be under way.
        start: The requests of its startup pass, in the middle of which it may have waited for messages.
        started: Whether that pass has ended.
        under_way: The request that it has not answered.
        over: The reason why it is not replaced any more.
    """

    budget: RecoveryBudget
    requests: list[NodeRequest] = field(default_factory=list)
    start: list[NodeRequest] = field(default_factory=list)
    started: bool = False
    under_way: NodeRequest | None = None
    over: str = ""


class RecoveringTransport(TransportWrapper):
    """Wrap a transport so that lost nodes are replaced.

    Args:
        transport: The transport to wrap.
        recover: How often nodes may be replaced, and how large the log may be.
    """

    def __init__(self, transport: NodeTransport, recover: Recover) -> None:
        super().__init__(transport)
        self._recover = recover
        self._notes: dict[int, _NodeLog]
        self._replies: deque[tuple[int, NodeReply]] = deque()  # those that came while a node was brought back
        self._awaited: dict[int, NodeReply | None] = {}  # by node that is being brought back or saved
        self._losses: list[tuple[int, int, str]] = []  # tick, node and cause
        self._time = 0
        self._closed = False

    def launch(self, configs: Sequence[bytes]) -> None:
        """Begin to make the nodes; see :meth:`NodeTransport.launch`."""
        self._notes = {node: _NodeLog(RecoveryBudget(self._recover.log_bytes)) for node in range(1, len(configs) + 1)}
        super().launch(configs)

    def close(self, timeout: float | None) -> None:
        """End all nodes; see :meth:`NodeTransport.close`."""
        self._closed = True  # before that: a thread that replaces a node looks here behind that
        super().close(timeout)

    # ------------------------------------------------------------------ requests and replies

    def send(self, node: int, request: NodeRequest) -> None:
        """Send a node a request, and log it."""
        notes = self._notes[node]
        if request.command == "first":
            self._time, notes.started = request.time, True
            if notes.budget.due and not notes.over:
                self._keep(node, notes, request.time, request.number)
        elif request.question is None and not notes.started:
            notes.start.append(request)
        if not notes.over and (request.question is None or request.question[0] in NOTED):
            notes.requests.append(request)
            notes.budget.bytes += OVERHEAD + _size(request)
        # Before it is sent, for sending it may show that the node is lost.
        notes.under_way = request
        self._transport.send(node, request)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        """Return the next reply of any node that has been called, and the node."""
        if self._replies:
            return self._replies.popleft()
        try:
            node, reply = self._received(timeout)
        except NodeLostError as lost:
            self._bring_back(lost)
            return self.receive(0.0)
        self._notes[node].under_way = None
        return node, reply

    def _received(self, timeout: float) -> tuple[int, NodeReply]:
        """Receive a reply. A node with a worker that has died, or hangs, counts as lost."""
        node, reply = self._transport.receive(timeout)
        error = None if reply.error is None else reply.error.error
        if isinstance(error, (WorkerDiedError, WorkerHungError)):
            what = str(error).partition(". The run is over")[0]
            raise NodeLostError(node, f"has lost a worker ({what})", isinstance(error, WorkerHungError))
        return node, reply

    def _reply_of(self, node: int) -> NodeReply:
        """Wait for the reply of a node, and keep those of others for later.

        Raises:
            NodeLostError: If that node is lost.
        """
        nested = node in self._awaited  # a call of this method waits for it already
        self._awaited[node] = None
        try:
            while (found := self._awaited[node]) is None:
                try:
                    other, reply = self._received(SLICE)
                except TimeoutError:
                    continue
                except NodeLostError as lost:
                    if lost.node == node:
                        raise
                    self._bring_back(lost)
                    continue
                if other in self._awaited:
                    self._awaited[other] = reply
                else:
                    self._notes[other].under_way = None
                    self._replies.append((other, reply))
            return found
        finally:
            if nested:
                self._awaited[node] = None
            else:
                del self._awaited[node]

    # ------------------------------------------------------------------ notes

    def _keep(self, node: int, notes: _NodeLog, ticks: int, number: int) -> None:
        """Save the state of a node before tick ``ticks``, whose first pass has this number, and begin its log anew."""
        began = time.monotonic()
        question = NodeRequest("ask", question=(KEEP, (ticks, number - (ticks > 0))))  # startup and tick 0 are one pass
        notes.under_way = question
        self._transport.send(node, question)
        try:
            reply = self._reply_of(node)
        except NodeLostError as lost:
            notes.under_way = None
            self._bring_back(lost)
            return
        if reply.error is not None:
            notes.budget.failed()
            if notes.budget.too_large:
                self._give_up(notes, str(reply.error.error))
            return
        state = reply.replies[0].get()
        # Startup reactions build what a state does not contain, so a new node runs them before it gets the state.
        notes.requests = list(notes.start)
        notes.requests.append(NodeRequest("ask", question=(BRING_BACK, (state, number))))
        notes.budget.saved(began)

    def _give_up(self, notes: _NodeLog, why: str) -> None:
        notes.over = (
            f"the log up to tick {self._time} is larger than Recover(log_bytes={self._recover.log_bytes}), and it cannot begin "
            f"anew because {why}"
        )
        notes.requests.clear()
        tell(f"from now on no node is replaced: {notes.over}")

    # ------------------------------------------------------------------ losses

    def _bring_back(self, lost: NodeLostError) -> None:
        """Put a new node in the place of a lost one, in the same state.

        Raises:
            NodeLostError: If it cannot be replaced, or too many have been lost.
        """
        began, node = time.monotonic(), lost.node
        notes, where = self._notes[node], self._transport.describe(node)
        while True:
            self._count(lost)
            self._transport.replace(node)
            if self._closed:
                self._transport.close(0.0)  # again: nobody else would end the new one
                raise NodeLostError(node, f"{lost.how}, and was not replaced because the run was closed,", lost.hung)
            # The one under way is sent again below, and its answer goes to whoever waits for it.
            done = notes.requests[:-1] if notes.requests and notes.requests[-1] is notes.under_way else notes.requests
            try:
                for request in done:
                    self._transport.send(node, request)
                    self._reply_of(node)
                break
            except NodeLostError as again:
                lost = again
        if notes.under_way is not None:
            self._transport.send(node, notes.under_way)
        ticks = sum(request.command == "first" for request in done)
        left = self._recover.restarts - len(self._losses)
        tell(
            f"node {node}{f' ({where})' if where else ''} {self._losses[-1][2]} in tick {self._time}. It was replaced after "
            f"{time.monotonic() - began:.2f} s, {ticks} tick(s) were replayed, nothing is lost. Nodes may be replaced {left} more "
            "time(s)"
        )

    def _count(self, lost: NodeLostError) -> None:
        node = lost.node
        before = [how for when, other, how in self._losses if (when, other) == (self._time, node)]
        over = self._notes[node].over
        if over:
            raise NodeLostError(node, f"{lost.how}, and was not replaced: {over};", lost.hung)
        if before:
            raise NodeLostError(node, f"{lost.how}, as the one before it, which {before[-1]} in the same tick,", lost.hung)
        if len(self._losses) >= self._recover.restarts:
            restarts = f"Recover(restarts={self._recover.restarts})"
            raise NodeLostError(node, f"{lost.how}, and {restarts} is used up,", lost.hung)
        self._losses.append((self._time, node, lost.how))


def _size(request: NodeRequest) -> int:
    """Estimate the bytes of the messages of a request."""
    return sum(
        len(value.data) if isinstance(value, Pickled) else getattr(value, "nbytes", 8)
        for message in request.messages
        for content in message.contents
        for value in content.values
    )
