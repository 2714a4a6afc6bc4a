"""Sanitizers are told of every extension, and find what is made for them. ``.ci/sanitizers.py`` runs the extensions' tests."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from reactor_rl.runtime.channel import ControlBlock

ROOT = Path(__file__).parent.parent


@pytest.fixture
def sanitizers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("hatchling")
    pytest.importorskip("resource")
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("sanitizers", ROOT / ".ci" / "sanitizers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_extension_has_tests_that_are_there(sanitizers: ModuleType) -> None:
    assert {source.name for source in sanitizers.SOURCES} == {name for name, _ in sanitizers.TESTS}
    named = [one for tests in (*sanitizers.TESTS.values(), sanitizers.FREE_THREADED) for one in tests if not one.startswith("-")]
    assert not [path for path in named if not (ROOT / path).is_file()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="the sanitizers are GCC's, on Linux")
@pytest.mark.parametrize("name", ["address", "undefined", "thread"])
def test_each_sanitizer_finds_its_fault(name: str, sanitizers: ModuleType, tmp_path: Path) -> None:
    sanitizer = sanitizers.SANITIZERS[name]
    for library in map(sanitizers.path_of, sanitizer.libraries or ("libubsan.so",)):
        if not Path(library).is_file():
            pytest.skip(f"GCC has no {library} here")
    assert sanitizers.finds_its_fault(name, tmp_path / name)
    faultless = sanitizer._replace(fault="int fault(void) { return 0; }")
    sanitizers.SANITIZERS[name] = faultless
    assert not sanitizers.finds_its_fault(name, tmp_path / "faultless")


@pytest.mark.parametrize(
    ("word", "meant"), [(ControlBlock.ABORT, True), (ControlBlock.COMMAND, False), (ControlBlock.EVENTS, False), (64, False)]
)
def test_only_the_word_that_is_read_without_a_token_is_told_from_other_reports(
    word: int, meant: bool, sanitizers: ModuleType
) -> None:
    block = 0x7B7400003210  # an arena begins with the next cache line
    where = f"  Read of size 8 at {0x7B7400003240 + 8 * word:#x} by\n  Location is heap block of size 2368 at {block:#x} by\n"
    report = f"data race\n{where}"
    assert sanitizers.is_abort(report) is meant
    assert not sanitizers.is_abort(report.replace("heap block", "global"))
