"""A running program: ticks, the boundary's values, and the end of it, however it comes."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from reactor_rl import fingerprint as hashing
from reactor_rl.errors import ProgramError, RunClosedError, RunError, WorkerDiedError
from reactor_rl.failure import Failure
from reactor_rl.runtime import messages
from reactor_rl.runtime.arena import Words
from reactor_rl.runtime.bind import bind
from reactor_rl.runtime.executor import SLICE, Commands, Deadline, Executor, Reactors
from reactor_rl.runtime.fingerprints import BoundaryPorts
from reactor_rl.runtime.kernel import NEVER
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.snapshot import Part

if TYPE_CHECKING:
    from reactor_rl.trace import Tracing

__all__ = ["Run", "Snapshot"]

_runs: weakref.WeakSet[Run] = weakref.WeakSet()

GRACE = 1.0
"""Seconds that workers get to end by themselves once something has gone wrong."""


class Snapshot:
    """The state of a run between two ticks. Restores into any run of the same program, whatever its executor and workers."""

    def __init__(self, program: str, part: Part, digests: Any) -> None:
        self.program, self.part, self.digests = program, part, digests


class Run:
    """A running program. Made by :meth:`Program.start`; a context manager.

    The boundary's outputs are attributes: ``run.best`` is the caller's own copy of what was written in the last tick, ``None`` if
    nothing was.
    """

    def __init__(self, plan: Plan, executor: Executor, reactors: list[Reactors], choice: str) -> None:
        self._plan, self._executor, self._choice = plan, executor, choice
        self._pid = os.getpid()
        self._state: Literal["ready", "ticking", "stopped", "failed", "broken", "closed"] = "ready"
        self._why = ""
        self._deadline = Deadline(None)
        self._started_pass = False
        self._late = False
        self._ticks = 0
        self._number = 1  # of the pass that a tick begins with
        self._fed = False  # whether a boundary input was set for the coming tick
        self._helpers = range(1, plan.schedule.workers)
        self._words = words = executor.memory[: plan.layout.words * 8].cast("q")
        channels = executor.channels
        self._start_signals: list[Callable[[], None]] = [channels[0, worker].signal for worker in self._helpers]
        self._channels = {source: channel for (source, target), channel in channels.items() if target == 0}
        outbound = {target: channel.signal for (source, target), channel in channels.items() if source == 0}
        for worker in range(plan.schedule.workers):
            words[Words.NEXT + worker] = NEVER
        _runs.add(self)
        try:
            executor.launch(reactors)
            self._kernel, self._outputs, self._inputs = bind(
                plan, 0, executor.memory, executor.sides, reactors[0], self._wait, lambda worker: outbound[worker]()
            )
            self._boundary = BoundaryPorts(self._kernel, self._outputs)
            self._hash = plan.options.fingerprint != "off" and bool(self._outputs)
            self._begin(Commands.START)
            self._kernel.start_pass()
            executor.attached()
            self._raise_failures()
        except BaseException as error:
            if not self._why:
                self._end("broken", f"it could not be started ({type(error).__name__})")
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)
            raise

    # ------------------------------------------------------------------ ticks

    @property
    def time(self) -> int:
        """How many ticks are done."""
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
        return self._state not in ("ready", "ticking")

    @property
    def foreign(self) -> bool:
        """Whether this is a copy in a forked child of the process that started the run; it must leave the workers alone."""
        return os.getpid() != self._pid

    def set(self, **values: Any) -> None:
        """Set boundary inputs for the coming tick.

        Raises:
            ProgramError: If the program has no such input.
            ValueError, TypeError: If a value does not fit its port.
            RunError: If a tick is going on.
        """
        for name, value in values.items():
            self.writer(name)(value)

    def writer(self, name: str) -> Callable[[Any], None]:
        """A function that sets one boundary input for the coming tick, for callers that do it at every tick.

        Raises:
            ProgramError: If the program has no such input.
        """
        port: Any = self._inputs.get(name)
        if port is None:
            known = ", ".join(sorted(self._inputs)) or "none"
            raise ProgramError(f"the program {self._plan.topology.name!r} has no boundary input {name!r}; it has: {known}")
        kernel, words, put = self._kernel, self._words, port.set
        view, stamp, mask = port.simple()

        def write_simple(value: Any) -> None:
            if self._state != "ready" or type(value) is not np.ndarray or value.dtype != view.dtype or value.shape != view.shape:
                write(value)
                return
            view[...] = value
            words[stamp] = kernel.number + (self._ticks > 0)
            kernel.pending |= mask
            self._fed = True

        def write(value: Any) -> None:
            if self._state != "ready":
                raise self._unusable(f"set {name}")
            number, time, ticks = kernel.number, kernel.time, self._ticks
            # What is written now belongs to the coming tick. Startup and tick 0 are one pass.
            kernel.number, kernel.time = number + (ticks > 0), ticks
            try:
                put(value)
            finally:
                kernel.number, kernel.time = number, time
            self._fed = True

        return write if view is None else write_simple

    def tick(self) -> None:
        """Execute one logical time, all its microsteps included.

        Raises:
            Exception: What a reaction raised; of several, that of the first reaction in the program's order.
            WorkerDiedError: If a worker process ended.
            RunClosedError: If the run is over.
        """
        self.tick_async()
        self._finish()

    def tick_async(self) -> None:
        """Begin a tick: the helpers start on their share. :meth:`tick_wait` does the caller's share and ends it."""
        if self._state != "ready":
            raise self._unusable("begin a tick")
        self._state = "ticking"
        # Startup and tick 0 are one pass.
        self._number = number = self._kernel.number + (self._ticks > 0)
        if self._start_signals:
            words = self._words
            words[Words.TIME], words[Words.PASS], words[Words.COMMAND] = self._ticks, number, Commands.FIRST
            for give in self._start_signals:
                give()

    def tick_wait(self, timeout: float | None = None) -> None:
        """End the tick that :meth:`tick_async` began.

        Args:
            timeout: Seconds from now, those of the caller's own share included; ``None`` to wait as long as it takes.

        Raises:
            TimeoutError: If it took longer. Nothing is lost: call it again to go on waiting.
            RunError: If no tick was begun.
        """
        if self._state != "ticking":
            raise self._unusable("end a tick", hint="call tick_async() first")
        if timeout is None and not self._started_pass:
            self._finish()
        else:
            self._resume(timeout)
            self._done()

    def _finish(self) -> None:
        kernel, words = self._kernel, self._words
        try:
            kernel.first_pass(self._ticks, self._number)
            if kernel.again and not self._helpers and not kernel.observers:
                kernel.passes_alone()
            while words[Words.AGAIN] == kernel.number:
                if self._start_signals:
                    self._begin(Commands.AGAIN)
                kernel.next_pass(kernel.number + 1)
        except BaseException as error:
            self._broke(error)
            raise
        self._done()

    def _done(self) -> None:
        words = self._words
        self._ticks += 1
        self._fed = False
        self._state = "ready"
        if words[Words.FAILED]:
            self._raise_failures()
        if self._hash:
            self._boundary.after_tick()
        if words[Words.STOP]:
            self._stop()

    def _resume(self, timeout: float | None) -> None:
        """The slow way through a tick, which can be left by a timeout and entered again."""
        kernel, words = self._kernel, self._words
        self._deadline = Deadline(timeout)
        try:
            if self._late:
                self._late = self._started_pass = False
                return
            if not self._started_pass:
                self._started_pass = True
                kernel.first_pass(self._ticks, self._number)
            elif kernel.unfinished():
                kernel.execute()
            while words[Words.AGAIN] == kernel.number:
                self._begin(Commands.AGAIN)
                kernel.next_pass(kernel.number + 1)
            if timeout is not None and self._deadline.over():
                self._late = True  # done, but not in time; the next call finds it so
                raise TimeoutError
            self._started_pass = False
        except TimeoutError:
            raise TimeoutError(f"the tick was not done after {timeout} second(s)") from None
        except BaseException as error:
            self._broke(error)
            raise
        finally:
            self._deadline = Deadline(None)

    def run(self, ticks: int) -> int:
        """Execute ``ticks`` ticks; times at which nothing happens are skipped. Returns how many passed before the program stopped.

        Raises:
            As :meth:`tick`.
        """
        begin = self._ticks
        end = begin + ticks
        words, nexts = self._words, range(Words.NEXT, Words.NEXT + self._plan.schedule.workers)
        if (self._fed or self._ticks == 0) and ticks > 0:
            self.tick()
        while self._ticks < end and self._state == "ready":
            if not (self._helpers or self._hash or self._kernel.observers):
                self._tick_alone(end)
                continue
            upcoming = 0 if self._kernel.soon else min([words[word] for word in nexts])
            if upcoming > self._ticks:
                self._ticks = min(upcoming, end)
                if upcoming >= end:
                    break
            self.tick()
        return self._ticks - begin

    def _tick_alone(self, end: int) -> None:
        """Run until ``end``, or a tick that failed or asked to stop, with nobody to agree with in between."""
        self._state = "ticking"
        try:
            reached = self._kernel.ticks_alone(self._ticks, end)
        except BaseException as error:
            self._broke(error)
            raise
        self._ticks = reached - 1
        self._done()

    # ------------------------------------------------------------------ the boundary

    def __getattr__(self, name: str) -> Any:
        outputs = self.__dict__.get("_outputs")
        if outputs is None or name not in outputs:
            known = ", ".join(sorted(outputs or ())) or "none"
            raise AttributeError(f"this run has no attribute or boundary output {name!r}; its boundary outputs: {known}")
        if self._state == "ticking":
            raise self._unusable(f"read {name}")
        port = outputs[name]
        if not self._ticks or not np.all(port.mask(self._kernel.tick_number)) or self._kernel.time != self._ticks - 1:
            return None
        value = port.get(self._kernel.tick_number)
        return value.copy() if isinstance(value, np.ndarray) else value

    def view(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only view of a boundary output's slot, for callers that copy it themselves; valid between two ticks.

        Raises:
            ProgramError: If it is no array output, or one that is read with a delay.
        """
        port = self._outputs.get(name)
        found = None if port is None else port.only_slot()
        if found is None:
            raise ProgramError(f"{name!r} is no boundary output of the program with one array slot")
        return found

    def watcher(self, name: str) -> Callable[[], bool]:
        """A function that tells whether a boundary output, or any row of it, was written in the last tick."""
        kernel, any_since = self._kernel, self._outputs[name].any_since
        return lambda: any_since(kernel.tick_number)

    def values(self, name: str) -> list[Any]:
        """The rows of a boundary output of objects that were written in the last tick, in order."""
        return self._outputs[name].present_values(self._kernel.tick_number)

    def fingerprint(self) -> str:
        """A hash over the ports so far: name, tag, presence and content, the same for every executor and number of workers.

        Raises:
            RunError: If the run was started with ``fingerprint="off"``.
        """
        kind = self._plan.options.fingerprint
        if kind == "off":
            raise RunError('this run keeps no fingerprint; start it with fingerprint="boundary" or "all"')
        if kind == "boundary":
            return hashing.combine(self._boundary.digests())
        digests: dict[str, bytes] = {}
        topology = self._plan.topology
        for part in self._ask("digests", None):
            digests.update((topology.port_name(topology.outputs[index]), found) for index, found in part.items())
        return hashing.combine(digests)

    # ------------------------------------------------------------------ looking at it

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program as a picture, with the worker of each reactor. Arguments as :meth:`Program.draw`."""
        from reactor_rl.draw import draw

        return draw(self._plan.topology, path, format, schedule=self._plan.schedule)

    def trace(self, path: str) -> Tracing:
        """Record what each worker does: ``with run.trace("trace.json"): ...`` writes a file that Perfetto opens.

        Raises:
            RunError: If a tick is going on.
        """
        from reactor_rl.trace import Tracing

        return Tracing(self._ask, self._plan, path)

    def snapshot(self) -> Snapshot:
        """The state between two ticks: reactors, slots in flight, pending events.

        Raises:
            TypeError: If the state of a reactor cannot be pickled.
            RunError: If a tick is going on or the run is over.
        """
        whole, *others = self._ask("snapshot", None)
        for part in others:
            whole.merge(part)
        whole.clock = (self._ticks, *whole.clock[1:])
        return Snapshot(self._plan.topology.name, whole, None)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back (or over) to a snapshot of the same program.

        Raises:
            RunError: If it is a snapshot of another program.
        """
        if snapshot.program != self._plan.topology.name:
            raise RunError(f"a snapshot of program {snapshot.program!r} does not fit program {self._plan.topology.name!r}")
        part = snapshot.part
        self._ask("restore", part)
        self._ticks = part.clock[0]
        self._kernel.time = max(0, self._ticks - 1)

    def __repr__(self) -> str:
        topology = self._plan.topology
        return (
            f"Run({topology.name!r}, reactors={len(topology.reactors)}, executor={self._executor.name!r}, workers={self.workers}"
            + (f" [{self._choice}]" if self._choice else "")
            + f", time={self._ticks}, {self._state})"
        )

    # ------------------------------------------------------------------ the end

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End the run: shutdown reactions, then the workers. May be called again, and does nothing in a forked child.

        Args:
            timeout: Seconds to wait for what is still going on, after which workers are terminated; ``None``: no limit.
            terminate: Do not wait at all.

        Raises:
            Exception: What a shutdown reaction raised.
        """
        if self._state == "closed" or os.getpid() != self._pid:
            return
        raised: BaseException | None = None
        end = time.monotonic() + timeout if timeout is not None else None
        try:
            if self._state == "ticking" and not terminate:
                try:
                    self.tick_wait(timeout)
                except TimeoutError:
                    terminate = True
                except Exception:  # it was not waited for, so it is nobody's error any more
                    self._words[Words.FAILED] = 0
            if self._state in ("ready", "failed") and hasattr(self, "_kernel") and not terminate:
                self._deadline = Deadline(None if end is None else max(0.0, end - time.monotonic()))
                try:
                    self._shut_down()
                except TimeoutError:
                    terminate = True
                except Exception as error:
                    raised = error
        finally:
            torn = self._state in ("ticking", "broken")
            self._state = "closed"
            _runs.discard(self)
            self._words[Words.ABORT] = 1
            self._words[Words.COMMAND] = Commands.QUIT
            for give in self._start_signals:
                give()
            if hasattr(self, "_kernel") and self._words[Words.STOP] != 2:
                self._kernel.shut_down_alone()
            grace = 0.0 if terminate else GRACE if torn or end is not None else None
            self._executor.stop(grace)
        if raised is not None:
            raise raised

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:  # do not let the end hide what went wrong
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)

    def __del__(self) -> None:
        if getattr(self, "_state", "closed") != "closed":
            with contextlib.suppress(Exception):
                self.close(timeout=GRACE)

    # ------------------------------------------------------------------ inside

    def _begin(self, command: int) -> None:
        words = self._words
        words[Words.PASS] = self._kernel.number + (command == Commands.AGAIN)
        words[Words.COMMAND] = command
        for give in self._start_signals:
            give()

    def _wait(self, worker: int) -> None:
        """The caller's WAIT."""
        kernel = self._kernel
        for observer in kernel.observers:
            observer.before_wait(worker)
        channel = self._channels[worker]
        if not channel.wait(self._executor.spin):
            deadline = self._deadline
            while not channel.poll(True, deadline.left(SLICE)):
                self._check_alive()
                if deadline.over():
                    raise TimeoutError
        for observer in kernel.observers:
            observer.after_wait(worker)

    def _check_alive(self) -> None:
        found = self._executor.died()
        if found is None:
            return
        worker, status = found
        with contextlib.suppress(TimeoutError, EOFError):  # it may have said why
            said = self._executor.receive(worker, 0.0)
            if isinstance(said, Failure):
                raise said.raised()
        names = self._plan.names_of(worker)
        raise WorkerDiedError(
            f"worker {worker} {_how(status)}; it held {', '.join(names)}. The run is over: close() it and start again",
            worker, names, status,
        )  # fmt: skip

    def _ask(self, request: str, argument: Any) -> list[Any]:
        """Ask every worker something, between ticks."""
        if self._state in ("ticking", "broken", "closed"):
            raise self._unusable(f"answer {request!r}")
        for worker in self._helpers:
            self._executor.send(worker, (request, argument))
        self._begin(Commands.MESSAGE)
        replies = [messages.answer(self._kernel, (request, argument))]
        for worker in self._helpers:
            while True:
                try:
                    replies.append(self._executor.receive(worker, SLICE))
                    break
                except (TimeoutError, EOFError):
                    try:
                        self._check_alive()
                    except BaseException as error:
                        self._broke(error)
                        raise
        return [reply.get() for reply in replies]

    def _raise_failures(self) -> None:
        if not self._words[Words.FAILED]:
            return
        failures: list[Failure] = [failure for found in self._ask("failures", None) for failure in found]
        self._words[Words.FAILED] = 0
        first = min(failures, key=lambda failure: (failure.reaction, failure.tag))
        self._end("failed", f"reaction {first.where} raised {type(first.error).__name__}")
        raise first.raised()

    def _stop(self) -> None:
        self._shut_down()
        self._end("stopped", "the program requested a stop")

    def _shut_down(self) -> None:
        if self._words[Words.STOP] != 2:
            self._words[Words.STOP] = 2
            self._begin(Commands.STOP)
            self._kernel.stop_pass()
            self._raise_failures()

    def _broke(self, error: BaseException) -> None:
        what = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__} was raised"
        self._end("broken", what)

    def _end(self, state: Literal["stopped", "failed", "broken"], why: str) -> None:
        self._state, self._why = state, why

    def _unusable(self, what: str, hint: str = "") -> RunError:
        if self._state == "ready":
            return RunError(f"cannot {what}: {hint}")
        if self._state == "ticking":
            return RunError(f"cannot {what} while a tick is going on; call tick_wait() first")
        why = f" because {self._why}" if self._why else ""
        return RunClosedError(f"cannot {what}: the run is over{why}. Start a new one with Program.start()")


def _how(status: int | None) -> str:
    if status is None:
        return "ended"
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended with exit status {status}"


@atexit.register
def _close_all() -> None:
    for run in list(_runs):
        with contextlib.suppress(Exception):
            run.close(timeout=GRACE)
