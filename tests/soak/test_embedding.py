"""Vector environments in places that others own, once each; many times by hand (``python benchmarks/faults.py``)."""

from __future__ import annotations

import os

import embedding
import pytest

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.name != "posix", reason="forks and signals"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SHORT = [name for name in embedding.CASES if name != "the interpreter's end without close()"]


@pytest.mark.parametrize("name", SHORT)
def test_in_places_that_others_own(name: str) -> None:
    embedding.CASES[name]()


@pytest.mark.parametrize("how", ["in the middle of a step", "stepped by a daemonic thread"])
def test_the_interpreter_ends_without_close(how: str) -> None:
    assert embedding.ends("processes", how) == ""
