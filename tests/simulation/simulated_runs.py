"""One seed, one run: what is run, how it is used, what strikes it, and what must hold.

Values are those of the interpreter, whoever goes on when. An error is one that what has happened explains. In the end every helper
has ended by itself unless it was killed, has run its shutdown reactions, and nothing is left open.
"""

from __future__ import annotations

import contextlib
import gc
import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from machines import Boom
from random_programs import same
from simulated_nodes import LosingNodes, start_on_nodes, with_nodes
from simulated_programs import Fingerprint, known, plan_of
from virtual_machine import Thread, point
from virtual_runtime import SimulatedRuntime
from virtual_scheduler import Faults, Simulation, without_traceback

from reactor_rl import Recover
from reactor_rl.errors import AbsentError, NodeDiedError, RunClosedError, RunError, WorkerDiedError, WorkerHungError
from reactor_rl.runtime import supervisor
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.supervisor import RunSettings

KINDS = ("plain", "kill", "ctrl-c", "both", "late", "closer", "hang", "nodes")
"""What strikes: nothing, kills, Ctrl-C, both, deadlines of the caller, another thread that closes, stopped helpers; and for
programs on several nodes their loss, kills or Ctrl-C.
"""
POOL, EPOCH = 40, 8000
"""So many programs are used by so many seeds in a row."""


