"""Settings of the user's modules that helpers do not have: what is warned of, and what is not."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reactor_rl import Output, Program, Reactor, reaction, startup
from reactor_rl.runtime.module_settings import settings_of, what_differs

RULES = """
    import argparse, dataclasses, os, time, types
    LEVEL = 1; BEGUN = time.time()
    SIZES = (1, 2)
    STARTED = time.time()
    PID = os.getpid()
    MADE = 0
    NAMES = {"a": 1}
    CACHE = {}
    SEEN = []
    REGISTRY = {}
    NOTHING = float("nan")
    ODD = object()
    _hidden = 1
    def registered(cls):
        REGISTRY[cls.__name__] = cls
        return cls
    @registered
    class Rules:
        speed = 1.0
        made = 0
    @dataclasses.dataclass
    class Config:
        strictness: int = 1
        used: int = 0
    config = Config()
    options = types.SimpleNamespace(strictness=1)
    arguments = argparse.Namespace(level=1)
    def count():
        global MADE
        config.used += 1
        MADE += 1
        Rules.made += 1
        CACHE[MADE] = 2
        SEEN.append(MADE)
"""
REACTOR = """
    import rrl_rules
    from reactor_rl import Output, Reactor, reaction, startup
    class Told(Reactor):
        told = Output()
        @reaction(startup, effects=(told,))
        def tell(self):
            rrl_rules.count()
            self.told.set(rrl_rules.LEVEL)
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of settings; another one has a reactor that uses them."""
    for name, source in (("rrl_rules", RULES), ("rrl_told", REACTOR)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("rrl_told")
    yield sys.modules["rrl_rules"]
    for name in ("rrl_rules", "rrl_told"):
        del sys.modules[name]


@contextmanager
def _told() -> Iterator[list[str]]:
    found: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield found
    found += [str(one.message) for one in told if "import modules anew" in str(one.message)]
    assert all(one.filename == __file__ for one in told if str(one.message) in found)


def _started(context: str | None = None, executor: Any = "processes") -> Any:
    program = Program("settings")
    made = [program.add(sys.modules["rrl_told"].Told, name=f"told_{number}") for number in range(2)]
    for number, one in enumerate(made):
        program.connect(one.told, program.output(f"told_{number}"))
    return program.start(executor=executor, workers=2, placement={"told_0": 0, "told_1": 1}, start_method=context)


SET: dict[str, tuple[Any, str]] = {
    "LEVEL": (7, "rrl_rules.LEVEL is 7 here and 1 there"),
    "SIZES": ((1, 3), r"rrl_rules.SIZES is \(1, 3\) here and \(1, 2\) there"),
    "NAMES": ({"a": 2}, "rrl_rules.NAMES is {'a': 2} here and {'a': 1} there"),
    "NEW": ("x", "rrl_rules.NEW is 'x' here and nothing there"),
    "Rules.speed": (2.0, "rrl_rules.Rules.speed is 2.0 here and 1.0 there"),
    "config.strictness": (2, "rrl_rules.config.strictness is 2 here and 1 there"),
    "options.strictness": (2, "rrl_rules.options.strictness is 2 here and 1 there"),
    "arguments.more": (2, "rrl_rules.arguments.more is 2 here and nothing there"),
    "REGISTRY": ({"Rules": Reactor, "More": Reactor}, "rrl_rules.REGISTRY is a dict of More, Rules here and a dict of Rules there"),
}


@pytest.mark.parametrize("first", range(0, len(SET), 5))  # so many are named at once
def test_what_was_set_is_named(rules: Any, first: int) -> None:
    some = list(SET.items())[first : first + 5]
    for name, (value, _) in some:
        *outer, last = name.split(".")
        setattr(getattr(rules, outer[0]) if outer else rules, last, value)
    with _told() as told:
        _started().close()
    assert len(told) == 1 and told[0].count(" here and ") == len(some)
    for _, (_, said) in some:
        assert re.search(said, told[0])


def test_nothing_else_is(rules: Any) -> None:
    """Counters, caches, times, and what has a leading underscore."""
    rules.count()
    rules._hidden = 2
    rules.ODD = 3  # there is nothing plain to compare it with
    with _told() as told:
        for _ in range(2):
            _started().close()
    assert told == []


@pytest.mark.parametrize(("context", "executor"), [("fork", "processes"), (None, "threads"), (None, "inline")])
def test_who_has_the_same_modules_is_not_warned(rules: Any, context: str | None, executor: str) -> None:
    if sys.platform == "win32" and context == "fork":
        pytest.skip("nothing forks here")
    rules.LEVEL = 7
    with _told() as told, _started(context, executor):
        pass
    assert told == []


def test_a_warning_that_is_an_error_ends_the_run(rules: Any) -> None:
    rules.LEVEL = 7
    with pytest.raises(RuntimeWarning, match="LEVEL"):  # warnings are errors here
        _started()


def test_modules_that_no_reactor_needs_are_not_looked_at(rules: Any) -> None:
    class Alone(Reactor):
        told = Output()

        @reaction(startup, effects=(told,))
        def tell(self) -> None:
            self.told.set(1)

    rules.LEVEL = 7
    program = Program("alone")
    for number in range(2):
        program.connect(program.add(Alone, name=f"alone_{number}").told, program.output(f"told_{number}"))
    with _told() as told:
        program.start(executor="processes", workers=2, placement={"alone_0": 0, "alone_1": 1}).close()
    assert told == []


def test_a_package_comes_with_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rrl_package").mkdir()
    (tmp_path / "rrl_package" / "__init__.py").write_text("LEVEL = 1")
    (tmp_path / "rrl_package" / "part.py").write_text("SPEED = 2")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("rrl_package.part")
    try:
        found = settings_of([b"... rrl_package.part ...", None])
    finally:
        for name in ("rrl_package", "rrl_package.part"):
            del sys.modules[name]
    assert found.roots == ("rrl_package.part",)
    assert found.constants == {"rrl_package": {"LEVEL": 1}, "rrl_package.part": {"SPEED": 2}}


def test_a_module_without_a_source_does_not_change_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ModuleType("rrl_compiled")
    compiled.__file__ = str(tmp_path / "rrl_compiled.so")
    monkeypatch.setitem(sys.modules, "rrl_compiled", compiled)
    assert "rrl_compiled.LEVEL is 1 here and 2 there. Pass" in what_differs([("rrl_compiled", "LEVEL", 1, 2)])
