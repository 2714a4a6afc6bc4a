"""The ticks of a run: one at once, one begun and ended apart, or many."""

from __future__ import annotations

from reactor_rl.errors import RunClosedError
from reactor_rl.runtime.executor import Commands, Deadline
from reactor_rl.runtime.lifetime import Lifetime
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.words import Words

__all__ = ["Ticking"]


class Ticking(Lifetime):
    """The part of a run that executes ticks."""

    _plan: Plan
    _started_pass = False  # whether a timeout has left the pass in its middle
    _late = False  # whether a tick was done, but not in time
    _number = 1  # of the pass that a tick begins with

    def tick(self) -> None:
        """Execute one logical time, all its microsteps included.

        Raises:
            Exception: What a reaction raised; of several, that of the first reaction in the program's order.
            WorkerDiedError: If a worker process ended.
            RunClosedError: If the run is over.
        """
        if self._state != "ready":
            raise self._unusable("begin a tick")
        try:
            self._begin()
            self._pass()
            self._done()
        except BaseException as error:
            self._broke(error)
            raise

    def tick_async(self) -> None:
        """Begin a tick: the helpers start on their share. :meth:`tick_wait` does the caller's share and ends it."""
        if self._state != "ready":
            raise self._unusable("begin a tick")
        try:
            self._begin()
            self._state = "ticking"
        except BaseException as error:
            self._broke(error)
            raise

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
        try:
            self._state = "busy"
            if timeout is None and not self._started_pass:
                self._pass()
                self._done()
            elif self._resume(Deadline(timeout)):
                self._done()
            else:
                self._state = "ticking"
        except BaseException as error:
            self._broke(error)
            raise
        if self._state == "ticking":
            raise TimeoutError(f"the tick was not done after {timeout} second(s)")

    def _begin(self) -> None:
        self._state = "busy"
        self._boundary.open = False
        # Startup and tick 0 are one pass.
        self._number = number = self._kernel.number + (self._ticks > 0)
        if self._start:
            words = self._words
            words[Words.TIME], words[Words.PASS], words[Words.COMMAND] = self._ticks, number, Commands.FIRST
            for give in self._start:
                give()

    def _pass(self) -> None:
        kernel, words = self._kernel, self._words
        if not (self._start or kernel.observers):
            kernel.tick_alone(self._ticks, self._number)
            return
        kernel.first_pass(self._ticks, self._number)
        while words[Words.AGAIN] == kernel.number:
            if self._start:
                self._helpers.begin(Commands.AGAIN, kernel.number + 1)
            kernel.next_pass(kernel.number + 1)

    def _done(self) -> None:
        if self._closer != -1:
            raise RunClosedError("the run was closed in the middle of a tick")
        words = self._words
        boundary = self._boundary
        self._ticks = boundary.time = self._ticks + 1
        boundary.fed = False
        if words[Words.FAILED]:
            self._raise_failures()
        if self._hash:
            boundary.hash(self._kernel.tick_number)
        if words[Words.STOP]:
            self._stop()
        else:
            boundary.open = True
            self._state = "ready"

    def _resume(self, deadline: Deadline) -> bool:
        """The slow way through a tick, which can be left by a timeout and entered again. Returns whether it was done in time."""
        kernel, words = self._kernel, self._words
        self._helpers.deadline = deadline
        try:
            if self._late:
                self._late = self._started_pass = False
                return True
            if not self._started_pass:
                self._started_pass = True
                kernel.first_pass(self._ticks, self._number)
            elif kernel.unfinished():
                kernel.execute()
            while words[Words.AGAIN] == kernel.number:
                self._helpers.begin(Commands.AGAIN, kernel.number + 1)
                kernel.next_pass(kernel.number + 1)
            if deadline.over():
                self._late = True  # done, but not in time; the next call finds it so
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
            As :meth:`tick`.
        """
        if self._state not in ("ready", "stopped"):
            raise self._unusable("run ticks")
        begin = self._ticks
        end = begin + ticks
        words, nexts = self._words, range(Words.NEXT, Words.NEXT + self._plan.schedule.workers)
        if (self._boundary.fed or self._ticks == 0) and ticks > 0:
            self.tick()
        while self._ticks < end and self._state == "ready":
            if not (self._start or self._hash or self._kernel.observers):
                self._tick_alone(end)
                continue
            upcoming = 0 if self._kernel.soon else min([words[word] for word in nexts])
            if upcoming > self._ticks:
                self._ticks = self._boundary.time = min(upcoming, end)
                if upcoming >= end:
                    break
            self.tick()
        return self._ticks - begin

    def _tick_alone(self, end: int) -> None:
        """Run until ``end``, or a tick that failed or asked to stop, with nobody to agree with in between."""
        try:
            self._state = "busy"
            self._boundary.open = False
            reached = self._kernel.ticks_alone(self._ticks, end)
            self._ticks = reached - 1
            self._done()
        except BaseException as error:
            self._broke(error)
            raise
