"""What a program is run on, decided by costs that are made up; and what helpers cost, which is measured."""

from __future__ import annotations

import math
import multiprocessing
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from reactor_rl import Program, ProgramError, Reactor, Timer, autotune, graph, reaction
from reactor_rl.autotune import Choice, choose, expected_gain, fastest_choice, parallel_executor, settled, tick_cost


class Beat(Reactor):
    beat = Timer(period=1)

    @reaction(beat)
    def pulse(self) -> None:
        pass


def bank(n: int) -> Program:
    program = Program("beats")
    for number in range(n):
        program.add(Beat, name=f"beat{number}")
    return program


def picked(seconds: float, n: int = 4, workers: int = 4, **more: Any) -> Choice[Any]:
    program = bank(n)
    costs = {f"beat{number}": seconds for number in range(n)}
    return fastest_choice(program.topology(), graph.build(program.topology()), workers, costs, **more)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What a helper costs, which the test says by putting it there; what was asked for is taken away."""
    answers: list[float] = []
    monkeypatch.setattr(autotune, "tick_cost", answers.pop)
    return answers


@pytest.mark.parametrize(
    ("seconds", "helper", "workers"),
    [
        (10e-6, 6e-6, 4),  # 40 us alone, 16 us on four
        (10e-6, 25e-6, 4),
        (10e-6, 29e-6, 1),  # 39 us of 40 are not worth it
        (10e-6, 300e-6, 1),
        (10e-6, math.inf, 1),
        (1e-3, 300e-6, 4),
    ],
)
def test_helpers_are_taken_where_they_pay(asked: list[float], seconds: float, helper: float, workers: int) -> None:
    asked.append(helper)
    found = picked(seconds)
    assert (found.executor, found.workers) == (parallel_executor() if workers > 1 else "inline", workers)
    assert asked == []


def test_what_is_known_to_a_tenth_has_to_gain_a_tenth() -> None:
    assert expected_gain(10.0, 4.0) == pytest.approx(5.0)
    assert expected_gain(10.0, 9.1) < 0.0 < expected_gain(10.0, 8.9)


def test_some_choices_need_no_costs() -> None:
    assert settled("inline", 4) == Choice("inline", 1, None, "")
    assert settled("threads", 4) == Choice("threads", 4, None, "")
    assert settled("auto", 1) == Choice("inline", 1, None, "one worker")
    assert settled("auto", 1, caller_works=False) is None is settled("auto", 2)


def test_threads_are_not_chosen_where_workers_are_to_be_replaced(asked: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    for replaced, executor in ((False, "threads"), (True, "processes")):
        asked.append(0.0)
        assert picked(1e-3, replaced=replaced).executor == executor


def test_what_helpers_cost_is_not_measured_where_there_is_nothing_to_share(asked: list[float]) -> None:
    program = bank(2)
    costs = {"beat0": 1e-3, "beat1": 1e-6}
    assert fastest_choice(program.topology(), graph.build(program.topology()), 4, costs).executor == "inline"
    assert picked(1e-3, workers=1).executor == "inline"


def test_without_the_caller_there_are_helpers_in_any_case(asked: list[float]) -> None:
    asked.append(math.inf)
    assert picked(10e-6, caller_works=False).executor == parallel_executor()


# ---------------------------------------------------------------------- what helpers cost


class Ticking:
    """A run whose ticks take as long as they are told to, on a clock of their own."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.ticks, self.now = seconds, 0, 0.0

    def __enter__(self) -> Ticking:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def tick(self) -> None:
        self.now += self.seconds[min(self.ticks, len(self.seconds) - 1)]
        self.ticks += 1

    def clock(self) -> float:
        self.now += 1e-9
        return self.now


@pytest.mark.parametrize(
    ("seconds", "away", "timed"),
    [
        ((0.1e-3,), 0.0, 50),  # in five milliseconds
        ((4e-3,), 0.0, 2),
        ((9e-3,), 0.0, 1),
        ((0.1e-3,), 2.4e-3, 2),  # what the caller does in between takes time, but is not counted
        ((*[0.1e-3] * 9, 4.2e-3), 0.0, 10),  # one in ten takes a time slice
    ],
)
def test_ticks_are_timed_for_a_few_milliseconds(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], away: float, timed: int
) -> None:
    run = Ticking(*seconds)
    monkeypatch.setattr(autotune, "time", SimpleNamespace(perf_counter=run.clock))
    found = autotune._turn(run, away)  # type: ignore[arg-type]
    assert run.ticks == timed
    assert found == pytest.approx(sum(seconds[:timed]) / min(timed, len(seconds)), abs=5e-9)


