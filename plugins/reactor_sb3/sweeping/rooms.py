"""Seats on other machines: each node has a room with some of them, which is a program of one reactor.

A tick of it hands over trainings and answers, and brings reports and ends. It is short, because nothing can be handed over before
it has ended: trainings are carried out by processes of the node, from one tick to another.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any

from reactor_gymnasium.plugin import repeat_registrations
from reactor_rl import Input, NodeDiedError, Output, Program, Reactor, Run, WorkerDiedError, reaction, shutdown, startup
from reactor_rl.plugin import NodeTransport, SplitTransport, spread_workers
from reactor_sb3.sweeping.seats import ProcessSeat, Seat, close_all
from reactor_sb3.sweeping.training import Ended, Job, Reported

__all__ = ["GRACE", "NodeSeat", "Room", "seats_on"]

Event = Reported | Ended | WorkerDiedError | NodeDiedError

TICK = 0.1
"""Seconds that a tick takes if nothing happens."""
LOOK = 0.02
"""Seconds in which a node looks at each of its seats once."""
GRACE = 5.0
"""Seconds that the end of a room may take."""


class RoomReactor(Reactor):
    """Looks after trainings on one node.

    Args:
        train: The user's function, encoded.
        start_method: How processes start.
        record: A file that the node must see, if the search keeps something.
    """

    orders = Input()
    """A list of seats, each with a training that begins there or an answer."""
    events = Output()
    """A list of seats, each with a report, the end of its training, or the death of its process."""

    def __init__(self, train: Any, start_method: str | None, record: str | None) -> None:
        self.train, self.start_method, self.record = train, start_method, record

    @reaction(startup)
    def open(self) -> None:
        self.seats: dict[int, ProcessSeat] = {}
        self.busy: list[int] = []
        if self.record is not None and not Path(self.record).exists():
            raise ValueError(f"path must be a folder that all machines share: {socket.gethostname()} has no {self.record}")

    @reaction(orders, effects=events)
    def go_on(self) -> None:
        for number, order in self.orders.value:
            if isinstance(order, Job):
                if number not in self.seats:
                    self.seats[number] = ProcessSeat(self.train, self.start_method)
                self.seats[number].begin(order)
            else:
                self.seats[number].answer(order)
            self.busy.append(number)
        found: list[tuple[int, Event]] = []
        until = time.monotonic() + TICK
        while self.busy and not found and time.monotonic() < until:
            for number in self.busy:
                event = self.seats[number].poll(LOOK / len(self.busy))
                if event is not None:
                    found.append((number, event))
        told = {number for number, _ in found}
        self.busy = [number for number in self.busy if number not in told]
        self.events.set(found)

    @reaction(shutdown)
    def leave(self) -> None:
        close_all(self.seats.values())


class Room:
    """The seats of one node, from home.

    Args:
        split: The transport to all nodes.
        node: The node.
        train, start_method, record: See :class:`RoomReactor`.
    """

    def __init__(self, split: SplitTransport, node: int, train: Any, start_method: str | None, record: str | None) -> None:
        self.split, self.node = split, node
        self.program = Program("room")
        self.program.worker_setup(repeat_registrations())
        room = self.program.add(RoomReactor, name="room", train=train, start_method=start_method, record=record)
        self.program.connect(self.program.input("orders"), room.orders)
        self.program.connect(room.events, self.program.output("events"))
        self.run: Run | None = None
        self.ticking = False
        self.orders: list[tuple[int, Job | bool]] = []
        self.events: dict[int, Event] = {}
        self.held: set[int] = set()  # seats that have a training

    def order(self, number: int, order: Job | bool) -> None:
        """Hand something over to a seat with the next tick."""
        if isinstance(order, Job):
            self.held.add(number)
        if number not in self.events:  # else its training was lost while it waited for this answer
            self.orders.append((number, order))

    def poll(self, number: int, seconds: float) -> Event | None:
        """The next event of a seat; ``None`` if nothing comes within that time."""
        if number not in self.events:
            try:
                self._tick(seconds)
            except NodeDiedError as error:
                self.close()
                self.orders.clear()
                for each in self.held:
                    if not isinstance(self.events.get(each), Ended):
                        self.events[each] = error
        event = self.events.pop(number, None)
        if event is not None and not isinstance(event, Reported):
            self.held.discard(number)
        return event

    def _tick(self, seconds: float) -> None:
        run = self.run
        if run is None:
            transport: NodeTransport = self.split.only(self.node)
            run = self.run = self.program.start(executor=transport, on={"room": 1}, fingerprint="off", spin=0.0)
        if not self.ticking:
            run.set(orders=self.orders)
            self.orders = []
            run.tick_async()
            self.ticking = True
        try:
            run.tick_wait(seconds)
        except TimeoutError:
            return
        self.ticking = False
        (found,) = run.values("events")
        self.events.update(found)

    def close(self) -> None:
        """End it, whatever its trainings do."""
        run, self.run, self.ticking = self.run, None, False
        if run is not None:
            with contextlib.suppress(NodeDiedError):
                run.close(timeout=GRACE)


class NodeSeat(Seat):
    """A seat of a room."""

    def __init__(self, room: Room, number: int) -> None:
        self.room, self.number = room, number

    def begin(self, job: Job) -> None:
        self.room.order(self.number, job)

    def answer(self, stops: bool) -> None:
        self.room.order(self.number, stops)

    def poll(self, seconds: float) -> Event | None:
        return self.room.poll(self.number, seconds)

    def close(self) -> None:
        self.room.close()


def seats_on(transport: NodeTransport, count: int, train: Any, start_method: str | None, record: Path | None) -> list[Seat]:
    """At most so many seats, by the number of workers of each node of a transport.

    Args:
        transport: The transport to the nodes.
        count: How many seats are of use.
        train: The user's function, encoded.
        start_method: How processes start.
        record: The file that the search is kept in.
    """
    split, file = SplitTransport(transport), None if record is None else str(record.resolve())
    places = spread_workers(transport.workers, min(count, sum(transport.workers)))
    rooms = {node: Room(split, node, train, start_method, file) for node in sorted(set(places)) if node}
    return [NodeSeat(rooms[node], at) if node else ProcessSeat(train, start_method) for at, node in enumerate(places)]
