"""A pytest plugin for a host's own tests: puts classes in the places of others, and counts in how many tests any was built.

``REACTOR_RL_SUBSTITUTE`` says ``old_module:OldClass=new_module:NewClass``, for several separated by spaces; the report goes to the
file that ``REACTOR_RL_SUBSTITUTE_REPORT`` names. Use with ``pytest -p substitute`` and this folder on the path.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_outcomes: dict[str, str] = {}
_built: set[str] = set()
_running = ""
_name_of: dict[type, str] = {}


def _resolve(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _put_in_place(old: type, new: type) -> None:
    """Rebind every name of ``old`` in what is imported by now; its own module keeps it, as its base classes do."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items() if hasattr(module, "__dict__") else ()):
            if value is old and not module.__name__.startswith("reactor_"):
                setattr(module, name, new)


def pytest_configure(config: pytest.Config) -> None:
    for pair in os.environ["REACTOR_RL_SUBSTITUTE"].split():
        old_name, _, new_name = pair.partition("=")
        new, old = _resolve(new_name), _resolve(old_name)
        _count(new)
        _name_of[new] = old.__name__
        _put_in_place(old, new)


def _count(new: Any) -> None:
    plain = new.__init__

    @functools.wraps(plain)
    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        _built.add(_running)
        plain(self, *args, **kwargs)

    new.__init__ = counted


def pytest_make_parametrize_id(val: object) -> str | None:
    """Tests have the names that they have with the old class, so that both runs can be compared."""
    return _name_of.get(val) if isinstance(val, type) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _running
    _running = item.nodeid
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    worst = _outcomes.get(report.nodeid, "passed")
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome if worst == "passed" else worst


def pytest_sessionfinish(session: pytest.Session) -> None:
    report = {"outcomes": _outcomes, "built": sorted(_built & set(_outcomes))}
    Path(os.environ["REACTOR_RL_SUBSTITUTE_REPORT"]).write_text(json.dumps(report))
