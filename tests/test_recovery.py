"""A worker that dies is replaced, and every bit is as if nothing had happened."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import machines
import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from machines import Boom, Machine, ProgramSpec, build
from random_programs import QUIET, advance, ended, placements, programs, told

from reactor_rl import (
    Input,
    LogicalAction,
    Output,
    Program,
    ProgramError,
    Reactor,
    Recover,
    RecoveryWarning,
    Run,
    RunError,
    Timer,
    WorkerDiedError,
    reaction,
    shutdown,
    startup,
)  # fmt: skip
from reactor_rl.runtime import launch, lifetime, processes, recovery

pytestmark = pytest.mark.faults


@contextlib.contextmanager
def silently() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RecoveryWarning)
        yield said


# ---------------------------------------------------------------------- random programs, killed in the middle of reactions


@contextlib.contextmanager
def patched(visit: Callable[[str], None]) -> Iterator[None]:
    """Machines of this process say where they are: before a reaction, behind each of its effects, behind it, and if their state is
    taken after it."""
    plain, effect = Machine.perform, Machine._effect
    here, last = "", {}

    def perform(self: Machine, number: int) -> None:
        nonlocal here
        if "startup" not in self.spec.reactions[number].triggers:
            here = f"{self.spec.seed}-{self.bank_index}-{number}-{self.tag[0]}-{self.tag[1]}"
            last[id(self)] = here
            visit(f"{here}-before")
        plain(self, number)
        if here:
            visit(f"{here}-after")
        here = ""

    def in_between(self: Machine, name: str, dice: int) -> None:
        effect(self, name, dice)
        if here:
            visit(f"{here}-{name}")

    def state(self: Machine) -> dict[str, Any]:
        if id(self) in last:
            visit(f"{last[id(self)]}-state")
        return vars(self).copy()

    machines.Machine.perform, machines.Machine._effect = perform, in_between  # type: ignore[method-assign]
    machines.Machine.__getstate__ = state  # type: ignore[method-assign]
    try:
        yield
    finally:
        machines.Machine.perform, machines.Machine._effect = plain, effect  # type: ignore[method-assign]
        del machines.Machine.__getstate__


def deadly(folder: str) -> None:
    """Have machines of this process die where the folder has a file that says so, once."""

    def visit(place: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, place))
            os.kill(os.getpid(), signal.SIGKILL)

    forever = patched(visit)
    forever.__enter__()
    machines.forever = forever  # type: ignore[attr-defined]


def places_of(spec: ProgramSpec, ticks: int) -> list[str]:
    """Where helpers may be killed."""
    places: list[str] = []
    inputs = spec.inputs()
    with patched(places.append), contextlib.suppress(Boom), build(spec).start(executor="inline") as run:
        for tick in range(ticks):
            run.set(**inputs.get(tick, {}))
            run.tick()
    places += [place.replace("before", "state") for place in places if place.endswith("before")]
    return list(dict.fromkeys(places))


def check(spec: ProgramSpec, folder: Path, kills: list[str], log_bytes: int, at: int, **how: Any) -> int:
    """Run it with kills against the interpreter, twice from tick ``at`` on. Returns how many workers were replaced."""
    record = told(spec)
    program = build(spec)
    for kill in kills:
        (folder / kill).touch()
    program.worker_setup(partial(deadly, str(folder)))
    with silently() as said:
        run = program.start(executor="processes", recover=Recover(restarts=100, log_bytes=log_bytes), **how)
        try:
            total = len(record.boundary)
            advance(run, spec, record, range(at))
            saved = run.snapshot()
            advance(run, spec, record, range(at, total - 1))
            run.restore(saved)
            for kill in kills:
                (folder / kill).touch()
            advance(run, spec, record, range(at, total))
        finally:
            ended(run)
    return len(said)


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=int(os.environ.get("RECOVERY_EXAMPLES", "3")), phases=[Phase.generate])
@given(st.data(), programs(), st.integers(2, 4), st.booleans(), st.sampled_from([1, 3000, 1 << 20]))
def test_killed_workers_are_the_oracle_too(
    tmp_path_factory: Any, data: Any, spec: ProgramSpec, workers: int, caller_works: bool, log_bytes: int
) -> None:
    record = told(spec)
    places = places_of(spec, len(record.boundary))
    assume(len(places) > 4)
    # One for each tick, for two in one tick may well be of one worker.
    kills = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=6, unique_by=lambda place: place.split("-")[3]))
    placed = data.draw(placements(spec, workers))
    at = data.draw(st.integers(0, len(record.boundary) - 1))
    folder = tmp_path_factory.mktemp("kills")
    try:
        check(spec, folder, kills, log_bytes, at, workers=workers, caller_works=caller_works, **placed)
    except ProgramError:
        assume(False)


# ---------------------------------------------------------------------- one program, killed by hand


class Adder(Reactor):
    """Sums what it is given, and passes on what it has; dies or raises when told to."""

    given = Input()
    out = Output((), np.int64)
    said = Output()

    def __init__(self, bank_index: int, shy: bool = False) -> None:
        self.sum, self.shy, self.number = 0, shy, bank_index

    @reaction(given, effects=(out, said))
    def add(self) -> None:
        value, deadly = self.given.value
        if deadly == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        self.sum += value * (self.number + 1)
        self.out.set(self.sum)
        self.said.set(f"sum {self.sum} " * (200 if self.sum % 3 else 1))

    def __getstate__(self) -> dict[str, Any]:
        if self.shy and self.sum:
            raise RunError("it is shy")
        return self.__dict__.copy()


def adders(shy: bool = False) -> Program:
    """Three adders side by side."""
    program = Program("adders")
    bank = program.bank(Adder, 3, shy=shy)
    program.connect(program.input("given"), bank.given)
    program.connect(bank.out, program.output("sums").rows)
    program.connect(bank.said, program.output("said").rows)
    return program


def warns(match: str) -> Any:
    return pytest.warns(RecoveryWarning, match=match)


def killed(run: Run, worker: int = 1) -> None:
    """Kill a helper that waits for the next tick."""
    child = run._executor._processes[worker - 1]  # type: ignore[attr-defined]
    os.kill(child.pid, signal.SIGKILL)
    while not child.ended:
        time.sleep(0.01)


class Some(Reactor):
    """Writes to one of its rows at each tick, and begins with the second."""

    beat = Input()
    said = Output(rows=2)

    def __init__(self) -> None:
        self.ticks = 0

    @reaction(beat, effects=said)
    def say(self) -> None:
        self.ticks += 1
        self.said.rows[self.ticks % 2].set(self.ticks)


class Hears(Reactor):
    """Sums a row, whenever it is there."""

    part = Input()
    out = Output((), np.int64)

    def __init__(self, bank_index: int) -> None:
        self.sum = 0

    @reaction(part, effects=out)
    def add(self) -> None:
        self.sum += self.part.value
        self.out.set(self.sum)


def test_rows_that_nobody_has_written_to_are_noted() -> None:
    program = Program("some")
    some, hears = program.add(Some, name="some"), program.bank(Hears, 2)
    program.connect(program.input("beat"), some.beat)
    program.connect(some.said.rows, hears.part)
    program.connect(hears.out, program.output("sums").rows)
    placed: dict[str, Any] = {"workers": 3, "placement": {"some": 1, "hears[0]": 2, "hears[1]": 2}}
    with program.start(executor="inline") as wanted, silently() as said:
        with program.start(executor="processes", recover=Recover(restarts=1), **placed) as run:
            for tick in range(4):
                if tick == 2:
                    killed(run)
                for one in (run, wanted):
                    one.set(beat=tick)
                    one.tick()
            assert run.fingerprint() == wanted.fingerprint()
    assert len(said) == 1


def test_a_worker_that_dies_between_ticks_or_is_asked_something_is_replaced() -> None:
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        for tick in range(1, 4):
            run.set(given=(tick, -1))
            run.tick()
        with warns(r"worker 1 was killed by SIGKILL in tick 2; it held adder\[1\].* 3 tick\(s\) were replayed"):
            killed(run)
            saved = run.snapshot()
        with warns("worker 2 .*may be replaced 7 more"):
            killed(run, 2)
            run.set(given=(4, -1))
            run.tick()
        assert run.sums.tolist() == [10, 20, 30] and run.said[2].startswith("sum 30 ")
        run.restore(saved)
        run.set(given=(1, -1))
        with warns(r" 0 tick\(s\) were replayed"):
            killed(run)
            run.tick()
        assert run.sums.tolist() == [7, 14, 21]


class Moody(Reactor):
    """Sums what it is given. Files say what it does besides: which signals it sends to itself when its state is taken, one after
    another; whether it kills somebody in a reaction, is slow, or does not return."""

    given = Input()
    out = Output((), np.int64)

    def __init__(self, bank_index: int, path: Path) -> None:
        self.sum, self.number, self.path = 0, bank_index, path

    @reaction(given, effects=out)
    def add(self) -> None:
        if victim := self.told("kill"):
            time.sleep(0.3)
            (self.path / "hang-1").touch()
            os.kill(int(victim), signal.SIGKILL)
            time.sleep(0.2)
        time.sleep(100.0 if self.told("hang") is not None else float(self.told("slow") or 0.0))
        self.sum += self.given.value * (self.number + 1)
        self.out.set(self.sum)

    def told(self, what: str) -> str | None:
        file = self.path / f"{what}-{self.number}"
        return file.read_text() if file.exists() else None

    def __getstate__(self) -> dict[str, Any]:
        if signals := (self.told("signals") or "").split():
            (self.path / f"signals-{self.number}").write_text(" ".join(signals[1:]))
            os.kill(os.getpid(), signal.Signals[signals[0]])
        return self.__dict__.copy()


def moody(path: Path) -> Program:
    """Three of them side by side."""
    program = Program("moody")
    bank = program.bank(Moody, 3, path=path)
    program.connect(program.input("given"), bank.given)
    program.connect(bank.out, program.output("sums").rows)
    return program


def advanced(run: Run, *totals: int) -> None:
    """Give 1 at each of some ticks, behind which the sums are what they should be."""
    for total in totals:
        run.set(given=1)
        run.tick()
        assert run.sums.tolist() == [total, 2 * total, 3 * total]


def test_a_worker_that_dies_behind_a_restore_comes_back_as_what_was_restored(tmp_path: Path) -> None:
    files = [tmp_path / "signals-1", tmp_path / "signals-2"]
    with silently() as said, moody(tmp_path).start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        advanced(run, 1)
        saved = run.snapshot()
        advanced(run, 2, 3, 4, 5, 6)
        for file in files:
            file.write_text("SIGKILL")
        run.restore(saved)
        for file in files:
            file.unlink()
        for total in (2, 3, 4):
            advanced(run, total)
            killed(run)
            run.snapshot()
    assert len(said) == 3


def test_a_tick_that_kills_twice_is_an_error_that_says_so() -> None:
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        run.set(given=(1, -1))
        run.tick()
        run.set(given=(1, 2))
        with (
            warns("worker 2"),
            pytest.raises(WorkerDiedError, match=r"in tick 1; .* The one before it was killed by SIGKILL in the same tick") as died,
        ):
            run.tick()
    assert died.value.worker == 2 and died.value.exitcode == -signal.SIGKILL


def test_deaths_between_ticks_are_no_tick_that_kills_twice() -> None:
    with silently() as said, adders().start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        run.set(given=(1, -1))
        run.tick()
        open_files = []
        for _ in range(2):
            killed(run)
            run.snapshot()
            open_files.append(len(os.listdir("/proc/self/fd")))
        assert open_files[0] == open_files[1]
        killed(run)
        run.set(given=(1, -1))
        run.tick()
        assert run.sums.tolist() == [2, 4, 6]
        killed(run)
    assert len(said) == 4


def test_a_question_that_kills_twice_is_an_error_that_says_so(tmp_path: Path) -> None:
    with moody(tmp_path).start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        advanced(run, 1)
        (tmp_path / "signals-1").write_text("SIGKILL SIGTERM")
        with warns("worker 1"), pytest.raises(WorkerDiedError, match=r"by SIGTERM .* by SIGKILL at the same request \(snapshot\)"):
            run.snapshot()


def test_no_more_restarts_than_are_allowed() -> None:
    with adders().start(executor="processes", workers=2, recover=Recover(restarts=1)) as run:
        run.set(given=(1, -1))
        run.tick()
        killed(run)
        with warns("0 more time"):
            run.tick()
        killed(run)
        with pytest.raises(WorkerDiedError, match=r"restarts=1\) is used up: worker 1 was killed by SIGKILL in tick 1"):
            run.tick()


def test_what_cannot_be_saved_is_not_replaced_once_the_notes_are_full() -> None:
    with adders(shy=True).start(executor="processes", workers=2, recover=Recover(log_bytes=3000)) as run:
        with warns("no worker is replaced: .*log_bytes=3000.*it is shy"):
            for _ in range(20):
                run.set(given=(1, -1))
                run.tick()
        assert run.sums.tolist() == [20, 40, 60]
        killed(run)
        with pytest.raises(WorkerDiedError, match="was not replaced: the log"):
            run.tick()


class Refuses(Adder):
    """Notes how often its state is asked for, which it does not give."""

    def __init__(self, bank_index: int, path: Path) -> None:
        super().__init__(bank_index)
        self.path = path

    def __getstate__(self) -> dict[str, Any]:
        if not self.sum:
            return self.__dict__.copy()
        with self.path.open("a") as file:
            file.write(f"{self.number}")
        raise RunError("it refuses")


def test_what_cannot_be_saved_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "SHORTEST_PAUSE", 0.0)
    program = Program("refuses")
    program.connect(program.input("given"), program.bank(Refuses, 2, path=tmp_path / "asked").given)
    with program.start(executor="processes", workers=2, recover=Recover()) as run:
        for _ in range(5):
            run.set(given=(1, -1))
            run.tick()
    assert (tmp_path / "asked").read_text() == "1"


def test_a_restore_begins_the_log_anew() -> None:
    """What was noted before is no reason to save a state that cannot be saved."""
    how: dict[str, Any] = {"executor": "processes", "workers": 2, "recover": Recover(log_bytes=3000)}

    def add(run: Run) -> None:
        run.set(given=(1, -1))
        run.tick()

    with silently() as said, adders(shy=True).start(**how) as run:
        while not said:
            add(run)
        most = run.time
    with silently() as said, adders(shy=True).start(**how) as run:
        saved = run.snapshot()
        for _ in range(2):
            for _ in range(most * 2 // 3):
                add(run)
            run.restore(saved)
        assert most > 4 and not said


class Passing(Reactor):
    """Passes on what it is given one microstep later, and something before that at its start."""

    given, later = Input(), LogicalAction()
    out = Output()

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(startup, effects=later)
    def begin(self) -> None:
        self.later.schedule(0, "started")

    @reaction(given, effects=later)
    def take(self) -> None:
        self.later.schedule(0, self.given.value)

    @reaction(later, effects=out)
    def give(self) -> None:
        self.out.set(self.later.value)


def test_what_was_scheduled_at_the_start_does_not_come_again_from_a_saved_state() -> None:
    program = Program("starters")
    bank = program.bank(Passing, 2)
    program.connect(program.input("given"), bank.given)
    program.connect(bank.out, program.output("out").rows)
    with silently() as said, program.start(executor="processes", workers=2, recover=Recover(log_bytes=1)) as run:
        run.tick()
        assert run.out == ["started"] * 2
        for number in range(1, 4):
            run.set(given=number)
            run.tick()
            assert run.out == [number] * 2
            if number == 2:
                killed(run)
    assert len(said) == 1


class Failing(Reactor):
    """Raises at its second tick; two microsteps later its worker is killed, once."""

    given, later = Input(), LogicalAction()

    def __init__(self, bank_index: int, file: Path) -> None:
        self.number, self.file, self.ticks = bank_index, file, 0

    @reaction(given, effects=later)
    def take(self) -> None:
        self.later.schedule(0, "once more")

    @reaction(given)
    def fail(self) -> None:
        self.ticks += 1
        if self.number == 1 and self.ticks == 2:
            raise ValueError("at the second tick")

    @reaction(later, effects=later)
    def end(self) -> None:
        if self.later.value:
            self.later.schedule(0, "")
        elif self.number == 1 and self.ticks == 2 and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_raised_earlier_in_the_tick_is_raised_at_its_end(tmp_path: Path) -> None:
    program = Program("failing")
    bank = program.bank(Failing, 2, file=tmp_path / "killed")
    program.connect(program.input("given"), bank.given)
    with program.start(executor="processes", workers=2, recover=Recover(restarts=9)) as run:
        run.set(given=0)
        run.tick()
        run.set(given=1)
        with warns("worker 1 was killed"), pytest.raises(ValueError, match="at the second tick"):
            run.tick()


def test_notes_are_bounded_by_log_bytes() -> None:
    limit, most, rounds = 5000, 0, 0
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9, log_bytes=limit)) as run:
        for _ in range(100):
            run.set(given=(1, -1))
            run.tick()
            notes = run._helpers._history.passes  # type: ignore[attr-defined]
            most, rounds = max(most, sys.getsizeof(notes) + sum(map(sys.getsizeof, notes))), rounds + (not notes)
        assert rounds > 2 and limit / 2 < most < 1.1 * limit
        run.tick()
        with warns("worker 1"):
            killed(run)
            run.set(given=(1, -1))
            run.tick()
        assert run.sums.tolist() == [101, 202, 303]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("log_bytes", [1, 1 << 20], ids=["saved at a tick", "asked"])
def test_a_worker_that_does_not_answer_is_replaced(tmp_path: Path, log_bytes: int) -> None:
    how: dict[str, Any] = {"recover": Recover(restarts=9, log_bytes=log_bytes), "timeout": 0.5}
    with moody(tmp_path).start(executor="processes", workers=3, **how) as run:
        advanced(run, 1)
        (tmp_path / "signals-1").write_text("SIGSTOP")
        with warns(r"worker 1 was ended because it did not return for 0.5 s \(its process is stopped"):
            advanced(run, 2)
            run.snapshot()
        advanced(run, 3)
        killed(run)
        with warns(r"worker 1 was killed by SIGKILL in tick 3"):
            advanced(run, 4)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("log_bytes", [1, 1 << 20], ids=["in the tick", "in what is replayed"])
def test_a_worker_that_does_not_return_while_it_is_brought_back_is_an_error(tmp_path: Path, log_bytes: int) -> None:
    how: dict[str, Any] = {"recover": Recover(restarts=9, log_bytes=log_bytes), "timeout": 1.0}
    with moody(tmp_path).start(executor="processes", workers=3, **how) as run:
        advanced(run, 1, 2)
        (tmp_path / "kill-2").write_text(str(run._executor._processes[0].pid))  # type: ignore[attr-defined]
        run.set(given=1)
        began = time.monotonic()
        with pytest.raises(
            WorkerDiedError,
            match=r"worker 1 was ended because it did not return for 1.0 s \(it is in moody\[1\]\) in tick 2; .* It was being "
            "brought back because the one before it was killed by SIGKILL",
        ):
            run.tick()
        assert time.monotonic() - began < recovery.START + 1.0  # which is for its start, not for what is replayed


@pytest.mark.timeout(60)
def test_what_is_replayed_may_take_longer_than_a_tick(tmp_path: Path) -> None:
    with moody(tmp_path).start(executor="processes", workers=3, recover=Recover(), timeout=1.0) as run:
        advanced(run, *range(1, 11))
        (tmp_path / "slow-1").write_text("0.25")
        killed(run)
        with warns(r" 10 tick\(s\) were replayed"):
            advanced(run, 11)


class Link(Reactor):
    """Adds how often it was called."""

    given = Input()
    out = Output((), np.int64)

    def __init__(self) -> None:
        self.calls = 0

    @reaction(given, effects=out)
    def add(self) -> None:
        self.calls += 1
        self.out.set(int(self.given.value) + self.calls)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("worker", [1, 2], ids=["who is asked first", "who is asked last"])
def test_helpers_that_signal_each_other_are_all_replaced_between_ticks_too(worker: int) -> None:
    with chain().start(executor="processes", workers=3, placement=PLACES, recover=Recover(restarts=9)) as run:
        for tick in range(6):
            run.set(given=10 * tick)
            run.tick()
            assert run.sum == 13 * tick + 3
            if tick == 2:
                killed(run, worker)
                with warns(rf"worker {worker} .*, and with it all 2 helpers,"):
                    saved = run.snapshot()
                assert not [name for name in os.listdir("/dev/shm") if f"rrl-{os.getpid():x}-" in name]
        run.restore(saved)
        run.set(given=30)
        run.tick()
        assert run.sum == 42


class Gap(Reactor):
    """Passes on what it is given, at some ticks only."""

    given = Input()
    out = Output((3,), np.int64)

    @reaction(given, effects=out)
    def go(self) -> None:
        if self.given.value % 3 == 0:
            self.out.set(np.full(3, self.given.value))


class Late(Reactor):
    """Says all that it has got so far."""

    inp = Input((3,), np.int64)
    beat = Timer(period=1)
    said = Output()

    def __init__(self) -> None:
        self.got: list[Any] = []

    @reaction(beat, uses=inp, effects=said)
    def go(self) -> None:
        if self.inp.present:
            self.got.append((self.tag[0], *self.inp.value.tolist()))
        self.said.set(list(self.got))


@pytest.mark.parametrize("log_bytes", [1, 300, 500, 800])
def test_what_was_under_way_when_a_state_was_saved_arrives_after_a_death(log_bytes: int) -> None:
    """It is in the arena of then, and in no note of later passes."""
    program = Program("late")
    late, gap = program.add(Late, name="late"), program.add(Gap, name="gap")
    program.connect(program.input("given"), gap.given)
    program.connect(gap.out, late.inp, after=4)
    program.connect(late.said, program.output("said"))
    recover = Recover(restarts=99, log_bytes=log_bytes)
    with program.start(executor="processes", workers=2, placement={"gap": 0, "late": 1}, recover=recover) as run:
        for tick in range(24):
            run.set(given=tick)
            run.tick()
            assert run.said == [(time, *[time - 4] * 3) for time in range(4, tick + 1) if (time - 4) % 3 == 0]
            killed(run)
            with warns("worker 1 was killed by SIGKILL"):
                run.snapshot()


def chain() -> Program:
    """Three links, of which each one waits for the one before."""
    program = Program("chain")
    links = [program.add(Link, name=name) for name in "abc"]
    program.connect(program.input("given"), links[0].given)
    for one, other in itertools.pairwise(links):
        program.connect(one.out, other.given)
    program.connect(links[-1].out, program.output("sum"))
    return program


class Struck:
    """The processes of a run, of which some of those that are started in others' places are killed at once."""

    def __init__(self, run: Run, *whom: int) -> None:
        self.processes, self.whom = run._executor, list(whom)
        self.replace = self.processes.replace  # type: ignore[attr-defined]

    def __call__(self, pasts: Any, reactors: Any) -> None:
        self.replace(pasts, reactors)
        if self.whom:
            while self.processes.starting(1.0):  # type: ignore[attr-defined]
                pass
            os.kill(self.processes._processes[self.whom.pop(0) - 1].pid, signal.SIGKILL)  # type: ignore[attr-defined]


