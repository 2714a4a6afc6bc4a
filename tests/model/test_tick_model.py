"""No order of the steps of a tick goes wrong, whatever dies, is interrupted or closed; and mistakes in the protocol are found."""

from __future__ import annotations

import pytest

from .programs import BROKEN, FAULTS, Broken, scenarios
from .search import Found, check
from .state import FAULT

QUICK = {
    "nothing wrong", "time-outs", "close by another thread", "death", "death, replaced", "death, replaced, skipped ticks",
    "skipped ticks, restored",
}  # fmt: skip
"""Faults with few enough states for the default set."""


def each_fault() -> list[object]:
    """Two programs of two workers; what a vector environment is like is in the default set, as far as it is quick."""
    return [
        pytest.param(name, fault, marks=() if fault in QUICK and name == "star 2" else pytest.mark.slow)
        for name in ("star 2", "crossing 2")
        for fault in FAULTS
    ]


@pytest.mark.parametrize(("name", "fault"), each_fault())
def test_two_workers_keep_to_the_protocol(name: str, fault: str) -> None:
    for what, scenario in scenarios(name, **FAULTS[fault]):
        found = check(scenario)
        assert not found.problem, (what, found.problem, found.trace)
        assert found.states > 50


def search_broken(broken: str) -> Found:
    name, how = BROKEN[broken]
    found = Found()
    for _, scenario in scenarios(name, broken=broken, **how):
        found = check(scenario, 300_000)
        if found.problem:
            break
    return found


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_protocol_is_found(broken: str) -> None:
    found = search_broken(broken)
    assert found.problem and "more than" not in found.problem
    assert 5 < len(found.trace) < 100
    # As few faults as the mistake needs: a search in breadth finds a shortest trace.
    assert sum(label.startswith(FAULT) for label in found.trace) == needed(BROKEN[broken])


def needed(broken: Broken) -> int:
    return sum(broken.how.get(fault, 0) for fault in ("deaths", "interrupts", "timeouts", "closes"))


@pytest.mark.parametrize("broken", BROKEN)
def test_without_its_mistake_it_is_right(broken: str) -> None:
    """The same scenario of the real protocol; those of three workers up to a depth."""
    name, how = BROKEN[broken]
    _, scenario = next(scenarios(name, **how))
    found = check(scenario, 4_000)
    assert not found.problem or "more than" in found.problem, (found.problem, found.trace)


def test_a_shortest_trace_is_a_run_of_the_model() -> None:
    """Its labels lead, step by step, from the first state to the problem."""
    found = search_broken("the log lacks its last pass")
    assert found.trace[-1].startswith("h1 ") and f"{FAULT}h1 dies" in found.trace
    assert found.problem == "reaction 1 runs in pass 2 having done its part in 0"
