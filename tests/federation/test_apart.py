"""One transport that is split into one for each node: what belongs to one node reaches its run, and no other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from reactor_rl.federation.apart import SplitTransport
from reactor_rl.federation.transport import NodeLostError, NodeReply, NodeRequest, NodeTransport


class Scripted:
    """Two nodes beside home whose replies are those of a list, in its order."""

    name, inside, nodes = "scripted", "threads", 3

    def __init__(self, *replies: tuple[int, NodeReply] | NodeLostError) -> None:
        self.replies, self.done = list(replies), list[Any]()

    def launch(self, configs: list[bytes]) -> None:
        self.done.append(("launch", configs))

    def send(self, node: int, request: NodeRequest) -> None:
        self.done.append(("send", node, request.command))

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        assert 0.0 <= timeout <= 5.0
        if not self.replies:
            raise TimeoutError
        reply = self.replies.pop(0)
        if isinstance(reply, NodeLostError):
            raise reply
        return reply

    def replace(self, node: int) -> None:
        self.done.append(("replace", node))

    def describe(self, node: int) -> str:
        return f"host {node}"

    def close(self, timeout: float | None) -> None:
        self.done.append("close")


def split(*replies: tuple[int, NodeReply] | NodeLostError) -> tuple[Scripted, NodeTransport, NodeTransport]:
    transport = Scripted(*replies)
    apart = SplitTransport(cast(NodeTransport, transport))
    return transport, apart.only(1), apart.only(2)


def test_all_nodes_are_made_with_the_first_run_and_anew_for_a_further_one() -> None:
    transport, first, second = split()
    assert (first.name, first.inside, first.nodes, first.workers) == ("scripted", "threads", 2, (1, 1))
    first.launch([b"config"])
    second.launch([b"config"])
    assert transport.done == [("launch", [b"config", b"config"])]
    second.close(None)
    second.launch([b"config"])
    first.replace(1)
    assert transport.done[1:] == [("replace", 2), ("replace", 1)]


def test_each_run_gets_the_replies_of_its_node() -> None:
    replies = [NodeReply(next=number) for number in range(3)]
    transport, first, second = split((1, replies[0]), (2, replies[1]), (1, replies[2]))
    second.send(1, NodeRequest("first"))
    assert transport.done == [("send", 2, "first")] and (first.describe(1), second.describe(1)) == ("host 1", "host 2")
    assert second.receive(5.0) == (1, replies[1])  # that of the other node is kept
    assert [first.receive(5.0) for _ in range(2)] == [(1, replies[0]), (1, replies[2])]
    with pytest.raises(TimeoutError):
        second.receive(0.0)


def test_a_lost_node_is_lost_for_its_run_until_it_is_made_anew() -> None:
    reply = NodeReply(next=7)
    transport, first, second = split(NodeLostError(2, "was killed", hung=True), (1, reply), (2, reply))
    first.launch([b"config"])
    assert first.receive(5.0) == (1, reply)
    for _ in range(2):
        with pytest.raises(NodeLostError, match="node 1 was killed") as lost:
            second.receive(5.0)
        assert lost.value.node == 1 and lost.value.hung
    second.launch([b"config"])  # it was lost before its own run began
    assert transport.done == [("launch", [b"config", b"config"]), ("replace", 2)]
    assert second.receive(5.0) == (1, reply)


def test_what_a_node_had_said_before_it_was_made_anew_is_dropped() -> None:
    old, new = NodeReply(next=1), NodeReply(next=2)
    _, first, second = split((2, old), (1, old), (2, new))
    assert first.receive(5.0) == (1, old)
    second.replace(1)
    assert second.receive(5.0) == (1, new)