PLACES = {"a": 0, "b": 1, "c": 2}


@pytest.mark.timeout(60)
def test_another_one_may_die_while_all_are_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with chain().start(executor="processes", workers=3, placement=PLACES, recover=Recover(restarts=9)) as run:
        run.set(given=0)
        run.tick()
        monkeypatch.setattr(run._executor, "replace", Struck(run, 2))
        killed(run, 1)
        run.set(given=10)
        with warns(r"worker 1 was killed by SIGKILL .*; worker 2 was killed by SIGKILL .* Workers may be replaced 7 more"):
            run.tick()
        assert run.sum == 16
    with chain().start(executor="processes", workers=3, placement=PLACES, recover=Recover(restarts=9)) as run:
        run.set(given=0)
        run.tick()
        monkeypatch.setattr(run._executor, "replace", Struck(run, 2, 1))
        killed(run, 1)
        run.set(given=10)
        with pytest.raises(WorkerDiedError, match=r"worker 1 .*It was being brought back because the one before it was killed"):
            run.tick()


@pytest.mark.timeout(60)
def test_two_deaths_are_two_restarts_whenever_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with chain().start(executor="processes", workers=3, placement=PLACES, recover=Recover(restarts=1)) as run:
        run.set(given=0)
        run.tick()
        monkeypatch.setattr(run._executor, "replace", Struck(run, 2))
        killed(run, 1)
        run.set(given=10)
        with pytest.raises(WorkerDiedError, match=r"worker 2 .*Recover\(restarts=1\) is used up"):
            run.tick()


