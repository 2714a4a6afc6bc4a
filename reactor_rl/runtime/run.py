"""A run as its caller sees it: ticks (in one call, begun and ended apart, or many), snapshots, fingerprint, drawing and trace.

:class:`RunOwner` is the base of host classes, such as vector environments, that own a run.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from reactor_rl import fingerprint as hashing
from reactor_rl.drawing.draw import draw, html_figure
from reactor_rl.errors import RunClosedError, RunError
from reactor_rl.runtime.boundary import Boundary
from reactor_rl.runtime.channel import ControlBlock, Deadline, Event
from reactor_rl.runtime.executor import Executor, HelperCommand, Reactors
from reactor_rl.runtime.guards import when_forked
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.lifetime import GRACE, INTERRUPTED, RunLifetime, runs
from reactor_rl.runtime.limits import shortages_named
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.topology import Topology
from reactor_rl.trace import Slice, Tracing

if TYPE_CHECKING:
    from reactor_rl.trace import Tracing

__all__ = ["Snapshot", "Run", "RunOwner"]


class Snapshot:
    """The state of a run between two ticks. It can be restored into any run of the same program, on any executor and workers."""

    def __init__(self, topology: Topology, part: WorkerState) -> None:
        self.program, self.part = _shape_of(topology), part

    def must_fit(self, topology: Topology) -> None:
        """Check that the snapshot fits a program.

        Raises:
            RunError: If it is a snapshot of another program.
        """
        if self.program != _shape_of(topology):
            raise RunError(
                f"a snapshot of program {self.program[0]!r} does not fit program {topology.name!r}: they differ in "
                "name, reactors, ports or delays"
            )


def _shape_of(topology: Topology) -> tuple[Any, ...]:
    """Describe a program by what a snapshot of it depends on; the name comes first."""
    ports = [(topology.port_name(o), o.shape, o.dtype and o.dtype.str, o.rows, o.ring) for o in topology.outputs]
    return topology.name, [node.name for node in topology.reactors], ports, [node.name for node in topology.actions]


class Run(RunLifetime):
    """A running program. Made by :meth:`Program.start`; a context manager.

    The boundary's outputs are attributes: ``run.best`` is the caller's own copy of the value written in the last tick, ``None`` if
    it was not written.
    """

    _plan: Plan
    _started_pass = False  # whether a timeout has left the pass in its middle
    _late = False  # whether a tick was done, but not in time
    _number = 1  # of the pass that a tick begins with

    def __init__(
        self, plan: Plan, executor: Executor, reactors: list[Reactors], choice: str, helpers: Helpers,
        timeout: float | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._executor, self._choice, self._helpers = plan, executor, choice, helpers
        self._ticks, self._closing = 0, RLock()
        self._words, self._start = helpers.words, helpers.start
        self._state = "busy"
        try:
            # First of all, so that whatever fails below is closed at exit too.
            runs.add(self)
            when_forked(self)
            executor.launch(reactors)
            self._loop, outputs, inputs = bind(
                plan, 0, executor.memory, executor.sides, reactors[0], helpers.wait, helpers.signal
            )  # fmt: skip
            helpers.watch(self._loop)
            self._boundary = Boundary(plan.topology.name, self._loop, inputs, outputs)
            self._hash = plan.options.fingerprint == "boundary" and bool(outputs)
            self._start_up()
            helpers.limit = timeout  # startup reactions take their time
            self._state = "ready"
        except BaseException as error:
            self._mark_broken(f"it could not be started ({type(error).__name__})")
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)
            raise

    def _start_up(self) -> None:
        self._helpers.begin(HelperCommand.START, self._loop.pass_number)
        with shortages_named("start the workers"):  # which may still be starting, and leave this one no descriptor
            self._loop.start_pass()
        self._executor.attached()
        self._raise_failures()

    # ------------------------------------------------------------------ ticks

    def tick(self) -> None:
        """Execute one logical time, all its microsteps included.

        Raises:
            Exception: The exception of a reaction; of several, that of the first reaction in program order.
            WorkerDiedError: If a worker process ended.
            RunClosedError: If the run is over.
        """
        if self._state != "ready":
            raise self._unusable("begin a tick")
        try:
            self._begin_tick()
            self._end_tick(self._run_passes())
        except BaseException as error:
            self._mark_broken(error)
            raise

    def tick_async(self) -> None:
        """Begin a tick: the helpers start on their share. :meth:`tick_wait` does the caller's share and ends it."""
        if self._state != "ready":
            raise self._unusable("begin a tick")
        try:
            self._begin_tick()
            self._change_state("ticking")
        except BaseException as error:
            self._mark_broken(error)
            raise

    def tick_wait(self, timeout: float | None = None) -> None:
        """End the tick that :meth:`tick_async` began.

        Args:
            timeout: Seconds from now, including the caller's own share; ``None`` to wait without limit.

        Raises:
            TimeoutError: If it took longer. Nothing is lost: call it again to go on waiting.
            RunError: If no tick was begun.
        """
        if self._state != "ticking":
            raise self._unusable("end a tick", hint="call tick_async() first")
        try:
            self._change_state("busy")
            if timeout is None and not self._started_pass:
                self._end_tick(self._run_passes())
            elif self._resume_tick(Deadline(timeout)):
                self._end_tick(self._helpers.events())
            else:
                self._change_state("ticking")
        except BaseException as error:
            self._mark_broken(error)
            raise
        if self._state == "ticking":
            raise TimeoutError(f"the tick was not done after {timeout} second(s)")

    def _begin_tick(self) -> None:
        self._state = "busy"
        if self._closer != -1:  # no call for each tick
            self._must_be_open()
        self._boundary.open = False
        # Startup and tick 0 are one pass.
        self._number = number = self._loop.pass_number + (self._ticks > 0)
        if self._start:
            words = self._words
            # Before the tokens: a helper reads these words as soon as it has its token.
            words[ControlBlock.TIME], words[ControlBlock.PASS] = self._ticks, number
            words[ControlBlock.COMMAND] = HelperCommand.FIRST
            for give in self._start:
                give()

    def _run_passes(self) -> int:
        """Run all passes of a tick, and return the events of all workers."""
        loop, helpers = self._loop, self._helpers
        if not (self._start or loop.observers):
            loop.tick_alone(self._ticks, self._number)
            return self._words[ControlBlock.EVENTS]
        loop.first_pass(self._ticks, self._number)
        while (events := helpers.events()) & Event.AGAIN:
            if self._start:
                helpers.begin(HelperCommand.AGAIN, loop.pass_number + 1)
            loop.next_pass(loop.pass_number + 1)
        return events

    def _end_tick(self, events: int) -> None:
        if self._closer != -1:
            raise RunClosedError("the run was closed in the middle of a tick")
        boundary = self._boundary
        self._ticks = boundary.time = self._ticks + 1
        boundary.fed = False
        # Errors before the fingerprint: what a reaction has left half done is not hashed.
        if events & Event.FAILED:
            self._raise_failures()
        if self._hash:
            boundary.hash(self._loop.tick_number)
        if events & Event.STOP:
            self._stop()
        else:
            boundary.open = True
            self._state = "ready"
        # Once more, after the state has changed: see _change_state().
        if self._closer != -1:
            self._must_be_open()

    def _resume_tick(self, deadline: Deadline) -> bool:
        """Run a tick in a way that a timeout can leave and that can be continued; return whether it was done in time."""
        loop = self._loop
        self._helpers.deadline = deadline
        try:
            if self._late:
                self._late = self._started_pass = False
                return True
            if not self._started_pass:
                # Before it begins, for a WAIT in it may time out. The next call then goes on in the middle of the pass.
                self._started_pass = True
                loop.first_pass(self._ticks, self._number)
            elif loop.unfinished():
                loop.execute()
            while self._helpers.events() & Event.AGAIN:
                self._helpers.begin(HelperCommand.AGAIN, loop.pass_number + 1)
                loop.next_pass(loop.pass_number + 1)
            if deadline.over():
                self._late = True  # done, but not in time; the next call returns at once
                return False
            self._started_pass = False
            return True
        except TimeoutError:
            return False
        finally:
            self._helpers.deadline = Deadline(None)

    def run(self, ticks: int) -> int:
        """Execute ``ticks`` ticks; times at which nothing happens are skipped. Returns how many passed before the program stopped.

        Raises:
            Exception, WorkerDiedError, RunClosedError: See :meth:`tick`.
        """
        if self._state not in ("ready", "stopped"):
            raise self._unusable("run ticks")
        begin = self._ticks
        end = begin + ticks
        nexts = self._helpers.nexts
        # A tick with new boundary inputs, or with outputs of startup reactions, is never skipped.
        if (self._boundary.fed or self._ticks == 0) and ticks > 0:
            self.tick()
        while self._ticks < end and self._state == "ready":
            if not (self._start or self._hash or self._loop.observers):
                self._tick_alone(end)
                continue
            # What is due at the very next tick is only in `soon`: writing it into the words would cost something at every tick.
            upcoming = 0 if self._loop.soon else min(nexts)
            if upcoming > self._ticks:
                self._ticks = self._boundary.time = min(upcoming, end)
                if upcoming >= end:
                    break
            self.tick()
        return self._ticks - begin

    def _tick_alone(self, end: int) -> None:
        """Run until ``end``, or a tick that failed or requested a stop, without a look at other workers in between."""
        try:
            self._change_state("busy")
            self._boundary.open = False
            reached = self._loop.ticks_alone(self._ticks, end)
            # _end_tick() adds one.
            self._ticks = reached - 1
            self._end_tick(self._words[ControlBlock.EVENTS])
        except BaseException as error:
            self._mark_broken(error)
            raise

    # ------------------------------------------------------------------ what it is

    @property
    def _topology(self) -> Topology:
        """Topology of the whole program."""
        return self._plan.topology

    @property
    def time(self) -> int:
        """Number of ticks done."""
        return self._ticks

    @property
    def workers(self) -> int:
        """Number of workers, the caller included."""
        return self._plan.schedule.workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._executor.name

    @property
    def stopped(self) -> bool:
        """Whether the run is over."""
        return self._state not in ("ready", "ticking", "busy")

    @property
    def foreign(self) -> bool:
        """Whether this is a copy in a forked child of the process that started the run; it must leave the workers alone."""
        return self._state == "foreign"

    def go_on(self) -> bool:
        """Bring the run to the end of the interrupted tick, if the calling thread alone has done everything.

        The interrupted tick counts as done, without the reactions that had not run yet. Changes made by reactions stay.

        Returns:
            Whether that was possible. It is not with helpers, which may be anywhere, nor if events are due at a later time, nor
            while another thread is in the middle of a tick.
        """
        loop, words = self._loop, self._words
        interrupted = self._state in ("ready", "ticking", "busy") or (self._state, self._why) == ("broken", INTERRUPTED)
        due = words[ControlBlock.EVENTS] & Event.STOP or loop.agenda.always or loop.agenda.times or loop.soon or loop.observers
        if not interrupted or self.workers > 1 or self._start or due or _inside(loop):
            return False
        loop.abandon()
        words[ControlBlock.EVENTS] = 0
        self._started_pass = self._late = False
        boundary = self._boundary
        self._ticks = boundary.time = max(self._ticks, boundary.time) + 1
        boundary.fed, boundary.open = False, True
        self._state, self._why = "ready", ""
        return True

    # ------------------------------------------------------------------ the boundary

    def set(self, **values: Any) -> None:
        """Set boundary inputs for the coming tick.

        Raises:
            ProgramError: If the program has no such input.
            ValueError, TypeError: If a value does not fit its port's shape or dtype.
            RunError: If a tick is going on.
        """
        with self._operation("set an input", ("ready",)):
            for write, value in [(self._boundary.writer(name), value) for name, value in values.items()]:
                write(value)

    def writer(self, name: str) -> Callable[[Any], None]:
        """Return a function that sets one boundary input for the coming tick, for callers that do it at every tick.

        Raises:
            ProgramError: If the program has no such input.
        """
        return self._boundary.writer(name)

    def __getattr__(self, name: str) -> Any:
        boundary: Boundary | None = self.__dict__.get("_boundary")
        outputs = () if boundary is None else tuple(boundary.outputs)
        if boundary is None or name not in outputs:
            known = ", ".join(sorted(outputs)) or "none"
            raise AttributeError(f"this run has no attribute or boundary output {name!r}; its boundary outputs: {known}")
        if self._state in ("ticking", "busy", "foreign"):
            raise self._unusable(f"read {name}")
        return boundary.read(name)

    def view(self, name: str) -> np.ndarray[Any, Any]:
        """Return a read-only view of a boundary output's slot, valid between two ticks, for callers that copy it themselves.

        Raises:
            ProgramError: If it is not an array output, or is read with a delay.
        """
        if self._state == "foreign":
            raise self._unusable(f"read {name}")
        return self._boundary.view(name)

    def tell_whereabouts(self, whereabouts: Callable[[tuple[str, ...]], str]) -> None:
        """Set the function that says, in messages, what reactors of these names are doing that do not return."""
        self._helpers.whereabouts = whereabouts

    def reader(self, name: str) -> Callable[[], list[Any]]:
        """Return a function that returns :meth:`values` of one output, for callers that ask at every tick.

        Raises:
            KeyError: If the program has no such output.
        """
        return self._boundary.reader(name)

    def values(self, name: str) -> list[Any]:
        """Return the rows of a boundary output of objects that were written in the last tick, in order.

        Raises:
            KeyError: If the program has no such output.
            RunError: In a forked child of the process that started the run.
        """
        if self._state == "foreign":
            raise self._unusable(f"read {name}")
        return self._boundary.values(name)

    def fingerprint(self) -> str:
        """Hash the ports so far (name, tag, presence and content): the same for every executor and number of workers.

        The hash begins with the run, or with the last :meth:`restore`.

        Raises:
            RunError: If the run was started with ``fingerprint="off"``.
        """
        if self._state == "foreign":
            raise self._unusable("tell a fingerprint")
        kind = self._plan.options.fingerprint
        if kind == "off":
            raise RunError('this run keeps no fingerprint; start it with fingerprint="boundary" or "all"')
        if kind == "boundary":
            return hashing.combine(self._boundary.digests())
        digests: dict[str, bytes] = {}
        topology = self._topology
        for part in self._ask("digests", None):
            digests.update((topology.port_name(topology.outputs[index]), digest) for index, digest in part.items())
        return hashing.combine(digests)

    # ------------------------------------------------------------------ looking at it

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """Draw the program with the worker of each reactor; see :meth:`Program.draw` for the arguments."""
        return draw(self._topology, path, format, schedule=self._plan.schedule)

    def _repr_html_(self) -> str:
        return html_figure(repr(self), self.draw(format="svg"))

    def trace(self, path: str) -> Tracing:
        """Record what each worker does: ``with run.trace("trace.json"): ...`` writes a file that Perfetto opens.

        Raises:
            RunError: If a tick is going on.
        """
        return Tracing(self._ask, self._plan.topology.name, path)

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Sequence[Slice]]]:
        """Record what each worker does; the list receives the slices of each worker when the block ends.

        Raises:
            RunError: If a tick is going on.
        """
        recorded: list[Sequence[Slice]] = []
        self._ask("trace", True)
        try:
            yield recorded
        finally:
            recorded += self._ask("trace", False)

    def snapshot(self) -> Snapshot:
        """Save the state between two ticks: reactors, slots in flight, pending events, boundary inputs that are set already.

        Raises:
            TypeError: If the state of a reactor cannot be pickled.
            RunError: If a reactor refuses, a tick is going on, or the run is over.
        """
        if self._state != "ready":
            raise self._unusable("take a snapshot")
        whole, *others = self._ask("snapshot", (self._ticks, self._loop.pass_number))
        for part in others:
            whole.merge(part)
        whole.stop, whole.fed = bool(self._helpers.events() & Event.STOP), self._boundary.fed
        return Snapshot(self._topology, whole)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the state of this run, including that of its startup, by a snapshot of the same program.

        Raises:
            RunError: If it is a snapshot of another program, a tick is going on, or the run is over. A run in which
                restoring failed (a state could not be unpickled) is over.
        """
        snapshot.must_fit(self._topology)
        part = snapshot.part
        with self._operation("restore a snapshot", ("ready",)):
            try:
                coming = self._loop.pass_number + part.clock[1] + 2
                for reply in self._asked("restore", (part, coming)):
                    reply.get()
            except Exception as error:
                self._mark_broken(error)
                raise
            self._ticks = self._boundary.time = part.clock[0]
            self._helpers.forget(Event.STOP)
            if part.stop:
                self._words[ControlBlock.EVENTS] |= Event.STOP
            self._boundary.fed = part.fed
            self._boundary.restart()

    def __repr__(self) -> str:
        topology = self._topology
        return (
            f"Run({topology.name!r}, reactors={len(topology.reactors)}, executor={self.executor!r}, workers={self.workers}"
            + (f" [{self._choice}]" if self._choice else "")
            + f", time={self._ticks}, {self._state})"
        )

    def _ask(self, request: str, argument: Any) -> list[Any]:
        """Send a request to every worker, between ticks."""
        with self._operation(f"answer {request!r}", ("ready", "stopped", "failed")):
            return [reply.get() for reply in self._asked(request, argument)]


def _inside(loop: WorkerLoop) -> bool:
    """Whether any thread is executing code of a loop."""
    frames: list[FrameType | None] = list(sys._current_frames().values())
    for frame in frames:
        while frame is not None:
            if frame.f_locals.get("self") is loop:
                return True
            frame = frame.f_back
    return False


class RunOwner(ABC):
    """Base of objects that tick a run of their own, such as vector environments. They are closed at the end of ``with``."""

    _run: Run | None = None

    @abstractmethod
    def _running(self) -> Run:
        """Return the run, which may be started now.

        Raises:
            RuntimeError: If the run is over or cannot go on.
        """

    @property
    def running(self) -> bool:
        """Whether the workers have been started and have not been ended since."""
        return self._run is not None and not self._run.stopped

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """Draw the program behind this object; see :meth:`reactor_rl.Program.draw`."""
        return self._running().draw(path, format=format)

    def trace(self, path: str) -> Tracing:
        """Record what each worker does within ``with owner.trace("trace.json"):``, and write a file that Perfetto opens."""
        return self._running().trace(path)

    def _repr_html_(self) -> str | None:
        """The picture of the program in a notebook, if the run exists; showing it does not start a run."""
        return None if self._run is None else html_figure(repr(self), self._run.draw(format="svg"))

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        if self._run is None or self._run.foreign:
            return
        try:
            self._run.close()
        except Exception:
            self._run = None
            raise
        self._run = None  # not reached after an interrupt, so that it can be closed again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()
