"""The caller's side of its helpers: commands, waits, questions, and noticing that one has died."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from reactor_rl.errors import Failure, RunClosedError, RunError, WorkerDiedError, WorkerHungError
from reactor_rl.runtime.channel import ControlBlock, Deadline, Event, SpinControl
from reactor_rl.runtime.executor import ASLEEP, SLICE, Executor, HelperCommand
from reactor_rl.runtime.plan import Plan, control_words
from reactor_rl.runtime.worker import main
from reactor_rl.runtime.worker.clock import NEVER
from reactor_rl.runtime.worker.loop import WorkerLoop

__all__ = ["Helpers", "how_it_ended"]


class Helpers:
    """Workers 1 and up, as the caller sees them.

    Attributes:
        loop: The caller's own.
        words: The words that all workers share.
        deadline: When the caller gives up waiting.
        start: For each helper, the function that gives it its token.
        limit: Most seconds that the caller waits for a helper, ``None`` for no limit.
        whereabouts: Function that says, for messages, what the reactors of these names are doing.
    """

    loop: WorkerLoop

    def __init__(self, plan: Plan, executor: Executor) -> None:
        self._plan, self._executor = plan, executor
        self._spinning = SpinControl(executor.spin)
        self.words = words = control_words(executor.memory, plan.layout)
        self.deadline = Deadline(None)
        self.limit: float | None = None
        self._due = Deadline(None)  # for the helper that the caller waits for
        self._looked = 0.0  # time of the last check
        self.whereabouts: Callable[[tuple[str, ...]], str] = ", ".join
        self._numbers = range(1, plan.schedule.workers)
        channels = executor.channels
        self.start: list[Callable[[], None]] = [channels[0, worker].signal for worker in self._numbers]
        self._inbound = {source: channel for (source, target), channel in channels.items() if target == 0}
        self._outbound = {target: channel.signal for (source, target), channel in channels.items() if source == 0}
        self._events = words[ControlBlock.each(ControlBlock.EVENTS, plan.schedule.workers)]
        self.nexts = words[ControlBlock.each(ControlBlock.NEXT, plan.schedule.workers)]
        for worker in range(plan.schedule.workers):
            # The memory is zero at first, and 0 would be a tick that is due.
            self.nexts[worker] = NEVER

    def watch(self, loop: WorkerLoop) -> None:
        """Set the caller's own loop, before its first pass."""
        self.loop = loop

    def events(self) -> int:
        """Return what reactions of any worker have done, as bits of :class:`~reactor_rl.runtime.channel.Event`."""
        found = 0
        for events in self._events.tolist():
            found |= events
        return found

    def forget(self, event: int) -> None:
        """Clear a bit in the events of all workers, which must be waiting."""
        for worker, events in enumerate(self._events.tolist()):
            self._events[worker] = events & ~event

    def begin(self, command: int, number: int) -> None:
        """Send every helper a command for the pass with this number."""
        # Before the tokens: a helper reads these words as soon as it has its token.
        self.words[ControlBlock.PASS], self.words[ControlBlock.COMMAND] = number, command
        for give in self.start:
            give()

    def signal(self, worker: int) -> None:
        """Do the caller's SIGNAL."""
        self._outbound[worker]()

    def wait(self, worker: int) -> None:
        """Do the caller's WAIT.

        Raises:
            TimeoutError: If the deadline passes.
            WorkerDiedError: If any helper has ended.
            WorkerHungError: If the token has not come within the limit.
        """
        observers = self.loop.observers
        for observer in observers:
            observer.before_wait()
        if not self._inbound[worker].wait(self._spinning):
            self._expect()
            while not self._inbound[worker].poll(True, self.deadline.left(SLICE)):
                self._look()
                self.check()
                if self._due.over():
                    self._hung(worker)
                if self.deadline.over():
                    raise TimeoutError
        for observer in observers:
            observer.after_wait(f"worker {worker}")

    def check(self) -> None:
        """Check the helpers between two tries for a token: raise the error of one that has ended or cannot go on.

        Raises:
            RunClosedError: If another thread has closed the run meanwhile.
            WorkerDiedError: Naming the worker, what ended it, and the reactors that it held.
        """
        self._must_be_open()
        for worker in self._numbers:  # its failure may be longer than the pipe's buffer, and then it lives until we read it
            self._listen(worker)
        self._check_alive()

    def _must_be_open(self) -> None:
        if self.words[ControlBlock.ABORT]:
            raise RunClosedError("the run was closed")

    def _expect(self) -> None:
        """Start the limit: the caller begins to wait for a helper."""
        self._due, self._looked = Deadline(self.limit), time.monotonic()

    def _look(self) -> float:
        """Note that the caller has waited for a SLICE, and extend its deadlines by the time that this process was asleep.

        It sleeps after Ctrl-Z, in a paused container or behind a closed lid.

        Returns:
            Seconds of sleep, because all other processes slept too.
        """
        before, self._looked = self._looked, time.monotonic()
        took = self._looked - before
        if took < ASLEEP:
            return 0.0
        self._due.put_off(took - SLICE)
        self.deadline.put_off(took - SLICE)
        return took - SLICE

    def _hung(self, worker: int) -> None:
        """Handle a helper that has exceeded the limit.

        Raises:
            WorkerHungError: Always, in this class.
        """
        where, stopped = self._where(worker)
        asked = self.words[ControlBlock.COMMAND] == HelperCommand.MESSAGE
        what = "answered" if asked else f"ended its part of tick {self.loop.time}"
        raise WorkerHungError(
            f"worker {worker} has not {what} in {self.limit} s; {where}. The run is over: close() it and start again, or let "
            "workers be replaced", worker, self._plan.names_of(worker), stopped,
        )  # fmt: skip

    def _where(self, worker: int) -> tuple[str, bool]:
        """Describe where a helper is that does not return, and whether its process is stopped."""
        stopped = self._executor.stopped(worker)
        if stopped:
            return "its process is stopped, as by SIGSTOP", True
        return f"it is in {self.whereabouts(self._plan.names_of(worker))}", False

    def _listen(self, worker: int) -> None:
        try:
            message = self._executor.receive(worker, 0.0)
        except (TimeoutError, EOFError):
            return
        if isinstance(message, Failure):
            raise message.raised()

    def _check_alive(self) -> None:
        death = self._executor.died()
        if death is None:
            return
        # It may have said why before it ended. That error is worth more than an exit status, so it is raised first.
        worker, status = death
        self._listen(worker)
        names = self._plan.names_of(worker)
        raise WorkerDiedError(
            f"worker {worker} {how_it_ended(status)}; it held {', '.join(names)}. The run is over: close() it and start again",
            worker, names, status,
        )  # fmt: skip

    def ask(self, request: str, argument: Any) -> list[main.Reply]:
        """Send every worker a request between ticks, the caller included, and return the replies in order of worker."""
        self._send((request, argument))
        own = main.reply_to(self.loop, (request, argument))
        return [own, *self._replies()]

    def failures(self) -> list[Failure]:
        """Collect what reactions of all workers have raised since it was asked last.

        Raises:
            RunError: If a worker has died before it could say. Its successor begins before the shutdown reactions, so what these
                raised is lost, and nobody knows whether it came first.
        """
        failed = [worker for worker in self._numbers if self._events[worker] & Event.FAILED]
        found: list[list[Failure]] = [reply.get() for reply in self.ask("failures", None)]
        self.forget(Event.FAILED)
        if not all(found[worker] for worker in failed) or not any(found):
            raise RunError("a shutdown reaction raised an error, and its worker died before it could say which")
        return [failure for some in found for failure in some]

    def _send(self, request: tuple[str, Any]) -> None:
        # The command comes first: a request longer than the pipe's buffer can only be sent to a helper that reads.
        self.begin(HelperCommand.MESSAGE, self.loop.pass_number)
        for worker in self._numbers:
            self._executor.send(worker, request)
        for worker in self._numbers:
            self._expect()
            while not self._executor.sent(worker, SLICE):
                self._unanswered(worker)

    def _replies(self) -> list[main.Reply]:
        return [self._reply(worker) for worker in self._numbers]

    def _reply(self, worker: int) -> main.Reply:
        self._expect()
        while True:
            try:
                # A hung-up line is no error yet: what ended the helper says its exit status, which may come a moment later.
                reply: main.Reply = self._executor.receive(worker, SLICE)
                return reply
            except (TimeoutError, EOFError):
                self._unanswered(worker)

    def _unanswered(self, worker: int) -> None:
        """Check a helper that has not yet taken, or answered, a request."""
        self._look()
        self._check_alive()
        if self._due.over():
            self._hung(worker)


def how_it_ended(status: int | None) -> str:
    """Put an exit status into words."""
    if status is None:
        return "ended"
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended with exit status {status}"
