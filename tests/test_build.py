"""What wheels are called, and what the extensions say of themselves. ``.ci/wheels.py`` builds and installs them."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_wheel_serves_every_version_that_has_a_lock(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "macosx-11.0-arm64")
    monkeypatch.setattr(hook, "FREE_THREADED", False)
    assert hook.tag() == "cp311-abi3-macosx_11_0_arm64"
    monkeypatch.setattr(hook, "FREE_THREADED", True)
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert hook.tag() == f"{version}-{version}t-macosx_11_0_arm64"


def test_every_extension_leaves_the_lock_off(hook: ModuleType) -> None:
    """An extension that does not say so switches it on for the whole interpreter."""
    for source in hook.SOURCES:
        code = (ROOT / "plugins" / source.package / source.file).read_text()
        assert "#ifdef Py_GIL_DISABLED\n    {Py_mod_gil, Py_MOD_GIL_NOT_USED}" in code, source.name
        assert "Py_LIMITED_API" not in code, "which interface there is depends on the interpreter: hatch_build.py says"
