"""What ``verify`` without a target runs of agents that learn."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from every_other import in_turn

from reactor_pettingzoo.learning import targets
from reactor_rl.__main__ import main

NAMES = ["self_play", "sync_ippo"]


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands add the working directory to where modules are looked for."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_registered(name: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    value = project["entry-points"]["reactor_rl.verify"][name]
    assert EntryPoint(name, value, "reactor_rl.verify").load() is getattr(targets, name)


@in_turn("name", NAMES, kept=1)
def test_one_fingerprint_on_every_executor(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", f"reactor_pettingzoo.learning.targets:{name}", "--ticks", "5", "--workers", "1,2,3"])
    *rows, verdict = capsys.readouterr().out.splitlines()[1:]
    assert status == 0 and verdict == "the same for all 7 after 5 ticks"
    assert len({row.split()[2] for row in rows}) == 1
    assert repr(getattr(targets, name)()).startswith("Training(SyncIPPO, ")
