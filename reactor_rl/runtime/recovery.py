"""Recovery of helper processes, on the caller's side: log what crosses, notice a death, put another helper in its place.

A pass in which a helper died is not undone. Two kinds of programs differ in what can go on. If helpers only ever wait for the
caller at the beginning of a pass and signal it at the end, the new helper alone takes its part of the pass again. In any other
program a dead helper leaves others in the middle of theirs, with tokens that nobody can count. Then all helpers are ended and
brought back to the beginning of the pass, with new channels.

The caller goes on from where it waits. Before it looks at anything that the helpers write anew, it gives again the tokens that
it has given in this pass, and takes again those that it has taken. Between two ticks it asks its question again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from reactor_rl.errors import Failure, WorkerDiedError
from reactor_rl.runtime.channel import ControlBlock, Deadline
from reactor_rl.runtime.executor import SLICE, HelperCommand, Reactors
from reactor_rl.runtime.helpers import Helpers, how_it_ended
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.processes import NO_HISTORY, REPLAYING, REVIVED, ProcessesExecutor
from reactor_rl.runtime.revival import BEAT, OVERHEAD, Checkpoint, InputLog, WorkerHistory, WorkerMemory, begins_tick
from reactor_rl.runtime.worker import main
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.settings import Recover, tell

__all__ = ["RecoveringHelpers", "RecoveryBudget"]

SHORTEST_PAUSE = 10.0
"""Seconds between two saves of a state, at least; bringing a helper or a node back then takes about that long at most. Chosen:
deaths are rare, and after ten seconds of replay nobody has lost much.
"""
PAUSE_FACTOR = 200
"""The pause between two saves is at least this many times as long as a save takes, so saves take at most half a percent of the
time.
"""

START, SLOWER = 10.0, 4
"""Seconds that a new helper may take to start beyond the limit of a tick; or this many times as long as the first ones took. It may
import large packages on a machine that is busier than at the start. Chosen.
"""
TRIES = 3
"""How often in a row the start of new helpers may fail because processes are killed. The out-of-memory killer often takes the
newest process; if it has taken four, there is no room for one.
"""

Death = tuple[int, int | None]


class RecoveryBudget:
    """Decides when a state is saved and its log begins anew: one for all helpers, one for each node.

    Args:
        log_bytes: How large the log may become.

    Attributes:
        bytes: Size of the log, approximately.
        began: When the log began, by ``time.monotonic()``.
    """

    def __init__(self, log_bytes: int) -> None:
        self._log_bytes = log_bytes
        self.bytes = 0
        self.began = time.monotonic()
        self._pause = SHORTEST_PAUSE

    @property
    def too_large(self) -> bool:
        """Whether the log is larger than it may be."""
        return self.bytes > self._log_bytes

    @property
    def due(self) -> bool:
        """Whether the state should be saved now."""
        return self.too_large or time.monotonic() - self.began > self._pause

    def saved(self, began: float) -> None:
        """Begin a new log behind a save that began at ``began``. The longer the save took, the longer the next one waits."""
        self.bytes, self.began = 0, time.monotonic()
        self._pause = max(SHORTEST_PAUSE, PAUSE_FACTOR * (self.began - began))

    def failed(self) -> None:
        """Note that the state cannot be saved: it is due again only when the log is too large."""
        self._pause = float("inf")


class RecoveringHelpers(Helpers):
    """Workers 1 and up, where those that die are replaced.

    Args:
        plan: The compiled program.
        executor: The executor that holds them.
        recover: The user's settings.
        reactors: The reactors of each worker, as they are launched.
    """

    def __init__(self, plan: Plan, executor: ProcessesExecutor, recover: Recover, reactors: Sequence[Reactors]) -> None:
        super().__init__(plan, executor)
        self._processes, self._recover, self._reactors = executor, recover, reactors
        self._inputs = InputLog(plan, executor.memory, executor.sides)
        self._history = WorkerHistory()
        self._budget = RecoveryBudget(recover.log_bytes)
        self._on = False  # not before the startup reactions have run
        self._over = ""  # why no worker is replaced any more
        self._alone = all(0 in pair and tokens == 1 for pair, tokens in plan.schedule.signals().items())
        self._given = [0] * plan.schedule.workers  # tokens in this pass, besides those that it began with
        self._taken = [0] * plan.schedule.workers
        self._question: tuple[str, Any] = ("", None)
        self._asked: set[int] = set()  # workers that have not answered it
        self._questions = 0
        self._deaths: list[tuple[int, int, str]] = []  # tick, worker and cause of death
        self._last: dict[int, tuple[tuple[int, int], str]] = {}  # the pass and question at which a worker died, and the cause
        self._causes: dict[int, str] = {}  # why a helper was ended
        self._startup = 0.0  # seconds that the startup pass took
        self._failed_starts = 0

    def watch(self, loop: WorkerLoop) -> None:
        """Log what crosses at the end of every pass of the caller's loop, when all other workers have ended theirs."""
        super().watch(loop)
        loop.steps.append((self._passed, None))

    # ------------------------------------------------------------------ notes

    def _passed(self, _: None) -> None:
        words, loop = self.words, self.loop
        self._given = [0] * len(self._given)
        self._taken = [0] * len(self._taken)
        command = words[ControlBlock.COMMAND]
        if self._over or command == HelperCommand.STOP:
            return
        notes = self._inputs.note(command == HelperCommand.FIRST, loop.time, loop.pass_number)
        if command == HelperCommand.START:
            self._history.startup, self._on = notes, True
            self._startup = time.monotonic() - self._budget.began
            return
        self._history.passes.append(notes)
        self._budget.bytes += OVERHEAD + len(notes)
        if self.events():
            return
        if self._budget.due:
            self._save()

    def _save(self) -> None:
        """Save the state of all helpers between two ticks, and begin the log anew."""
        began = time.monotonic()
        self._send(("checkpoint", None))
        replies = self._replies()
        try:
            parts = [reply.get() for reply in replies]
        except (TypeError, RuntimeError) as error:
            self._budget.failed()
            if self._budget.too_large:
                self._give_up(str(error))
            return
        self._begin_anew(dict(zip(self._numbers, parts, strict=True)))
        self._budget.saved(began)

    def _begin_anew(self, workers: dict[int, WorkerMemory]) -> None:
        """Begin the log anew from what the helpers hold now."""
        # Startup reactions build what a state does not contain, so a successor runs them before it gets the state.
        self._history = WorkerHistory(self._history.startup, Checkpoint(*self._inputs.everything(), workers))
        self._budget.bytes = 0

    def _give_up(self, why: str) -> None:
        self._over = (
            f"the log up to tick {self.loop.time} is larger than Recover(log_bytes={self._recover.log_bytes}), and it cannot "
            f"begin anew because {why}"
        )
        self._history = WorkerHistory()
        tell(f"from now on no worker is replaced: {self._over}")

    # ------------------------------------------------------------------ tokens and questions

    def signal(self, worker: int) -> None:
        self._given[worker] += 1
        super().signal(worker)

    def wait(self, worker: int) -> None:
        super().wait(worker)
        self._taken[worker] += 1

    def ask(self, request: str, argument: Any) -> list[main.Reply]:
        replies = super().ask(request, argument)
        if request == "restore" and not self._over:  # the log leads to another state
            self._begin_anew(dict.fromkeys(self._numbers, argument))
        return replies

    def _send(self, request: tuple[str, Any]) -> None:
        self._question, self._asked = request, set(self._numbers)
        self._questions += 1
        super()._send(request)

    def _replies(self) -> list[main.Reply]:
        replies: dict[int, main.Reply] = {}
        while self._asked:  # a worker that was replaced after it had answered is asked again, but its first answer counts
            worker = min(self._asked)
            reply = self._reply(worker)
            self._asked.remove(worker)
            replies.setdefault(worker, reply)
        return [replies[worker] for worker in self._numbers]

    # ------------------------------------------------------------------ deaths

    def _check_alive(self) -> None:
        if self._processes.starting(0.0):  # the thread that starts helpers goes on with the next one
            return
        dead = self._processes.ended()
        if self._asked:  # a worker that has answered is not needed before the next tick
            dead = [death for death in dead if death[0] in self._asked]
        else:
            for worker, _ in dead:
                self._listen(worker)
        if dead:
            self._replace(dead)

    def _hung(self, worker: int) -> None:
        """Replace a helper that does not return like one that has died; if its successor does not return either, raise."""
        self._end(worker)
        self._check_alive()

    def _end(self, worker: int) -> None:
        """End a helper that does not return, or the fork server that does not start it."""
        if self._processes.starting(0.0) and not self._processes.give_up_start():
            raise self._error(worker, None, "Another process could not be started for it: the fork server does not answer")
        self._causes[worker], _ = self._where(worker)
        self._processes.kill([worker])

    def _replace(self, dead: Sequence[Death]) -> None:
        """Replace helpers that have died, and those that die meanwhile."""
        began = time.monotonic()
        deaths: list[tuple[int, str]] = []
        replaced: set[int] = set()
        while dead:
            self._must_be_open()  # else another thread has told them to quit
            deaths += [(worker, self._count(worker, status, worker in replaced)) for worker, status in dead]
            workers = [worker for worker, _ in dead] if self._alone else list(self._numbers)
            replaced.update(workers)
            dead = self._bring_back(workers)
        self._failed_starts = 0
        self._causes.clear()
        self._tell(deaths, replaced, time.monotonic() - began)
        self._expect()

    def _bring_back(self, workers: Sequence[int]) -> list[Death]:
        """Put new helpers in the place of old ones, dead or alive.

        Returns:
            New helpers that have died meanwhile. If helpers wait for each other, all must be replaced again then.
        """
        self._processes.kill(workers)  # without a chance to end well: a shutdown reaction would write into the live arena
        histories = {worker: self._history.of(worker) if self._on else NO_HISTORY for worker in workers}
        try:
            self._processes.replace(histories, self._reactors)
        except (OSError, EOFError) as error:
            raise self._error(workers[0], None, f"Another process could not be started for it: {error!r}") from error
        dead = self._listen_until_revived(workers)
        if dead and not self._alone:
            return dead
        lost = {worker for worker, _ in dead}
        whole, workers = workers, [worker for worker in workers if worker not in lost]
        self._rewire(workers)
        asked = bool(self._asked)
        for worker in workers:
            self.start[worker - 1]()
            if asked:
                self._asked.add(worker)
                self._processes.send(worker, self._question)
            for _ in range(self._given[worker]):
                self._outbound[worker]()
        for worker in workers:
            self._take_again(worker, workers)
        return [death for death in self._processes.ended() if death[0] in whole]

    def _count(self, worker: int, status: int | None, again: bool) -> str:
        """Count a death and return its cause in words.

        Args:
            worker, status: The worker that has died, and its exit status.
            again: Whether it was being brought back.

        Raises:
            WorkerDiedError: If it cannot be replaced, or too many have died.
        """
        tick, how = self.loop.time, self._how(worker, status)
        if self._over:
            raise self._error(worker, status, f"It was not replaced: {self._over}")
        if (error := self._processes.not_started(worker)) is not None:  # its reactors may have nothing to do with that
            self._failed_starts += 1
            if self._failed_starts > TRIES:
                raise self._error(worker, status, f"Another process could not be started for it: {error!r}") from error
            return f"could not be started ({error!r})"
        if before := self._before(worker):
            if again:
                raise self._error(worker, status, f"It was being brought back because the one before it {before}")
            over = f"at the same request ({self._question[0]})" if self._asked else "in the same tick"
            raise self._error(worker, status, f"The one before it {before} {over}: the work itself seems to end it")
        if len(self._deaths) >= self._recover.restarts:
            said = "; ".join(f"worker {worker} {how} in tick {tick}" for tick, worker, how in self._deaths)
            raise self._error(worker, status, f"Recover(restarts={self._recover.restarts}) is used up: {said}")
        self._deaths.append((tick, worker, how))
        self._last[worker] = (self.loop.pass_number, self._questions), how
        return how

    def _before(self, worker: int) -> str:
        """Return the cause of death of a worker's predecessor, if it died in the same pass or at the same question; else ``""``."""
        moment, how = self._last.get(worker, (None, ""))
        return how if moment == (self.loop.pass_number, self._questions) else ""

    def _how(self, worker: int, status: int | None) -> str:
        cause = self._causes.get(worker)
        return how_it_ended(status) if cause is None else f"was ended because it did not return for {self.limit} s ({cause})"

    def _error(self, worker: int, status: int | None, why: str) -> WorkerDiedError:
        names = self._plan.names_of(worker)
        return WorkerDiedError(
            f"worker {worker} {self._how(worker, status)} in tick {self.loop.time}; it held {', '.join(names)}. {why}. The run "
            "is over: close() it and start again", worker, names, status,
        )  # fmt: skip

    def _listen_until_revived(self, workers: Sequence[int]) -> list[Death]:
        """Wait until new helpers are where the dead ones were. Starting may take long, but a pass not longer than the limit.

        Returns:
            Helpers that have died meanwhile. If helpers wait for each other, it returns with the first death.

        Raises:
            WorkerDiedError: If one cannot be brought back, or no process can be started.
            RunClosedError: If another thread has closed the run meanwhile.
        """
        limit = self.limit
        due = {worker: Deadline(limit and limit + max(START, SLOWER * self._startup)) for worker in workers}
        self._expect()
        while due:
            for worker in list(due):
                starting = self._processes.starting(SLICE)
                said = None if starting else self._said(worker, SLICE)
                asleep = self._look()
                self._must_be_open()
                for deadline in due.values():
                    deadline.put_off(asleep)
                if said == REVIVED:
                    del due[worker]
                elif said == REPLAYING:
                    due[worker] = Deadline(limit and limit + BEAT)
                elif due[worker].over():
                    self._end(worker)
            dead = [] if starting else [death for death in self._processes.ended() if death[0] in workers]
            for worker, _ in dead:
                while self._said(worker, 0.0) is not None:  # its last message may be the reason
                    pass
                due.pop(worker, None)
            if dead and not self._alone:
                break
        return dead

    def _said(self, worker: int, timeout: float) -> Any:
        """Return the message of a new helper, or ``None``.

        Raises:
            WorkerDiedError: If the message says why it cannot be brought back.
        """
        try:
            said = self._processes.receive(worker, timeout)
        except (TimeoutError, EOFError):
            return None
        if isinstance(said, Failure):
            if not self._on:
                raise said.raised()
            raise self._error(worker, None, f"It could not be brought back: {said.error!r}") from said.raised()
        return said

    def _rewire(self, workers: Sequence[int]) -> None:
        for (source, target), channel in self._processes.channels.items():
            if source in workers or target in workers:  # all others may still need their names
                channel.unlink()
            if source == 0 and target in workers:
                self.start[target - 1] = self._outbound[target] = channel.signal
            elif target == 0 and source in workers:
                self._inbound[source] = channel

    def _take_again(self, worker: int, workers: Sequence[int]) -> None:
        """Take the tokens again that were taken before the helpers were replaced, unless one of these dies."""
        for _ in range(self._taken[worker]):
            self._expect()
            while not self._inbound[worker].poll(True, SLICE):
                self._look()
                self._must_be_open()
                if any(dead in workers for dead, _ in self._processes.ended()):
                    return
                if self._due.over():
                    self._end(worker)

    def _tell(self, deaths: Sequence[tuple[int, str]], workers: Collection[int], seconds: float) -> None:
        """Warn of the deaths."""
        whom = "; ".join(
            f"worker {worker} {how} in tick {self.loop.time}; it held {', '.join(self._plan.names_of(worker))}"
            for worker, how in deaths
        )
        others = "" if len(workers) == len({worker for worker, _ in deaths}) else f", and with it all {len(workers)} helpers,"
        ticks = sum(map(begins_tick, self._history.passes))
        left = self._recover.restarts - len(self._deaths)
        tell(
            f"{whom}. It was replaced{others} after {seconds:.2f} s, {ticks} tick(s) were replayed, nothing is lost. Workers may "
            f"be replaced {left} more time(s)"
        )
