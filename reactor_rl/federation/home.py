"""Home: start a program on several nodes, tick it, and route messages between them.

At home a federated run is an ordinary run of home's part, to which the other nodes are more helpers. Home calls the nodes when
a pass begins, passes messages on, and waits for their replies. What a node reports about a pass (a further microstep, a request
to stop, a failure, the next time at which something is due) is put where the run looks for it, as if home's own workers had
said it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any, Literal, Protocol, cast

from reactor_rl import graph as graphs
from reactor_rl.drawing.draw import draw
from reactor_rl.errors import Failure, NodeDiedError, RunClosedError, WorkerHungError
from reactor_rl.federation.cut import GATEWAY, HOME, NodeProgram, On, cut, nodes_of
from reactor_rl.federation.gateway import Gateway, argument_for, to_global
from reactor_rl.federation.node import NodeConfig
from reactor_rl.federation.recovery import RecoveringTransport
from reactor_rl.federation.transport import Command, Message, NodeLostError, NodeReply, NodeRequest, NodeTransport, TimedTransport
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.arithmetic import arithmetic
from reactor_rl.runtime.channel import ControlBlock, Deadline, Event
from reactor_rl.runtime.executor import SLICE, Executor, HelperCommand, Reactors
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.lifetime import GRACE
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import RunSettings, compile_program
from reactor_rl.runtime.worker.clock import NEVER
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.main import Reply
from reactor_rl.schedule import Arrivals, check_names, expected_ends
from reactor_rl.topology import Topology
from reactor_rl.trace import Slice, Tracing

__all__ = ["END", "MessageRouter", "FederatedRun", "Home", "start_federated"]

END = -1
"""Number in place of a link: home waits until every node has ended its part of the pass."""


class Caller(Protocol):
    """The waiting thread's own duties.

    Attributes:
        deadline: When it gives up.
    """

    deadline: Deadline

    def check(self) -> None:
        """Raise the error that has ended one of its helpers."""


@dataclass
class _Node:
    """Another node, as home sees it.

    Attributes:
        called: Whether a request to it is under way.
        open: Whether it takes part in this pass and has not ended it.
        waits: The link that it waits for.
        again: Whether it needs a further microstep.
        held: Messages for it, which go with the next request.
        late: Messages for it that may wait until the next tick begins.
        said: Its reply to a question.
    """

    called: bool = False
    open: bool = False
    waits: int | None = None
    again: bool = False
    held: list[Message] = field(default_factory=list)
    late: list[Message] = field(default_factory=list)
    said: NodeReply | None = None


class MessageRouter:
    """Routes messages: home's gateway leaves and fetches them here, and those between other nodes pass through.

    Args:
        programs: The parts of all nodes.
        transport: The transport to the other nodes, which it has been told to make.
        words: The words that home's workers share.
        caller: The thread that waits.

    Attributes:
        gateway: The gateway of home.
        failures: Failures of reactions on other nodes in this pass.
        requests: Number of requests made.
        over: Whether the nodes have been ended, so that no reply will come.
    """

    def __init__(self, programs: Sequence[NodeProgram], transport: NodeTransport, words: memoryview, caller: Caller) -> None:
        self._programs, self._transport, self._words, self._caller = programs, transport, words, caller
        self._links = {link.index: link for program in programs for link in program.links}
        self._nodes = {program.node: _Node() for program in programs[1:]}
        # Nodes that may receive a message in the middle of a pass have to take part in every pass.
        self._fed = {link.target for link in self._links.values() if not (link.early or link.late)} - {HOME}
        self._arrived: dict[int, Message] = {}
        self._late: list[Message] = []
        self._loop: WorkerLoop
        self.gateway = Gateway(programs[HOME], self)
        self.failures: list[Failure] = []
        self.requests = 0
        self.over = False
        self._error: Exception | None = None  # of a message that was passed on

    def serve(self, loop: WorkerLoop) -> None:
        """Set the caller's loop, before its first pass."""
        self._loop = loop

    # ------------------------------------------------------------------ a pass

    def begin(self, command: Command, when: int, number: int) -> None:
        """Call the nodes that take part in a pass, as it begins."""
        for index, node in self._nodes.items():
            node.open = command != "again" or node.again or index in self._fed
            node.held = []
            if command == "first":
                node.held, node.late = node.late, []
        for link in self._links.values():
            if link.target == HOME or link.late or not self._nodes[link.target].open:
                continue
            if link.early and command == "first":
                self._nodes[link.target].held.append(self.gateway.pack(link, number, when))
            elif link.source != HOME and not self._nodes[link.source].open:
                # The source takes no part in this pass, so an empty message keeps the target from waiting for it.
                self._nodes[link.target].held.append(Message(link.index, ()))
        for index, node in self._nodes.items():
            if node.open:
                self._send(index, NodeRequest(command, when, number, tuple(node.held)))

    def _send(self, index: int, request: NodeRequest) -> None:
        node = self._nodes[index]
        node.called, node.held = True, []
        self.requests += 1
        try:
            self._transport.send(index, request)
        except NodeLostError as lost:  # it was to be brought back before that
            raise self._lost(lost) from None

    def post(self, message: Message) -> None:
        """Take a message of home's own gateway, and look for messages of others.

        What goes wrong with them is raised by :meth:`wait`: this is called in a reaction, and only one reaction would fail.
        """
        try:
            self._pass_on(message)
            # Replies that are here already let nodes go on while home is still at work.
            while any(node.called for node in self._nodes.values()) and self._receive(0.0):
                pass
        except Exception as error:
            self._error = self._error or error

    def fetch(self, link: int) -> Message | None:
        """Return the message of a link that has arrived in this pass, or ``None``."""
        return self._arrived.pop(link, None)

    def wait(self, link: int) -> None:
        """Wait for a message, or (:data:`END`) until every node has ended its part of the pass.

        Raises:
            TimeoutError: If the deadline passes.
            NodeDiedError: If a node is lost.
            WorkerHungError: If a node does not answer in time.
        """
        observers = self._loop.observers
        for observer in observers:
            observer.before_wait()
        while self._error is None and self._lacks(link):
            if not self._receive(self._caller.deadline.left(SLICE)):
                self._caller.check()
                if self._caller.deadline.over():
                    raise TimeoutError
        if self._error is not None:
            raise self._error
        for message in self._late:
            self.gateway.unpack(message)
        self._late.clear()
        for observer in observers:
            observer.after_wait("the other nodes" if link == END else f"node {self._links[link].source}")

    def _lacks(self, link: int) -> bool:
        if link == END:
            return any(node.open for node in self._nodes.values())
        return link not in self._arrived and self._nodes[self._links[link].source].open

    def _pass_on(self, message: Message) -> None:
        link = self._links[message.link]
        if link.target == HOME:
            if link.late:
                self._late.append(message)  # taken in while no reaction runs
            else:
                self._arrived[link.index] = message
        elif link.late:
            self._nodes[link.target].late.append(message)
        else:
            self._nodes[link.target].held.append(message)
            self._go_on(link.target)

    def _go_on(self, index: int) -> None:
        """Let a node go on with its pass if the message that it waits for is here."""
        node = self._nodes[index]
        if node.waits is not None and any(message.link == node.waits for message in node.held):
            node.waits = None
            self._send(index, NodeRequest("on", messages=tuple(node.held)))

    # ------------------------------------------------------------------ replies

    def _receive(self, timeout: float) -> bool:
        """Wait ``timeout`` seconds for one reply and take it. Returns whether it came."""
        if self.over:
            raise RunClosedError("the nodes of this run were ended")
        try:
            index, reply = self._transport.receive(timeout)
        except TimeoutError:
            return False
        except NodeLostError as lost:
            raise self._lost(lost) from None
        node = self._nodes[index]
        node.called = False
        if reply.error is not None:
            reply.error.error.add_note(f"on {self._name(index)}")
            raise reply.error.error
        if node.open:
            self._take(index, node, reply)
        else:
            node.said = reply
        return True

    def _take(self, index: int, node: _Node, reply: NodeReply) -> None:
        """Take a node's reply about a pass."""
        words, loop = self._words, self._loop
        for message in reply.messages:
            self._pass_on(message)
        if reply.waits is not None:
            node.waits = reply.waits
            self._go_on(index)
            return
        node.open, node.again = False, reply.again
        if reply.again:
            loop.tell_again()
        if reply.stop:
            loop.request_stop()
        if reply.failures:
            self.failures += reply.failures
            # Home's own word: only the caller writes it, and it waits here.
            words[ControlBlock.EVENTS] |= Event.FAILED
        # Behind the startup reactions comes tick 0, and the loop's time is 0 already.
        self.due(reply.next, 0 if loop.beginning else loop.time + 1)

    def due(self, upcoming: int, coming: int) -> None:
        """Note that something is due on a node, at ``coming`` at the earliest."""
        if upcoming != NEVER:
            self._loop.wake_at(max(upcoming, coming), 0)

    def _lost(self, lost: NodeLostError) -> NodeDiedError | WorkerHungError:
        names, has = self._names(lost.node), "holds" if lost.hung else "held"
        message = (
            f"{self._name(lost.node)} {lost.how} in tick {self._loop.time}; it {has} {', '.join(names)}. The run is over: "
            "close() it and start again"
        )
        return WorkerHungError(message, lost.node, names, False) if lost.hung else NodeDiedError(message, lost.node, names)

    def _name(self, index: int) -> str:
        where = self._transport.describe(index)
        return f"node {index} ({where})" if where else f"node {index}"

    def _names(self, index: int) -> tuple[str, ...]:
        return tuple(reactor.name for reactor in self._programs[index].topology.reactors[:-1])

    # ------------------------------------------------------------------ questions

    def forget(self) -> None:
        """Drop everything under way between ticks, because the run goes back to a snapshot."""
        for node in self._nodes.values():
            node.late, node.again = [], False

    def ask(self, request: str, argument: Any) -> None:
        """Send all nodes a request; :meth:`replies` waits for their replies."""
        for index, node in self._nodes.items():
            node.said = None
            self._send(index, NodeRequest("ask", question=(request, argument)))

    def replies(self) -> list[NodeReply]:
        """Wait for the replies of the nodes, and return them in the order of nodes."""
        found = []
        for node in self._nodes.values():
            while node.said is None:
                if not self._receive(SLICE):
                    self._caller.check()
            found.append(node.said)
        return found


