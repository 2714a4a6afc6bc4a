"""What a run tells: means with their intervals, tables, files, plots and films."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
import tqdm
from pettingzoo.classic.tictactoe import tictactoe
from runner_envs import Herd, Residual, Table, by_sum, first_legal, mlp, ran

from reactor_gymnasium.plugin import progress
from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
from reactor_pettingzoo.runner.report import Episode, Report, Summary

QUANTILES = {2: 12.7062, 3: 4.30265, 4: 3.18245, 5: 2.77645, 10: 2.26216, 30: 2.04523, 1000: 1.96234}
"""Student's, two-sided, 95 %, by the number of values: from tables."""


@pytest.mark.parametrize("count", QUANTILES)
def test_means_have_the_interval_of_student(count: int) -> None:
    numbers = np.random.default_rng(0).normal(3, 2, count).tolist()
    found = Summary.of(numbers)
    half = QUANTILES[count] * stdev(numbers) / math.sqrt(count)
    assert (found.mean, found.count) == (fmean(numbers), count)
    assert found.high - found.mean == pytest.approx(half, rel=3e-6)
    assert found.mean - found.low == pytest.approx(half, rel=3e-6)


def test_too_few_numbers_have_no_interval() -> None:
    assert math.isnan(Summary.of([]).mean) and Summary.of([]).count == 0
    one = Summary.of([5])
    assert one.mean == 5 and math.isnan(one.low) and math.isnan(one.high)
    assert str(Summary.of([1.0, 1.0])) == "1 [1, 1]"


EPISODES = (
    Episode(0, {"a": 1.0, "b": 2.0, ("c", 1): 6.0}, {"a": 3, "b": 4, ("c", 1): 1}),
    Episode(1, {"a": 3.0, "b": 4.0}, {"a": 5, "b": 2}),
)
REPORT = Report(7, 20, 0.5, EPISODES, {"a": "x", "b": "y", ("c", 1): "y", "never": "z"}, "abc")


def test_returns_and_lengths_of_agents_and_policies() -> None:
    assert {agent: (one.mean, one.count) for agent, one in REPORT.returns.items() if agent != "never"} == {
        "a": (2, 2),
        "b": (3, 2),
        ("c", 1): (6, 1),
    }
    assert REPORT.returns["never"].count == 0
    assert [one.mean for one in REPORT.lengths.values()][:3] == [4, 3, 1]
    assert [REPORT.returns_of_policies[name].mean for name in "xy"] == [2, 4]  # of (2 + 6) / 2 and 4
    assert [REPORT.lengths_of_policies[name].mean for name in "xy"] == [4, 2.25]
    assert REPORT.steps_per_second == 40


def test_the_table_shows_everybody() -> None:
    lines = str(REPORT).splitlines()
    assert lines[0] == "2 episodes, 20 steps in 0.50 s (40 a second), seed 7, fingerprint abc"
    assert lines[1].split() == ["agent", "policy", "return", "length"]
    assert [line.split("  ")[0] for line in lines[2:-1]] == ["a", "b", "('c', 1)", "never", "(mean)", "(mean)", "(mean)"]
    assert lines[-1] == "95 % intervals are Student's"
    report = ran(Table, {"all": first_legal}, steps=60)
    assert all(agent in str(report) for agent in Table.possible_agents)


def test_a_notebook_shows_the_same_table() -> None:
    shown = ET.fromstring(REPORT._repr_html_())
    title, *lines, note = str(REPORT).splitlines()
    assert shown[0].text == f"{title}\n{note}"
    rows = ["".join(cell.text or "" for cell in row) for row in shown.iter("tr")]
    assert [row.replace(" ", "") for row in rows] == [line.replace(" ", "") for line in lines]
    alike = Report(7, 20, 0.5, (EPISODES[0], EPISODES[0]), REPORT.policy_of, "abc")
    assert "one game again and again" in (ET.fromstring(alike._repr_html_())[0].text or "")


