"""The run of a program on several nodes, at home: an ordinary run of home's part, to which the other nodes are more helpers."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Literal

from reactor_rl.drawing.draw import draw
from reactor_rl.federation.carrier import Carrier, Command
from reactor_rl.federation.cut import Part
from reactor_rl.federation.links import HOME
from reactor_rl.federation.post_office import PostOffice
from reactor_rl.federation.replies import argument_for, of_whole
from reactor_rl.runtime.executor import Commands, Executor, Reactors
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.words import Words
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.messages import Reply
from reactor_rl.topology import Topology
from reactor_rl.trace import Slice, Tracing

__all__ = ["FederatedRun", "Home"]

TRIPS = 5
"""How often clocks are compared when a trace begins."""

_COMMANDS: dict[int, Command] = {
    Commands.START: "start",
    Commands.FIRST: "first",
    Commands.AGAIN: "again",
    Commands.STOP: "stop",
}


class Home(Helpers):
    """The helpers of home and the other nodes, which begin with the same commands.

    Args:
        plan: Home's part, compiled.
        executor: What carries its helpers.
        parts: The parts of all nodes.
        carrier: What carries the nodes; it has been told to make them.
    """

    def __init__(self, plan: Plan, executor: Executor, parts: Sequence[Part], carrier: Carrier) -> None:
        super().__init__(plan, executor)
        self.office = PostOffice(parts, carrier, self.words, self)
        self._part = parts[HOME]
        self._ahead: list[int] = []  # what is to be added to each node's clock, in ns, for home's
        self.start.append(self._begin)

    def watch(self, kernel: Kernel) -> None:
        super().watch(kernel)
        self.office.serve(kernel)
        self._gates = sum(bit for bit, reaction in kernel.reactions.items() if reaction in self._part.gates)

    def _begin(self) -> None:
        words = self.words
        command = _COMMANDS.get(words[Words.COMMAND])
        if command is not None:
            if command in ("first", "again"):
                self.kernel.pending |= self._gates
            self.office.begin(command, words[Words.TIME], words[Words.PASS])

    def ask(self, request: str, argument: Any) -> list[Reply]:
        """Ask every worker of every node something between ticks. Returns the replies in order of node and worker."""
        if request == "failures":
            found, self.office.failures = self.office.failures, []
            return [*self._own(request, argument), Reply(found)]
        if request == "trace" and argument:
            self._set_clocks()
        if request == "restore":
            self.office.forget()
        self.office.ask(request, argument)
        replies = self._own(request, argument)
        answers = self.office.answers()
        if request == "restore":
            for answer in answers:
                self.office.due(answer.next, argument[0].clock[0])
        for node, answer in enumerate(answers):
            replies += [_shifted(reply, self._ahead[node]) for reply in answer.replies] if request == "trace" else answer.replies
        return replies

    def _own(self, request: str, argument: Any) -> list[Reply]:
        replies = super().ask(request, argument_for(self._part, request, argument))
        return [of_whole(self._part, request, reply) for reply in replies]

    def _set_clocks(self) -> None:
        """Compare the nodes' clocks with home's, several times: the quickest way there and back tells most."""
        trips = []
        for _ in range(TRIPS):
            began = perf_counter_ns()
            self.office.ask("clock", None)
            clocks = [answer.replies[0].get() for answer in self.office.answers()]
            ended = perf_counter_ns()
            trips.append((ended - began, [(began + ended) // 2 - clock for clock in clocks]))
        self._ahead = min(trips)[1]


def _shifted(reply: Reply, ahead: int) -> Reply:
    """The slices of a worker on another node, on home's clock."""
    if reply.failure is not None or not reply.value:
        return reply
    slices: list[Slice] = [
        (kind, name, begin + ahead, end + ahead, time, microstep) for kind, name, begin, end, time, microstep in reply.value
    ]
    return Reply(slices)


class FederatedRun(Run):
    """A running program on several nodes. Made by :meth:`Program.start`; everything is as of any :class:`Run`.

    Args:
        topology: The whole program.
        nodes: The node of each of its reactors.
        plan, executor, reactors, helpers, tick_timeout: Home's part, as of any run.
        carrier: What carries the other nodes.
    """

    def __init__(
        self, topology: Topology, nodes: Sequence[int], plan: Plan, executor: Executor, reactors: list[Reactors], helpers: Home,
        carrier: Carrier, tick_timeout: float | None,
    ) -> None:  # fmt: skip
        self._whole, self._nodes, self._carrier, self._home = topology, tuple(nodes), carrier, helpers
        super().__init__(plan, executor, reactors, "", helpers, tick_timeout)
        self._counts = [plan.schedule.workers, *self._count_others()]

    def _count_others(self) -> list[int]:
        self._home.office.ask("workers", None)
        return [answer.replies[0].get() for answer in self._home.office.answers()]

    @property
    def _topology(self) -> Topology:
        return self._whole

    @property
    def workers(self) -> int:
        """Number of workers on all nodes, the caller included."""
        return sum(self._counts)

    @property
    def executor(self) -> str:
        """Name of what carries the nodes."""
        return self._carrier.name

    @property
    def nodes(self) -> int:
        """Number of nodes, home included."""
        return len(self._counts)

    @property
    def calls(self) -> int:
        """How many calls home has made to the other nodes since the run began."""
        return self._home.office.calls

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program as a picture, with the node of each reactor. Arguments as :meth:`Program.draw`."""
        return draw(self._whole, path, format, nodes=self._nodes)

    def trace(self, path: str) -> Tracing:
        """As of any run; the clocks of the nodes are compared when it begins, and their rows name them."""
        labels = [f"node {node}, worker {worker}" for node, count in enumerate(self._counts) for worker in range(count)]
        return Tracing(self._ask, self._whole.name, path, labels)

    def _tear_down(self, grace: float | None) -> None:
        super()._tear_down(grace)
        self._carrier.close(grace)
