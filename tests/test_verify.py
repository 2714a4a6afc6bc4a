"""``verify`` tells programs that keep the determinism contract from those that do not."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from reactor_rl import Input, Output, Program, ProgramError, Reactor, Timer, reaction
from reactor_rl.verify import Row, Verification, verify


class Draw(Reactor):
    beat = Timer(period=1)
    out = Output((), np.float64)

    def __init__(self, bank_index: int, how: str):
        self.how, self.rng = how, np.random.default_rng(bank_index)

    @reaction(beat, effects=out)
    def draw(self):
        match self.how:
            case "own":
                self.out.set(self.rng.random())
            case "pid":
                self.out.set(os.getpid())
            case "random":
                self.out.set(random.random())
            case "np.random":
                self.out.set(np.random.random())
            case "unseen":
                random.random()
                self.out.set(0.0)
            case "raise":
                raise ValueError("every time")


class Mean(Reactor):
    inp = Input()
    out = Output((), np.float64)

    @reaction(inp, effects=out)
    def mean(self):
        self.out.set(self.inp.value.mean())


def program(how: str) -> Program:
    made = Program(how)
    draws, mean = made.bank(Draw, 3, how=how), made.add(Mean)
    made.connect(draws.out, mean.inp.rows)
    made.connect(mean.out, made.output("mean"))
    return made


@pytest.mark.timeout(60)
def test_a_deterministic_program_gives_one_fingerprint():
    report = verify(lambda: program("own"), ticks=10, workers=(1, 2, 4))
    assert report.ok
    assert report.generators == ()
    assert [(row.executor, row.workers) for row in report.rows] == [
        ("inline", 1), *((executor, count) for executor in ("threads", "processes") for count in (1, 2, 4)),
    ]  # fmt: skip
    assert len({row.fingerprint for row in report.rows}) == 1
    assert "the same for all 7 after 10 ticks" in str(report)


@pytest.mark.timeout(60)
def test_a_value_that_depends_on_the_process_is_found():
    report = verify(lambda: program("pid"), ticks=5, workers=(1, 2))
    assert not report.ok
    assert [(row.executor, row.workers) for row in report.differing] == [("processes", 2)]
    marked = [line for line in str(report).splitlines() if "DIFFERS" in line]
    assert len(marked) == 1
    assert marked[0].split()[:2] == ["processes", "workers=2"]


@pytest.mark.timeout(60)
def test_every_port_counts_not_only_the_boundary():
    def inner() -> Program:
        made = Program("inner")
        made.bank(Draw, 2, how="pid")
        return made

    assert not verify(inner, ticks=5, executors=("inline", "processes"), workers=(2,)).ok


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["random", "np.random"])
def test_draws_from_global_generators_are_named_and_found(how):
    report = verify(lambda: program(how), ticks=5, executors=("inline", "threads"), workers=(2,))
    assert not report.ok
    assert report.generators == (how,)
    assert f"draw from (or seed) {how}" in str(report)


def test_draws_are_named_even_if_no_port_shows_them():
    report = verify(lambda: program("unseen"), ticks=5, executors=("inline",))
    assert report.ok
    assert report.generators == ("random",)
    assert "outside the contract" in str(report)


@pytest.mark.timeout(60)
def test_a_run_that_fails_is_no_success():
    report = verify(lambda: program("raise"), ticks=5, executors=("inline", "threads"), workers=(2,))
    assert not report.ok
    assert [row.outcome for row in report.rows] == ["ValueError: every time"] * 2


def test_a_program_too_small_for_its_workers_says_what_it_ran_on():
    def small() -> Program:
        made = Program("small")
        made.bank(Draw, 1, how="own")
        return made

    report = verify(small, ticks=3, executors=("threads",), workers=(1, 3))
    assert [row.ran for row in report.rows] == ["inline", "inline"]
    assert "(ran on inline)" in str(report)


def test_the_rows_of_a_table_are_aligned():
    rows = (Row("inline", 1, "aa"), Row("processes", 12, "bb"), Row("threads", 2, "", "ValueError: x"))
    lines = str(Verification(rows, 7, ())).splitlines()
    assert lines[:3] == [
        "  inline     workers=1   aa",
        "  processes  workers=12  bb   DIFFERS",
        "  threads    workers=2   ValueError: x   FAILED",
    ]
    assert lines[3] == "1 of 3 failed, 1 of 3 differ after 7 ticks"


def test_what_fails_everywhere_does_not_differ():
    rows = (Row("inline", 1, "", "ValueError: x"), Row("threads", 2, "", "ValueError: x"))
    assert str(Verification(rows, 7, ())).splitlines()[-1] == "all 2 failed alike: nothing to compare"
    rows = (rows[0], Row("threads", 2, "", "ValueError: y"))
    assert str(Verification(rows, 7, ())).splitlines()[-1] == "all 2 failed: nothing to compare"
    rows = (rows[0], Row("threads", 2, "aa"))
    report = Verification(rows, 7, ())
    assert not report.ok
    assert str(report).splitlines()[-1] == "1 of 2 failed after 7 ticks"


@pytest.mark.parametrize(
    ("programs", "says", "advice"), [(True, "reactions draw", "bank_index"), (False, "what it runs draws", "np_random")]
)
def test_global_generators_are_told_in_the_words_of_the_target(programs: bool, says: str, advice: str):
    last = str(Verification((Row("inline", 1, "aa"),), 7, ("random",), programs)).splitlines()[-1]
    assert says in last
    assert advice in last
    assert ("bank_index" in last) is programs


class Driven:
    """Something with a driver of its own, such as a vector environment."""

    calls: list[tuple[str, int, int]] = []

    def fingerprint(self, *, executor: str, workers: int, ticks: int) -> str:
        self.calls.append((executor, workers, ticks))
        return "different" if executor == "threads" else "same"


def test_what_is_no_program_is_asked_for_its_fingerprint():
    report = verify(Driven, ticks=9, workers=(3,))
    assert Driven.calls == [("inline", 1, 9), ("threads", 3, 9), ("processes", 3, 9)]
    assert [row.executor for row in report.differing] == ["threads"]


@pytest.mark.parametrize(
    "options", [{"executors": ("ray",)}, {"executors": ()}, {"workers": ()}, {"workers": (0,)}, {"workers": (True,)}, {"ticks": 0}]
)
def test_arguments_are_checked_before_anything_runs(options):
    def never() -> Program:
        raise AssertionError

    with pytest.raises(ProgramError):
        verify(never, **options)


def test_a_target_must_make_something_that_can_be_verified():
    with pytest.raises(ProgramError, match="a target must make a Program"):
        verify(lambda: 3)  # type: ignore[arg-type, return-value]
