"""A search on a cluster: the trials of one machine, on two and three nodes, and after a node was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytest.importorskip("stable_baselines3")

from swept import SPACE, curve, small_ppo

from reactor_rl import RecoveryWarning
from reactor_sb3 import SearchReport, SuccessiveHalving, sweep

pytestmark = pytest.mark.timeout(300)

RAY = {"executor": "ray"}


def searched(train: Any = curve, **more: Any) -> SearchReport:
    halving = SuccessiveHalving((100, 200))
    arguments = {"trials": 10, "seed": 3, "in_flight": 4, "executor": "inline", "progress_bar": False, "prune": halving}
    return sweep(train, SPACE, **{**arguments, **more})


def test_one_study_on_nodes(cluster: Any) -> None:
    """Trial by trial: in the calling thread, on two processes, on two nodes and on three."""
    ways: list[dict[str, Any]] = [{}, {"executor": "processes", "workers": 2}, {"executor": "ray", "nodes": 2, "workers": 1}, RAY]
    reports = [searched(seeds=2, **way) for way in ways]
    for report in reports[1:]:
        assert report.trials == reports[0].trials
    assert reports[0].count("pruned") and len({report.fingerprint() for report in reports}) == 1


def test_models_of_nodes_are_kept(cluster: Any, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"trials": 2, "episodes": 2, "prune": SuccessiveHalving((128,), 2)}
    report = searched(small_ppo, executor="ray", nodes=2, workers=1, path=tmp_path / "study", **arguments)
    assert all(path.exists() for one in report.trials for path in one.models) and report.best.models
    assert report.fingerprint() == searched(small_ppo, **arguments).fingerprint()


def lethal(marker: str, home: int, trial: Any) -> None:
    """A curve; the first training away from home that has reported something kills its node, with all that are there."""
    curve(trial)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid != home:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(parent.pid, signal.SIGKILL)
        signal.pause()


@pytest.mark.faults
def test_a_killed_node_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    expected = searched(prune=None).trials
    train = partial(lethal, str(tmp_path / "marker"), os.getpid())
    with pytest.warns(RecoveryWarning, match=r"trial \d+, training 0 begins again: node 1 \(.*\) has died"):
        report = searched(train, executor="ray", nodes=2, workers=2, prune=None)
    assert report.trials == expected and (tmp_path / "marker").exists()
