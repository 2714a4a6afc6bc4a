"""Worker processes that carry out trainings, on this machine and on the nodes of a cluster.

A worker has one connection to whoever started it. It is sent a training, and sends back its reports, each of which waits for an
answer, and its end. On another machine a node hands these on: home asks it again and again for what its workers have sent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import cloudpickle

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl.plugin import (
    Failure,
    NodeLostError,
    NodeReply,
    NodeRequest,
    NodeTransport,
    Reply,
    WorkerProcess,
    decode,
    end_workers,
    loads,
    spread_workers,
)  # fmt: skip
from reactor_sb3.sweeping.training import Died, Ended, Reported, carried_out

__all__ = ["GRACE", "NodePool", "ProcessPool"]

Event = Reported | Ended | Died
"""A report, the end of a training, or the death of its process."""

IDLE = 1.0
"""Seconds that a worker without a training has to end. One may have left threads or processes that never do. Waited for once at the
end of a sweep. Chosen.
"""
ASK = 0.1
"""Seconds after which a node replies though nothing has happened: nothing can be sent to it before. So a new trial waits for a
tenth of a second at most, and an idle node costs ten calls a second.
"""
LOOK = 0.02
"""Seconds after which home looks for replies of nodes, if its own workers send nothing. A trial takes seconds at least, so nobody
notices a fiftieth.
"""
GRACE = 5.0
"""Seconds that the end of all nodes may take: a few round trips and ``IDLE``; a node that is lost would be waited for in vain."""


def _serve(train: Any, setup: Callable[[], None], home: Any) -> None:
    """Carry out trainings until nobody wants any more, in the process of a worker.

    Args:
        train: The user's function, encoded: each training has a copy of its own.
        setup: Called before anything else.
        home: The connection to home, or to the node.
    """

    def ask(report: Reported) -> bool:
        home.send(report)
        stops: bool = loads(home.recv())
        return stops

    try:
        setup()
        while True:
            try:
                order = home.recv()
            except (EOFError, OSError):
                return
            home.send(carried_out(decode(train), loads(order), ask))
    except BaseException as error:  # not the training's
        with contextlib.suppress(OSError):
            home.send(Failure.of(-1, "(in a worker of the search)", (0, 0), error))
    finally:
        for child in multiprocessing.active_children():  # of trainings; Python would wait for them
            child.terminate()


class ProcessPool:
    """Workers on this machine, started when they are needed.

    Args:
        size: How many.
        train: The user's function, encoded.
        start_method: How processes start.
    """

    def __init__(self, size: int, train: Any, start_method: str | None) -> None:
        self.size, self._start_method = size, start_method
        self._serve = partial(_serve, train, repeat_registrations())
        self._workers: dict[int, WorkerProcess] = {}
        self._busy: set[int] = set()

    def send(self, worker: int, order: bytes) -> None:
        """Send a worker the pickle of a training that begins there, or of the answer to its last report."""
        process = self._workers.get(worker)
        if process is not None and worker not in self._busy and process.ended:  # it has died since its last training
            end_workers([process], 0.0)
            process = None
        if process is None:
            process = self._workers[worker] = WorkerProcess(self._serve, self._start_method)
            process.start()
        self._busy.add(worker)
        process.send(order)

    def receive(self, timeout: float | None = None) -> list[tuple[int, Event]]:
        """Wait until something has happened to a training, or time is over, and return by which worker, and what."""
        found: list[tuple[int, Event]] = []
        owners = {handle: worker for worker in self._busy for handle in self._workers[worker].handles}
        # A worker has several handles, so it may be found twice; sorted, so that events that come together have one order.
        for worker in sorted({owners[handle] for handle in connection.wait(list(owners), timeout)}):
            process = self._workers[worker]
            try:
                event = process.receive()
            except TimeoutError:  # a part of a message
                continue
            except EOFError:
                # The connection closes before the process has ended; a moment later its exit status says how it died.
                (status,) = end_workers([self._workers.pop(worker)], IDLE)
                event = Died.by(status)
            if isinstance(event, Failure):
                raise event.raised()
            if not isinstance(event, Reported):
                self._busy.discard(worker)
            found.append((worker, event))
        return found

    def close(self) -> None:
        """End all workers, whatever they do. May be called again, if it was interrupted."""
        busy = [process for worker, process in self._workers.items() if worker in self._busy]
        # A training cannot be told to end and nobody wants its result; idle workers see the end of their connection by themselves.
        end_workers(busy, 0.0)
        end_workers([process for process in self._workers.values() if process not in busy], IDLE)
        self._workers.clear()


class _PoolNode:
    """Hands on what home sends to workers of this machine, and what they send back.

    Args:
        train, start_method: See :class:`ProcessPool`.
        record: A file that the node must see, if the search keeps something.
    """

    def __init__(self, train: Any, start_method: str | None, record: str | None) -> None:
        if record is not None and not Path(record).exists():
            raise ValueError(f"path must be a folder that all machines share: {socket.gethostname()} has no {record}")
        self.pool = ProcessPool(0, train, start_method)

    def handle(self, request: NodeRequest) -> NodeReply:
        assert request.question is not None
        for worker, order in request.question[1]:
            self.pool.send(worker, order)
        return NodeReply(replies=(Reply(self.pool.receive(ASK)),))

    def end(self, timeout: float | None) -> None:
        self.pool.close()


class NodePool:
    """Workers at home and on other nodes, in proportion to what each has; used as a :class:`ProcessPool`.

    Args:
        transport: The transport to the nodes. Closing it is up to the caller.
        most: How many workers are of use.
        train, start_method: See :class:`ProcessPool`.
        record: The file that the search is kept in.

    Raises:
        RunError: If the nodes cannot be made.
    """

    def __init__(self, transport: NodeTransport, most: int, train: Any, start_method: str | None, record: Path | None) -> None:
        self.size = min(most, sum(transport.workers))
        self._node_of = spread_workers(transport.workers, self.size)
        self._home = ProcessPool(self.size, train, start_method)
        self._transport = transport
        self._orders: dict[int, list[tuple[int, bytes]]] = {node: [] for node in range(1, transport.nodes)}
        self._busy: dict[int, set[int]] = {node: set() for node in self._orders}
        self._called: set[int] = set()  # nodes that have not replied yet
        self._lost: set[int] = set()  # nodes that nothing was sent to since
        config = cloudpickle.dumps(partial(_PoolNode, train, start_method, None if record is None else str(record.resolve())))
        transport.launch([config] * len(self._orders))

    def send(self, worker: int, order: bytes) -> None:
        """See :meth:`ProcessPool.send`."""
        node = self._node_of[worker]
        if node:
            self._busy[node].add(worker)
            self._orders[node].append((worker, order))
        else:
            self._home.send(worker, order)

    def receive(self) -> list[tuple[int, Event]]:
        """See :meth:`ProcessPool.receive`."""
        found: list[tuple[int, Event]] = []
        while not found:
            for node, busy in self._busy.items():
                if busy and node not in self._called:
                    self._call(node)
            found += self._home.receive(LOOK)
            if self._called:
                found += self._replied(0.0)
        return found

    def _call(self, node: int) -> None:
        """Have a node pass on orders, and say what has happened there."""
        if node in self._lost:
            # Only now: a node that is lost while no trial is left for it need not come back.
            self._transport.replace(node)
            self._lost.discard(node)
        self._transport.send(node, NodeRequest("ask", question=("trainings", self._orders[node])))
        self._called.add(node)
        self._orders[node] = []

    def _replied(self, timeout: float) -> list[tuple[int, Event]]:
        """Return the events of the next node that replies in time; if a node is lost, its trainings have died."""
        try:
            node, reply = self._transport.receive(timeout)
        except TimeoutError:
            return []
        except NodeLostError as error:
            node, where = error.node, self._transport.describe(error.node)
            self._called.discard(node)
            died = Died("NodeDiedError: its machine was lost", f"node {node}{f' ({where})' if where else ''} {error.how}")
            found: list[tuple[int, Event]] = [(worker, died) for worker in sorted(self._busy[node])]
            self._lost.add(node)
            self._orders[node] = []
        else:
            self._called.discard(node)
            if reply.error is not None:
                raise reply.error.raised()
            found = reply.replies[0].get()
        self._busy[node] -= {worker for worker, event in found if not isinstance(event, Reported)}
        return found

    def close(self) -> None:
        """See :meth:`ProcessPool.close`."""
        self._home.close()
        until = time.monotonic() + GRACE
        while self._called and time.monotonic() < until:  # who replies can be ended well
            with contextlib.suppress(Exception):
                self._replied(ASK)