@dataclass(frozen=True)
class Settings:
    """What a seed decides before anything runs."""

    seed: int
    kind: str
    how: str
    number: int
    workers: int
    caller_works: bool
    draw: int
    executor: str
    recover: Recover | None
    faults: Faults
    fingerprint: Fingerprint
    debug: bool
    spin: float
    pause: float
    limit: float | None
    loses: float = 0.0

    @classmethod
    def of(cls, seed: int) -> Settings:
        dice = random.Random(seed ^ 0x5EED)
        kind, how = KINDS[seed % len(KINDS)], ("walk", "pct")[seed // len(KINDS) % 2]
        kills = dice.choice([1, 1, 2, 3]) if kind in ("kill", "both") else 0
        if kind == "nodes":
            return cls._of_nodes(dice, seed, how)
        recovers = (kills and dice.random() < 0.85) or (kind in ("ctrl-c", "closer", "hang") and dice.random() < 0.5)
        recover = Recover(restarts=50, log_bytes=dice.choice([1, 2000, 1 << 20])) if recovers else None
        if kind == "closer" and recovers:
            kills = seed // len(KINDS) % 3  # and another thread closes while helpers are replaced
        executor = "processes" if kills or recover or kind == "hang" else dice.choice(["threads", "processes"])
        faults = Faults(
            kills=kills, interrupts=dice.choice([1, 1, 2, 3]) if kind in ("ctrl-c", "both") else 0,
            server_kills=int(bool(kills) and dice.random() < 0.2), within=dice.choice([100, 500, 2000, 6000]),
            lines=kind in ("ctrl-c", "both") and dice.random() < 0.4, late=kind == "late",
        )  # fmt: skip
        return cls(
            seed, kind, how, seed // EPOCH * POOL + dice.randrange(POOL), dice.choice([2, 2, 3, 3, 4]), dice.random() < 0.7,
            dice.choice([0, 1, 2, 3]), executor, recover, faults,
            "boundary" if recover or dice.random() < 0.5 else "all", recover is None and dice.random() < 0.1,
            dice.choice([0.0, 0.0, 3e-6]), dice.choice([float("inf"), 0.0, 1e-5]), 0.5 if kind == "hang" else None,
        )  # fmt: skip

    @classmethod
    def _of_nodes(cls, dice: random.Random, seed: int, how: str) -> Settings:
        processes = dice.random() < 0.4
        kills, interrupts = dice.choice([0, 1, 2]) if processes else 0, dice.choice([0, 0, 0, 1])
        within = dice.choice([500, 2000, 6000])
        faults = Faults(kills, interrupts, within=within, lines=bool(interrupts) and within < 6000)
        recover = Recover(restarts=50, log_bytes=dice.choice([1, 2000, 1 << 20])) if dice.random() < 0.6 else None
        return cls(
            seed, "nodes", how, seed // EPOCH * POOL + dice.randrange(POOL), 0, dice.random() < 0.7, dice.randrange(1 << 30),
            "processes" if processes else "threads", recover, faults, "boundary", False, 0.0,
            dice.choice([float("inf"), 0.0, 1e-5]), dice.choice([None, None, 0.5]), dice.choice([0.0, 0.02, 0.1]),
        )  # fmt: skip

    def __str__(self) -> str:
        helped = (
            f"{self.executor}, {self.workers} workers, caller {'works' if self.caller_works else 'does not work'}, draw {self.draw}"
        )
        return f"seed {self.seed}: {self.kind}, {self.how}, program {self.number} on {helped}, {self.recover}, {self.faults}"


class User:
    """Who starts a run, ticks it, looks at it and closes it."""

    def __init__(self, settings: Settings, plan: Plan | None, runtime: SimulatedRuntime) -> None:
        self.settings, self.plan, self.runtime = settings, plan, runtime
        self.simulation, self.program = runtime.simulation, known(settings.number)
        self.dice = random.Random(settings.seed ^ 0xCAFE)
        self.closed_by_another = settings.kind == "closer" or (settings.kind == "nodes" and settings.draw % 5 == 0)
        self.saves = self.dice.random() < 0.3
        self.excused = settings.kind in ("late", "hang") or settings.limit is not None  # helpers that are terminated
        self.run: Any = None
        self.transport: LosingNodes | None = None
        self.restored = False

    def live(self) -> None:
        """All of it. Whatever strikes, the run is closed in the end."""
        try:
            try:
                self._use()
            finally:
                self._close()
        except KeyboardInterrupt:
            assert self.simulation.interrupted
        except Boom:
            assert self.program.record.error is not None or self.restored or self.run is None, "an error of nowhere"
        except RunError as error:
            self._explain(error)
        self.simulation.calm()
        self._close()
        others = [task for task in self.simulation.tasks if task is not self.simulation.main]
        self.simulation.wait(lambda: all(task.gone for task in others), patient=True)

    def _close(self) -> None:
        """Close whatever was begun, whatever strikes meanwhile."""
        struck = None
        for run in [self.run] if self.run is not None else [run for run in self.runtime.runs if not hasattr(run, "_mailbox")]:
            while run._state != "closed":
                timeout = 1.0 if self.excused else self.dice.choice([None, None, 1.0])
                self.excused |= timeout is not None
                try:
                    with contextlib.suppress(Boom):
                        run.close(timeout=timeout)
                except KeyboardInterrupt as error:
                    struck = error
        if struck is not None:
            raise struck

    def _explain(self, error: RunError) -> None:
        """Check that an error has a reason."""
        settings, said = self.settings, str(error)
        if settings.kind == "nodes" and not (self.closed_by_another and isinstance(error, RunClosedError)):
            lost = self.simulation.killed or settings.loses or settings.limit
            assert lost and isinstance(error, (NodeDiedError, WorkerDiedError, WorkerHungError)), said
            if settings.recover is not None and not isinstance(error, WorkerDiedError):
                assert "in the same tick" in said, said
        elif isinstance(error, WorkerDiedError):
            assert self.simulation.killed or settings.kind == "hang", f"nobody was killed: {said}"
            if settings.recover is not None and settings.kind != "hang":
                assert "the work itself" in said or "brought back" in said, said
        elif isinstance(error, WorkerHungError):
            assert settings.kind == "hang" and settings.recover is None, said
        elif "died before it could say which" in said:
            assert settings.recover is not None and (self.simulation.killed or settings.kind == "hang"), (
                f"nobody was killed: {said}"
            )
        elif self.closed_by_another:
            assert any(word in said for word in ("closed", "over", "in progress", "tick")), said
        else:
            raise error

    # ------------------------------------------------------------------ a run

    def _use(self) -> None:
        settings, program = self.settings, self.program
        if self.plan is None:
            dice = random.Random(settings.draw)
            self.run, self.transport = start_on_nodes(
                program, dice, settings.executor, settings.recover, settings.loses, settings.caller_works, settings.limit
            )  # fmt: skip
            self._tick_on()
            return
        how = RunSettings(
            settings.executor, self.plan.schedule.workers, fingerprint=settings.fingerprint, debug=settings.debug,
            recover=settings.recover, timeout=settings.limit,
        )  # fmt: skip
        self.run = supervisor.start(program.topology, lambda _: program.pickled, (), how)
        if settings.kind == "hang":
            self.simulation.later("stop", self.dice.randrange(1, 1500))
            self.simulation.server.stopped = self.dice.random() < 0.3
        self._tick_on()

    def _tick_on(self) -> None:
        if self.closed_by_another:
            Thread(self._close_meanwhile, name="closer").start()
        with self._reading_may_fail():
            self._ticks()
            inputs, late = [*self.program.spec.inputs().values()], random.Random(self.settings.seed ^ 0x1A7E)
            if inputs and not self.run.stopped and late.random() < 0.3:
                self.run.set(**late.choice(inputs))  # for a tick that never begins

    def _close_meanwhile(self) -> None:
        for _ in range(self.dice.randrange(self.dice.choice([1, 30, 200, 1000]))):
            point()
        timeout = self.dice.choice([None, None, 0.1])
        self.excused |= timeout is not None
        try:
            self.run.close(timeout=timeout)
        except Boom:
            pass
        except RunError as error:
            killed, said = self.simulation.faults.kills, "died before it could say which" in str(error)
            explained = (
                killed and (said or isinstance(error, WorkerDiedError)),
                self.settings.loses and isinstance(error, NodeDiedError),
            )  # fmt: skip
            if not any(explained):
                raise

    @contextlib.contextmanager
    def _reading_may_fail(self) -> Iterator[None]:
        """An output of a run that another thread has closed may have gone."""
        try:
            yield
        except (AbsentError, AttributeError) as error:
            if not self.closed_by_another:
                raise
            raise RunClosedError(f"the run was closed: {error}") from error

    def _ticks(self) -> None:
        run, record, dice = self.run, self.program.record, self.dice
        inputs, end = self.program.spec.inputs(), len(record.boundary)
        saved: Any = None
        tick = 0
        while tick < end:
            if self.saves and run._state == "ready":
                if saved is None and dice.random() < 0.4:
                    saved = tick, run.snapshot()
                elif saved is not None and not self.restored and dice.random() < 0.4:
                    run.restore(saved[1])
                    self.restored, tick = True, saved[0]
            run.set(**inputs.get(tick, {}))
            tick = self._step(tick, inputs, end)
            if record.error is not None and tick == end:
                return
            expected = record.boundary[tick - 1]
            seen = {name: getattr(run, name) for name in expected}
            if run._closer != -1:  # its shutdown reactions may write, too
                raise RunClosedError("closed by another thread")
            assert same(seen, expected), f"after tick {tick - 1}: {seen} and not {expected}"
        assert run.stopped == record.stopped, f"stopped: {run.stopped}"
        if not self.restored:
            wanted = self.program.fingerprint if self.settings.fingerprint == "boundary" else record.fingerprint
            if wanted and not (record.stopped and self.settings.fingerprint == "all" and run._state != "stopped"):
                assert run.fingerprint() == wanted, "another fingerprint"

    def _step(self, tick: int, inputs: dict[int, Any], end: int) -> int:
        """Do one tick or several, and return how many are done then."""
        run, record, dice = self.run, self.program.record, self.dice
        until = tick + 1
        way = dice.choice(["tick", "tick", "apart", "run", "many"]) if self.settings.kind != "late" else "apart"
        if way == "many":
            free = next((later for later in range(tick + 1, end) if later in inputs), end)
            until = dice.randint(tick + 1, free)
        try:
            if way == "tick":
                run.tick()
            elif way == "apart":
                self._wait_apart()
            else:
                run.run(until - tick)
        except Boom as error:
            if record.error is None or until != end or str(error) != str(record.error[2]):
                raise AssertionError(f"in tick {tick}: {error!r} and not {record.error}") from error
            return end
        assert record.error is None or until < end, "no error"
        return until

    def _wait_apart(self) -> None:
        self.run.tick_async()
        while True:
            try:
                self.run.tick_wait(timeout=self.dice.choice([0.0, 1e-6, 0.1, None]))
                return
            except TimeoutError:
                pass


@dataclass
class Outcome:
    """What came of a seed; ``error`` is what should not have happened, and ``text`` its traceback."""

    settings: Settings
    simulation: Simulation | None = None
    error: BaseException | None = None
    text: str = ""


def run_seed(seed: int, log: list[tuple[Any, ...]] | None = None) -> Outcome:
    """Run a seed.

    Args:
        seed: Which one.
        log: A list that receives what happened.
    """
    settings = Settings.of(seed)
    options = settings.debug, settings.fingerprint
    plan = None
    if settings.kind != "nodes":
        plan = plan_of(settings.number, settings.workers, settings.caller_works, settings.draw, options)
        if plan.schedule.workers == 1:
            return Outcome(settings)
    _collect_garbage()
    simulation = Simulation(seed, settings.how, settings.faults, log)
    runtime = SimulatedRuntime(simulation)
    user = User(settings, plan, runtime)
    outcome = Outcome(settings, simulation)
    collects = gc.isenabled()
    gc.disable()
    nodes = with_nodes(simulation) if plan is None else contextlib.nullcontext()
    known(settings.number)  # made outside of the simulated world
    with runtime.installed(plan, settings.spin, settings.executor, settings.pause), nodes:
        try:
            simulation.run(user.live)
            _nothing_left(user, runtime)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not simulation.interrupted:
                raise
            outcome.error, outcome.text = error, "".join(traceback.format_exception(error))
            without_traceback(error)
        for run in runtime.runs:  # of a schedule that failed; else it would be closed in the middle of another one
            run._state = "closed"
            for block in getattr(run._executor, "_blocks", ()):  # its helpers, which nobody resumes, would keep them
                block.close(readable=True)
    simulation.forget()
    if collects:
        gc.enable()
    return outcome


_seeds = count()


def _collect_garbage() -> None:
    """Let nothing of one schedule be collected in the middle of another one: what has a finalizer would move its points."""
    number = next(_seeds)
    if number == 0:
        gc.collect()
        gc.freeze()
    elif number % 16 == 0:
        gc.collect()


def _nothing_left(user: User, runtime: SimulatedRuntime) -> None:
    """Check what must hold in the end.

    Raises:
        AssertionError: Naming all that does not.
    """
    simulation = runtime.simulation
    wrong = [f"{task.name} ended by {task.error!r}" for task in simulation.tasks if task.error is not None and not _excused(task)]
    # A node that is being brought back is given up where one of its own helpers is killed meanwhile, and ends the others.
    of_nodes = user.transport is not None and (user.transport.losses or simulation.faults.kills)
    if not (user.excused or of_nodes):
        wrong += sorted(set(simulation.notes))
    wrong += [f"the run is {run._state}" for run in runtime.runs]
    wrong += [f"helper {one.name} has not ended" for one in simulation.helpers if not one.ended]
    for process, loop in runtime.loops:
        shut = loop.stopping and not loop.pending & loop.shutdown_mask
        late = user.excused and process is simulation.caller  # a thread that is still in a reaction is not waited for
        if not shut and not late and process.status in (0, None):
            wrong.append(f"worker {loop.worker} has not run its shutdown reactions")
    if not simulation.interrupted:  # else what nobody knows of yet is left to the garbage collector
        if any(channel.named for channel in runtime.channels):
            wrong.append("names of channels are left")
        if any(end.open for number, end in runtime.files.ends.items() if number % 2 == 0):
            wrong.append("the caller's ends of pipes are open")
    assert not wrong, "; ".join(wrong)


def _excused(task: Any) -> bool:
    return task.main and task.process.signal != 0
