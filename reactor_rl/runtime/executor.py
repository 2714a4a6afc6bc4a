"""The protocol between a run and the executor that holds its helpers, and the executor without any.

``inline``, ``threads`` and ``processes`` implement the protocol. Inline has no helpers: the caller's thread does everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from reactor_rl.reactor import Reactor
from reactor_rl.runtime.channel import Channel, ControlBlock, SpinControl
from reactor_rl.runtime.plan import Plan, aligned_zeros
from reactor_rl.runtime.worker.values import SideBlock

__all__ = [
    "ABORTED",
    "ASLEEP",
    "SLICE",
    "Aborted",
    "HelperCommand",
    "Executor",
    "Pair",
    "Reactors",
    "channels_of",
    "signal_all",
    "wait_for",
    "InlineExecutor",
]

Pair = tuple[int, int]
Reactors = Mapping[int, bytes | Reactor]

SLICE = 0.05
"""Seconds that a worker parks before it checks whether what it waits for can still come. So late is a death noticed at most. A
check takes microseconds, but with a much shorter one, parked workers of an idle run would keep waking up.
"""


ABORTED = 0.5
"""Seconds that helpers get to end by themselves when a run is torn down in the middle of something. They look at ABORT after every
SLICE, so ten of those; one in a long reaction is terminated then.
"""


class HelperCommand:
    """Commands of the caller to its helpers, written beside a token in each one's channel."""

    START, FIRST, AGAIN, STOP, MESSAGE, QUIT = range(6)


class Aborted(BaseException):
    """The run is being torn down, so the worker leaves its list."""


class Executor(Protocol):
    """Holds the helpers of a run, and carries messages to them.

    Attributes:
        name: As the user spells it.
        memory: The arena.
        sides: Side block of each worker, None if it does not need one.
        channels: The channel of each ordered pair of workers that signals.
        spin: Seconds that a worker spins before it parks, on a core of its own.
    """

    name: str
    spin: float

    @property
    def memory(self) -> memoryview: ...

    @property
    def sides(self) -> Sequence[SideBlock | None]: ...

    @property
    def channels(self) -> Mapping[Pair, Channel]: ...

    def launch(self, reactors: Sequence[Reactors]) -> None:
        """Start the helpers, each with its reactors by index. Returns before they are up."""

    def attached(self) -> None:
        """Remove what was needed to attach helpers, such as names: every helper is up."""

    def send(self, worker: int, message: Any) -> None:
        """Send a helper a message, as much of it as fits at once. The helper replies when it gets the command MESSAGE."""

    def sent(self, worker: int, timeout: float) -> bool:
        """Wait until all of a message is sent or the helper is gone, and return whether that is so."""

    def receive(self, worker: int, timeout: float) -> Any:
        """Return the reply of a helper.

        Raises:
            TimeoutError: If it has not come yet.
            EOFError: If it cannot come any more.
        """

    def died(self) -> tuple[int, int | None] | None:
        """Find the first helper that ended without being told to, and its exit status."""

    def stopped(self, worker: int) -> bool:
        """Whether a helper's process is stopped, so that nothing in it runs."""

    def stop(self, grace: float | None) -> None:
        """Wait until every helper has ended, and end them after ``grace`` seconds (None: wait without limit).

        They have been told to quit. May be called again, even if it was interrupted, and while another thread is in it.
        """


def channels_of(plan: Plan) -> dict[Pair, Channel]:
    """Make a channel for each pair of workers that signals in the schedule, and from the caller to every helper."""
    return {pair: Channel() for pair in sorted(plan.schedule.signals())}


def signal_all(channels: Mapping[Pair, Channel]) -> None:
    """Do the caller's SIGNAL to every helper, also to one that is just being put in the place of another one."""
    for (source, _), channel in channels.items():
        if source == 0:
            channel.signal()


def wait_for(channel: Channel, spinning: SpinControl, words: memoryview) -> None:
    """Do a helper's WAIT within a pass.

    Raises:
        Aborted: If the run is torn down meanwhile.
    """
    if not channel.wait(spinning):
        while not channel.poll(True, SLICE):
            if words[ControlBlock.ABORT]:
                raise Aborted
    if words[ControlBlock.ABORT]:  # the token may be the one that ends the run: no other will come
        raise Aborted


ASLEEP = 4 * SLICE
"""Seconds: if a wait of one SLICE took longer than this, the process was asleep. On a busy machine a wait may end some time slices
late, which must not count as sleep, for sleep extends limits.
"""


class InlineExecutor:
    """The executor without helpers: the caller's thread does everything."""

    name = "inline"
    spin = 0.0

    def __init__(self, plan: Plan) -> None:
        self.memory = aligned_zeros((plan.layout.size,), np.uint8).data
        self.sides: Sequence[SideBlock | None] = (None,)
        self.channels: Mapping[Pair, Channel] = {}

    def launch(self, reactors: Sequence[Reactors]) -> None:
        pass

    def attached(self) -> None:
        pass

    def send(self, worker: int, message: Any) -> None:
        raise AssertionError("there are no helpers")

    def sent(self, worker: int, timeout: float) -> bool:
        raise AssertionError("there are no helpers")

    def receive(self, worker: int, timeout: float) -> Any:
        raise AssertionError("there are no helpers")

    def died(self) -> tuple[int, int | None] | None:
        return None

    def stopped(self, worker: int) -> bool:
        return False

    def stop(self, grace: float | None) -> None:
        pass
