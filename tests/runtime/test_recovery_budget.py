"""When a state is saved and its log begins anew."""

import pytest

from reactor_rl.runtime import recovery
from reactor_rl.runtime.recovery import PAUSE_FACTOR, SHORTEST_PAUSE, RecoveryBudget


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(recovery, "time", clock)
    return clock


def test_a_large_log_is_due_at_once(clock: Clock) -> None:
    budget = RecoveryBudget(1000)
    budget.bytes = 1000
    assert not budget.due and not budget.too_large
    budget.bytes += 1
    assert budget.due and budget.too_large


def test_an_old_log_is_due(clock: Clock) -> None:
    budget = RecoveryBudget(1000)
    clock.now += SHORTEST_PAUSE
    assert not budget.due
    clock.now += 0.1
    assert budget.due and not budget.too_large


@pytest.mark.parametrize(("seconds", "pause"), [(0.01, SHORTEST_PAUSE), (1.0, PAUSE_FACTOR)])
def test_the_pause_grows_with_the_seconds_of_a_save(clock: Clock, seconds: float, pause: float) -> None:
    budget = RecoveryBudget(1000)
    budget.bytes = 2000
    began = clock.now
    clock.now += seconds
    budget.saved(began)
    assert budget.bytes == 0 and not budget.due
    clock.now += pause - 0.1
    assert not budget.due
    clock.now += 0.2
    assert budget.due


def test_after_a_failed_save_only_a_large_log_is_due(clock: Clock) -> None:
    budget = RecoveryBudget(1000)
    clock.now += SHORTEST_PAUSE + 1
    budget.failed()
    clock.now += 1e6
    assert not budget.due
    budget.bytes = 1001
    assert budget.due


def test_each_budget_counts_alone(clock: Clock) -> None:
    first, second = RecoveryBudget(10), RecoveryBudget(10)
    first.bytes = 11
    first.failed()
    clock.now += SHORTEST_PAUSE + 1
    assert second.due and not second.too_large
