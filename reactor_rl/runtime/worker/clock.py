"""The clock of one worker: the tag of the running pass, the reactions that it has triggered, and what is due later.

Handles of ports and events touch nothing else. Each triggered reaction is one bit; writing a handle sets the bits of the
reactions that it triggers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from reactor_rl.runtime.channel import ControlBlock, Event

__all__ = ["ALL", "NEVER", "Agenda", "WaitingAction", "WorkerClock"]

ALL = -1
"""The mask of all reactions; also what stands for "no reaction": the caller between ticks may touch what it likes."""
NEVER = 2**63 - 1
"""The time of what does not happen: the largest 64-bit word of the control block, beyond all ticks."""


class WaitingAction(Protocol):
    """A logical action with values that wait for further microsteps."""

    def arrive(self) -> bool:
        """Deliver the next value at the pass that begins, and return whether more are waiting."""
        ...


@dataclass
class Agenda:
    """Reactions (masks), timers (positions) and events of actions (index, kept value) due at microstep 0 of future ticks."""

    always: int = 0  # reactions of timers that fire at every tick
    times: list[int] = field(default_factory=list)  # a heap
    masks: dict[int, int] = field(default_factory=dict)
    timers: dict[int, list[int]] = field(default_factory=dict)
    events: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)


class WorkerClock:
    """The tag of one worker, the reactions that are triggered, and the events that are due later.

    Args:
        worker: Its number.
        words: The words that all workers share.

    Attributes:
        worker: Its number.
        words: The words that all workers share.
        time, microstep: The tag of the pass that is running.
        pass_number: The number of the pass that is running, from 1.
        tick_number: The number of the first pass of the tick that is running.
        pending: Bits of the reactions that are triggered and not done.
        soon: Bits of the reactions that are triggered at the next tick (later ones are in the agenda).
        current: Bit of the reaction that is running, ALL between reactions.
        again: Actions that are present at the next microstep.
        later: Functions to call when the running reaction is done.
        names: Names of the reactions, by bit.
        agenda: Reactions, timers and events due at future ticks.
    """

    __slots__ = (
        "_events",
        "_next",
        "again",
        "agenda",
        "current",
        "later",
        "microstep",
        "names",
        "pass_number",
        "pending",
        "soon",
        "tick_number",
        "time",
        "words",
        "worker",
    )  # fmt: skip

    def __init__(self, worker: int, words: memoryview) -> None:
        self.worker, self.words = worker, words
        self._next = ControlBlock.NEXT + ControlBlock.PER_WORKER * worker
        self._events = ControlBlock.EVENTS + ControlBlock.PER_WORKER * worker
        self.time, self.microstep, self.pass_number, self.tick_number = 0, 0, 1, 1
        self.pending, self.soon, self.current = 0, 0, ALL
        self.again: list[WaitingAction] = []
        self.later: list[Callable[[], None]] = []
        self.names: dict[int, str] = {}
        self.agenda = Agenda()

    @property
    def reacting(self) -> bool:
        """Whether a reaction is running."""
        return self.current != ALL

    def running(self) -> str:
        """Name of the reaction that is running."""
        return self.names.get(self.current, "(none)")

    def after_reaction(self, call: Callable[[], None]) -> None:
        """Call a function when the running reaction is done."""
        self.later.append(call)

    def request_stop(self) -> None:
        if not self.words[ControlBlock.STOPPED]:  # else this is a shutdown reaction
            self.words[self._events] |= Event.STOP

    def wake_at(self, time: int, mask: int) -> None:
        """Trigger reactions at microstep 0 of a future tick."""
        if time in self.agenda.masks:
            # The time is in the heap already, which has it once.
            self.agenda.masks[time] |= mask
        else:
            self.agenda.masks[time] = mask
            self.push(time)

    def schedule_at(self, time: int, action: int, kept: Any) -> None:
        """Make an action present at a future tick."""
        if time not in self.agenda.events:
            self.agenda.events[time] = []
            self.push(time)
        self.agenda.events[time].append((action, kept))

    def push(self, time: int) -> None:
        """Note that something is due at a future tick."""
        heapq.heappush(self.agenda.times, time)
        self.tell_next()

    def tell_next(self) -> None:
        """Tell the caller at which time this worker has something to do next."""
        self.words[self._next] = self.next_time()

    def tell_again(self) -> None:
        """Tell the caller that this tick has a further microstep."""
        self.words[self._events] |= Event.AGAIN

    def next_time(self) -> int:
        """Return the next time at which this worker has something to do of its own; 0 if it has at every tick."""
        if self.agenda.always or self.soon:
            return 0
        return self.agenda.times[0] if self.agenda.times else NEVER
