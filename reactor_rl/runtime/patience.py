"""Whether a worker that waits spins or parks, told by whether the core that it runs on is its own.

Who yields a core that nobody else wants has it back in less than a microsecond. Where others want it, a yield gives it away for a
time slice of milliseconds, while a worker that sleeps in the kernel is woken with preference within tens of microseconds. So every
yield is a measurement too: one that comes back late says that the core is shared, and for some time the worker parks at once.

The next wait after that time spins again, which tells how things are now, and costs another late yield if nothing has changed.
What that costs is kept to a small share of the time: a worker parks for many times as long as it was late, for twice as long
again whenever spinning has not paid for itself meanwhile, but never so long that a machine that has become quiet goes unnoticed.
"""

from __future__ import annotations

import math

__all__ = ["LATE", "LONGEST", "SHARE", "Patience"]

LATE = 400e-6
"""Seconds after which a yield comes back late: a fraction of a time slice, and more than an interrupt takes."""
SHARE = 16
"""A worker parks for so many times as long as it was late."""
LONGEST = 1.0
"""Seconds after which a worker finds out again whether its core has become its own."""


class Patience:
    """How one worker waits, in all its channels.

    Attributes:
        spin: Seconds that it spins for a token before it parks, where the core is its own.
        parks_until: Until then, on the clock of :meth:`Channel.wait`, it parks at once.
    """

    __slots__ = ("_pause", "parks_until", "spin")

    def __init__(self, spin: float) -> None:
        self.spin = spin
        self.parks_until = -math.inf if spin > 0.0 else math.inf
        self._pause = 0.0

    def late(self, before: float, now: float) -> None:
        """The core was given away at ``before`` and came back at ``now``: park for a while."""
        pause = SHARE * (now - before)
        if before - self.parks_until < pause:  # it has not spun for long enough to make up for what this one took
            pause = max(pause, 2.0 * self._pause)
        self._pause = pause = min(pause, LONGEST)
        self.parks_until = now + pause
