"""Handles of timers and logical actions, by which a reactor's time goes on."""

from __future__ import annotations

from collections import deque
from typing import Any

from reactor_rl.errors import AbsentError
from reactor_rl.pickling import IMMUTABLE, decode, encode
from reactor_rl.runtime.worker.clock import WorkerClock
from reactor_rl.runtime.worker.ports import Handle

__all__ = ["ActionHandle", "TimerHandle"]


class TimerHandle(Handle):
    """A timer."""

    __slots__ = ("index", "mask", "offset", "period")

    def __init__(self, clock: WorkerClock, name: str, allowed: int, index: int, offset: int, period: int | None) -> None:
        super().__init__(clock, name, allowed)
        self.index, self.offset, self.period = index, offset, period
        self.mask = 0

    @property
    def present(self) -> bool:
        """Whether the timer fires at this tag."""
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        since = clock.time - self.offset
        return clock.microstep == 0 and (since == 0 if self.period is None else since >= 0 and since % self.period == 0)


class ActionHandle(Handle):
    """A logical action of one reactor, and the values that it is still to deliver."""

    __slots__ = ("_arrived", "_now", "_schedulers", "index", "mask", "waiting")

    def __init__(self, clock: WorkerClock, name: str, allowed: int, schedulers: int, index: int) -> None:
        super().__init__(clock, name, allowed)
        self._schedulers = schedulers  # reactions that may schedule it; `allowed` may read it
        self.index, self.mask = index, 0
        self._arrived = -1  # the pass in which it was last present
        self._now: Any = None
        self.waiting: deque[Any] = deque()  # for the next microsteps, one each

    def schedule(self, delay: int = 0, value: Any = None) -> None:
        """Make the action present ``delay`` ticks from now (0: at the next microstep of this tick) with a value.

        Raises:
            ValueError: If ``delay`` is negative.
        """
        clock = self._clock
        if not clock.current & self._schedulers:
            raise self._undeclared("effects")
        kept = value if type(value) in IMMUTABLE else encode(value)
        if delay == 0:
            if not self.waiting:
                # Once, however many values wait: it enters itself again as long as some do.
                clock.again.append(self)
                clock.tell_again()
            self.waiting.append(kept)
        elif delay > 0:
            clock.schedule_at(clock.time + int(delay), self.index, kept)
        else:
            raise ValueError(f"{self.name}: delay must be >= 0, got {delay}")

    def clear(self) -> None:
        """Make the action absent and drop all waiting values."""
        self._arrived, self._now = -1, None
        self.waiting = deque()

    def arrive(self) -> bool:
        """Deliver the next waiting value at the pass that begins, and return whether more are waiting."""
        clock = self._clock
        self._now = self.waiting.popleft()
        self._arrived = clock.pass_number
        clock.pending |= self.mask
        return bool(self.waiting)

    @property
    def present(self) -> bool:
        """Whether the action is present at this tag."""
        if not self._clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        return self._arrived == self._clock.pass_number

    @property
    def value(self) -> Any:
        """The value that it was scheduled with, this reactor's own copy.

        Raises:
            AbsentError: If it is not present at this tag.
        """
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if self._arrived != clock.pass_number:
            raise AbsentError(f"{self.name} is absent at tag {clock.time, clock.microstep}; ask .present before reading .value")
        return decode(self._now)
