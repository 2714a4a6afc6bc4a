"""The gateway of a node packs what leaves and unpacks what arrives, and indices of a node are translated to the whole program's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from reactor_rl.errors import Failure
from reactor_rl.federation.cut import Link, NodeProgram
from reactor_rl.federation.transport import Message, PortData
from reactor_rl.pickling import dumps
from reactor_rl.runtime.worker.bind import RemotePorts
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.runtime.worker.ports import OutputHandle
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.runtime.worker.values import OutputReader

__all__ = ["argument_for", "to_global", "Gateway", "MessagePort"]


def to_global(program: NodeProgram, request: str, reply: Reply) -> Reply:
    """Translate a reply of a node's worker to indices of the whole program, without proxies and the gateway."""
    if reply.failure is not None or request not in _OUTWARD:
        return reply
    return Reply(_OUTWARD[request](program, reply.value))


def argument_for(program: NodeProgram, request: str, argument: Any) -> Any:
    """Translate the argument of a request to the whole program for the workers of one node."""
    if request != "restore":
        return argument
    state, coming = argument
    return _state_for(program, state), coming


def _failures(program: NodeProgram, failures: list[Failure]) -> list[Failure]:
    for failure in failures:
        failure.reaction = program.reactions[failure.reaction]
    return failures


def _digests(program: NodeProgram, digests: dict[int, bytes]) -> dict[int, bytes]:
    return {program.outputs[index]: digests[index] for index in program.own if index in digests}


def _state(program: NodeProgram, state: WorkerState) -> WorkerState:
    return replace(
        state,
        reactors={program.reactors[index]: kept for index, kept in state.reactors.items() if index != program.gateway},
        outputs={program.outputs[index]: state.outputs[index] for index in program.own if index in state.outputs},
        events={time: [(program.actions[index], kept) for index, kept in events] for time, events in state.events.items()},
        waiting={program.actions[index]: kept for index, kept in state.waiting.items()},
    )


def _state_for(program: NodeProgram, state: WorkerState) -> WorkerState:
    action = {whole: index for index, whole in enumerate(program.actions)}
    return replace(
        state,
        reactors={index: state.reactors[whole] for index, whole in enumerate(program.reactors)} | {program.gateway: dumps(None)},
        outputs={index: state.outputs[whole] for index, whole in enumerate(program.outputs)},
        events={
            time: [(action[index], kept) for index, kept in events if index in action] for time, events in state.events.items()
        },
        waiting={action[index]: kept for index, kept in state.waiting.items() if index in action},
    )


_OUTWARD: dict[str, Callable[[NodeProgram, Any], Any]] = {"failures": _failures, "digests": _digests, "snapshot": _state}


class MessagePort(Protocol):
    """The place where a gateway leaves messages and fetches them."""

    def post(self, message: Message) -> None:
        """Take a message that leaves."""

    def wait(self, link: int) -> None:
        """Return once a message of a link has arrived, or raise; then it is called again."""

    def fetch(self, link: int) -> Message | None:
        """Return the message of a link that has arrived in this pass; ``None`` if it has not, or is empty."""


class Gateway(RemotePorts):
    """The reactor that stands for the other nodes. It has one reaction per link, in the order of links.

    Args:
        program: The part of the program on this node.
        office: The place where it leaves and fetches messages.
    """

    def __init__(self, program: NodeProgram, mailbox: MessagePort) -> None:
        self._program, self._mailbox = program, mailbox
        leaving = [output for link in program.links if link.source == program.node for output in link.outputs]
        self._shared = frozenset(output for output in leaving if leaving.count(output) > 1)
        self._packed: dict[int, tuple[tuple[int, bool], PortData | None]] = {}
        for index, link in program.gateway_links.items():
            act = self._leave if link.source == program.node else self._arrive
            vars(self)[program.topology.reactions[index].name] = partial(act, link)

    def attach(self, loop: WorkerLoop, leaving: Mapping[int, OutputReader], arriving: Mapping[int, OutputHandle]) -> None:
        self._loop = loop
        whole, outputs = self._program.outputs, self._program.topology.outputs
        self._leaving = {whole[index]: output for index, output in leaving.items()}
        self._arriving = {whole[index]: port for index, port in arriving.items()}
        self._in_rows = {whole[port.index] for port in outputs if port.dtype is None and port.rows is not None}

    def wait(self, link: int) -> None:
        self._mailbox.wait(link)

    def pack(self, link: Link, number: int, time: int) -> Message:
        """Pack the values written for a link in pass ``number``, at ``time``."""
        contents = [self._content(index, number, time) for index in link.outputs]
        return Message(link.index, tuple(content for content in contents if content is not None))

    def _content(self, index: int, number: int, time: int) -> PortData | None:
        """Pack one output: for several nodes the same copy, which a transport may then send once."""
        if index not in self._shared:
            return self._copied(index, number, time)
        of_pass = number, self._loop.beginning  # startup and the first pass of tick 0 have one number
        if index not in self._packed or self._packed[index][0] != of_pass:
            self._packed[index] = of_pass, self._copied(index, number, time)
        return self._packed[index][1]

    def _copied(self, index: int, number: int, time: int) -> PortData | None:
        output = self._leaving[index]
        rows = output.rows(self._loop.words, number)
        if rows is None:
            return None
        # Copies, for a message may still be under way when the slot is written again.
        pieces = [piece.copy() if isinstance(piece, np.ndarray) else piece for piece in output.pieces(time, rows)]
        return PortData(index, tuple(rows), pieces)

    def unpack(self, message: Message) -> None:
        """Write the values of a message, at the tag of the loop."""
        for index, rows, values in message.contents:
            port: Any = self._arriving[index]
            if rows:
                for row, value in zip(rows, values, strict=True):
                    port.rows[row].set(value)
            else:
                port.set(values if index in self._in_rows else values[0])

    def _leave(self, link: Link) -> None:
        self._mailbox.post(self.pack(link, self._loop.pass_number, self._loop.time))

    def _arrive(self, link: Link) -> None:
        message = self._mailbox.fetch(link.index)
        if message is not None:
            self.unpack(message)

    def __getstate__(self) -> None:
        """Return nothing: a gateway keeps nothing from one pass to the next."""

    def __setstate__(self, state: None) -> None:
        pass
