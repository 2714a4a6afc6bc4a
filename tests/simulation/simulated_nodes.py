"""Programs on several simulated nodes: threads of the caller's process, as :class:`InProcess` has them, some of which are lost."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

from simulated_programs import Known
from virtual_machine import Clock, Thread, now_running, queues, replaced
from virtual_scheduler import Simulation

from reactor_rl.federation import home, in_process, node, recovery
from reactor_rl.federation.in_process import InProcess
from reactor_rl.federation.transport import NodeReply, NodeRequest
from reactor_rl.runtime import supervisor
from reactor_rl.settings import NamedExecutor, Recover


class LosingNodes(InProcess):
    """Loses nodes: while they have a request, or while their reply is waited for; each at most once in a tick.

    Args:
        nodes, workers, inside: See :class:`InProcess`.
        dice: Decides which.
        chance: How often.
        mute: Whether the loss may go unnoticed: the node never answers.

    Attributes:
        losses: How many were lost.
    """

    def __init__(self, nodes: int, workers: int, inside: NamedExecutor, dice: random.Random, chance: float, mute: bool) -> None:
        super().__init__(nodes, workers, inside)
        self._dice, self._chance, self._mute, self._time = dice, chance, mute, 0
        self._spared: set[int] = set()
        self._starting: set[int] = set()
        self._called: set[int] = set()
        self._ticking = False
        self.losses = 0

    def send(self, node: int, request: NodeRequest) -> None:
        if request.command == "first" and request.time > self._time:
            self._time, self._spared = request.time, set()
        self._ticking |= request.command == "first"
        if request.command == "start":
            self._starting.add(node)
        elif request.command != "on":
            self._starting.discard(node)
        limited = self._ticking and node not in self._starting  # startup reactions may take as long as they like
        if self._mute and limited and self._may_lose(node):
            return
        super().send(node, request)
        self._called.add(node)
        self._perhaps_lose(node)

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        if self._called:
            self._perhaps_lose(self._dice.choice(sorted(self._called)))
        found = super().receive(timeout)
        self._called.discard(found[0])
        return found

    def _may_lose(self, node: int) -> bool:
        if node in self._spared or node not in self._threads or self._dice.random() >= self._chance:
            return False
        self._spared.add(node)
        self._called.discard(node)
        self.losses += 1
        return True

    def _perhaps_lose(self, node: int) -> None:
        if self._may_lose(node):
            now_running().deaf = True  # nobody who is there to be interrupted loses it
            self.lose(node)
            now_running().deaf = False


@contextlib.contextmanager
def with_nodes(simulation: Simulation) -> Iterator[None]:
    """Put the simulated world under federations within the block."""
    places: dict[Any, dict[str, Any]] = {
        home: {"arithmetic": lambda: None},
        node: {"take": lambda settings: None},
        in_process: {"queue": queues},
        recovery: {"time": Clock, "tell": simulation.say},
        supervisor: {"usable_cores": lambda: 64, "may_start_processes": lambda: True},
    }
    bases = in_process._Thread.__bases__
    in_process._Thread.__bases__ = (Thread,)
    try:
        with replaced(places):
            yield
    finally:
        in_process._Thread.__bases__ = bases


def start_on_nodes(
    program: Known,
    dice: random.Random,
    inside: NamedExecutor,
    recover: Recover | None,
    chance: float,
    caller_works: bool,
    limit: float | None,
) -> tuple[Any, LosingNodes]:
    """Start a program on some nodes, with reactors on any of them, and there on any worker."""
    names = [reactor.name for reactor in program.topology.reactors]
    nodes, workers = dice.randint(1, 3), dice.randint(1, 3)
    transport = LosingNodes(nodes, workers, inside, dice, chance, mute=limit is not None)
    on = {name: dice.randrange(nodes) for name in names} if dice.random() < 0.7 else None
    placement = {name: dice.randrange(workers) for name in names} if dice.random() < 0.5 else None
    settings = supervisor.RunSettings(
        inside, workers, caller_works=caller_works, fingerprint="boundary", recover=recover, placement=placement,
        timeout=limit,
    )  # fmt: skip
    return home.start_federated(program.topology, lambda _: program.pickled, (), settings, transport, on), transport
