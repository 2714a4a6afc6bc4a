"""The short form of the kills; hundreds are struck by hand (``python benchmarks/kills.py``)."""

from __future__ import annotations

from functools import partial

import pytest
from killed_runs import CASES, helpers_replaced, helpers_reported, left_behind, parents_gone, vector_env

from reactor_gymnasium import make_vec

short = partial(vector_env, partial(make_vec, "CartPole-v1", 6), 2000)


@pytest.mark.timeout(120)
def test_helpers_that_are_killed_change_no_result() -> None:
    found = helpers_replaced(short, 2, 0.2)
    assert found.kills >= 2 and not found.different
    assert left_behind() == []


@pytest.mark.timeout(120)
def test_helpers_that_are_killed_are_reported() -> None:
    found = helpers_reported(short, 1, 0.2)
    assert found.kills == len(found.seconds) == 1
    assert found.seconds[0] < 20.0  # other tests run beside this one
    assert left_behind() == []


@pytest.mark.timeout(120)
def test_helpers_of_a_process_that_is_killed_end() -> None:
    found = parents_gone(next(iter(CASES)), 1, 0.2)
    assert found.kills == 1 and not found.different
