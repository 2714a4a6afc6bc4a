"""Nodes that are threads of the caller's process, for tests and to try out how a program would be cut.

The table of transports is here too: which one the name of an executor stands for.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any
from weakref import WeakSet

from reactor_rl.errors import ProgramError
from reactor_rl.federation.node import NodeHost
from reactor_rl.federation.transport import NodeLostError, NodeReply, NodeRequest, NodeTransport
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.settings import LOCAL, NamedExecutor, check_nodes, unknown_executor

__all__ = ["InProcess", "GROUP", "transport_for"]


class InProcess:
    """The transport to nodes that are threads of this process.

    Args:
        nodes: Number of nodes, home included; ``None`` for 2.
        workers: Workers of each node; ``None`` for the cores of this process.
        inside: Executor of each node.

    Raises:
        ProgramError: If ``nodes`` is not a positive integer.
    """

    name = "federated"

    def __init__(self, nodes: int | None = None, workers: int | None = None, inside: NamedExecutor = "threads") -> None:
        if nodes is not None and (isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1):
            raise ProgramError(f"nodes must be an integer >= 1, home included, got {nodes!r}")
        self.nodes, self.inside = nodes or 2, inside
        self.workers = (workers or usable_cores(),) * self.nodes
        self._configs: tuple[bytes, ...] = ()
        self._threads: dict[int, _Thread] = {}
        self._leaving: WeakSet[_Thread] = WeakSet()  # those of lost nodes; who has ended need not be kept
        self._replies: queue.SimpleQueue[tuple[_Thread, NodeReply]] = queue.SimpleQueue()
        self._lost: list[int] = []

    def launch(self, configs: Sequence[bytes]) -> None:
        self._configs = tuple(configs)
        for node in range(1, len(configs) + 1):
            self._begin(node)

    def send(self, node: int, request: NodeRequest) -> None:
        if node in self._threads:
            self._threads[node].requests.put(request)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        while True:
            if self._lost:
                raise NodeLostError(self._lost.pop(0), "was lost")
            try:
                thread, reply = self._replies.get(timeout=timeout) if timeout else self._replies.get_nowait()
            except queue.Empty:
                raise TimeoutError from None
            if thread is self._threads.get(thread.node):
                return thread.node, reply

    def lose(self, node: int) -> None:
        """Lose a node, as a cluster may: its request is never answered."""
        thread = self._threads.pop(node)
        thread.hang_up(0.0)
        self._leaving.add(thread)
        self._lost.append(node)

    def replace(self, node: int) -> None:
        if node in self._threads:
            self._threads[node].hang_up(0.0)  # a thread cannot be killed: it ends after its request
        self._begin(node)

    def describe(self, node: int) -> str:
        return ""

    def close(self, timeout: float | None) -> None:
        threads = list(self._threads.values())
        for thread in threads:
            thread.hang_up(timeout)
        for thread in (*threads, *self._leaving):
            thread.join(timeout)
        self._threads.clear()

    def _begin(self, node: int) -> None:
        self._threads[node] = thread = _Thread(node, NodeHost(self._configs[node - 1]), self._replies)
        thread.start()


class _Thread(threading.Thread):
    """The thread of one node."""

    def __init__(self, node: int, host: NodeHost, replies: queue.SimpleQueue[tuple[_Thread, NodeReply]]) -> None:
        super().__init__(name=f"reactor_rl node {node}", daemon=True)
        self.node, self._host, self._replies = node, host, replies
        self.requests: queue.SimpleQueue[NodeRequest | None] = queue.SimpleQueue()
        self._timeout: float | None  # set by hang_up(), for which run() waits

    def run(self) -> None:
        while (request := self.requests.get()) is not None:
            self._replies.put((self, self._host.handle(request)))
        with contextlib.suppress(Exception):
            self._host.close(self._timeout)

    def hang_up(self, timeout: float | None) -> None:
        """Let the thread end after its request."""
        self._timeout = timeout
        self.requests.put(None)


GROUP = "reactor_rl.transports"
"""Entry points by which plugins offer transports: functions of ``nodes`` and ``workers``, under the name of the executor."""


def transport_for(executor: Any, nodes: Any = None, workers: int | None = None) -> NodeTransport | None:
    """Find the transport of a run on several nodes; ``None`` for an executor of one machine.

    Args:
        executor: The user's choice: a name, or a transport itself.
        nodes: Number of nodes, or another description that the transport understands; ``None`` for all that it has.
        workers: Number of workers of each node; ``None`` for the cores of each.

    Raises:
        ProgramError: If ``nodes`` is given for an executor of one machine, the name is unknown, or the transport has other nodes.
    """
    check_nodes(executor, nodes)
    if executor in LOCAL:
        return None
    if not isinstance(executor, str):
        transport: NodeTransport = executor
        if nodes is not None and transport.nodes != nodes:
            raise ProgramError(f"nodes must be {transport.nodes}, as many as the transport has, or left out, got {nodes!r}")
        return transport
    if executor == InProcess.name:
        return InProcess(nodes, workers)
    for entry in entry_points(group=GROUP, name=executor):
        found: NodeTransport = entry.load()(nodes, workers)
        return found
    raise unknown_executor(executor)
