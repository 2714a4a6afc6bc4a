"""What ``verify`` without a target runs of this plugin: a short training by each trainer, one fingerprint however it is run."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gymnasium
import numpy as np
import pytest
from every_other import in_turn

from reactor_rl.__main__ import main
from reactor_rl.verify import verify
from reactor_sb3 import ALGORITHMS, PQN, SyncDQN
from reactor_sb3.trainers.verify_targets import TARGETS, Training

TICKS = 12
"""Enough for several updates, and for a second evaluation to begin."""
each = in_turn("name", sorted(TARGETS), kept=1)


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands add the working directory to where modules are looked for."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_they_are_registered() -> None:
    """As the project says: what is installed in editable mode may have been registered before."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    value = project["entry-points"]["reactor_rl.verify_tables"]["algorithms"]
    assert EntryPoint("algorithms", value, "reactor_rl.verify_tables").load() is TARGETS
    assert {row.key for row in ALGORITHMS.values()} <= TARGETS.keys()


@pytest.mark.slow
@each
def test_one_fingerprint_on_every_executor(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", name, "--ticks", str(TICKS), "--workers", "1,2,3"])
    said = capsys.readouterr().out
    assert status == 0, said
    title, *rows, verdict = said.splitlines()
    assert title == name
    assert verdict == f"the same for all 7 after {TICKS} ticks"  # and nothing about global generators after it
    assert [row.split()[:2] for row in rows] == [
        ["inline", "workers=1"], *([executor, f"workers={n}"] for executor in ("threads", "processes") for n in (1, 2, 3)),
    ]  # fmt: skip
    fingerprints = {row.split()[2] for row in rows}
    assert len(fingerprints) == 1
    assert len(fingerprints.pop()) == 32


@pytest.mark.slow
@each
def test_it_learns_and_evaluates(name: str) -> None:
    training = TARGETS[name]()
    with training.make("inline", 1) as model:
        before = model.fingerprint()
        list(training.play(model, TICKS))
        steps = TICKS * model.rollout_steps * model.n_envs
        assert model.num_timesteps == steps or (name == "sync_ars" and model.num_timesteps > steps)  # whole episodes
        assert model.n_updates >= (2 if name == "sync_ars" else TICKS - model.pipeline)
        assert model.fingerprint() != before
        assert len(model.ep_info_buffer) > 0
        assert model.evaluations[0].timesteps == 0
        assert {len(one.returns) for one in model.evaluations} == {training.arguments["evaluate_episodes"]}


@pytest.mark.slow
@each
def test_the_fingerprint_depends_on_what_is_trained(name: str) -> None:
    asked: list[tuple[dict[str, Any], int]] = [({}, 3), ({}, 3), ({}, 4), ({"seed": 5}, 3)]
    found = [TARGETS[name](**changed).fingerprint("inline", 1, ticks) for changed, ticks in asked]
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_making_a_trainer_leaves_global_generators_as_they_are() -> None:
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    with TARGETS["sync_dqn"]().make("inline"):
        assert np.random.get_state()[1].tolist() == before  # type: ignore[index, union-attr]


# ---------------------------------------------------------------------- what is not as it should be


class Odd(gymnasium.Env[Any, Any]):
    """Rewards that no two runs need have in common."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, how: str) -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(os.getpid()) if self.how == "pid" else float(np.random.random())
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), reward, bool(self.np_random.random() < 0.2), False, {}


OWN: dict[str, Any] = {"n_actors": 3, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def odd(how: str, trainer: Any = PQN, **changed: Any) -> Training:
    length = "n_steps" if trainer is PQN else "train_freq"
    return Training(trainer, lambda: Odd(how), **{**OWN, length: 8, **changed})  # type: ignore[arg-type]


def test_a_reward_that_depends_on_the_process_is_found() -> None:
    report = verify(lambda: odd("pid"), ticks=3, executors=("inline", "processes"), workers=(1, 2))
    assert [(row.executor, row.workers) for row in report.differing] == [("processes", 2)]
    assert not report.differing[0].error


def test_returns_count_even_if_nothing_is_learned() -> None:
    early: dict[str, Any] = {"learning_starts": 10**6, "buffer_size": 1000}
    report = verify(lambda: odd("pid", SyncDQN, **early), ticks=3, executors=("inline", "processes"), workers=(2,))
    assert [(row.executor, row.workers) for row in report.differing] == [("processes", 2)]


def test_draws_from_global_generators_are_named() -> None:
    report = verify(lambda: odd("np.random"), ticks=2, executors=("inline",))
    assert report.generators == ("np.random",)


def test_a_training_that_fails_is_reported() -> None:
    report = verify(lambda: odd("pid", envs_per_actor=0), ticks=2, executors=("inline",))
    assert "ValueError" in report.rows[0].error
    assert "envs_per_actor" in report.rows[0].error


# ---------------------------------------------------------------------- the other commands


def test_it_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.svg"
    assert main(["draw", "sync_dqn", "-o", str(picture)]) == 0
    assert capsys.readouterr().out == f"wrote {picture}\n"
    text = picture.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    for part in ("actor ×4", "learner", "evaluator", "logger"):  # noqa: RUF001
        assert part in text


@pytest.mark.parametrize(("executor", "rows"), [("inline", 1), ("processes", 2)])
def test_it_can_be_traced(executor: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    target = "pqn"
    asked = ["trace", target, "-o", str(path), "--ticks", "3", "--executor", executor, "--workers", "2"]
    assert main(asked) == 0
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "reaction"]
    names = [event["name"] for event in events]
    assert sum("sample" in name for name in names) == 3 * 4
    assert sum("learn" in name for name in names) == 3
    assert len({event["tid"] for event in events}) == rows