class Gated(Reactor):
    """Makes something that has to be closed. A slow one's successor makes it when there is a gate."""

    inp = Input()
    out = Output((), np.int64)

    def __init__(self, folder: Path, bank_index: int) -> None:
        self.index, self.folder = bank_index, folder

    @reaction(startup)
    def begin(self) -> None:
        (self.folder / f"{self.index}.{os.getpid()}").touch()
        if self.index == 2 and (self.folder / "again").exists():
            end = time.monotonic() + 30.0
            while not (self.folder / "gate").exists() and time.monotonic() < end:
                time.sleep(0.005)
            time.sleep(0.1)  # the caller hangs up meanwhile

    @reaction(inp, effects=out)
    def add(self) -> None:
        self.out.set(self.inp.value + 1)

    @reaction(shutdown)
    def end(self) -> None:
        (self.folder / f"{self.index}.closed").touch()


def begun(folder: Path, index: int) -> set[int]:
    return {int(path.suffix[1:]) for path in folder.glob(f"{index}.[0-9]*")}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("row", [False, True], ids=["helpers side by side", "helpers in a row"])
@pytest.mark.parametrize("end", ["ctrl-c", "close", "death"])
def test_whatever_ends_a_run_successors_close_what_they_made(
    end: str, row: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "ABORTED", 20.0)  # a busy machine takes its time
    program = Program("gated")
    given = program.input("given")
    bank = program.bank(Gated, 3, tmp_path)
    for index, one in enumerate(bank):
        program.connect(bank[index - 1].out if row and index else given, one.inp)
        program.connect(one.out, program.output(f"out{index}"))
    placement = {f"gated[{index}]": index for index in range(3)}
    run = program.start(executor="processes", workers=3, placement=placement, recover=Recover(restarts=2))
    run.set(given=1)
    run.tick()
    before = {index: begun(tmp_path, index) for index in (1, 2)}
    (tmp_path / "again").touch()
    for pids in before.values():
        os.kill(*pids, signal.SIGKILL)

    def strike() -> None:
        while not all(begun(tmp_path, index) - pids for index, pids in before.items()):
            time.sleep(0.005)
        time.sleep(0.2)  # the first successor has said that it is there, the second one waits
        if end == "death":
            os.kill(*begun(tmp_path, 2) - before[2], signal.SIGKILL)
        (tmp_path / "gate").touch()
        if end == "ctrl-c":
            os.kill(os.getpid(), signal.SIGINT)
        elif end == "close":
            run.close()

    thread = threading.Thread(target=strike)
    thread.start()
    run.set(given=2)
    with silently(), pytest.raises({"ctrl-c": KeyboardInterrupt, "close": RunError, "death": WorkerDiedError}[end]):
        run.tick()
    run.close()
    thread.join()
    closed = {path.stem for path in tmp_path.glob("*.closed")}
    assert closed == ({"0", "1"} if end == "death" else {"0", "1", "2"})