class Trial:
    """Runs of one worker and of two, whose ticks take what the test says, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alone: float, *shared: float) -> None:
        self.alone, self.shared = alone, list(shared)
        self.started: list[Any] = []
        self.away: list[float] = []
        self.slept: list[float] = []
        monkeypatch.setattr(autotune, "start", self.start)
        monkeypatch.setattr(autotune, "_turn", self.turn)
        monkeypatch.setattr(autotune.time, "sleep", self.slept.append)

    def start(self, *given: Any) -> Ticking:
        settings = given[-1]
        self.started.append((settings.executor, settings.start_method))
        run = Ticking(1.0)
        run.executor = settings.executor  # type: ignore[attr-defined]
        return run

    def turn(self, run: Any, away: float) -> float:
        assert run.ticks == autotune.WARM  # which are not timed
        if run.executor == "inline":
            return self.alone
        self.away.append(away)
        return self.shared.pop(0) if len(self.shared) > 1 else self.shared[0]


def test_helpers_are_started_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(monkeypatch, 1e-6, 1e-6)
    assert autotune._measured(None, 0.0, "spawn", 0.0) == 0.0
    assert trial.started == [("inline", None), (parallel_executor(), "spawn")]


def test_it_is_what_a_tick_takes_longer_with_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    few = autotune.PAIRS // 2
    Trial(monkeypatch, 3e-6, *[4e-3] * few, 10e-6)  # few hiccups do not count
    assert autotune._measured(None, 0.0, None, 0.0) == pytest.approx(7e-6)
    Trial(monkeypatch, 3e-6, *[4e-3] * (few + 1), 10e-6)
    assert autotune._measured(None, 0.0, None, 0.0) == pytest.approx(4e-3 - 3e-6)
    Trial(monkeypatch, 11e-6, 10e-6)
    assert autotune._measured(None, 0.0, None, 0.0) == 0.0


def test_with_work_it_is_what_goes_beyond_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(monkeypatch, 200e-6, 140e-6)
    assert autotune._measured(None, 0.0, None, 100e-6) == pytest.approx(40e-6)
    assert not trial.slept


def test_a_caller_in_a_hurry_is_tried_too_and_what_costs_more_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = autotune.PAIRS
    for first, second in ((110e-6, 140e-6), (140e-6, 110e-6)):
        trial = Trial(monkeypatch, 200e-6, *[first] * pairs, *[second] * pairs)
        assert autotune._measured(None, 1e-3, None, 100e-6) == pytest.approx(40e-6)
        assert trial.away == [0.0] * pairs + [1e-3] * pairs
    trial = Trial(monkeypatch, 4e-3, 2.1e-3)  # who works for longer than that is in a hurry anyway
    assert autotune._measured(None, 1e-3, None, 2e-3) == pytest.approx(0.1e-3)
    assert trial.away == [0.0] * pairs


@pytest.mark.parametrize(("later", "cost"), [(120e-6, 20e-6), (300e-6, 95e-6)])
def test_helpers_that_save_nothing_are_tried_again_later(monkeypatch: pytest.MonkeyPatch, later: float, cost: float) -> None:
    trial = Trial(monkeypatch, 200e-6, *[195e-6] * autotune.PAIRS, later)
    assert autotune._measured(None, 0.0, None, 100e-6) == pytest.approx(cost)
    assert trial.slept == [autotune.PAUSE]


def test_helpers_that_never_save_anything_are_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(monkeypatch, 200e-6, 195e-6)
    assert autotune._measured(None, 1e-3, None, 100e-6) == pytest.approx(95e-6)
    assert trial.away == [0.0] * 2 * autotune.PAIRS


def test_like_work_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(autotune, "_known", {})
    monkeypatch.setattr(autotune, "_measured", lambda spin, away, context, work: asked.append(work) or 1e-6)
    for work in (100e-6, 130e-6, 1.0, 2.0, 0.0):
        assert tick_cost(work=work) == 1e-6
    assert asked == [2.0**-13.5, 2.0**-13, autotune.LONGEST, 0.0]


def test_it_is_measured_again_when_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = [0.0], [1e-6, 2e-6, 3e-6]
    monkeypatch.setattr(autotune, "_known", {})
    monkeypatch.setattr(autotune, "_measured", lambda spin, away, context, work: answers.pop(0))
    monkeypatch.setattr(autotune, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert (tick_cost(), tick_cost(), tick_cost(1e-3), tick_cost()) == (1e-6, 1e-6, 2e-6, 1e-6)
    now[0] = autotune.STALE + 1.0
    assert (tick_cost(), tick_cost()) == (3e-6, 3e-6)


def test_helpers_that_cannot_be_started_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no processes left")

    monkeypatch.setattr(autotune, "start", refused)
    assert autotune._measured(None, 0.0, None, 0.0) == math.inf


@pytest.mark.parametrize("away", [0.0, 0.5e-3])
def test_measuring_for_real_leaves_nothing_behind(away: float) -> None:
    assert 0.0 <= autotune._measured(None, away, None, 0.1e-3) < math.inf


# ---------------------------------------------------------------------- where no process may be started


@pytest.fixture
def daemonic(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as ``multiprocessing.Pool`` and torch's ``DataLoader`` start theirs."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("daemonic")
def test_a_daemonic_process_runs_inline_and_says_why() -> None:
    program = bank(2)
    costs = {"beat0": 1.0, "beat1": 1.0}
    if parallel_executor() == "processes":
        assert choose(program.topology(), graph.build(program.topology()), 2, dict, costs=costs).executor == "inline"
        with program.start(workers=2, costs=costs) as run:
            run.tick()
            assert run.executor == "inline" and autotune.DAEMONIC in repr(run)


@pytest.mark.usefixtures("daemonic")
def test_a_daemonic_process_is_told_so_where_processes_were_named() -> None:
    with pytest.raises(ProgramError, match=r"daemonic.*executor='auto' or 'inline'"):
        bank(2).start(executor="processes", workers=2)
    with bank(2).start(executor="processes", workers=1) as run:  # needs none
        run.tick()
