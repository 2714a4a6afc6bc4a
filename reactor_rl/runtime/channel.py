"""Waiting between workers: counting channels that spin and then park, deadlines, and the control block that all workers share.

A channel counts: a SIGNAL adds a token, a WAIT takes one. It is the C semaphore under ``multiprocessing.Semaphore``, called
directly: a try takes some 25 ns, and posting and taking order memory between the processes. Measured on two cores, a round trip
takes 0.5 us spinning and 13 us parked. A spin that does not yield is a disaster as soon as both workers share a core, and a
futex barrier written in C was no faster than this semaphore.

Whether a waiting worker spins or parks depends on whether it has its core to itself. A yield on a core that nobody else wants
returns in less than a microsecond. On a contended core it gives the core away for a time slice of milliseconds, while a worker
that sleeps in the kernel is woken with preference within tens of microseconds. Every yield is therefore a measurement too: if
it returns late, the core is shared, and for some time the worker parks at once.

The next wait after that time spins again, to find out how things are now, and costs another late yield if nothing has changed.
To keep that a small share of the time, a worker parks for many times as long as it was late, and for twice as long again
whenever spinning has not paid for itself meanwhile, but never so long that a machine that has become quiet goes unnoticed.
"""

from __future__ import annotations

import _multiprocessing
import contextlib
import math
import os
import secrets
import sys
import time
from collections.abc import Callable
from multiprocessing import context, resource_tracker
from typing import Any

from reactor_rl.errors import ArenaError
from reactor_rl.runtime.limits import shortage

__all__ = ["ControlBlock", "Event", "LATE", "LONGEST", "PARK_FACTOR", "SpinControl", "Channel", "Deadline", "yield_processor"]


class ControlBlock:
    """Indices of the words in the control block.

    Nothing locks these words; tokens order them. The caller writes COMMAND, TIME, PASS and STOPPED (shutdown reactions have begun),
    then gives the tokens: a helper that has its token sees them. ABORT alone is looked at without a token, between two waits.

    Each worker has words of its own, so that no two of them ever write into one: NEXT, the next time at which it has something to
    do; EVENTS, bits of :class:`Event`. Helpers write theirs, then signal: the caller has waited for all of them before it looks.
    Those of worker w stand PER_WORKER * w words behind those of worker 0.
    """

    COMMAND, TIME, PASS, STOPPED, ABORT = range(5)
    NEXT, EVENTS = 8, 9
    PER_WORKER = 2

    @classmethod
    def each(cls, word: int, workers: int) -> slice:
        """Return where a word is that each worker has."""
        return slice(word, word + cls.PER_WORKER * workers, cls.PER_WORKER)


class Event:
    """Bits of the word EVENTS: a reaction has raised an error, has requested a stop, has scheduled a further microstep."""

    FAILED, STOP, AGAIN = 1, 2, 4


class Deadline:
    """The seconds left of a timeout; unlimited if that is None."""

    def __init__(self, timeout: float | None) -> None:
        self.never = timeout is None
        self._end = None if timeout is None else time.monotonic() + timeout

    def left(self, most: float) -> float:
        return most if self._end is None else max(0.0, min(most, self._end - time.monotonic()))

    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def put_off(self, seconds: float) -> None:
        """Extend the deadline by seconds that do not count."""
        if self._end is not None:
            self._end += seconds


LATE = 400e-6
"""Seconds after which a yield comes back late: a fraction of a time slice, and more than an interrupt takes. Linux has slices of 3
ms or so. With a smaller one, interrupts park workers whose core is their own; a larger one misses short slices.
"""
PARK_FACTOR = 16
"""A worker parks for this many times as long as it was late, so finding out costs a sixteenth of the time at first, and half of
that after each doubling.
"""
LONGEST = 1.0
"""Seconds after which a worker finds out again whether its core has become its own. At most so long a quiet machine goes unnoticed,
and a late yield of some milliseconds a second is a small price.
"""


class SpinControl:
    """Decides how one worker waits, in all its channels: spinning first, or parked at once on a contended core.

    Attributes:
        spin: Seconds that it spins for a token before it parks, on a core of its own.
        parks_until: Time on the clock of :meth:`Channel.wait` until which it parks at once.
    """

    __slots__ = ("_pause", "parks_until", "spin")

    def __init__(self, spin: float) -> None:
        self.spin = spin
        self.parks_until = -math.inf if spin > 0.0 else math.inf
        self._pause = 0.0

    def note_late_yield(self, before: float, now: float) -> None:
        """Note that a yield at ``before`` returned late, at ``now``, and park for a while."""
        pause = PARK_FACTOR * (now - before)
        if before - self.parks_until < pause:  # it has not spun for long enough to make up for what this one took
            pause = max(pause, 2.0 * self._pause)
        self._pause = pause = min(pause, LONGEST)
        self.parks_until = now + pause


