"""A seeded scheduler: threads of simulated processes are greenlets of one thread, and time is virtual.

A task goes on until it waits, or until it comes to a point: a place in the code at which another one may go on. At some points
something happens: a process is killed or stopped, or Ctrl-C strikes. A seed decides all of it, so it gives the same schedule again.
"""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet

MOST_POINTS = 400_000
"""Points of a schedule after which it counts as one without an end."""
LATEST = 1e5
"""Seconds of virtual time after which it does, too."""
HASTE = 1e-3
"""Seconds that pass if a worker is waited for in vain while it could go on."""

LINES = frozenset(
    {f"runtime/{name}.py" for name in ("boundary", "helpers", "lifetime", "recovery", "run")}
    | {f"federation/{name}.py" for name in ("home", "recovery")}
)
"""Files in which every line of the caller may be a point."""


class Ended(BaseException):
    """Ends a task when its schedule is over."""


class DeadlockError(AssertionError):
    """Nobody can go on, or a schedule has no end."""


@dataclass(frozen=True)
class Faults:
    """What happens in a schedule besides its switches.

    Attributes:
        kills: How many helpers are killed.
        interrupts: How often Ctrl-C strikes the caller.
        server_kills: How often the fork server is killed.
        within: Points among which these are spread.
        lines: Whether every line of the caller's runtime is a point.
        late: Whether deadlines pass while others could go on.
    """

    kills: int = 0
    interrupts: int = 0
    server_kills: int = 0
    within: int = 3000
    lines: bool = False
    late: bool = False


