"""The loop of one worker: one pass through its list for every tag.

Within a pass, the loop keeps one bit for each of its reactions that is triggered and not done, in the order of its list.
Setting a port sets the bits of the reactions that it triggers; the loop takes the lowest bit, runs that reaction, and goes on
until a WAIT, a SIGNAL or the end. So a reaction costs a direct call, and one that is not triggered costs nothing.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from typing import Any

from reactor_rl.errors import Failure, ordinary
from reactor_rl.pickling import Copies, enrol
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.channel import ControlBlock, Event
from reactor_rl.runtime.numeric_threads import SingleThreaded, hold, in_thread, loading
from reactor_rl.runtime.worker.clock import ALL, Agenda, WorkerClock
from reactor_rl.runtime.worker.events import ActionHandle, TimerHandle
from reactor_rl.runtime.worker.ports import OutputHandle
from reactor_rl.runtime.worker.presence import StampReader

__all__ = ["WorkerLoop", "RemoteCheck", "Observer"]

RemoteCheck = tuple[int, int, StampReader | None]
"""The word of an output's stamp, the bits of the reactions that it triggers, and the reader of its single rows, if any."""


class Observer:
    """Base of observers of a loop (trace, poisoned slots, fingerprints). It dispatches more slowly then."""

    def before_reaction(self, bit: int) -> None: ...

    def after_reaction(self, bit: int) -> None: ...

    def before_wait(self) -> None: ...

    def after_wait(self, whom: str) -> None: ...

    def before_pass(self) -> None: ...

    def after_pass(self) -> None: ...


