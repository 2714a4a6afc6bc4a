"""The gateway of a node packs what leaves and unpacks what arrives, and indices of a node are translated to the whole program's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from reactor_rl.errors import Failure
from reactor_rl.federation.cut import Link, NodeProgram
from reactor_rl.federation.transport import Content, Letter
from reactor_rl.pickling import dumps
from reactor_rl.runtime.worker.bind import RemotePorts
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.runtime.worker.ports import OutputHandle
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.runtime.worker.values import OutputReader

__all__ = ["argument_for", "of_whole", "Gateway", "Office"]


def of_whole(part: NodeProgram, request: str, reply: Reply) -> Reply:
    """Translate a reply of a node's worker to indices of the whole program, without proxies and the gateway."""
    if reply.failure is not None or request not in _OUTWARD:
        return reply
    return Reply(_OUTWARD[request](part, reply.value))


def argument_for(part: NodeProgram, request: str, argument: Any) -> Any:
    """Translate the argument of a request to the whole program for the workers of one node."""
    if request != "restore":
        return argument
    state, coming = argument
    return _state_for(part, state), coming


def _failures(part: NodeProgram, failures: list[Failure]) -> list[Failure]:
    for failure in failures:
        failure.reaction = part.reactions[failure.reaction]
    return failures


def _digests(part: NodeProgram, digests: dict[int, bytes]) -> dict[int, bytes]:
    return {part.outputs[index]: digests[index] for index in part.own if index in digests}


def _state(part: NodeProgram, state: WorkerState) -> WorkerState:
    return replace(
        state,
        reactors={part.reactors[index]: kept for index, kept in state.reactors.items() if index != part.gateway},
        outputs={part.outputs[index]: state.outputs[index] for index in part.own if index in state.outputs},
        events={time: [(part.actions[index], kept) for index, kept in events] for time, events in state.events.items()},
        waiting={part.actions[index]: kept for index, kept in state.waiting.items()},
    )


def _state_for(part: NodeProgram, state: WorkerState) -> WorkerState:
    action = {whole: index for index, whole in enumerate(part.actions)}
    return replace(
        state,
        reactors={index: state.reactors[whole] for index, whole in enumerate(part.reactors)} | {part.gateway: dumps(None)},
        outputs={index: state.outputs[whole] for index, whole in enumerate(part.outputs)},
        events={
            time: [(action[index], kept) for index, kept in events if index in action] for time, events in state.events.items()
        },
        waiting={action[index]: kept for index, kept in state.waiting.items() if index in action},
    )


_OUTWARD: dict[str, Callable[[NodeProgram, Any], Any]] = {"failures": _failures, "digests": _digests, "snapshot": _state}


class Office(Protocol):
    """The place where a gateway leaves messages and fetches them."""

    def post(self, letter: Letter) -> None:
        """Take a message that leaves."""

    def wait(self, link: int) -> None:
        """Return once a message of a link has arrived, or raise; then it is called again."""

    def fetch(self, link: int) -> Letter | None:
        """Return the message of a link that has arrived in this pass; ``None`` if it has not, or is empty."""


class Gateway(RemotePorts):
    """The reactor that stands for the other nodes. It has one reaction per link, in the order of links.

    Args:
        part: The part of the program on this node.
        office: The place where it leaves and fetches messages.
    """

    def __init__(self, part: NodeProgram, office: Office) -> None:
        self._part, self._office = part, office
        leaving = [output for link in part.links if link.source == part.node for output in link.outputs]
        self._shared = frozenset(output for output in leaving if leaving.count(output) > 1)
        self._packed: dict[int, tuple[tuple[int, bool], Content | None]] = {}
        for index, link in part.gates.items():
            act = self._leave if link.source == part.node else self._arrive
            vars(self)[part.topology.reactions[index].name] = partial(act, link)

    def attach(self, loop: WorkerLoop, leaving: Mapping[int, OutputReader], arriving: Mapping[int, OutputHandle]) -> None:
        self._loop = loop
        whole, outputs = self._part.outputs, self._part.topology.outputs
        self._leaving = {whole[index]: output for index, output in leaving.items()}
        self._arriving = {whole[index]: port for index, port in arriving.items()}
        self._in_rows = {whole[port.index] for port in outputs if port.dtype is None and port.rows is not None}

    def wait(self, link: int) -> None:
        self._office.wait(link)

    def pack(self, link: Link, number: int, time: int) -> Letter:
        """Pack the values written for a link in pass ``number``, at ``time``."""
        contents = [self._content(index, number, time) for index in link.outputs]
        return Letter(link.index, tuple(content for content in contents if content is not None))

    def _content(self, index: int, number: int, time: int) -> Content | None:
        """Pack one output: for several nodes the same copy, which a transport may then send once."""
        if index not in self._shared:
            return self._copied(index, number, time)
        of_pass = number, self._loop.beginning  # startup and the first pass of tick 0 have one number
        if index not in self._packed or self._packed[index][0] != of_pass:
            self._packed[index] = of_pass, self._copied(index, number, time)
        return self._packed[index][1]

    def _copied(self, index: int, number: int, time: int) -> Content | None:
        output = self._leaving[index]
        rows = output.rows(self._loop.words, number)
        if rows is None:
            return None
        parts = [part.copy() if isinstance(part, np.ndarray) else part for part in output.pieces(time, rows)]
        return Content(index, tuple(rows), parts)

    def unpack(self, letter: Letter) -> None:
        """Write the values of a message, at the tag of the loop."""
        for index, rows, values in letter.contents:
            port: Any = self._arriving[index]
            if rows:
                for row, value in zip(rows, values, strict=True):
                    port.rows[row].set(value)
            else:
                port.set(values if index in self._in_rows else values[0])

    def _leave(self, link: Link) -> None:
        self._office.post(self.pack(link, self._loop.pass_number, self._loop.time))

    def _arrive(self, link: Link) -> None:
        letter = self._office.fetch(link.index)
        if letter is not None:
            self.unpack(letter)

    def __getstate__(self) -> None:
        """Return nothing: a gateway keeps nothing from one pass to the next."""

    def __setstate__(self, state: None) -> None:
        pass
