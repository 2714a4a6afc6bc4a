"""What ``verify`` without a target runs of this plugin, and one game kept in the repository."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from every_other import in_turn
from pettingzoo.classic.connect_four import connect_four

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
from reactor_pettingzoo.learning import targets as learning
from reactor_pettingzoo.runner import targets
from reactor_rl.__main__ import main

PLACES: dict[str, tuple[Any, int]] = {
    **dict.fromkeys(("connect_four", "simple_spread"), (targets, 30)), **dict.fromkeys(("self_play", "sync_ippo"), (learning, 5)),
}  # fmt: skip
"""Where each target is, and for how many ticks it is run."""
GOLDEN = "42b8d98a93e5bf7ffa3c8a471077470d"
"""Of actions drawn at random and the rewards of a board game, in which nothing depends on the processor."""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands add the working directory to where modules are looked for."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize("name", PLACES)
def test_it_is_registered(name: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    value = project["entry-points"]["reactor_rl.verify"][name]
    assert EntryPoint(name, value, "reactor_rl.verify").load() is getattr(PLACES[name][0], name)


@pytest.mark.slow
@in_turn("name", PLACES, kept=1)
def test_one_fingerprint_on_every_executor(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    place, ticks = PLACES[name]
    status = main(["verify", f"{place.__name__}:{name}", "--ticks", str(ticks), "--workers", "1,2,3"])
    *rows, verdict = capsys.readouterr().out.splitlines()[1:]
    assert status == 0 and verdict == f"the same for all 7 after {ticks} ticks"  # and nothing about global generators after it
    assert len({row.split()[2] for row in rows}) == 1
    target = getattr(place, name)
    assert target().fingerprint("inline", 1, ticks) != target().fingerprint("inline", 1, ticks + 1)


def test_drawn_and_traced(tmp_path: Path) -> None:
    target = targets.connect_four()
    assert "policies[player_1]" in target.draw(str(tmp_path / "p.svg")) and (tmp_path / "p.svg").exists()
    target.trace(str(tmp_path / "t.json"), ticks=5, executor="inline", workers=1)
    assert any("environments" in str(event.get("name")) for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"])
    assert repr(target) == "Playing('pettingzoo.classic.connect_four.connect_four')"
    assert repr(learning.self_play()).startswith("Training(SyncIPPO, ")


@pytest.mark.parametrize(("executor", "workers"), [("inline", 1), ("processes", 2), ("threads", 3)])
def test_what_it_was_before(executor: Any, workers: int) -> None:
    policies = {"player_0": RandomPolicy(), "player_1": RandomPolicy()}
    with MultiAgentRunner(connect_four.env, policies, num_envs=3, executor=executor, workers=workers) as runner:
        assert runner.run(episodes=9, seed=0, progress_bar=False).fingerprint == GOLDEN