def test_a_dataframe_has_a_row_for_each_agent_of_an_episode() -> None:
    frame = REPORT.to_dataframe()
    assert frame.to_dict("list") == {
        "episode": [0, 0, 0, 1, 1],
        "copy": [0, 0, 0, 1, 1],
        "agent": ["a", "b", ("c", 1), "a", "b"],
        "policy": ["x", "y", "y", "x", "y"],
        "return": [1.0, 2.0, 6.0, 3.0, 4.0],
        "length": [3, 4, 1, 5, 2],
    }
    assert frame.groupby("policy")["length"].sum().to_dict() == {"x": 8, "y": 7}
    empty = Report(0, 1, 1.0, (), {"a": "x"}, "abc").to_dataframe()
    assert len(empty) == 0 and list(empty) == list(frame)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="needs pandas: pip install pandas"):
        REPORT.to_dataframe()


@pytest.mark.parametrize("env_fn", [partial(Herd, "observation"), Table])
def test_what_is_saved_is_what_was_recorded(env_fn: Any, tmp_path: Path) -> None:
    report = ran(env_fn, {"all": first_legal}, steps=30)
    report.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as saved:
        assert set(saved) == set(report.trajectories) >= {"acted", "rewards", "observations.0", "actions.0", "masks.0", "agents.0"}
        for name, array in report.trajectories.items():
            assert np.array_equal(saved[name], array), name


def test_without_a_record_there_is_nothing_to_save(tmp_path: Path) -> None:
    report = ran(Herd, {"all": by_sum}, steps=30, record=False)
    assert report.trajectories == {}
    with pytest.raises(ValueError, match="record=True"):
        report.save(tmp_path / "run.npz")
    assert report.fingerprint == ran(Herd, {"all": by_sum}, steps=30).fingerprint