_SEMAPHORE = 1
"""The kind of a ``SemLock`` that counts (0 is a recursive mutex); ``multiprocessing.synchronize`` has the same number."""
_MOST = 2**31 - 1
"""The most tokens: ``SEM_VALUE_MAX`` of Linux. A program has a few at a time."""
TRIES = 50
"""Tries in a burst; after each burst the processor is yielded. A try takes some 25 ns, so a burst takes about as long as a yield
and a look at the clock: with far fewer, a worker would mostly yield; with far more, it would notice late that its core is
shared.
"""

clock = time.perf_counter
yield_processor: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class Channel:
    """Tokens from one worker to another.

    It can be pickled only while a process is being started (on POSIX by a name that :meth:`unlink` removes again). Making one
    raises :class:`~reactor_rl.errors.ArenaError` if the system has no room for it.

    Attributes:
        signal: Put a token in.
        poll: Take a token and return whether there was one: ``poll(False)`` tries once, ``poll(True, seconds)`` parks for it.
    """

    _named = False  # whether this object has a name to remove
    _tracked = False  # whether the tracker knows of it

    def __init__(self) -> None:
        while True:
            self._owner = os.getpid()
            # Random, because processes of two containers that share /dev/shm can have the same id.
            self._name = f"/rrl-{self._owner:x}-{secrets.token_hex(4)}"
            if sys.platform != "win32":
                # The resource tracker removes the name if the caller is killed. It is told first, for starting it takes a while.
                self._named, self._tracked = True, resource_tracker.register(self._name, "semaphore") is None
            try:
                # Windows has no names to unlink; elsewhere unlink() does it as soon as every worker is attached.
                self._semaphore: Any = _multiprocessing.SemLock(_SEMAPHORE, 0, _MOST, self._name, sys.platform == "win32")
                break
            except OSError as error:
                self._forget()
                if isinstance(error, FileExistsError):
                    continue
                if shortage(error) is not None:
                    raise
                raise ArenaError(
                    f"cannot create a semaphore for the channels between workers: {error.strerror}. On Linux each takes "
                    "4 kB of /dev/shm; make room there, or use fewer workers"
                ) from error
        self._bind()

    def _bind(self) -> None:
        self.signal: Callable[[], None] = self._semaphore.release
        self.poll: Callable[..., bool] = self._semaphore.acquire

    def wait(self, spinning: SpinControl) -> bool:
        """Spin for a token while the core is the worker's own, and return whether it came; if not, go on with ``poll(True, ...)``.

        A late yield is noted even if a token has arrived by then.
        """
        poll = self.poll
        if poll(False):
            return True
        before = clock()
        if before < spinning.parks_until:
            return False
        until = before + spinning.spin
        while True:
            for _ in range(TRIES):
                if poll(False):
                    if (now := clock()) - before > LATE:
                        spinning.note_late_yield(before, now)
                    return True
            now = clock()
            if now - before > LATE:
                spinning.note_late_yield(before, now)
                return False
            if now >= until:
                return False
            # The burst that follows is timed with the yield: it takes about a microsecond, which is nothing beside LATE.
            before = now
            yield_processor()

    def unlink(self) -> None:
        """Remove the name, unless the worker at the other end has done so. Called once every worker is attached."""
        if self._named:
            self._take_away()
            self._named = False

    def unlink_attached(self) -> None:
        """Remove the name from the end that has just attached, if no other worker needs it."""
        if sys.platform != "win32":
            self._take_away()

    def _forget(self) -> None:
        """Take back that there is a name: somebody else's semaphore has it, or there is no room."""
        if self._tracked:
            resource_tracker.unregister(self._name, "semaphore")
        self._named = self._tracked = False

    def _take_away(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            # In one line, so that an interrupt comes before both or after.
            _multiprocessing.sem_unlink(self._name), self._tracked and resource_tracker.unregister(self._name, "semaphore")

    def __del__(self) -> None:
        if self._named and os.getpid() == self._owner:
            self.unlink()

    def __getstate__(self) -> tuple[Any, ...]:
        context.assert_spawning(self)
        handle = self._semaphore.handle
        if sys.platform == "win32":
            spawning: Any = context.get_spawning_popen()
            handle = spawning.duplicate_for_child(handle)
        return (handle, _SEMAPHORE, self._semaphore.maxvalue, self._name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._semaphore = _multiprocessing.SemLock._rebuild(*state)
        self._name, self._tracked = state[3], True
        self._bind()
