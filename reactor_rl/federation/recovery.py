"""A transport that replaces lost nodes, so that the run that calls them does not notice.

The state of a node follows from the calls that it is given, so these are logged. A new node is given the same calls again, one
after the other; its answers repeat those given before and are ignored. The call that was under way when the node was lost comes
last, and its answer is passed on. When the log becomes too large, or replaying it would take too long, the node's state is
saved between two ticks and the log begins anew from there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from reactor_rl.errors import WorkerDiedError, WorkerHungError
from reactor_rl.federation.transport import Answer, Around, Call, Carrier, LostError
from reactor_rl.pickling import Pickled
from reactor_rl.runtime.executor import SLICE
from reactor_rl.runtime.recovery import RecoveryBudget
from reactor_rl.settings import Recover, tell

__all__ = ["BRING_BACK", "KEEP", "RecoveringCarrier"]

KEEP, BRING_BACK = "keep", "bring back"
"""Requests to a node: to return its state, for a new node in its place; and to go on from such a state."""
NOTED = frozenset({"restore", "trace"})
"""Requests that change a node."""
OVERHEAD = 200
"""Bytes of a call without its messages."""


@dataclass
class _Notes:
    """The log of one node.

    Attributes:
        budget: Size and age of the log.
        calls: All calls since its beginning, or since its state was last saved; the last one may be under way.
        start: The call for its startup reactions, the first one.
        under_way: The call that it has not answered.
        over: The reason why it is not replaced any more.
    """

    budget: RecoveryBudget
    calls: list[Call] = field(default_factory=list)
    start: Call | None = None
    under_way: Call | None = None
    over: str = ""


class RecoveringCarrier(Around):
    """Wrap a transport so that lost nodes are replaced.

    Args:
        carrier: The transport to wrap.
        recover: How often nodes may be replaced, and how large the log may be.
    """

    def __init__(self, carrier: Carrier, recover: Recover) -> None:
        super().__init__(carrier)
        self._recover = recover
        self._notes: dict[int, _Notes] = {}
        self._answers: deque[tuple[int, Answer]] = deque()  # those that came while a node was brought back
        self._awaited: dict[int, Answer | None] = {}  # by node that is being brought back or saved
        self._losses: list[tuple[int, int, str]] = []  # tick, node and cause
        self._time = 0

    def launch(self, parcels: Sequence[bytes]) -> None:
        """Begin to make the nodes; see :meth:`Carrier.launch`."""
        self._notes = {node: _Notes(RecoveryBudget(self._recover.log_bytes)) for node in range(1, len(parcels) + 1)}
        super().launch(parcels)

    # ------------------------------------------------------------------ calls and answers

    def send(self, node: int, call: Call) -> None:
        """Send a node a call, and log it."""
        notes = self._notes[node]
        if call.command == "first":
            self._time = call.time
            if notes.budget.due:
                self._keep(node, notes, call.time, call.number)
        if notes.start is None:
            notes.start = call
        if not notes.over and (call.question is None or call.question[0] in NOTED):
            notes.calls.append(call)
            notes.budget.bytes += OVERHEAD + _size(call)
        notes.under_way = call
        self._carrier.send(node, call)

    def receive(self, timeout: float) -> tuple[int, Answer]:
        """Return the next answer of any node that has been called, and the node."""
        if self._answers:
            return self._answers.popleft()
        try:
            node, answer = self._received(timeout)
        except LostError as lost:
            self._bring_back(lost)
            return self.receive(0.0)
        self._notes[node].under_way = None
        return node, answer

    def _received(self, timeout: float) -> tuple[int, Answer]:
        """Receive an answer. A node with a worker that has died, or hangs, counts as lost."""
        node, answer = self._carrier.receive(timeout)
        error = None if answer.error is None else answer.error.error
        if isinstance(error, (WorkerDiedError, WorkerHungError)):
            what = str(error).partition(". The run is over")[0]
            raise LostError(node, f"has lost a worker ({what})", isinstance(error, WorkerHungError))
        return node, answer

    def _answer_of(self, node: int) -> Answer:
        """Wait for the answer of a node, and keep those of others for later.

        Raises:
            LostError: If that node is lost.
        """
        nested = node in self._awaited  # a call of this method waits for it already
        self._awaited[node] = None
        try:
            while (found := self._awaited[node]) is None:
                try:
                    other, answer = self._received(SLICE)
                except TimeoutError:
                    continue
                except LostError as lost:
                    if lost.node == node:
                        raise
                    self._bring_back(lost)
                    continue
                if other in self._awaited:
                    self._awaited[other] = answer
                else:
                    self._notes[other].under_way = None
                    self._answers.append((other, answer))
            return found
        finally:
            if nested:
                self._awaited[node] = None
            else:
                del self._awaited[node]

    # ------------------------------------------------------------------ notes

    def _keep(self, node: int, notes: _Notes, ticks: int, number: int) -> None:
        """Save the state of a node before tick ``ticks``, whose first pass has this number, and begin its log anew."""
        began = time.monotonic()
        question = Call("ask", question=(KEEP, (ticks, number - (ticks > 0))))  # startup and tick 0 are one pass
        notes.under_way = question
        self._carrier.send(node, question)
        try:
            answer = self._answer_of(node)
        except LostError as lost:
            notes.under_way = None
            self._bring_back(lost)
            return
        notes.under_way = None
        if answer.error is not None:
            notes.budget.failed()
            if notes.budget.too_large and not notes.over:
                self._give_up(notes, str(answer.error.error))
            return
        state = answer.replies[0].get()
        # Startup reactions build what a state does not contain, so a new node runs them before it gets the state.
        notes.calls = [] if notes.start is None else [notes.start]
        notes.calls.append(Call("ask", question=(BRING_BACK, (state, number))))
        notes.budget.saved(began)

    def _give_up(self, notes: _Notes, why: str) -> None:
        notes.over = (
            f"the log up to tick {self._time} is larger than Recover(log_bytes={self._recover.log_bytes}), and it cannot begin "
            f"anew because {why}"
        )
        notes.calls.clear()
        tell(f"from now on no node is replaced: {notes.over}")

    # ------------------------------------------------------------------ losses

    def _bring_back(self, lost: LostError) -> None:
        """Put a new node in the place of a lost one, in the same state.

        Raises:
            LostError: If it cannot be replaced, or too many have been lost.
        """
        began, node = time.monotonic(), lost.node
        notes, where = self._notes[node], self._carrier.describe(node)
        while True:
            self._count(lost)
            self._carrier.replace(node)
            done = notes.calls[:-1] if notes.calls and notes.calls[-1] is notes.under_way else notes.calls
            try:
                for call in done:
                    self._carrier.send(node, call)
                    self._answer_of(node)
                break
            except LostError as again:
                lost = again
        if notes.under_way is not None:
            self._carrier.send(node, notes.under_way)
        ticks = sum(call.command == "first" for call in done)
        left = self._recover.restarts - len(self._losses)
        tell(
            f"node {node}{f' ({where})' if where else ''} {self._losses[-1][2]} in tick {self._time}. It was replaced after "
            f"{time.monotonic() - began:.2f} s, {ticks} tick(s) were replayed, nothing is lost. Nodes may be replaced {left} more "
            "time(s)"
        )

    def _count(self, lost: LostError) -> None:
        node = lost.node
        before = [how for when, other, how in self._losses if (when, other) == (self._time, node)]
        over = self._notes[node].over
        if over:
            raise LostError(node, f"{lost.how}, and was not replaced: {over};", lost.hung)
        if before:
            raise LostError(node, f"{lost.how}, as the one before it, which {before[-1]} in the same tick,", lost.hung)
        if len(self._losses) >= self._recover.restarts:
            restarts = f"Recover(restarts={self._recover.restarts})"
            raise LostError(node, f"{lost.how}, and {restarts} is used up,", lost.hung)
        self._losses.append((self._time, node, lost.how))


def _size(call: Call) -> int:
    """Estimate the bytes of the messages of a call."""
    return sum(
        len(value.data) if isinstance(value, Pickled) else getattr(value, "nbytes", 8)
        for letter in call.letters
        for content in letter.contents
        for value in content.values
    )