def fork_server() -> int:
    pid: int = launch._own_server()._forkserver_pid
    return pid


@pytest.mark.timeout(60)
def test_another_one_is_started_though_the_fork_server_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=1)) as run:
        run.set(given=(1, -1))
        run.tick()
        starts = processes.begin

        def begin(context: Any) -> None:
            starts(context)
            monkeypatch.setattr(processes, "begin", starts)
            os.kill(fork_server(), signal.SIGKILL)  # behind its start, before the worker's

        monkeypatch.setattr(processes, "begin", begin)
        killed(run)
        run.set(given=(1, -1))
        with warns("worker 1 was killed by SIGKILL"):
            run.tick()
        assert run.sums.tolist() == [2, 4, 6]


@pytest.mark.timeout(60)
def test_a_fork_server_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "START", 5.0)
    monkeypatch.setattr(recovery, "SLOWER", 0)
    really_end = processes.end_server

    def end_server() -> None:
        really_end()
        monkeypatch.setattr(recovery, "START", 60.0)  # the next one may take as long as it does on a busy machine

    monkeypatch.setattr(processes, "end_server", end_server)
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9), timeout=1.0) as run:
        run.set(given=(1, -1))
        run.tick()
        os.kill(server := fork_server(), signal.SIGSTOP)
        killed(run)
        run.set(given=(1, -1))
        with warns("worker 1 could not be started"):
            run.tick()
        assert run.sums.tolist() == [2, 4, 6] and fork_server() != server


