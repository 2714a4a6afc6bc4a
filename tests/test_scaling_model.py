"""The scaling model's own parts: what is compiled, and what it predicts from costs that are made up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reactor_rl.schedule import Signal, Wait

pytest.importorskip("gymnasium")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from scaling_costs import _of_caller, compiled, turns_for
from scaling_model import ASYNC, BANKS, OURS, RAY, TREE, predictions, relieved, steps_per_second

COSTS: dict[str, Any] = {
    "tokens": {"signal": 3e-8, "wake": 2e-6, "wait": 2e-7, "hop": 3e-7, "rise": 5e-6, "begin": 1e-6, "spin": 2e-4},
    "parts": {
        "before": 1e-6, "before_row": 1e-9, "after": 3e-6, "after_row": 1e-8,
        "tick": 1e-6, "shard": 4e-6, "row": 6e-7, "idle": 1e-7,
    },
    ASYNC: {"fixed": 5e-6, "send": 8e-6, "take": 5e-6, "child": 2e-5, "rise": 1e-5},
    RAY: {"call": 5e-5, "take": 3e-5, "answer": 3e-4, "row": 1e-6},
}  # fmt: skip


def test_the_schedule_is_that_of_the_vector_environment() -> None:
    _, schedule, rows = compiled(10, 4)
    assert sorted(rows.values()) == [2, 2, 3, 3]
    assert schedule.lists[0][:3] == (Signal(1), Signal(2), Signal(3))
    assert schedule.lists[0][-3:] == (Wait(1), Wait(2), Wait(3))
    _, banks, rows = compiled(8, 3, 4, False)
    assert banks.workers == 4
    assert sorted(rows.values()) == [1, 1, 2]


def test_one_core_takes_the_sum_of_what_was_measured() -> None:
    rate = steps_per_second(COSTS, OURS, 5e-6, 64, 1)
    assert rate == pytest.approx(64 / (1e-6 + 64e-9 + 3e-6 + 64e-8 + 1e-6 + 4e-6 + 64 * (5e-7 + 5e-6)))
    assert steps_per_second(COSTS, BANKS, 5e-6, 64, 1) is None
    assert steps_per_second(COSTS, "unheard of", 5e-6, 64, 1) is None


def test_no_prediction_beats_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaling_model.CORES", (1, 2, 16))
    monkeypatch.setattr("scaling_model.ON_PAPER", (16, 32))
    made = predictions(COSTS)
    seconds = {"5 us": 5e-6, "200 us": 2e-4, "5 ms": 5e-3}
    for what, kinds in made.items():
        environment = seconds[what.partition(" x")[0]]
        for kind in kinds.values():
            assert all(rate <= count / environment for count, rate in kind["rates"].items())
    assert set(made["5 ms x 16"]) == {OURS, TREE, BANKS, ASYNC, RAY}
    assert made["5 us x 32, network"][OURS]["rates"][16] < made["5 us x 32"][OURS]["rates"][16]
    assert made["5 us x 32"][ASYNC]["caller_from"] is not None
    assert made["5 ms x 32"][OURS]["caller_from"] is None


def test_a_caller_that_costs_nothing_leaves_the_rest_as_it_is() -> None:
    free = relieved(COSTS)
    assert free["tokens"] == {**COSTS["tokens"], "signal": 0, "wake": 0, "wait": 0}
    assert free["parts"] == {**dict.fromkeys(COSTS["parts"], 0.0), "shard": 4e-6, "row": 6e-7, "idle": 1e-7}
    assert free[ASYNC] == {"fixed": 0, "send": 0, "take": 0, "child": 2e-5, "rise": 1e-5}


def test_a_signal_and_a_wait_of_the_callers_are_measured() -> None:
    signal, wait = _of_caller(3)
    assert 0 < signal < 1e-3
    assert 0 < wait < 1e-3


@pytest.mark.parametrize("seconds", [5e-6, 200e-6, 5e-3])
def test_a_loop_is_found_whose_first_turns_are_cheap(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    def step_seconds(turns: int) -> float:
        return 1e-7 + 1e-8 * min(turns, 256) + 2.5e-8 * max(0, turns - 256)

    monkeypatch.setattr("scaling_costs.step_seconds", step_seconds)
    assert step_seconds(turns_for(seconds)) == pytest.approx(seconds, rel=0.03)
