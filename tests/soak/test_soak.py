"""The short form of the soak; the long one is run by hand (``python tests/soak/kills.py``)."""

from __future__ import annotations

from functools import partial

import pytest
from kills import CASES, left_behind, soak, vector_env

from reactor_gymnasium import make_vec


@pytest.mark.timeout(120)
def test_kills_at_random_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    short = partial(vector_env, partial(make_vec, "CartPole-v1", 6), 2000)
    monkeypatch.setitem(CASES, "short", (short, 0.3))
    outcome = soak("short", 1)
    assert outcome.replaced >= 1 and not outcome.different
    assert left_behind() == []
