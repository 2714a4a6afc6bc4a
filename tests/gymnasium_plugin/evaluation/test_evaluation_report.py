"""Reports of evaluations: intervals, tables, fingerprints."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reactor_gymnasium import EvaluationReport
from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.evaluation.report import columns_of

REPORT = EvaluationReport(
    env="Walk", policy="row by row", row_independent=True, deterministic=True, seed=3, returns=np.array([1.0, 2.0, 4.0, 5.0]),
    lengths=np.array([3, 4, 5, 6]), terminated=np.array([True, True, False, True]),
    infos={"is_success": np.array([True, True, True, False]), "score": np.array([1.0, math.nan, 3.0, 2.0])},
    digests=("a", "b", "c", "d"), seconds=1.5,
)  # fmt: skip


def test_intervals() -> None:
    assert REPORT.mean == 3.0 and REPORT.steps == 18 and REPORT.std == pytest.approx(np.std([1, 2, 4, 5]))
    half = 3.182446 * math.sqrt(10 / 3) / 2  # Student's with 3 degrees of freedom
    assert REPORT.interval() == pytest.approx((3 - half, 3 + half), abs=1e-5)
    low, high = REPORT.interval(0.5)
    assert 3 - half < low < 3 < high < 3 + half
    assert REPORT.interval(of="is_success") == pytest.approx((0.3006, 0.9544), abs=1e-4)  # Wilson's
    assert REPORT.interval(of="score")[0] < 2 < REPORT.interval(of="score")[1]
    assert all(map(math.isnan, replace(REPORT, returns=np.array([1.0])).interval()))
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        REPORT.interval(95)
    with pytest.raises(KeyError):
        REPORT.interval(of="nothing")


def test_how_it_is_shown() -> None:
    lines = str(REPORT).splitlines()
    assert lines[0].startswith("Walk: 4 episodes, 18 steps in 1.50 s, best actions, seed 3, fingerprint ")
    assert [line.split()[0] for line in lines[2:6]] == ["return", "length", "is_success", "score"]
    assert lines[-2:] == ["95 % intervals are Student's, and Wilson's of rates", "the policy was asked row by row"]
    assert "of rates" not in str(replace(REPORT, infos={}))
    assert repr(REPORT) == "EvaluationReport(Walk, episodes=4, seed=3, mean=3)"
    html = REPORT._repr_html_()
    assert html.count("<rect") == 4 and "<table>" in html and html.count("1 of") == 3 - 1


def test_a_report_as_a_table() -> None:
    pytest.importorskip("pandas")
    table = REPORT.to_dataframe()
    assert list(table.columns) == ["episode", "return", "length", "terminated", "is_success", "score"]
    assert table["return"].tolist() == [1.0, 2.0, 4.0, 5.0]


def test_a_fingerprint_is_of_what_was_done() -> None:
    assert replace(REPORT, seconds=9.0, videos={1: "a"}, policy="otherwise").fingerprint() == REPORT.fingerprint()
    for other in (
        replace(REPORT, seed=4), replace(REPORT, digests=("a", "b", "c", "e")), replace(REPORT, lengths=np.array([3, 4, 5, 7])),
        replace(REPORT, infos={}),
    ):  # fmt: skip
        assert other.fingerprint() != REPORT.fingerprint()


def test_infos_of_some_episodes_only() -> None:
    infos: list[dict[str, Any]] = [{"a": 1, "b": True, "c": 2**70}, {"a": 2, "c": 3}]
    episodes = [EndedEpisode(0, number, 0.0, 1, True, True, info, "") for number, info in enumerate(infos)]
    columns = columns_of(episodes)
    assert columns["a"].dtype == np.int64 and columns["c"].dtype == np.float64
    assert columns["b"].tolist()[0] == 1.0 and math.isnan(columns["b"][1])
