"""Trainings of a ``sweep`` that leave something behind, go elsewhere, raise strange errors, or learn in odd environments."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers import PartialFixedSampler, TPESampler
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecCheckNan, VecFrameStack, VecNormalize

from reactor_sb3 import SearchReport, Trial, sweep

SPACE = {"x": FloatDistribution(0, 4)}


def searched(train: Callable[[Trial], Any], trials: int = 2, space: Any = SPACE, **more: Any) -> SearchReport:
    return sweep(train, space, trials, **{"executor": "inline", "progress_bar": False, **more})


# ---------------------------------------------------------------------- what they leave


def leaves_a_pool(trial: Trial) -> float:
    ThreadPoolExecutor(1).submit(time.sleep, 600)
    return 1.0


def leaves_a_process(trial: Trial) -> float:
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
    return 1.0


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("train", [leaves_a_pool, pytest.param(leaves_a_process, marks=pytest.mark.faults)])
def test_a_search_ends_whatever_a_training_has_left(train: Callable[[Trial], Any]) -> None:
    began = time.monotonic()
    report = searched(train, executor="processes", workers=2, in_flight=2)
    assert report.count("complete") == 2 and time.monotonic() - began < 50


@pytest.mark.timeout(60)
@pytest.mark.faults
def test_a_worker_that_dies_while_it_has_nothing_to_do_changes_nothing(tmp_path: Path) -> None:
    """Trial 0 goes on until the other worker is dead, which had trial 1, and is to have another one then."""

    def train(trial: Trial) -> float:
        pid = tmp_path / f"{trial.number}"
        pid.with_suffix(".new").write_text(str(os.getpid()))
        pid.with_suffix(".new").rename(pid)
        if trial.number == 0:
            while not (tmp_path / "1").exists():
                time.sleep(0.01)
            time.sleep(0.5)  # it has ended by then
            os.kill(int((tmp_path / "1").read_text()), signal.SIGKILL)
            time.sleep(0.5)
        return 1.0

    report = searched(train, 4, executor="processes", workers=2, in_flight=2, restarts=0)
    pids = [(tmp_path / str(number)).read_text() for number in range(4)]
    assert report.count("complete") == 4 and pids[1] not in (pids[0], *pids[2:])


@pytest.mark.timeout(60)
@pytest.mark.faults
def test_a_report_is_there_though_an_idle_worker_was_killed(tmp_path: Path) -> None:
    second, dead = tmp_path / "second", tmp_path / "dead"

    def train(trial: Trial) -> float:
        if trial.number:
            second.touch()
            while not dead.exists():
                time.sleep(0.01)
        else:
            while not second.exists():
                time.sleep(0.01)

            def die() -> None:
                time.sleep(0.5)  # this training has ended by then
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)

            threading.Thread(target=die, daemon=True).start()
        return 1.0

    assert searched(train, executor="processes", workers=2, restarts=0).count("complete") == 2


# ---------------------------------------------------------------------- where they go, and what they raise


@pytest.mark.parametrize("executor", ["inline", "processes"])
def test_a_training_may_change_the_directory(executor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def train(trial: Trial) -> float:
        assert trial.folder is not None
        (trial.folder / "cwd").write_text(os.getcwd())
        os.chdir("/")
        return 1.0

    searched(train, 3, path="study", executor=executor, workers=1)
    assert {(tmp_path / "study" / f"{number}-0" / "cwd").read_text() for number in range(3)} == {str(tmp_path)}
    assert os.getcwd() == str(tmp_path)


class Shy(Exception):
    def __str__(self) -> str:
        raise KeyError("no")


class Mute(Exception):
    def __str__(self) -> Any:
        return None


@pytest.mark.parametrize("kind", [Shy, Mute])
def test_an_error_that_cannot_be_printed_is_a_failed_trial(kind: type[Exception], tmp_path: Path) -> None:
    def train(trial: Trial) -> float:
        if trial.number == 0:
            raise kind
        return 1.0

    for trials in (2, 3):  # the second time it goes on
        report = searched(train, trials, path=tmp_path / "study")
        assert [one.state for one in report.trials] == ["failed"] + ["complete"] * (trials - 1)
        assert report.trials[0].error.startswith(f"{kind.__name__}: (its message cannot be printed: ")


def test_a_trial_may_be_pruned_before_it_has_reported(tmp_path: Path) -> None:
    def train(trial: Trial) -> float:
        if trial.number % 2 == 0:
            raise optuna.TrialPruned
        return 1.0

    pruner = optuna.pruners.MedianPruner(n_startup_trials=0)
    for trials in (3, 4):
        report = searched(train, trials, path=tmp_path / "study", prune=pruner)
        assert [one.state for one in report.trials] == ["pruned", "complete", "pruned", "complete"][:trials]
        assert report.trials[0].value is None and "2 pruned" in str(report)


# ---------------------------------------------------------------------- what they learn in


def short_ppo(wrapper: Callable[[Any], Any], trial: Trial) -> PPO:
    venv = wrapper(make_vec_env("CartPole-v1", 1))
    return PPO("MlpPolicy", venv, n_steps=16, batch_size=16, n_epochs=1, seed=trial.seed, device="cpu").learn(16)


def test_statistics_are_kept_beside_the_model(tmp_path: Path) -> None:
    report = searched(partial(short_ppo, VecNormalize), 1, path=tmp_path / "study", episodes=1)
    (path,) = report.best.models
    venv = VecNormalize.load(str(path.with_name("vecnormalize.pkl")), make_vec_env("CartPole-v1", 1))
    assert venv.obs_rms.count > 16
    with gym.make("CartPole-v1") as env:
        PPO.load(path).predict(venv.normalize_obs(env.reset(seed=0)[0]))


def test_frames_are_stacked_for_evaluation_too() -> None:
    stacked = searched(partial(short_ppo, partial(VecFrameStack, n_stack=3)), 1, episodes=2)
    assert stacked.best.value is not None and len(stacked.best.digests) == 1
    report = searched(partial(short_ppo, VecCheckNan), 1, episodes=1)
    assert "VecCheckNan" in report.trials[0].error and "pass env= to sweep()" in report.trials[0].error


# ---------------------------------------------------------------------- what they are given


class Small:
    """A choice that no file can keep."""


@pytest.mark.slow
@pytest.mark.parametrize("choice", [Small, len, np.int64(3), {1, 2}])
@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution:UserWarning")
def test_a_choice_of_any_kind_is_taken_or_named(choice: Any, by_function: bool, tmp_path: Path) -> None:
    space: Any = {"net": CategoricalDistribution([None, choice])}
    if by_function:
        space = lambda trial: {"net": trial.suggest_categorical("net", [None, choice])}  # noqa: E731
    found = searched(lambda trial: float(trial.params["net"] is None), 6, space)
    assert {one.value for one in found.trials} == {0.0, 1.0}
    assert len(searched(lambda trial: 1.0, 4, space, study=optuna.create_study(sampler=TPESampler(seed=0)))) == 4
    for more in ({"path": tmp_path / "study"}, {"study": stored(tmp_path)}):
        with pytest.raises(TypeError, match=r"'net' has the choice .* cannot be kept in path= or in a study: choices must be"):
            searched(lambda trial: 1.0, 6, space, **more)


@pytest.mark.parametrize("choice", [np.zeros(2), Small(), [np.zeros(2)]])
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution:UserWarning")
def test_a_choice_that_a_copy_is_not_equal_to_is_named(choice: Any) -> None:
    with pytest.raises(TypeError, match=r"'net' has the choice .* a copy is not equal to it"):
        searched(lambda trial: 1.0, 4, {"net": CategoricalDistribution([choice, None])})


def stored(folder: Path) -> optuna.Study:
    sampler = TPESampler(seed=0)
    return optuna.create_study(study_name="one", storage=f"sqlite:///{folder}/study.db", sampler=sampler, load_if_exists=True)


@pytest.mark.parametrize("choice", [(64, 64), math.nan])
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution:UserWarning")
def test_a_choice_that_a_file_keeps_otherwise_is_gone_on_with(choice: Any, tmp_path: Path) -> None:
    space = {"net": CategoricalDistribution([choice, None])}
    for trials in (4, 6):
        assert len(searched(lambda trial: 1.0, trials, space, path=tmp_path / "study")) == trials
    with pytest.raises(TypeError, match="'net' has the choice"):  # as trials of Optuna's own would be refused, later
        searched(lambda trial: 1.0, 4, space, study=stored(tmp_path))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sampler_that_knows_another_study_is_refused() -> None:
    def used() -> Any:
        study = optuna.create_study(sampler=TPESampler(seed=0), direction="maximize")
        study.optimize(lambda trial: trial.suggest_float("x", 0, 4), n_trials=5)
        return study

    with pytest.raises(ValueError, match=r"the study .* has 5 trials, .* pass an empty study"):
        searched(lambda trial: 1.0, study=used())
    with pytest.raises(ValueError, match="sampler TPESampler has drawn for another study already: pass a new one"):
        searched(lambda trial: 1.0, sampler=used().sampler)
    with pytest.raises(ValueError, match="sampler PartialFixedSampler has drawn for another study already"):
        searched(lambda trial: 1.0, sampler=PartialFixedSampler({}, used().sampler))