class SimulatedProcess:
    """A process: its tasks, and how it ended."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.status: int | None = None  # None: it lives
        self.signal = 0  # that will end it soon
        self.stopped = False
        self.at_end: list[Callable[[], None]] = []

    @property
    def ended(self) -> bool:
        return self.status is not None

    def end(self, status: int) -> None:
        if self.status is None:
            self.status = status
            for call in self.at_end:
                call()


class Task:
    """One thread of a process."""

    def __init__(self, name: str, process: SimulatedProcess, body: Callable[[], None], priority: float) -> None:
        self.name, self.process = name, process
        self.body: Any = body
        self.green: Any = greenlet(self._run)
        self.over = False
        self.error: BaseException | None = None
        self.ready: Callable[[], Any] | None = None  # what it waits for
        self.deadline = math.inf
        self.patient = False  # whether its deadline passes only if nobody else can go on
        self.priority = priority
        self.main = False  # whether its process ends with it

    def _run(self) -> None:
        try:
            self.body()
        except Ended:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        if self.main:
            self.process.end(0 if self.error is None else 1)

    @property
    def gone(self) -> bool:
        return self.over or self.process.ended

    def state(self) -> str:
        """Say what it does, for messages."""
        if self.over:
            return "over" if self.error is None else f"ended by {self.error!r}"
        if self.process.ended:
            return "killed"
        return "stopped" if self.process.stopped else "waits" if self.ready is not None else "can go on"


class Simulation:
    """One schedule.

    Args:
        seed: Decides everything.
        how: ``"walk"``: whoever can go on is chosen at random; ``"pct"``: the one of the highest priority, and priorities change
            at a few points (Burckhardt et al., A randomized scheduler with probabilistic guarantees of finding bugs, 2010).
        faults: What else happens.

    Attributes:
        random: Where chance comes from, for all that is simulated.
        now: Virtual seconds.
        points, switches, killed, interrupted: How many there were.
        notes: What must not happen, and did.
        deaf: Whether Ctrl-C has to wait.
        log: What happened, if it is kept: the point, the time, the task and words.
    """

    def __init__(self, seed: int, how: str = "walk", faults: Faults = Faults(), log: list[tuple[Any, ...]] | None = None) -> None:
        self.random = dice = random.Random(seed)
        self.faults, self._pct = faults, how == "pct"
        self.now, self.points, self.switches, self.killed, self.interrupted = 0.0, 0, 0, 0, 0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.caller = SimulatedProcess("caller", 1)
        self.main: Task | None = None
        self.helpers: list[SimulatedProcess] = []
        self.server = SimulatedProcess("fork server", 2)
        self.notes: list[str] = []
        self.log = log
        self.pids = count(3)
        self._mean = dice.choice([1, 2, 5, 20, 100])  # points from one switch to the next
        self._hasty = dice.choice([0.0, 0.02, 0.3])  # how often a deadline passes though others could go on
        changes = dice.choice([1, 2, 3, 5]) if self._pct else 0
        kinds = ["kill"] * faults.kills + ["ctrl-c"] * faults.interrupts + ["server"] * faults.server_kills + ["change"] * changes
        self._events = sorted((dice.randrange(1, faults.within), kind) for kind in kinds)
        self.deaf = False
        self._struck = False  # Ctrl-C, which the main thread has not noticed yet
        self._hub = getcurrent()
        self._untraced = False  # an exception of a trace function has ended the tracing
        self._plan()

    # ------------------------------------------------------------------ points

    def _plan(self) -> None:
        """Find the point at which something happens next."""
        soon: float = MOST_POINTS
        if not self._pct:
            soon = self.points + 1 + int(self.random.expovariate(1.0 / self._mean))
        if self._events:
            soon = min(soon, self._events[0][0])
        self._next = 0.0 if self._struck else soon

    def point(self, interrupts: bool = True) -> None:
        """Let others go on, perhaps.

        Args:
            interrupts: Whether Ctrl-C may strike here.
        """
        self.points += 1
        if self.points >= self._next:
            self._happen(interrupts)

    def _happen(self, interrupts: bool) -> None:
        me = self.current
        if me is None or getcurrent() is not me.green:
            return
        if self.points >= MOST_POINTS:
            self._hub.switch()  # from which nobody returns
        while self._events and self.points >= self._events[0][0]:
            getattr(self, f"_{self._events.pop(0)[1].replace('-', '_')}")(me)
        if self._untraced and me is self.main:
            self.trace()
        self._hub.switch()
        self._plan()
        if interrupts:
            self._interrupt(me)

    def later(self, kind: str, points: int) -> None:
        """Have something happen so many points from now."""
        self._events = sorted([*self._events, (self.points + points, kind)])
        self._plan()

    def calm(self) -> None:
        """Nothing happens any more but switches."""
        self._events, self._struck = [], False
        self._plan()

    def _change(self, me: Task) -> None:
        me.priority = -self.random.random()

    def _ctrl_c(self, me: Task) -> None:
        self._struck = True

    def _kill(self, me: Task) -> None:
        if alive := [process for process in self.helpers if not process.ended]:
            self.killed += 1
            self.die(self.random.choice(alive), -9)

    def _stop(self, me: Task) -> None:
        if alive := [process for process in self.helpers if not process.ended]:
            victim = self.random.choice(alive)
            victim.stopped = True
            self.say(f"{victim.name} is stopped")

    def _server(self, me: Task) -> None:
        self.killed += 1
        self.die(self.server, -9)

    def die(self, process: SimulatedProcess, status: int) -> None:
        """End a process at the point where it is."""
        self.say(f"{process.name} is killed")
        process.end(status)

    def _interrupt(self, me: Task) -> None:
        """Raise KeyboardInterrupt in the main thread, if Ctrl-C has struck."""
        if self._struck and me is self.main and not self.deaf:
            self._struck = False
            self._plan()
            self.interrupted += 1
            self.say("Ctrl-C")
            raise KeyboardInterrupt

    def wait(self, ready: Callable[[], Any], seconds: float | None = None, interrupts: bool = True, patient: bool = False) -> bool:
        """Wait until something is so, or for some seconds, and return whether it is.

        Args:
            ready: What is waited for.
            seconds: How long; ``None``: for ever.
            interrupts: Whether Ctrl-C ends the wait.
            patient: Whether the time passes only while nobody else can go on.
        """
        me = self.current
        if me is None or getcurrent() is not me.green:
            raise Ended
        me.ready, me.deadline = ready, math.inf if seconds is None else self.now + max(seconds, 0.0)
        me.patient = patient
        self._hub.switch()
        me.ready = None
        done = bool(ready())
        if interrupts and not (done and self.random.random() < 0.5):  # else a call returns what has come, before Ctrl-C is noticed
            self._interrupt(me)
        return done

    # ------------------------------------------------------------------ lines

    def trace(self) -> None:
        """Make every line of the runtime a point."""
        self._untraced = False
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if "/".join(frame.f_code.co_filename.split("/")[-2:]) in LINES else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            try:
                self.point()
            except BaseException:
                self._untraced = True
                raise
        return self._line

    # ------------------------------------------------------------------ who goes on

    def spawn(self, name: str, process: SimulatedProcess, body: Callable[[], None]) -> Task:
        """Make a task, which can go on from now on."""
        task = Task(name, process, body, self.random.random())
        task.green.parent = self._hub
        self.tasks.append(task)
        return task

    def process(self, name: str, body: Callable[[], None]) -> SimulatedProcess:
        """Make a helper's process."""
        process = SimulatedProcess(name, next(self.pids))
        self.helpers.append(process)
        self.spawn(name, process, body).main = True
        self.say(f"{name} begins")
        return process

    def _choose(self) -> Task | None:
        """Choose who goes on; ``None``: nobody can."""
        while True:
            can, late = [], []
            for task in self.tasks:
                process = task.process
                if task.over or process.status is not None or (process.stopped and not process.signal):
                    continue
                if task.ready is None or process.signal or task.ready():
                    can.append(task)
                elif task.deadline < math.inf:
                    late.append(task)
            main = self.main
            if self._struck and not self.deaf and main is not None and main.ready is not None and main not in can:
                return main  # a signal ends its sleep
            if not late and len(can) == 1 and not can[0].process.signal:
                return can[0]
            if can:
                late = [task for task in late if not task.patient]
            if late and (not can or self.random.random() < self._hasty):
                first = min(late, key=lambda task: (task.deadline, task.name))
                until = first.deadline if self.faults.late or not can else min(first.deadline, self.now + HASTE)
                self.now = max(self.now, until)
                return first
            if not can:
                return None
            task = max(can, key=lambda task: task.priority) if self._pct else self.random.choice(can)
            if not task.process.signal:
                return task
            # A signal ends a process soon, not at once.
            if task.ready is not None or task.process.stopped or self.random.random() < 0.5:
                self.die(task.process, -task.process.signal)
            else:
                return task

    def run(self, body: Callable[[], None]) -> None:
        """Run a schedule to its end, which is that of the main thread.

        Raises:
            DeadlockError: If nobody can go on.
            BaseException: What the main thread raises.
        """
        self.main = main = self.spawn("caller", self.caller, self._with_lines(body))
        before = sys.gettrace()
        try:
            while not main.over:
                task = self._choose()
                if task is None or self.points >= MOST_POINTS or self.now > LATEST:
                    self._give_up("nobody can go on" if task is None else "there is no end")
                self.switches += 1
                self.now += 1e-7
                self.current = task
                task.green.switch()
                self.current = None
        finally:
            self.current = None
            sys.settrace(before)
            for task in self.tasks:
                if not task.green.dead:
                    with contextlib.suppress(BaseException):
                        task.green.throw(Ended)
        if main.error is not None:
            raise main.error

    def _give_up(self, why: str) -> NoReturn:
        states = "; ".join(f"{one.name}: {one.state()}" for one in self.tasks)
        raise DeadlockError(f"{why} ({states}); the caller is in {where_is(self.main)}")

    def _with_lines(self, body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if self.faults.lines:
                self.trace()
            body()

        return run

    def forget(self) -> None:
        """Drop what the tasks of a schedule that is over hold: tracebacks keep frames, and these keep memory."""
        for task in self.tasks:
            task.green = task.body = task.ready = None
            without_traceback(task.error)

    def say(self, what: str) -> None:
        """Keep for the log what happens."""
        if self.log is not None:
            self.log.append((self.points, self.now, "" if self.current is None else self.current.name, what))


def without_traceback(error: BaseException | None) -> None:
    """Take the tracebacks from an error and from those that it came from."""
    while error is not None:
        error.__traceback__, error = None, error.__cause__ or error.__context__


def where_is(task: Task | None) -> str:
    """Say which functions of the runtime a task is in, the innermost first."""
    frame, found = None if task is None else task.green.gr_frame, []
    while frame is not None:
        if "/reactor_rl/" in frame.f_code.co_filename:
            found.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found) or "its own code"