@pytest.mark.timeout(60)
def test_a_fork_server_that_cannot_be_ended_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((recovery, "START", 0.2), (recovery, "SLOWER", 0), (processes, "ENDED", 0.2)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(processes, "end_server", lambda: None)
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9), timeout=0.5) as run:
        run.set(given=(1, -1))
        run.tick()
        os.kill(server := fork_server(), signal.SIGSTOP)
        killed(run)
        run.set(given=(1, -1))
        try:
            with pytest.raises(WorkerDiedError, match="could not be started for it: the fork server does not answer"):
                run.tick()
        finally:
            os.kill(server, signal.SIGCONT)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("failures", [3, 4])
def test_the_start_of_another_one_may_fail_three_times_in_a_row(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    really_start, left = launch.start_process, 0

    def start_process(context: Any, process: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise EOFError("unexpected EOF")
        really_start(context, process)

    monkeypatch.setattr(launch, "start_process", start_process)
    with adders().start(executor="processes", workers=2, recover=Recover(restarts=2)) as run:
        for tick, more in enumerate((2, 1, 0)):  # a failed start is none of them
            run.set(given=(1, -1))
            if not tick:
                run.tick()
                continue
            left = failures
            killed(run)
            if failures > 3:
                with pytest.raises(WorkerDiedError, match=r"could not be started for it: EOFError\('unexpected EOF'\)\. The run"):
                    run.tick()
                break
            says = rf"1 was killed by SIGKILL .*; worker 1 could not be started \(EOFError\('unexpected EOF'\)\) .* {more} more"
            with warns(says):
                run.tick()
            assert run.sums[0] == tick + 1
            assert not [name for name in os.listdir("/dev/shm") if f"rrl-{os.getpid():x}-" in name]


@pytest.mark.timeout(60)
def test_a_fork_server_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with adders().start(executor="processes", workers=2, recover=Recover()) as run:
        run.set(given=(1, -1))
        run.tick()
        killed(run)

        def begin(context: Any) -> None:
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr(processes, "begin", begin)
        with pytest.raises(WorkerDiedError, match=r"worker 1 .*could not be started for it: FileNotFoundError\(2, 'No such"):
            run.snapshot()


class Fickle(Reactor):
    """Takes its time to begin. Raises somewhere, in a helper, once there is a file."""

    given = Input()
    out = Output((), np.int64)

    def __init__(self, bank_index: int, path: Path, seconds: float) -> None:
        self.number, self.path, self.seconds = bank_index, path, seconds

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.strike("made")

    @reaction(startup)
    def begin(self) -> None:
        time.sleep(self.seconds)
        self.strike("begin")

    @reaction(given, effects=out)
    def add(self) -> None:
        self.strike("add")
        self.out.set(self.given.value)

    def strike(self, where: str) -> None:
        if self.number and (self.path / where).exists():
            raise ValueError("another time")


def fickle(path: Path, seconds: float = 0.0) -> Program:
    program = Program("fickle")
    bank = program.bank(Fickle, 2, path=path, seconds=seconds, name="env")
    program.connect(program.input("given"), bank.given)
    program.connect(bank.out, program.output("out").rows)
    return program


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", ["made", "begin", "add"])
def test_what_raises_only_while_it_is_brought_back_is_named(where: str, tmp_path: Path) -> None:
    with fickle(tmp_path).start(executor="processes", workers=2, recover=Recover()) as run:
        for tick in range(2):
            run.set(given=tick)
            run.tick()
        (tmp_path / where).touch()
        killed(run)
        raised = "" if where == "made" else rf".*reaction env\[1\]\.{where} raised an error that it did not raise before: "
        with pytest.raises(WorkerDiedError, match=rf"worker 1 .*could not be brought back: {raised}.*another time"):
            run.snapshot()


@pytest.mark.timeout(60)
def test_another_one_may_take_as_long_to_begin_as_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "START", 0.0)
    with fickle(tmp_path, 1.0).start(executor="processes", workers=2, recover=Recover(restarts=1), timeout=0.5) as run:
        run.set(given=1)
        run.tick()
        killed(run)
        with warns("worker 1 was killed by SIGKILL"):
            run.snapshot()


class Starter(Reactor):
    """Dies in its startup reaction, or when it is made, in a helper, as often as a file says, or raises."""

    out = Output((), np.int64)

    def __init__(self, bank_index: int, path: Path, where: str) -> None:
        self.number, self.path, self.where = bank_index, path, where

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.die("made")

    def die(self, where: str) -> None:
        left = self.path.read_text()
        if where == self.where and left and self.number and multiprocessing.parent_process() is not None:
            self.path.write_text(left[1:])
            if left[0] == "e":
                raise ValueError("not this time")
            os.kill(os.getpid(), signal.SIGKILL)

    @reaction(startup, effects=out)
    def begin(self) -> None:
        self.out.set(10 * self.number)
        self.die("startup")


def starters(path: Path, where: str, deaths: str) -> Program:
    path.write_text(deaths)
    program = Program("starters")
    bank = program.bank(Starter, 2, path=path, where=where)
    reader = program.add(Gather, name="gather")
    program.connect(bank.out, reader.parts.rows)
    program.connect(reader.out, program.output("sum"))
    return program


class Gather(Reactor):
    """Sums rows."""

    parts = Input()
    out = Output((), np.int64)

    @reaction(parts, effects=out)
    def add(self) -> None:
        self.out.set(int(sum(self.parts.value)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("gather", [0, 2], ids=["helpers side by side", "helpers in a row"])
@pytest.mark.parametrize("where", ["made", "startup"])
def test_a_worker_that_dies_before_startup_has_ended_is_replaced(tmp_path: Path, where: str, gather: int) -> None:
    placement = {"starter[0]": 0, "starter[1]": 1, "gather": gather}
    how: dict[str, Any] = {"executor": "processes", "workers": 3 if gather else 2, "placement": placement}
    program = starters(tmp_path / "deaths", where, "x")
    with warns("worker 1 was killed by SIGKILL"), program.start(recover=Recover(restarts=2), **how) as run:
        run.tick()
        assert run.sum == 10
        run.tick()
        with warns(" 2 tick"):
            killed(run)
            run.snapshot()
    with silently(), pytest.raises(WorkerDiedError, match="worker 1 was killed by SIGKILL"):
        starters(tmp_path / "deaths", where, "xx").start(recover=Recover(restarts=9), **how)
    with silently(), pytest.raises(ValueError, match="not this time"):
        starters(tmp_path / "deaths", where, "xe").start(recover=Recover(restarts=9), **how)


def test_the_warning_of_a_replacement_is_no_error() -> None:
    with adders().start(executor="processes", workers=3, recover=Recover(restarts=9)) as run:
        run.set(given=(1, -1))
        run.tick()
        killed(run)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("error")
            run.set(given=(1, -1))
            run.tick()
        assert run.sums.tolist() == [2, 4, 6] and [one.category for one in said] == [RecoveryWarning]


class Reader(Reactor):
    """Tells what an environment variable was at its startup."""

    given, said = Input(), Output()

    @reaction(startup)
    def begin(self) -> None:
        self.mode = os.environ["REACTOR_RL_TEST_MODE"]

    @reaction(given, effects=said)
    def say(self) -> None:
        self.said.set(self.mode)


def test_a_new_worker_has_the_environment_variables_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACTOR_RL_TEST_MODE", "first")
    program = Program("readers")
    bank = program.bank(Reader, 2)
    program.connect(program.input("given"), bank.given)
    program.connect(bank.said, program.output("said").rows)
    with program.start(executor="processes", workers=2, recover=Recover()) as run:
        monkeypatch.setenv("REACTOR_RL_TEST_MODE", "second")
        killed(run)
        run.set(given=1)
        with warns("worker 1"):
            run.tick()
        assert run.said == ["first", "first"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"executor": "threads"}, "a thread can be neither killed nor replaced"),
    ({"executor": "processes", "start_method": "fork"}, "use 'forkserver' or 'spawn'"),
    ({"executor": "processes", "debug": True}, "debug=True"),
    ({"executor": "processes", "fingerprint": "all"}, "fingerprint='boundary'"),
    ({"recover": 3}, r"recover must be a Recover"),
]


@pytest.mark.parametrize(("how", "why"), REFUSED)
def test_what_it_does_not_go_with_is_refused_at_the_start(how: dict[str, Any], why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        adders().start(**{"recover": Recover(), "workers": 2, **how})
    with pytest.raises(ProgramError, match="restarts must be an integer >= 1, got 0"):
        Recover(restarts=0)


def test_inline_there_is_nobody_to_replace() -> None:
    with adders().start(executor="inline", recover=Recover()) as run:
        run.set(given=(1, -1))
        run.tick()
        assert run.sums.tolist() == [1, 2, 3]
