"""Random programs of the tests, run for real and recorded: with snapshots, time-outs, failures and helpers that die."""

from __future__ import annotations

import contextlib
import random
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import Phase, given, seed, settings
from machines import Boom, ProgramSpec, build
from random_programs import QUIET, TICKS, programs

from reactor_rl import ProgramError, Recover, RecoveryWarning, Run, RunError, WorkerDiedError

from .following import follow, scenario_of
from .probe import dying, in_helper, read, recording
from .state import Scenario

__all__ = ["Recorded", "Tally", "record", "spoilt", "tally"]

Event = tuple[str, tuple[int, ...]]
Fate = tuple[int, int, int]
"""A worker, which of its lives, and how many lines it writes in it."""
LINES = 60
"""A helper that dies has written so many lines at most; a tick takes two to ten."""


@dataclass(frozen=True)
class Recorded:
    """A run that was recorded.

    Attributes:
        scenario: Its program.
        events: What happened.
    """

    scenario: Scenario
    events: list[Event]


def record(
    spec: ProgramSpec, folder: Path, draw: random.Random, executor: str, workers: int, fates: Sequence[Fate] | None = None
) -> Recorded | None:
    """Run a random program to its end, or until nobody replaces a helper any more, and record it.

    Args:
        spec: The program.
        folder: An empty one, for what is recorded.
        draw: Which says what the user does.
        executor, workers: How it is run.
        fates: Where helpers die; ``None`` if nobody would replace them.

    Returns:
        ``None`` if the program cannot be built, or is run by the caller alone.
    """
    path = folder / "trace"
    try:
        program = build(spec)
        program.topology()
    except ProgramError:
        return None
    how = {} if fates is None else {"recover": Recover(restarts=100, log_bytes=draw.choice([1, 1 << 20]))}
    for fate in fates or ():
        dying(path, *fate)
    if executor == "processes":
        program.worker_setup(partial(in_helper, str(path)))
    with warnings.catch_warnings(), recording(path):
        warnings.simplefilter("ignore", RecoveryWarning)
        try:
            run = program.start(executor=executor, workers=workers, **how)  # type: ignore[arg-type]
        except (Boom, WorkerDiedError):  # a startup reaction has raised, or its worker has died twice
            return None
        plan, inline = run._plan, run.executor == "inline"
        with contextlib.suppress(Boom, WorkerDiedError):
            _use(run, spec, draw)
        with contextlib.suppress(Boom, RunError, ValueError):  # the last if a failure has died with its worker
            run.close()
    return None if inline else Recorded(scenario_of(plan, fates is not None), read(path))


def _fates(draw: random.Random, workers: int, deaths: int) -> list[Fate]:
    return [(worker, life, draw.randint(0, LINES)) for worker in range(1, workers) for life in range(draw.randint(0, deaths))]


def _use(run: Run, spec: ProgramSpec, draw: random.Random) -> None:
    inputs, saved = spec.inputs(), None
    for tick in range(TICKS):
        run.set(**inputs.get(tick, {}))
        way = draw.random()
        if way < 0.3:
            run.tick_async()
            with contextlib.suppress(TimeoutError):
                run.tick_wait(timeout=0.0)
            if run._state == "ticking" and draw.random() < 0.1:
                return  # closed in the middle of a tick
            if run._state == "ticking":
                run.tick_wait()
        elif way < 0.5:
            run.run(1)
        else:
            run.tick()
        if run.stopped:
            return
        if draw.random() < 0.3:
            saved = run.snapshot()
        if saved is not None and draw.random() < 0.3:
            run.restore(saved)


# ---------------------------------------------------------------------- traces that are no runs


def spoilt(events: list[Event], draw: random.Random, how: str) -> list[Event] | None:
    """Spoil a recording: two neighbours exchanged, or one event left out, not at its ends. ``None`` if it is too short."""
    told = [at for at in range(5, len(events) - 12) if events[at][0] in ("give", "take", "begin", "end", "write")]
    if how == "exchanged":
        told = [at for at in told if events[at][0] != "write" and events[at + 1][0] in ("give", "take", "begin", "end")]
    else:
        survivors = _of_survivors(events)
        told = [at for at in told if at in survivors]
    if not told:
        return None
    at = draw.choice(told)
    if how == "exchanged":
        return [*events[:at], events[at + 1], events[at], *events[at + 2 :]]
    return [*events[:at], *events[at + 1 :]]


def _of_survivors(events: list[Event]) -> set[int]:
    """Which events are of workers that do not die later: with a helper die the tokens by which what it missed is noticed."""
    dead: set[int] = set()
    found: set[int] = set()
    for at in reversed(range(len(events))):
        what, numbers = events[at]
        if what in ("die", "kill"):
            dead.update(numbers)
        elif dead.isdisjoint(numbers if what in ("give", "take") else numbers[:1] if what in ("begin", "end") else ()):
            found.add(at)
    return found


@dataclass
class Tally:
    """How many recordings were runs of the model.

    Attributes:
        runs, events, deaths, replaced: What was recorded: deaths of helpers, and how often some were replaced.
        widest: In how many states the model may have been at most.
        refused: What was no run of the model, and why.
        exchanged, left_out: Spoilt recordings: how many there were, and how many of them were refused.
    """

    runs: int = 0
    events: int = 0
    deaths: int = 0
    replaced: int = 0
    widest: int = 0
    refused: list[tuple[str, Recorded]] = field(default_factory=list)
    exchanged: tuple[int, int] = (0, 0)
    left_out: tuple[int, int] = (0, 0)

    def add(self, recorded: Recorded) -> None:
        """Follow a recording."""
        followed = follow(recorded.scenario, recorded.events)
        self.runs += 1
        self.events += len(recorded.events)
        self.deaths += sum(what == "die" for what, _ in recorded.events)
        self.replaced += sum(what == "replace" for what, _ in recorded.events)
        self.widest = max(self.widest, followed.widest)
        if followed.why:
            self.refused.append((followed.why, recorded))

    def add_spoilt(self, recorded: Recorded, draw: random.Random) -> None:
        """Spoil a recording in both ways, and follow that."""
        for how in ("exchanged", "left_out"):
            if (events := spoilt(recorded.events, draw, how)) is not None:
                tried, refused = getattr(self, how)
                setattr(self, how, (tried + 1, refused + bool(follow(recorded.scenario, events).why)))


def tally(executor: str, runs: int, deaths: int = 0, first: int = 0, spoil: bool = True) -> Tally:
    """Record random programs and follow them.

    Args:
        executor: How they are run, on 2 to 4 workers.
        runs: How many runs of several workers there are.
        deaths: How often each helper dies at most.
        first: Where the choice of programs begins.
        spoil: Whether each recording is spoilt, too, once it was followed.
    """
    found = Tally()

    @seed(first)
    @settings(QUIET, max_examples=4 * runs, phases=[Phase.generate], database=None)
    @given(programs(), st.integers(2, 4), st.integers(0, 1 << 20))
    def one(spec: ProgramSpec, workers: int, dice: int) -> None:
        if found.runs == runs:
            return
        draw = random.Random(dice)
        with tempfile.TemporaryDirectory() as folder:
            fates = _fates(draw, workers, deaths) if deaths else None
            recorded = record(spec, Path(folder), draw, executor, workers, fates)
        if recorded is not None:
            found.add(recorded)
            if spoil:
                found.add_spoilt(recorded, draw)

    one()
    return found