@pytest.mark.slow
def test_plot(tmp_path: Path) -> None:
    ran(Herd, {name: RandomPolicy() for name in Herd.possible_agents}, episodes=5).plot(tmp_path / "returns.png")
    picture = imageio.imread(tmp_path / "returns.png")
    assert picture.ndim == 3 and len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 4
    REPORT.plot(str(tmp_path / "one.png"))
    assert (tmp_path / "one.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="no episode has ended"):
        Report(0, 1, 1.0, (), {"a": "x"}, "abc").plot(tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


# ---------------------------------------------------------------------- films


@pytest.mark.parametrize("place", [{"executor": "inline"}, {"executor": "processes", "workers": 2}], ids=str)
@pytest.mark.parametrize("env_fn", [Herd, Table])
def test_a_film_shows_the_first_episode_of_the_first_copy(env_fn: Any, place: dict[str, Any], tmp_path: Path) -> None:
    policy = first_legal if env_fn is Table else by_sum
    with MultiAgentRunner(partial(env_fn, render_mode="rgb_array"), {"all": policy}, num_envs=2, **place) as runner:
        report = runner.run(episodes=2, seed=4, record=True, progress_bar=False)
        runner.render(tmp_path / "film.gif", seed=4)
        runner.render(tmp_path / "short.gif", seed=4, steps=2, fps=5)
        assert runner.run(episodes=2, seed=4, progress_bar=False).fingerprint == report.fingerprint
    steps = int(report.trajectories["acted"][:, 0].any(1).sum())
    each = 15 if env_fn is Table else 20
    shades = [int(frame.mean()) for frame in imageio.imread(tmp_path / "film.gif", index=None)]
    assert np.allclose(shades, [each * t for t in range(steps + 1)], atol=2)  # at the beginning and after each step
    assert imageio.immeta(tmp_path / "film.gif")["duration"] == 100
    assert imageio.immeta(tmp_path / "short.gif")["duration"] == 200


def test_a_film_of_a_board_game(tmp_path: Path) -> None:
    env_fn = partial(tictactoe.env, render_mode="rgb_array", screen_height=100)
    with MultiAgentRunner(env_fn, {"player_1": mlp(0, 18, 9), "player_2": RandomPolicy()}, executor="inline") as runner:
        runner.render(tmp_path / "film.gif")
    frames = imageio.imread(tmp_path / "film.gif", index=None)
    assert 6 <= len(frames) <= 10 and frames.shape[1:] == (100, 100, 3)
    # Every frame has one more mark than the one before, the last one's too.
    ink = [float((np.abs(frame.astype(int) - frames[0]) > 60).any(-1).mean()) for frame in frames]
    assert ink[0] == 0 and (np.diff(ink) > 0.01).all()


def test_films_need_frames_and_a_known_ending(tmp_path: Path) -> None:
    with MultiAgentRunner(Herd, {"all": by_sum}, executor="inline") as runner:
        with pytest.raises(ValueError, match='make it with render_mode="rgb_array"'):
            runner.render(tmp_path / "film.gif")
        assert runner.run(steps=5, progress_bar=False).steps == 5  # it goes on
    with MultiAgentRunner(partial(Herd, render_mode="rgb_array"), {"all": by_sum}, executor="inline") as runner:
        with pytest.raises(ValueError, match=r"path must end with .gif or .mp4, got '.*film.txt'"):
            runner.render(tmp_path / "film.txt", steps=3)
        with pytest.raises(ValueError, match=r"fps must be a number of pictures a second, 0.01 to 1000, got -3"):
            runner.render(tmp_path / "film.gif", steps=3, fps=-3)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- the progress bar


def test_a_bar_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("tqdm.auto.tqdm", lambda **settings: shown.append(settings) or open(os.devnull))  # noqa: SIM115
    with progress(3, "step", shown=None) as advance:
        advance(3)
    assert not shown  # what is written to is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    hosted = type("HostedShell", (type("ZMQInteractiveShell", (), {}),), {})
    for shell, bars in ((object, 0), (hosted, 1)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell))
        with contextlib.suppress(AttributeError), progress(3, "step", shown=None):
            pass
        assert len(shown) == bars
    shown.clear()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for wanted, bars in ((None, 1), (True, 2), (False, 2)):
        with contextlib.suppress(AttributeError), progress(3, "step", shown=wanted):
            pass
        assert len(shown) == bars


def test_a_report_is_short_in_a_prompt() -> None:
    """All that it holds is there by attribute, and as a table by print()."""
    with MultiAgentRunner(Herd, RandomPolicy(), num_envs=2, executor="inline") as runner:
        report = runner.run(steps=2000, seed=0, record=True)
    assert len(report.episodes) > 50
    assert len(repr(report)) < 300 and "\n" not in repr(report)
    mean = report.returns_of_policies["all"].mean
    assert f"{len(report.episodes)} episodes of 4 agents, 2,000 steps, seed=0" in repr(report)
    assert f"'all': {mean:.4g}" in repr(report) and "arrays recorded" in repr(report)


def test_what_is_always_alike_is_said_to_be() -> None:
    report = Report(0, 4, 1.0, EPISODES[1:] * 3, {"a": "x", "b": "y"}, "abc")
    assert "one game again and again" in str(report)
    assert "one game again and again" not in str(REPORT)


def test_a_bar_counts_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # else it starts a thread that stays
    bars: list[Any] = []

    def watched(*arguments: Any, **settings: Any) -> Any:
        bars.append((arguments, settings))
        return progress(*arguments, **settings)

    for module in ("reactor_pettingzoo.runner.runner", "reactor_pettingzoo.runner.multi_agent_program"):
        monkeypatch.setattr(f"{module}.progress", watched, raising=False)
    with MultiAgentRunner(Herd, {"all": Residual(0, 4, 5)}, num_envs=2, executor="inline") as runner:
        assert runner.run(steps=10, seed=0).steps == 10
        assert len(runner.run(episodes=3, seed=0, progress_bar=True).episodes) == 3
        runner.run(steps=10, seed=0, progress_bar=False)
    assert bars == [((10, "step"), {"shown": None}), ((3, "episode"), {"shown": True}), ((10, "step"), {"shown": False})]
    assert capsys.readouterr().err == ""  # it was done within a second