class WorkerLoop(WorkerClock):
    """One worker. Built by :func:`reactor_rl.runtime.worker.bind.bind`.

    Args:
        worker: Its number.
        words: The words that all workers share.
        run: Number that the workers of one run in one process have in common.

    Attributes:
        stopping: Whether the shutdown reactions are due, or have run.
        failures: Exceptions of reactions in this tick.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_limit",
        "_starting",
        "_thread",
        "actions",
        "boundary_checks",
        "copies",
        "delayed_checks",
        "failures",
        "handles",
        "initials",
        "observers",
        "outputs",
        "reactions",
        "reactions_by_bit",
        "reactor_names",
        "reactors",
        "shutdown_mask",
        "startup_mask",
        "steps",
        "stopping",
        "timers",
    )  # fmt: skip

    def __init__(self, worker: int, words: memoryview, run: int = 0) -> None:
        super().__init__(worker, words)
        self.stopping = False
        self.failures: list[Failure] = []
        # Filled by bind():
        self.reactors: dict[int, Reactor] = {}  # by index
        self.reactor_names: tuple[str, ...] = ()
        self.reactions_by_bit: dict[int, Callable[[], None]] = {}  # by bit
        self.reactions: dict[int, int] = {}  # bit -> index of reaction
        self.startup_mask = self.shutdown_mask = 0
        self.steps: list[tuple[Callable[[Any], None], Any]] = []
        self.timers: list[TimerHandle] = []
        self.actions: dict[int, ActionHandle] = {}
        self.boundary_checks: list[RemoteCheck] = []  # of boundary inputs that the caller writes
        self.delayed_checks: list[Callable[[], None]] = []  # checks of delayed inputs that other workers write
        self.initials: list[tuple[int, int]] = []  # delay and mask of inputs with an initial value, which is there before that time
        self.observers: list[Observer] = []
        self.outputs: dict[int, OutputHandle] = {}  # handles of the outputs that are written here, by index
        self.handles: dict[int, frozenset[str]] = {}  # names of the handles of each reactor, which are not its state
        self._starting: int | None = None  # startup reactions that are still to run, None once they have run
        self._at = -1  # the step that is being taken, -1 between passes
        self.copies: Copies = {}  # of classes that travel by value
        self._limit = SingleThreaded(run, helper=worker > 0)
        self._thread = get_ident()
        enrol(self)

    # ------------------------------------------------------------------ passes

    def start_pass(self) -> None:
        """Run the startup reactions. Their outputs are present at tick 0, whose first pass has the same number.

        After an exception from a WAIT, calling it again continues the pass.
        """
        if self._at < 0:
            self._starting = self.startup_mask
        with loading() if self.startup_mask else nullcontext():
            self.execute()
        self._starting = None
        if self.soon:
            # Written at time 0, so due at tick 1; but tick 0 is still to come, and its first pass would take `soon` for its own.
            self.wake_at(1, self.soon)
            self.soon = 0

    def stop_pass(self, time: int, number: int) -> None:
        """Run the shutdown reactions, and those that they trigger, one microstep after tick ``time``, the last one."""
        if self.time == time:
            self.microstep = number - self.tick_number
        else:  # that tick was skipped because nothing was due
            self.time, self.microstep = time, 1
        self.pass_number = number
        self.pending, self.stopping = self.shutdown_mask, True
        self.execute()

    def shut_down_alone(self) -> None:
        """Run the shutdown reactions that have not run yet, without waiting for other workers, because the run is torn down.

        Their errors are dropped: no caller waits for them. May be called again after an interrupt.
        """
        self._at = -1
        if not self.stopping:
            self.pending, self.stopping = self.shutdown_mask, True
        try:
            while rest := self.pending & self.shutdown_mask:
                self.current = bit = rest & -rest
                self.pending ^= bit
                with contextlib.suppress(Exception):
                    self.reactions_by_bit[bit]()
        finally:
            self._leave()

    def abandon(self) -> None:
        """Leave a pass that an interrupt has ended in its middle, and drop everything set for the coming one."""
        self._at, self.pending = -1, 0
        self.again, self.later, self.failures = [], [], []
        self.pass_number += 1  # outputs written so far must not be present at the next tick
        self._leave()

    def first_pass(self, time: int, number: int) -> None:
        """Begin tick ``time`` and run its first pass."""
        self.time, self.pass_number, self.tick_number, self.microstep = time, number, number, 0
        agenda = self.agenda
        self.pending |= agenda.always | self.soon
        self.soon = 0
        if agenda.times and agenda.times[0] <= time:
            self._due(time)
        if self.boundary_checks:
            self.check_remote(self.boundary_checks)
        if self.delayed_checks:
            for check in self.delayed_checks:
                check()
        self.execute()

    def next_pass(self, number: int) -> None:
        """Run the pass of the next microstep."""
        self.pass_number, self.microstep = number, number - self.tick_number
        self.words[self._events] &= ~Event.AGAIN
        if self.again:
            again, self.again = self.again, []
            self.again += [action for action in again if action.arrive()]
        self.execute()

    def tick_alone(self, time: int, number: int) -> None:
        """Run all passes of a tick in which no other worker takes part."""
        # The same lines as in first_pass(): small programs would feel a call for them at every tick.
        self.time, self.pass_number, self.tick_number, self.microstep = time, number, number, 0
        agenda = self.agenda
        self.pending |= agenda.always | self.soon
        self.soon = 0
        if agenda.times and agenda.times[0] <= time:
            self._due(time)
        try:
            if get_ident() != self._thread:
                self._moved()
            self._limit.enter()
            self.dispatch_all()
            if self.again:
                self._passes()
        finally:
            self.current = ALL  # an interrupt may have left it in a reaction
            self._limit.leave(self._at >= 0)

    def _passes(self) -> None:
        while self.again:
            self.pass_number += 1
            self.microstep += 1
            again, self.again = self.again, []
            for action in again:
                if action.arrive():
                    self.again.append(action)
            self.dispatch_all()
        self.words[self._events] &= ~Event.AGAIN

    def ticks_alone(self, time: int, end: int) -> int:
        """Run ticks from ``time`` on in which no other worker takes part, skipping those at which nothing is due.

        Returns:
            The time reached: ``end``, or the time after a tick that failed or requested a stop.
        """
        try:
            self._enter()
            return self._ticks(time, end)
        finally:
            self._leave()

    def _ticks(self, time: int, end: int) -> int:
        words, agenda = self.words, self.agenda
        while time < end:
            if not self.soon and not agenda.always:
                time = max(time, min(self.next_time(), end))
                if time == end:
                    break
            self.pass_number += 1
            self.time, self.microstep, self.tick_number = time, 0, self.pass_number
            self.pending |= agenda.always | self.soon
            self.soon = 0
            if agenda.times and agenda.times[0] <= time:
                self._due(time)
            self.dispatch_all()
            if self.again:
                self._passes()
            time += 1
            if words[self._events] or words[ControlBlock.ABORT]:
                break
            # Entered once for all these ticks, and not at each of them as elsewhere.
            hold()  # a reaction may have raised the number of threads
        return time

    def execute(self) -> None:
        """Go through the list, continuing where an exception from a WAIT left it."""
        if self.observers:
            for observer in self.observers:
                observer.before_pass()
        if self._at < 0:
            self._at = 0
            if self.again:  # set before the list's last SIGNAL, after which the caller may read it
                self.tell_again()
        try:
            if get_ident() != self._thread:
                self._moved()
            self._limit.enter()
            for step, argument in self.steps[self._at :] if self._at else self.steps:
                step(argument)
                self._at += 1  # only after the step: a WAIT that raises is taken again when the pass is continued
            self._at = -1
        finally:
            self.current = ALL  # an interrupt may have left it in a reaction
            self._limit.leave(self._at >= 0)
        if self.observers:
            for observer in self.observers:
                observer.after_pass()

    def _enter(self) -> None:
        if get_ident() != self._thread:
            self._moved()
        self._limit.enter()

    def _moved(self) -> None:
        """Note that this worker goes on in another thread than before."""
        self._thread = get_ident()
        enrol(self)
        in_thread()

    def is_in_this_thread(self) -> bool:
        """Whether this thread has begun the last pass."""
        return self._thread == get_ident()

    def _leave(self) -> None:
        self.current = ALL  # an interrupt may have left it in a reaction
        self._limit.leave(self._at >= 0)

    @property
    def beginning(self) -> bool:
        """Whether the startup reactions are being run, or a WAIT has left them."""
        return self._starting is not None

    def unfinished(self) -> bool:
        """Whether a timeout left a pass in its middle."""
        return self._at >= 0

    def dispatch(self, mask: int) -> None:
        """Run triggered reactions of ``mask``, lowest bit first."""
        if self.observers or self._starting is not None:
            return self._dispatch_observed(mask)
        reactions = self.reactions_by_bit
        while True:
            try:
                # Around the loop and not within it: an error goes around once more, and the other reactions run.
                while ready := self.pending & mask:
                    self.current = bit = ready & -ready
                    self.pending ^= bit
                    reactions[bit]()
                    if self.later:
                        self._finish_reaction()
                self.current = ALL
                return None
            except Exception as error:
                self._failed(bit, error)
            except BaseException as error:
                if not self.worker:  # the caller may be interrupted; a helper would only be gone
                    raise
                self._failed(bit, ordinary(error))

    def dispatch_all(self) -> None:
        """Run triggered reactions until none is left: :meth:`dispatch` for a caller alone. Fastest if one is triggered."""
        if self.observers:
            return self._dispatch_observed(ALL)
        reactions = self.reactions_by_bit
        while True:
            try:
                while ready := self.pending:
                    if ready in reactions:  # a single bit, as at most ticks, needs no splitting
                        # Before it runs, so that a reaction that raises is not run again.
                        bit, self.pending = ready, 0
                    else:
                        bit = ready & -ready
                        self.pending = ready ^ bit
                    self.current = bit
                    reactions[bit]()
                    if self.later:
                        self._finish_reaction()
                return None
            except Exception as error:
                self._failed(bit, error)

    def _dispatch_observed(self, mask: int) -> None:
        """Run with observers, or at startup, when reactions triggered by ports are kept for tick 0."""
        while ready := (self.pending if self._starting is None else self._starting) & mask:
            self.current = bit = ready & -ready
            if self._starting is None:
                self.pending ^= bit
            else:
                self._starting ^= bit
            for observer in self.observers:
                observer.before_reaction(bit)
            try:
                self.reactions_by_bit[bit]()
                if self.later:
                    self._finish_reaction()
            except Exception as error:
                self._failed(bit, error)
            except BaseException as error:
                if not self.worker:  # the caller may be interrupted; a helper would only be gone
                    raise
                self._failed(bit, ordinary(error))
            for observer in self.observers:
                observer.after_reaction(bit)
        self.current = ALL

    def check_remote(self, checks: list[RemoteCheck]) -> None:
        """Set the bits of reactions triggered by outputs that other workers wrote in this pass."""
        words, number = self.words, self.pass_number
        for whole, mask, rows in checks:
            if words[whole] == number or (rows is not None and rows.any_row(number)):
                self.pending |= mask  # not added: a reaction with several triggers runs once

    def _finish_reaction(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()

    def _failed(self, bit: int, error: Exception) -> None:
        self.current = ALL
        self.later.clear()
        self.failures.append(Failure.of(self.reactions[bit], self.names[bit], (self.time, self.microstep), error))
        self.words[self._events] |= Event.FAILED

    # ------------------------------------------------------------------ what is due

    def enter(self, time: int) -> None:
        """Begin a new agenda with everything due from ``time`` on that follows from the program and the content of the slots.

        That is timers, initial values, and delayed values under way: everything but the events of actions.
        """
        self.agenda, self.soon = Agenda(), 0
        for position, timer in enumerate(self.timers):
            upcoming = timer.offset
            if time > upcoming and timer.period == 1:
                self.agenda.always |= timer.mask
                continue
            if time > upcoming:
                if timer.period is None:
                    continue
                # To the first one that is not before `time`: the difference is negative, and the division rounds down.
                upcoming -= (upcoming - time) // timer.period * timer.period
            self.agenda.timers.setdefault(upcoming, []).append(position)
            self.push(upcoming)
        for delay, mask in self.initials:
            for arrival in range(time, delay):
                self.wake_at(arrival, mask)
        for port in self.outputs.values():
            port.wake_again(time)
        self.tell_next()

    def _due(self, time: int) -> None:
        times = self.agenda.times
        while times and times[0] <= time:
            heapq.heappop(times)
        self.pending |= self.agenda.masks.pop(time, 0)
        for position in self.agenda.timers.pop(time, ()):
            timer = self.timers[position]
            self.pending |= timer.mask
            if timer.period == 1:
                self.agenda.always |= timer.mask
            elif timer.period is not None:
                upcoming = time + timer.period
                self.agenda.timers.setdefault(upcoming, []).append(position)
                heapq.heappush(times, upcoming)
        arriving: list[ActionHandle] = []
        for index, kept in self.agenda.events.pop(time, ()):
            action = self.actions[index]
            if not action.waiting:
                arriving.append(action)
            action.waiting.append(kept)
        self.again += [action for action in arriving if action.arrive()]
        self.tell_next()