TRIPS = 5
"""How often clocks are compared when a trace begins. The fastest trip counts, and among five one is rarely disturbed; more would
delay the start of a trace.
"""

_COMMANDS: dict[int, Command] = {
    HelperCommand.START: "start",
    HelperCommand.FIRST: "first",
    HelperCommand.AGAIN: "again",
    HelperCommand.STOP: "stop",
}


class Home(Helpers):
    """The helpers of home and the other nodes, which begin with the same commands.

    Args:
        plan: Home's part, compiled.
        executor: The executor of its helpers.
        programs: The parts of all nodes.
        transport: The transport to the other nodes, which it has been told to make.
    """

    def __init__(self, plan: Plan, executor: Executor, programs: Sequence[NodeProgram], transport: NodeTransport) -> None:
        super().__init__(plan, executor)
        self.router = MessageRouter(programs, transport, self.words, self)
        self._program = programs[HOME]
        self._ahead: list[int] = []  # ns to add to each node's clock to get home's
        # Behind those of the helpers, which are at work while messages for the nodes are made.
        self.start.append(self._begin)

    def watch(self, loop: WorkerLoop) -> None:
        super().watch(loop)
        self.router.serve(loop)
        self._gateway_mask = sum(bit for bit, reaction in loop.reactions.items() if reaction in self._program.gateway_links)

    def _begin(self) -> None:
        words = self.words
        command = _COMMANDS.get(words[ControlBlock.COMMAND])
        if command is not None:
            if command in ("first", "again"):
                # No port triggers a gateway's reactions: what has arrived is not stamped yet, and what leaves is looked up.
                self.loop.pending |= self._gateway_mask
            self.router.begin(command, words[ControlBlock.TIME], words[ControlBlock.PASS])

    def ask(self, request: str, argument: Any) -> list[Reply]:
        """Send every worker of every node a request between ticks, and return the replies in order of node and worker."""
        if request == "failures":
            found, self.router.failures = self.router.failures, []
            return [*self._own(request, argument), Reply(found)]
        if request == "trace" and argument:
            self._set_clocks()
        if request == "restore":
            self.router.forget()
        self.router.ask(request, argument)
        replies = self._own(request, argument)
        # The nodes were asked before home's own workers: all of them answer at the same time.
        others = self.router.replies()
        if request == "restore":
            for other in others:
                self.router.due(other.next, argument[0].clock[0])
        for node, other in enumerate(others):
            replies += [_shifted(reply, self._ahead[node]) for reply in other.replies] if request == "trace" else other.replies
        return replies

    def _own(self, request: str, argument: Any) -> list[Reply]:
        replies = super().ask(request, argument_for(self._program, request, argument))
        return [to_global(self._program, request, reply) for reply in replies]

    def _set_clocks(self) -> None:
        """Compare the nodes' clocks with home's several times; the fastest round trip is the most precise."""
        trips = []
        for _ in range(TRIPS):
            began = perf_counter_ns()
            self.router.ask("clock", None)
            clocks = [reply.replies[0].get() for reply in self.router.replies()]
            ended = perf_counter_ns()
            trips.append((ended - began, [(began + ended) // 2 - clock for clock in clocks]))
        self._ahead = min(trips)[1]


def _shifted(reply: Reply, ahead: int) -> Reply:
    """Convert the slices of a worker on another node to home's clock."""
    if reply.failure is not None or not reply.value:
        return reply
    slices: list[Slice] = [
        (kind, name, begin + ahead, end + ahead, time, microstep) for kind, name, begin, end, time, microstep in reply.value
    ]
    return Reply(slices)


class FederatedRun(Run):
    """A running program on several nodes, made by :meth:`Program.start`. It is used like any :class:`Run`.

    Args:
        topology: The whole program.
        nodes: The node of each of its reactors.
        plan, executor, reactors, helpers, timeout: Home's part; see :class:`Run`.
        transport: The transport to the other nodes.
    """

    def __init__(
        self, topology: Topology, nodes: Sequence[int], plan: Plan, executor: Executor, reactors: list[Reactors], helpers: Home,
        transport: NodeTransport, timeout: float | None,
    ) -> None:  # fmt: skip
        self._whole, self._nodes, self._transport, self._home = topology, tuple(nodes), transport, helpers
        try:
            super().__init__(plan, executor, reactors, "", helpers, timeout)
            self._counts = [plan.schedule.workers, *self._count_others()]
        except BaseException as error:
            self._mark_broken(error)
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)
            raise

    def _count_others(self) -> list[int]:
        self._home.router.ask("workers", None)
        return [reply.replies[0].get() for reply in self._home.router.replies()]

    @property
    def _topology(self) -> Topology:
        return self._whole

    @property
    def workers(self) -> int:
        """Number of workers on all nodes, the caller included."""
        return sum(self._counts)

    @property
    def executor(self) -> str:
        """Name of the transport."""
        return self._transport.name

    @property
    def nodes(self) -> int:
        """Number of nodes, home included."""
        return len(self._counts)

    @property
    def calls(self) -> int:
        """Number of requests that home has made to the other nodes since the run began."""
        return self._home.router.requests

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """Draw the program with the node of each reactor; see :meth:`Program.draw` for the arguments."""
        return draw(self._whole, path, format, nodes=self._nodes)

    def trace(self, path: str) -> Tracing:
        """Record a trace; see :meth:`Run.trace`. Its rows name the nodes, whose clocks are compared when it begins."""
        labels = [f"node {node}, worker {worker}" for node, count in enumerate(self._counts) for worker in range(count)]
        return Tracing(self._ask, self._whole.name, path, labels)

    def _tear_down(self, grace: float | None) -> None:
        super()._tear_down(grace)
        self._transport.close(grace)


LATENCY = 1e-3
"""Seconds that a message between two nodes is expected to take, as on a local network. Only decides what home does first while it
waits.
"""


def start_federated(
    topology: Topology,
    reactors: Callable[[bool], Sequence[bytes | Reactor]],
    setup: Sequence[Callable[[], None]],
    settings: RunSettings,
    transport: NodeTransport,
    on: On | None,
) -> FederatedRun:
    """Start a program on the nodes of a transport.

    Args:
        topology: The program.
        reactors: Its reactors, pickled.
        setup: Functions that every process runs before reactors are built.
        settings: How home and each node run their part. ``workers`` is ignored, because the transport sets it.
        transport: The transport to the nodes.
        on: The user's choice of nodes for some reactors.

    Raises:
        ProgramError: If the program cannot run on these nodes.
        RunError: If the nodes cannot be made.
    """
    if settings.timeout is not None:
        transport = TimedTransport(transport, settings.timeout)
    if settings.recover is not None:
        # Around the timed one: a node that does not answer in time is then a lost node, which is replaced.
        transport = RecoveringTransport(transport, settings.recover)
    nodes = nodes_of(topology, transport.workers, on)
    ends = expected_ends(topology, graphs.build(topology), nodes, transport.workers, settings.costs)
    check_names(topology.reactors, settings.placement or {})
    programs = cut(topology, nodes, transport.nodes)
    pickled = reactors(False)
    configs = [_config(topology, program, pickled, setup, settings, transport, ends) for program in programs]
    home = configs[HOME]
    plan, executor = compile_program(home.program.topology, setup, home.settings, home.arrivals)
    helpers = Home(plan, executor, programs, transport)
    given: dict[int, bytes | Reactor] = {**home.reactors, home.program.gateway: helpers.router.gateway}
    shares: list[Reactors] = [{index: given[index] for index in plan.reactors_of(w)} for w in range(plan.schedule.workers)]
    run: FederatedRun | None = None
    try:
        transport.launch([config.packed() for config in configs[1:]])
        run = FederatedRun(topology, nodes, plan, executor, shares, helpers, transport, settings.timeout)
        return run  # noqa: RET504
    except BaseException:
        if run is not None:  # interrupted before the user has it: its end must not wait for nodes that are gone
            with contextlib.suppress(Exception):
                run.close(timeout=GRACE)
        helpers.router.over = True  # likewise for one that was interrupted while it ended itself, and has no name here
        transport.close(0.0)
        raise


def _config(
    topology: Topology, program: NodeProgram, pickled: Sequence[bytes | Reactor], setup: Sequence[Callable[[], None]],
    settings: RunSettings, transport: NodeTransport, ends: Sequence[float],
) -> NodeConfig:  # fmt: skip
    names = {reactor.name for reactor in program.topology.reactors} - {GATEWAY}
    mine = replace(
        settings, executor=transport.inside, workers=transport.workers[program.node], costs=_of(settings.costs, names),
        placement=_of(settings.placement, names), caller_works=settings.caller_works or program.node != HOME,
    )  # fmt: skip
    due = {
        reaction: (link.index, LATENCY + max(ends[writer] for output in link.outputs for writer in topology.writers[output]))
        for reaction, link in program.gateway_links.items()
        if link.target == program.node and not link.early
    }
    arrivals = Arrivals(program.gateway, due, END if program.node == HOME else None)
    own = {index: cast(bytes, pickled[whole]) for index, whole in enumerate(program.reactors)}
    return NodeConfig(program, own, tuple(setup), mine, arrivals, arithmetic())


def _of(mapping: Mapping[str, float] | Mapping[str, int] | None, names: set[str]) -> dict[str, int] | None:
    return None if mapping is None else {name: value for name, value in mapping.items() if name in names}  # type: ignore[misc]
