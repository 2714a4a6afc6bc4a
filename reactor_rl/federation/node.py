"""One node: its part of the program as an ordinary run, driven by requests from home."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

import cloudpickle

from reactor_rl.errors import Failure, RunClosedError, ordinary
from reactor_rl.federation.cut import NodeProgram
from reactor_rl.federation.gateway import Gateway, argument_for, to_global
from reactor_rl.federation.recovery import BRING_BACK, KEEP
from reactor_rl.federation.transport import Message, NodeReply, NodeRequest
from reactor_rl.pickling import loads
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.arithmetic import Arithmetic, take
from reactor_rl.runtime.channel import ControlBlock, Event
from reactor_rl.runtime.executor import ABORTED, HelperCommand, Reactors
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import RunSettings, compile_program
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.schedule import Arrivals

__all__ = ["NodeConfig", "NodeHost"]


@dataclass(frozen=True)
class NodeConfig:
    """All that is needed to make a node.

    Attributes:
        program: Its part of the program.
        reactors: Its reactors, pickled, by their index in the part.
        setup: Functions that every process runs before reactors are built.
        settings: How it runs its part.
        arrivals: Links that arrive from other nodes.
        arithmetic: Settings of the caller's process that change results of arithmetic.
    """

    program: NodeProgram
    reactors: Mapping[int, bytes]
    setup: tuple[Callable[[], None], ...]
    settings: RunSettings
    arrivals: Arrivals
    arithmetic: Arithmetic

    def packed(self) -> bytes:
        """Pickle it to be sent, as what :class:`NodeHost` begins."""
        return cloudpickle.dumps(partial(_NodeRun, self))  # type: ignore[no-any-return]


class NodeHost:
    """A node, used in the thread that does its requests.

    Args:
        config: Everything that it is made of, as :meth:`NodeTransport.launch` gets it: the pickle of a function without arguments
            that begins it, and returns an object with ``handle(request)`` and ``end(timeout)``.
    """

    def __init__(self, config: bytes) -> None:
        self._packed = config
        self._run: Any = None

    def handle(self, request: NodeRequest) -> NodeReply:
        """Do a request of home, as far as possible with the messages that have arrived. Never raises."""
        try:
            if self._run is None:
                self._run = loads(self._packed)()
            reply: NodeReply = self._run.handle(request)
            return reply
        except BaseException as error:  # home waits for an answer, whatever it is
            return NodeReply(error=Failure.of(-1, "(of another node)", (request.time, 0), ordinary(error)))

    def close(self, timeout: float | None = None) -> None:
        """End its workers. May be called again.

        Args:
            timeout: Seconds to wait for work in progress; ``None``: no limit.
        """
        if self._run is not None:
            self._run.end(timeout)


class _Waiting(Exception):
    """The pass cannot go on before a message has arrived."""


class _Mailbox:
    """The mailbox in which the gateway of a node leaves and finds messages."""

    def __init__(self) -> None:
        self.arrived: dict[int, Message] = {}
        self.leaving: list[Message] = []

    def post(self, message: Message) -> None:
        self.leaving.append(message)

    def wait(self, link: int) -> None:
        if link not in self.arrived:
            raise _Waiting(link)

    def fetch(self, link: int) -> Message | None:
        return self.arrived.pop(link, None)


class _NodeRun(Run):
    """The run of one part, which does a pass when home calls, as far as it gets."""

    def __init__(self, config: NodeConfig) -> None:
        program, settings = config.program, config.settings
        take(config.arithmetic)
        self._program = program
        self._mailbox = _Mailbox()
        self._gateway = Gateway(program, self._mailbox)
        self._late_links = frozenset(link.index for link in program.links if link.late)
        plan, executor = compile_program(program.topology, config.setup, settings, config.arrivals)
        if executor.name != "threads":  # which runs them itself
            for function in config.setup:
                function()
        given: dict[int, bytes | Reactor] = {**config.reactors, program.gateway: self._gateway}
        shares: list[Reactors] = [{index: given[index] for index in plan.reactors_of(w)} for w in range(plan.schedule.workers)]
        super().__init__(plan, executor, shares, "", Helpers(plan, executor))
        self._limit = settings.timeout
        self._gateway_mask = sum(bit for bit, reaction in self._loop.reactions.items() if reaction in program.gateway_links)

    def _start_up(self) -> None:
        """Do nothing: home calls for the startup pass."""

    def handle(self, request: NodeRequest) -> NodeReply:
        """Do a request; see :meth:`NodeHost.handle`. Raises errors from outside of reactions."""
        if self._state != "ready":
            raise RunClosedError("this node's part of the run is over")
        if request.question is not None:
            return NodeReply(replies=tuple(self._replies(*request.question)), next=self._next())
        for message in request.messages:
            if message.link in self._late_links:
                self._gateway.unpack(message)  # the loop is still at the tick in which it was written
            else:
                self._mailbox.arrived[message.link] = message
        try:
            self._go(request)
        except _Waiting as waiting:
            return NodeReply(self._messages(), waits=waiting.args[0])
        # What no reaction has fetched was for this pass alone.
        self._mailbox.arrived.clear()
        failures: tuple[Failure, ...] = ()
        events = self._helpers.events()
        if events & Event.FAILED:
            failures = tuple(to_global(self._program, "failures", Reply(self._helpers.failures())).get())
        again, stop = bool(events & Event.AGAIN), bool(events & Event.STOP)
        return NodeReply(self._messages(), None, again, stop, failures, self._next())

    def _go(self, request: NodeRequest) -> None:
        loop, words, helpers = self._loop, self._words, self._helpers
        if request.command == "on":
            if loop.beginning:
                loop.start_pass()
            else:
                loop.execute()
            return
        words[ControlBlock.TIME] = request.time
        if request.command == "start":
            helpers.begin(HelperCommand.START, request.number)
            loop.start_pass()
        elif request.command == "stop":
            helpers.begin(HelperCommand.STOP, request.number)
            loop.stop_pass(request.time, request.number)
        elif request.command == "first":
            helpers.limit = self._limit  # startup reactions take their time
            helpers.begin(HelperCommand.FIRST, request.number)
            loop.pending |= self._gateway_mask
            loop.first_pass(request.time, request.number)
        else:
            helpers.begin(HelperCommand.AGAIN, request.number)
            loop.pending |= self._gateway_mask
            loop.next_pass(request.number)

    def _messages(self) -> tuple[Message, ...]:
        messages, self._mailbox.leaving = self._mailbox.leaving, []
        # Nobody waits for a late one, so an empty one tells nothing. An empty one of this pass lets its reader go on.
        return tuple(message for message in messages if message.contents or message.link not in self._late_links)

    def _next(self) -> int:
        return 0 if self._loop.soon else min(self._helpers.nexts)

    def _replies(self, request: str, argument: Any) -> list[Reply]:
        if request == "clock":
            return [Reply(perf_counter_ns())]
        if request == "workers":
            return [Reply(self.workers)]
        if request == KEEP:  # keeps the indices of this part, and the values of proxies
            whole, *others = [reply.get() for reply in self._helpers.ask("snapshot", argument)]
            for state in others:
                whole.merge(state)
            return [Reply(whole)]
        if request == BRING_BACK:
            return self._helpers.ask("restore", argument)
        replies = self._helpers.ask(request, argument_for(self._program, request, argument))
        if request == "restore":
            self._helpers.forget(Event.STOP)  # home keeps a stop that was requested
        return [to_global(self._program, request, reply) for reply in replies]

    def end(self, timeout: float | None) -> None:
        """End the workers; shutdown reactions that have not run by then run alone."""
        if self._state != "closed":
            self._state = "closing"
            whole = "_loop" in self.__dict__ and self._loop.stopping
            self._tear_down(timeout if whole else ABORTED)

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        self.end(0.0 if terminate else timeout)
