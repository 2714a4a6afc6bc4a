"""One node: its part of the program as an ordinary run, driven by calls from home."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import cloudpickle

from reactor_rl.errors import Failure, RunClosedError
from reactor_rl.federation.cut import NodeProgram
from reactor_rl.federation.gateway import Gateway, argument_for, of_whole
from reactor_rl.federation.recovery import BRING_BACK, KEEP
from reactor_rl.federation.transport import Answer, Call, Letter
from reactor_rl.pickling import loads
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.arithmetic import Arithmetic, take
from reactor_rl.runtime.channel import ControlBlock, Stop
from reactor_rl.runtime.executor import ABORTED, HelperCommand, Reactors
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import Settings, equip
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.schedule import Arrivals

__all__ = ["Host", "Parcel"]


@dataclass(frozen=True)
class Parcel:
    """All that is needed to make a node.

    Attributes:
        part: Its part of the program.
        reactors: Its reactors, pickled, by their index in the part.
        setup: Functions that every process runs before reactors are built.
        settings: How it runs its part.
        arrivals: Links that arrive from other nodes.
        arithmetic: Settings of the caller's process that change results of arithmetic.
    """

    part: NodeProgram
    reactors: Mapping[int, bytes]
    setup: tuple[Callable[[], None], ...]
    settings: Settings
    arrivals: Arrivals
    arithmetic: Arithmetic

    def packed(self) -> bytes:
        """Pickle it to be sent."""
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


class Host:
    """A node, used in the thread that makes its calls.

    Args:
        parcel: Everything that it is made of, as :meth:`Carrier.launch` gets it.
    """

    def __init__(self, parcel: bytes) -> None:
        self._packed = parcel
        self._part: _PartRun | None = None

    def call(self, call: Call) -> Answer:
        """Do a call of home, as far as possible with the messages that have arrived. Never raises an ordinary error."""
        try:
            if self._part is None:
                self._part = _PartRun(loads(self._packed))
            return self._part.call(call)
        except Exception as error:
            return Answer(error=Failure.of(-1, "(of another node)", (call.time, 0), error))

    def close(self, timeout: float | None = None) -> None:
        """End its workers. May be called again.

        Args:
            timeout: Seconds to wait for work in progress; ``None``: no limit.
        """
        if self._part is not None:
            self._part.end(timeout)


class _Waiting(Exception):
    """The pass cannot go on before a message has arrived."""


class _Desk:
    """The mailbox in which the gateway of a node leaves and finds messages."""

    def __init__(self) -> None:
        self.arrived: dict[int, Letter] = {}
        self.leaving: list[Letter] = []

    def post(self, letter: Letter) -> None:
        self.leaving.append(letter)

    def wait(self, link: int) -> None:
        if link not in self.arrived:
            raise _Waiting(link)

    def fetch(self, link: int) -> Letter | None:
        return self.arrived.pop(link, None)


class _PartRun(Run):
    """The run of one part, which does a pass when home calls, as far as it gets."""

    def __init__(self, parcel: Parcel) -> None:
        part, settings = parcel.part, parcel.settings
        take(parcel.arithmetic)
        self._part = part
        self._desk = _Desk()
        self._gateway = Gateway(part, self._desk)
        self._late_links = frozenset(link.index for link in part.links if link.late)
        plan, executor = equip(part.topology, parcel.setup, settings, parcel.arrivals)
        if executor.name != "threads":  # which runs them itself
            for function in parcel.setup:
                function()
        given: dict[int, bytes | Reactor] = {**parcel.reactors, part.gateway: self._gateway}
        shares: list[Reactors] = [{index: given[index] for index in plan.reactors_of(w)} for w in range(plan.schedule.workers)]
        super().__init__(plan, executor, shares, "", Helpers(plan, executor))
        self._limit = settings.tick_timeout
        self._gates = sum(bit for bit, reaction in self._loop.reactions.items() if reaction in part.gates)

    def _start_up(self) -> None:
        """Do nothing: home calls for the startup pass."""

    def call(self, call: Call) -> Answer:
        """Do a call; see :meth:`Host.call`. Raises errors from outside of reactions."""
        if self._state != "ready":
            raise RunClosedError("this node's part of the run is over")
        if call.question is not None:
            return Answer(replies=tuple(self._replies(*call.question)), next=self._next())
        for letter in call.letters:
            if letter.link in self._late_links:
                self._gateway.unpack(letter)  # the loop is still at the tick in which it was written
            else:
                self._desk.arrived[letter.link] = letter
        try:
            self._go(call)
        except _Waiting as waiting:
            return Answer(self._letters(), waits=waiting.args[0])
        words = self._words
        self._desk.arrived.clear()
        failures: tuple[Failure, ...] = ()
        if words[ControlBlock.FAILED]:
            words[ControlBlock.FAILED] = 0
            failures = tuple(failure for reply in self._replies("failures", None) for failure in reply.get())
        again = bool(words[ControlBlock.AGAIN] == self._loop.pass_number)
        return Answer(self._letters(), None, again, bool(words[ControlBlock.STOP]), failures, self._next())

    def _go(self, call: Call) -> None:
        loop, words, helpers = self._loop, self._words, self._helpers
        if call.command == "on":
            if loop.beginning:
                loop.start_pass()
            else:
                loop.execute()
            return
        words[ControlBlock.TIME] = call.time
        if call.command == "start":
            helpers.begin(HelperCommand.START, call.number)
            loop.start_pass()
        elif call.command == "stop":
            helpers.begin(HelperCommand.STOP, call.number)
            loop.stop_pass(call.time, call.number)
        elif call.command == "first":
            helpers.limit = self._limit  # startup reactions take their time
            helpers.begin(HelperCommand.FIRST, call.number)
            loop.pending |= self._gates
            loop.first_pass(call.time, call.number)
        else:
            helpers.begin(HelperCommand.AGAIN, call.number)
            loop.pending |= self._gates
            loop.next_pass(call.number)

    def _letters(self) -> tuple[Letter, ...]:
        letters, self._desk.leaving = self._desk.leaving, []
        return tuple(letter for letter in letters if letter.contents or letter.link not in self._late_links)

    def _next(self) -> int:
        words = self._words
        if self._loop.soon:
            return 0
        return min(words[word] for word in range(ControlBlock.NEXT, ControlBlock.NEXT + self._plan.schedule.workers))

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
        replies = self._helpers.ask(request, argument_for(self._part, request, argument))
        if request == "restore":
            self._words[ControlBlock.STOP] = Stop.NO  # home keeps a stop that was requested
        return [of_whole(self._part, request, reply) for reply in replies]

    def end(self, timeout: float | None) -> None:
        """End the workers; shutdown reactions that have not run by then run alone."""
        if self._state != "closed":
            self._state = "closing"
            whole = "_loop" in self.__dict__ and self._loop.stopping
            self._tear_down(timeout if whole else ABORTED)

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        self.end(0.0 if terminate else timeout)
