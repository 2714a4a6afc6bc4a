"""The runtime does only what the model may do, whoever dies; a recording that is spoilt is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from machines import MachinePort, MachineReaction, MachineSpec, ProgramSpec, WireSpec

from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.helpers import Helpers
from reactor_rl.runtime.recovery import RecoveringHelpers

from .following import follow
from .recorded import Recorded, Tally, record, spoilt, tally

PORT = MachinePort("int64")
FED = MachineReaction(("i0",), (), ("o0",))


def chain() -> ProgramSpec:
    """Three reactors in a row, so that helpers wait for each other."""
    first = MachineSpec(None, 0, (PORT,), ((0, 1),), 0, (MachineReaction(("t0",), (), ("o0",)),), 1)
    others = [MachineSpec(None, 1, (PORT,), (), 0, (FED,), number) for number in (2, 3)]
    return ProgramSpec((first, *others), (WireSpec(0, 0, 1, 0, 0, False, 0), WireSpec(1, 0, 2, 0, 0, False, 0)), (), ())


def recorded(folder: Path, executor: str = "threads", **how: Any) -> Recorded:
    found = record(chain(), folder, random.Random(5), executor, 3, **how)
    assert found is not None
    return found


def all_right(found: Tally) -> None:
    assert not found.refused, (found.refused[0][0], found.refused[0][1].scenario)
    assert min(found.exchanged[0], found.left_out[0]) >= found.runs - 2
    assert found.left_out[1] == found.left_out[0]
    assert found.exchanged[1] >= 0.6 * found.exchanged[0]  # the others are orders that could have been


def test_threads_do_what_the_model_may_do(tmp_path: Path) -> None:
    found = recorded(tmp_path)
    assert not follow(found.scenario, found.events).why
    assert {"give", "take", "begin", "end", "write"} <= {what for what, _ in found.events}
    assert len(found.events) > 100


@pytest.mark.slow
def test_random_programs_in_threads_are_runs_of_the_model() -> None:
    all_right(tally("threads", 40))


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_random_programs_in_processes_are_runs_of_the_model() -> None:
    found = tally("processes", 12, first=1)
    all_right(found)
    assert not found.deaths


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_helpers_that_die_and_are_replaced_are_runs_of_the_model() -> None:
    found = tally("processes", 20, deaths=2, first=2)
    all_right(found)
    assert found.deaths >= 5 and found.replaced >= 5


def test_a_spoilt_recording_is_refused(tmp_path: Path) -> None:
    found, draw = recorded(tmp_path), random.Random(1)
    for _ in range(20):
        events = spoilt(found.events, draw, "left_out")
        assert events is not None and follow(found.scenario, events).why


@pytest.mark.parametrize("what", ["end", "take"])
def test_an_event_before_its_cause_is_refused(tmp_path: Path, what: str) -> None:
    """An end before its beginning; a token of a helper that is taken before it is given."""
    found = recorded(tmp_path)
    cause = {"end": "begin", "take": "give"}[what]
    at = next(at for at, event in enumerate(found.events[60:], 60) if event[0] == what and (what == "end" or event[1][1] == 0))
    told = (cause, found.events[at][1])
    since = max(n for n, event in enumerate(found.events[:at]) if event == told)
    events = [*found.events[:since], found.events[at], *found.events[since:at], *found.events[at + 1 :]]
    assert f"event {since}, " in follow(found.scenario, events).why


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_each_death_of_a_helper_in_a_tick_is_a_run_of_the_model(tmp_path: Path) -> None:
    """At each step of one tick."""
    for line in range(14, 21):
        folder = tmp_path / str(line)
        folder.mkdir()
        found = recorded(folder, "processes", fates=[(1, 0, line)])
        followed = follow(found.scenario, found.events)
        assert not followed.why
        assert [what for what, _ in found.events if what in ("die", "kill", "killed", "replace")] == [
            "die",
            "kill",
            "killed",
            "replace",
        ]


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_runtime_with_a_mistake_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are not taken again: the caller does not wait for what a new helper does once more."""
    monkeypatch.setattr(RecoveringHelpers, "_take_again", lambda *_: True)
    found = recorded(tmp_path, "processes", fates=[(2, 0, 17)])
    assert "('take', (2, 0)), is no step" in follow(found.scenario, found.events).why


def test_words_in_another_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that writes the command before the pass."""

    def begin(self: Helpers, command: int, number: int) -> None:
        self.words[ControlBlock.COMMAND] = command
        self.words[ControlBlock.PASS] = number
        for give in self.start:
            give()

    monkeypatch.setattr(Helpers, "begin", begin)
    found = recorded(tmp_path)
    assert follow(found.scenario, found.events).why.startswith("event 0, ")
