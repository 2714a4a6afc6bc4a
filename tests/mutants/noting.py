"""A plugin of pytest (``-p noting``) that notes which statements each test runs (see ``hits.py``)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hits import taken


def _note(name: str, seconds: float) -> None:
    with Path(os.environ["REACTOR_RL_HITS_OF_TESTS"]).open("a") as notes:
        notes.write(json.dumps([name, round(seconds, 3), taken()]) + "\n")


def pytest_collection_finish() -> None:
    _note("", 0.0)  # by imports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _note(item.nodeid, time.monotonic() - began)
