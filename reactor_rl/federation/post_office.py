"""Home's side of the other nodes: it calls them when a pass begins, passes letters on, and waits for what they say.

What they have to say about a pass (a further microstep, a request to stop, a failure, the next time at which something is due) is
put where the run looks for it, as if home's own workers had said it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from reactor_rl.errors import NodeDiedError, WorkerHungError
from reactor_rl.failure import Failure
from reactor_rl.federation.carrier import Answer, Call, Carrier, Command, Letter, LostError
from reactor_rl.federation.cut import Part
from reactor_rl.federation.gateway import Gateway
from reactor_rl.federation.links import HOME
from reactor_rl.runtime.executor import SLICE, Deadline
from reactor_rl.runtime.words import Stop, Words
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.moment import NEVER

__all__ = ["END", "PostOffice"]

END = -1
"""Stands for a link where home waits for every node to have ended its part of the pass."""


class Caller(Protocol):
    """What the thread that waits has to look after meanwhile.

    Attributes:
        deadline: When it gives up.
    """

    deadline: Deadline

    def check(self) -> None:
        """Raise what has ended one of its helpers."""


@dataclass
class _Node:
    """Another node, as home sees it.

    Attributes:
        called: Whether a call is under way to it.
        open: Whether it takes part in this pass and has not ended it.
        waits: The link that it waits for.
        again: Whether it needs a further microstep.
        held: Letters for it, which go with the next call.
        late: Letters for it that may wait until the next tick begins.
        said: Its answer to a question.
    """

    called: bool = False
    open: bool = False
    waits: int | None = None
    again: bool = False
    held: list[Letter] = field(default_factory=list)
    late: list[Letter] = field(default_factory=list)
    said: Answer | None = None


class PostOffice:
    """Where home's gateway leaves letters and finds them, and where all others' letters go through.

    Args:
        parts: The parts of all nodes.
        carrier: What carries the nodes; it has been told to make them.
        words: The words that home's workers share.
        caller: Who waits.

    Attributes:
        gateway: The gateway of home.
        failures: What reactions on other nodes have raised in this pass.
        calls: How many calls have been made.
    """

    def __init__(self, parts: Sequence[Part], carrier: Carrier, words: memoryview, caller: Caller) -> None:
        self._parts, self._carrier, self._words, self._caller = parts, carrier, words, caller
        self._links = {link.index: link for part in parts for link in part.links}
        self._nodes = {part.node: _Node() for part in parts[1:]}
        # Those that can be given something in the middle of a pass have to take part in every one.
        self._fed = {link.target for link in self._links.values() if not (link.early or link.late)} - {HOME}
        self._arrived: dict[int, Letter] = {}
        self._late: list[Letter] = []
        self._kernel: Kernel
        self.gateway = Gateway(parts[HOME], self)
        self.failures: list[Failure] = []
        self.calls = 0

    def serve(self, kernel: Kernel) -> None:
        """Know the caller's kernel, before its first pass."""
        self._kernel = kernel

    # ------------------------------------------------------------------ a pass

    def begin(self, command: Command, when: int, number: int) -> None:
        """Call the nodes that take part in a pass, as it begins."""
        self._arrived.clear()
        for index, node in self._nodes.items():
            node.open = command != "again" or node.again or index in self._fed
            node.again, node.waits = False, None
            node.held = []
            if command == "first":
                node.held, node.late = node.late, []
        for link in self._links.values():
            if link.target == HOME or link.late or not self._nodes[link.target].open:
                continue
            if link.early and command == "first":
                self._nodes[link.target].held.append(self.gateway.pack(link, number, when))
            elif link.source != HOME and not self._nodes[link.source].open:
                self._nodes[link.target].held.append(Letter(link.index, ()))
        for index, node in self._nodes.items():
            if node.open:
                self._send(index, Call(command, when, number, tuple(node.held)))

    def _send(self, index: int, call: Call) -> None:
        node = self._nodes[index]
        node.called, node.held = True, []
        self.calls += 1
        self._carrier.send(index, call)

    def post(self, letter: Letter) -> None:
        """Take a letter of home's own gateway, and see whether others have some."""
        self._pass_on(letter)
        while any(node.called for node in self._nodes.values()) and self._receive(0.0):
            pass

    def fetch(self, link: int) -> Letter | None:
        """The letter of a link that has arrived in this pass."""
        return self._arrived.pop(link, None)

    def wait(self, link: int) -> None:
        """Wait for a letter, or (:data:`END`) until every node has ended its part of the pass.

        Raises:
            TimeoutError: If the deadline passes.
            NodeDiedError: If a node is lost.
            WorkerHungError: If one does not answer in time.
        """
        observers = self._kernel.observers
        for observer in observers:
            observer.before_wait()
        while self._lacks(link):
            if not self._receive(self._caller.deadline.left(SLICE)):
                self._caller.check()
                if self._caller.deadline.over():
                    raise TimeoutError
        for letter in self._late:
            self.gateway.unpack(letter)
        self._late.clear()
        for observer in observers:
            observer.after_wait("the other nodes" if link == END else f"node {self._links[link].source}")

    def _lacks(self, link: int) -> bool:
        if link == END:
            return any(node.open for node in self._nodes.values())
        return link not in self._arrived and self._nodes[self._links[link].source].open

    def _pass_on(self, letter: Letter) -> None:
        link = self._links[letter.link]
        if link.target == HOME:
            if link.late:
                self._late.append(letter)  # which is taken in where no reaction runs
            else:
                self._arrived[link.index] = letter
        elif link.late:
            self._nodes[link.target].late.append(letter)
        else:
            self._nodes[link.target].held.append(letter)
            self._go_on(link.target)

    def _go_on(self, index: int) -> None:
        """Let a node go on with its pass if what it waits for is here."""
        node = self._nodes[index]
        if node.waits is not None and any(letter.link == node.waits for letter in node.held):
            node.waits = None
            self._send(index, Call("on", letters=tuple(node.held)))

    # ------------------------------------------------------------------ answers

    def _receive(self, timeout: float) -> bool:
        """Take one answer, if there is one within some seconds. Returns whether there was."""
        try:
            index, answer = self._carrier.receive(timeout)
        except TimeoutError:
            return False
        except LostError as lost:
            raise self._lost(lost) from None
        node = self._nodes[index]
        node.called = False
        if answer.error is not None:
            answer.error.error.add_note(f"on {self._name(index)}")
            raise answer.error.error
        if node.open:
            self._take(index, node, answer)
        else:
            node.said = answer
        return True

    def _take(self, index: int, node: _Node, answer: Answer) -> None:
        """Take what a node says of a pass."""
        words, kernel = self._words, self._kernel
        for letter in answer.letters:
            self._pass_on(letter)
        if answer.waits is not None:
            node.waits = answer.waits
            self._go_on(index)
            return
        node.open, node.again = False, answer.again
        if answer.again:
            words[Words.AGAIN] = kernel.number
        if answer.stop and words[Words.STOP] == Stop.NO:
            words[Words.STOP] = Stop.REQUESTED
        if answer.failures:
            self.failures += answer.failures
            words[Words.FAILED] = 1
        self.due(answer.next, 0 if kernel.beginning else kernel.time + 1)

    def due(self, upcoming: int, coming: int) -> None:
        """Something is due on a node, at ``coming`` at the earliest."""
        if upcoming != NEVER:
            self._kernel.wake_at(max(upcoming, coming), 0)

    def _lost(self, lost: LostError) -> NodeDiedError | WorkerHungError:
        names, has = self._names(lost.node), "holds" if lost.hung else "held"
        message = (
            f"{self._name(lost.node)} {lost.how} in tick {self._kernel.time}; it {has} {', '.join(names)}. The run is over: "
            "close() it and start again"
        )
        return WorkerHungError(message, lost.node, names, False) if lost.hung else NodeDiedError(message, lost.node, names)

    def _name(self, index: int) -> str:
        where = self._carrier.describe(index)
        return f"node {index} ({where})" if where else f"node {index}"

    def _names(self, index: int) -> tuple[str, ...]:
        return tuple(reactor.name for reactor in self._parts[index].topology.reactors[:-1])

    # ------------------------------------------------------------------ questions

    def forget(self) -> None:
        """Forget what is under way between ticks: the run goes back to a snapshot."""
        for node in self._nodes.values():
            node.late, node.again = [], False

    def ask(self, request: str, argument: Any) -> None:
        """Give all nodes a question; :meth:`answers` waits for what they say."""
        for index, node in self._nodes.items():
            node.said = None
            self._send(index, Call("ask", question=(request, argument)))

    def answers(self) -> list[Answer]:
        """What the nodes have said, in their order."""
        found = []
        for node in self._nodes.values():
            while node.said is None:
                if not self._receive(SLICE):
                    self._caller.check()
            found.append(node.said)
        return found
