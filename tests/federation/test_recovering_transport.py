"""What is sent to a node in place of a lost one, with nodes that only note what they are given."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import numpy as np
import pytest

from reactor_rl import Recover, RecoveryWarning
from reactor_rl.errors import Failure, WorkerDiedError
from reactor_rl.federation.recovery import BRING_BACK, KEEP, OVERHEAD, RecoveringTransport
from reactor_rl.federation.transport import Message, NodeLostError, NodeReply, NodeRequest, NodeTransport, PortData
from reactor_rl.pickling import Pickled
from reactor_rl.runtime import recovery
from reactor_rl.runtime.worker.main import Reply

Event = tuple[int, NodeReply] | NodeLostError | None
"""A reply, the loss of a node, or that nothing has come in time."""


class Nodes:
    """Nodes that answer at once with how many requests they were given, unless the next event comes before."""

    name, inside, nodes, workers = "nodes", "threads", 3, (1, 1, 1)

    def __init__(self) -> None:
        self.given: dict[int, list[Any]] = {1: [], 2: []}
        self.events: deque[Event] = deque()
        self.before: dict[tuple[int, str], list[Event]] = {}
        """What happens before a node answers a request, once."""
        self.refuses = ""

    def launch(self, configs: list[bytes]) -> None: ...

    def send(self, node: int, request: NodeRequest) -> None:
        name = request.command if request.question is None else request.question[0]
        said = request.time if request.question is None else request.question[1]
        self.given[node].append((name, said))
        self.events += self.before.pop((node, name), [])
        error = Failure.of(-1, "", (0, 0), ValueError(self.refuses)) if name == KEEP and self.refuses else None
        state = f"state {said[0]} of {node}" if name == KEEP else name
        self.events.append((node, NodeReply(next=len(self.given[node]), replies=(Reply(state),), error=error)))

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        event = self.events.popleft() if self.events else None
        if event is None:
            raise TimeoutError
        if isinstance(event, NodeLostError):
            self.events = deque(one for one in self.events if not isinstance(one, tuple) or one[0] != event.node)
            raise event
        return event

    def replace(self, node: int) -> None:
        self.given[node].append("new")

    def describe(self, node: int) -> str:
        return f"host {node}"

    def close(self, timeout: float | None) -> None: ...


class Called:
    """Two nodes, started, and called once in every tick."""

    def __init__(self, log_bytes: int, restarts: int = 5, *begins: Event) -> None:
        self.nodes = Nodes()
        self.transport = RecoveringTransport(cast(NodeTransport, self.nodes), Recover(restarts=restarts, log_bytes=log_bytes))
        self.transport.launch([b"", b""])
        if begins:
            self.nodes.before[1, "start"] = list(begins)
        self.call(NodeRequest("start"))

    def call(self, request: NodeRequest, node: int = 1) -> None:
        self.transport.send(node, request)
        other, reply = self.transport.receive(0.0)
        assert other == node and reply.replies[0].get() == (request.question or [request.command])[0]

    def ticks(self, *times: int, node: int = 1) -> list[Any]:
        """What the node was given meanwhile."""
        before = len(self.nodes.given[node])
        for time in times:
            self.call(NodeRequest("first", time, time + 1), node)
        return self.nodes.given[node][before:]


def first(*times: int) -> list[tuple[str, int]]:
    return [("first", time) for time in times]


LOST = NodeLostError(1, "was lost")


def test_the_log_begins_anew_behind_a_state() -> None:
    called = Called(3 * OVERHEAD)
    assert called.ticks(0, 1, 2) == first(0, 1, 2)
    assert called.ticks(3) == [(KEEP, (3, 3)), *first(3)]
    assert called.ticks(4, 5, 6) == first(4, 5, 6)
    called.nodes.before[1, "first"] = [LOST]
    says = r"node 1 \(host 1\) was lost in tick 7. It was replaced.*0 tick\(s\) were replayed"
    with pytest.warns(RecoveryWarning, match=says) as told:
        given = called.ticks(7)
    assert given == [(KEEP, (7, 7)), *first(7), "new", ("start", 0), (BRING_BACK, ("state 7 of 1", 8)), *first(7)]
    assert len(told) == 1


def test_a_log_that_cannot_begin_anew_ends_when_it_is_too_large() -> None:
    called = Called(3 * OVERHEAD)
    called.nodes.refuses = "no"
    called.ticks(0, 1, 2)
    with pytest.warns(RecoveryWarning, match=r"up to tick 3 is larger than Recover\(log_bytes=600\).* anew because no") as told:
        assert called.ticks(3, 4, 5) == [(KEEP, (3, 3)), *first(3, 4, 5)]  # it is not asked again
    assert len(told) == 1
    called.nodes.before[1, "first"] = [LOST]
    with pytest.raises(NodeLostError, match="was lost, and was not replaced: the log up to tick 3 is larger"):
        called.ticks(6)


def test_who_cannot_be_saved_is_asked_again_when_the_log_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SHORTEST_PAUSE", -1.0)  # as if much time had passed
    called = Called(3 * OVERHEAD)
    called.nodes.refuses = "no"
    assert called.ticks(0, 1) == [(KEEP, (0, 1)), *first(0, 1)]
    called.nodes.before[1, "first"] = [LOST]
    with pytest.warns(RecoveryWarning, match=r"2 tick\(s\) were replayed"):
        assert called.ticks(2) == [*first(2), "new", ("start", 0), *first(0, 1, 2)]
    called.nodes.refuses = ""
    assert called.ticks(3)[0] == (KEEP, (3, 3))


def test_a_node_that_is_lost_while_another_one_is_brought_back() -> None:
    """It is asked for its state a second time, and what it answers meanwhile is taken for nothing else."""
    called = Called(2 * OVERHEAD)
    called.ticks(0, 1)
    called.ticks(0, node=2)
    called.nodes.before[1, KEEP] = [NodeLostError(2, "was lost"), LOST]
    with pytest.warns(RecoveryWarning) as told:
        given = called.ticks(2)
    again = [("start", 0), *first(0, 1)]
    assert given == [(KEEP, (2, 2)), "new", *again, (KEEP, (2, 2)), *first(2)]
    assert called.nodes.given[2] == [*first(0), "new", *first(0)]
    called.nodes.before[1, "first"] = [LOST]
    with pytest.warns(RecoveryWarning):
        assert called.ticks(3) == [*first(3), "new", ("start", 0), (BRING_BACK, ("state 2 of 1", 3)), *first(2, 3)]
    assert len(told) == 2


def test_replies_that_come_while_a_node_is_brought_back_are_kept() -> None:
    called = Called(1 << 20)
    called.ticks(0)
    for time, order in ((1, (1, 2)), (2, (2, 1))):  # the first of the two is lost
        called.nodes.before[order[0], "first"] = [NodeLostError(order[0], "was lost"), None]
        for node in order:
            called.transport.send(node, NodeRequest("first", time, time + 1))
        with pytest.warns(RecoveryWarning):
            replies = [called.transport.receive(0.0) for _ in range(2)]
        assert sorted(node for node, _ in replies) == [1, 2]
        with pytest.raises(TimeoutError):
            called.transport.receive(0.0)


def test_a_node_that_is_lost_while_nothing_is_asked_of_it() -> None:
    """All its requests are sent again, and nobody waits for what it answers."""
    called = Called(1 << 20)
    called.ticks(0)
    called.nodes.before[1, "first"] = [LOST]
    for node in (1, 2):
        called.transport.send(node, NodeRequest("first", 1, 2))
    with pytest.warns(RecoveryWarning):
        called.transport.receive(0.0)
    called.transport.receive(0.0)
    called.nodes.before[1, "first"] = [NodeLostError(2, "was lost")]
    with pytest.warns(RecoveryWarning):
        assert called.ticks(2) == first(2)
    assert called.nodes.given[2] == [*first(1), "new", *first(1)]
    with pytest.raises(TimeoutError):
        called.transport.receive(0.0)


def test_a_node_that_is_lost_at_the_start() -> None:
    with pytest.warns(RecoveryWarning, match="was lost in tick 0"):
        called = Called(1 << 20, 1, LOST)
    assert called.nodes.given[1] == [("start", 0), "new", ("start", 0)]


def test_a_node_that_is_lost_while_it_is_saved_is_not_asked_again() -> None:
    called = Called(2 * OVERHEAD)
    called.ticks(0, 1)
    called.nodes.before[1, KEEP] = [LOST]
    with pytest.warns(RecoveryWarning):
        assert called.ticks(2) == [(KEEP, (2, 2)), "new", ("start", 0), *first(0, 1, 2)]
    assert called.ticks(3) == [(KEEP, (3, 3)), *first(3)]


def test_a_node_is_lost_with_its_worker() -> None:
    called = Called(1 << 20)
    died = WorkerDiedError("worker 1 was killed by SIGKILL; it held game. The run is over: close() it", 1, ("game",), -9)
    called.nodes.before[1, "first"] = [(1, NodeReply(error=Failure.of(-1, "", (0, 0), died)))]
    says = r"node 1 \(host 1\) has lost a worker \(worker 1 was killed by SIGKILL; it held game\) in tick 4"
    called.transport.send(1, NodeRequest("first", 4, 5))
    called.nodes.events.pop()  # such a node answers once
    with pytest.warns(RecoveryWarning, match=says):
        assert called.transport.receive(0.0)[0] == 1


def test_who_is_lost_again_is_not_replaced() -> None:
    called = Called(1 << 20, restarts=2)
    called.ticks(0)
    called.nodes.before[1, "start"], called.nodes.before[1, "first"] = [NodeLostError(1, "has not answered", True)], [LOST]
    says = "node 1 has not answered, as the one before it, which was lost in the same tick,"
    with pytest.raises(NodeLostError, match=says) as caught:
        called.ticks(1)
    assert caught.value.hung


def test_no_more_are_replaced_than_that() -> None:
    called = Called(1 << 20, restarts=1)
    called.nodes.before[1, "first"] = [LOST]
    with pytest.warns(RecoveryWarning, match=r"may be replaced 0 more time\(s\)"):
        called.ticks(0)
    called.nodes.before[1, "first"] = [LOST]
    with pytest.raises(NodeLostError, match=r"node 1 was lost, and Recover\(restarts=1\) is used up,"):
        called.ticks(1)


def test_what_changes_nothing_is_not_sent_again() -> None:
    called = Called(1 << 20)
    called.ticks(0)
    for question in ("trace", "snapshot", "restore"):
        called.call(NodeRequest("ask", question=(question, None)))
    called.nodes.before[1, "snapshot"] = [LOST]
    with pytest.warns(RecoveryWarning):
        called.call(NodeRequest("ask", question=("snapshot", None)))
    changed = [("trace", None), ("restore", None)]
    assert called.nodes.given[1][-6:] == ["new", ("start", 0), *first(0), *changed, ("snapshot", None)]


@pytest.mark.parametrize(
    ("values", "size"),
    [([np.zeros(100)], 800), ([Pickled(bytes(1000))], 1000), ([1, None], 16), ([np.zeros(100), np.zeros(50)], 1200)],
)
def test_messages_count_for_what_they_hold(values: list[Any], size: int) -> None:
    """With a limit a little below their size a state is saved before the next tick, a little above it is not."""
    for limit, saved in ((3 * OVERHEAD + size - 20, True), (3 * OVERHEAD + size + 100, False)):
        called = Called(limit)
        called.ticks(0)
        called.call(NodeRequest("first", 1, 2, (Message(0, (PortData(0, (), values),)),)))
        assert ((KEEP, (2, 2)) in called.ticks(2)) is saved
