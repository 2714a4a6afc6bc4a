"""``sweep``: one study for any number of workers, after deaths and interruptions; and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import CmaEsSampler, GPSampler, GridSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from swept import SPACE, STEPS, brittle, by_function, curve, mortal, mortal_ppo, small_ppo, small_trainer

from reactor_rl import RecoveryWarning
from reactor_rl.federation.in_process import InProcess
from reactor_sb3 import SearchReport, SuccessiveHalving, Trial, sweep
from reactor_sb3.replacing import locked
from reactor_sb3.sweeping.optuna_pruner import OptunaPruner
from reactor_sb3.sweeping.training import Ended, Job
from reactor_sb3.sweeping.trials import SearchedTrial

FOLDER = str(Path(__file__).parent.parent)
HALVING = SuccessiveHalving((100, 200))
PRUNERS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "halving": lambda: HALVING,
    "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=2),
    "optuna-halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=100, reduction_factor=2),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(min_resource=100, max_resource=300, reduction_factor=2),
}


def searched(train: Any = curve, space: Any = SPACE, trials: int = 12, **more: Any) -> SearchReport:
    return sweep(train, space, trials, **{"seed": 3, "in_flight": 4, "progress_bar": False, **more})


# ---------------------------------------------------------------------- the same on anything


def test_a_trial_is_judged_after_those_before_it() -> None:
    """Whichever of them has reported first: pruners note of a trial how far it may go, and others are compared with that."""
    pruner = OptunaPruner(PRUNERS["optuna-halving"]())
    first, second = (SearchedTrial(number, {}, {}, {}) for number in range(2))
    for trial, value in ((first, 1.0), (second, 2.0)):
        trial.first.reports[100], trial.first.unjudged = value, 100
    assert pruner.stops([first], 0, second, 100, 1) is None
    assert pruner.stops([], 0, first, 100, 1) is False
    first.first.unjudged = None
    assert pruner.stops([first], 0, second, 100, 1) is not None
    assert first.attributes[100] and second.attributes[100]


class Seeing(optuna.pruners.BasePruner):
    """Notes what it is shown whenever it is asked."""

    seen: ClassVar[list[Any]] = []

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        found = [(one.number, one.state, max(one.intermediate_values)) for one in study.get_trials()]
        self.seen.append((trial.number, trial.last_step, found))
        return False


def test_a_pruner_is_shown_trials_as_they_were() -> None:
    """In the calling thread those before have ended, which it must not see of the last three of them."""
    Seeing.seen.clear()
    searched(prune=Seeing(), executor="inline", trials=7)
    assert len(Seeing.seen) == 7 * len(STEPS)
    for number, step, found in Seeing.seen:
        ended = [(one, TrialState.COMPLETE, STEPS[-1]) for one in range(number - 3)]
        assert found == ended + [(one, TrialState.RUNNING, step) for one in range(max(0, number - 3), number + 1)]


def test_trials_are_shown_as_they_were_whoever_reports_first() -> None:
    Seeing.seen.clear()
    pruner, trials = OptunaPruner(Seeing()), [SearchedTrial(number, {}, {}, {}) for number in range(3)]
    for trial in trials:
        trial.first.reports[100] = 1.0
    trials[0].first.end = Ended("complete", 1.0)
    for number, ended in ((2, 1), (1, 0)):
        pruner.stops(trials[:number], ended, trials[number], 100, 1)
    states = [[state for _, state, _ in found] for _, _, found in Seeing.seen]
    assert states == [[TrialState.COMPLETE, TrialState.RUNNING, TrialState.RUNNING], [TrialState.RUNNING] * 2]


@pytest.mark.slow
@pytest.mark.parametrize("prune", ["none", "halving", "median"])
def test_one_study_on_workers(prune: str) -> None:
    ways: list[dict[str, Any]] = [{"executor": "inline"}, {"executor": "inline"}, {"executor": "processes", "workers": 2}]
    reports = [searched(prune=PRUNERS[prune](), **way) for way in ways]
    assert len({report.fingerprint() for report in reports}) == 1
    assert (reports[0].count("pruned") > 0) == (prune != "none")
    assert reports[0].fingerprint() != searched(prune=PRUNERS[prune](), executor="inline", seed=4).fingerprint()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("prune", PRUNERS)
@pytest.mark.parametrize("seeds", [1, 3])
def test_one_study_on_anything(prune: str, seeds: int) -> None:
    found = {searched(prune=PRUNERS[prune](), seeds=seeds, trials=20, executor="inline").fingerprint()}
    for workers in (1, 2, 3, 4):
        report = searched(prune=PRUNERS[prune](), seeds=seeds, trials=20, executor="processes", workers=workers)
        found.add(report.fingerprint())
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        lambda: RandomSampler(seed=1),
        lambda: TPESampler(seed=1, n_startup_trials=4),
        lambda: NSGAIISampler(seed=1, population_size=4),
        lambda: QMCSampler(seed=1),
        lambda: GridSampler({"x": [0.0, 1.0, 2.0, 3.0], "y": [0.0, 1.0, 2.0]}, seed=1),
    ],
    ids=["random", "tpe", "nsga", "qmc", "grid"],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_samplers_are_asked_in_order(sampler: Any) -> None:
    space = {"x": FloatDistribution(0, 4), "y": FloatDistribution(0, 4)}
    found = {
        searched(space=space, sampler=sampler(), executor=executor, workers=2).fingerprint()
        for executor in ("inline", "processes", "processes")
    }
    assert len(found) == 1


@pytest.mark.parametrize(("nodes", "workers"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_one_study_on_nodes(nodes: int, workers: int, tmp_path: Path) -> None:
    """Whoever is faster, and wherever a process dies."""
    train = partial(mortal, str(tmp_path / "marker"), 2)
    expected = searched(train, seeds=2, prune=HALVING, executor="inline")
    with pytest.warns(RecoveryWarning, match="trial 2, training 0 begins again"):
        report = searched(train, seeds=2, prune=HALVING, executor="federated", nodes=nodes, workers=workers)
    assert report.trials == expected.trials


class Careless(InProcess):
    """Loses each of its nodes in the middle of a request, when its time has come."""

    def __init__(self, nodes: int, workers: int, when: int) -> None:
        super().__init__(nodes, workers)
        self.left = dict.fromkeys(range(1, nodes), when)
        self.losses = 0

    def send(self, node: int, request: Any) -> None:
        super().send(node, request)
        self.left[node] -= 1
        if not self.left[node]:
            self.losses += 1
            self.lose(node)


@pytest.mark.slow
@pytest.mark.parametrize("when", [1, pytest.param(3, marks=pytest.mark.faults)])
def test_lost_nodes_change_nothing(when: int, tmp_path: Path) -> None:
    def slow(trial: Trial) -> None:
        time.sleep(0.1 * (when > 1))
        curve(trial)

    prune = HALVING if when == 1 else None  # what was told to stop and is lost does not begin again
    expected = searched(prune=prune, seeds=2, executor="inline")
    transport = Careless(3, 1, when)
    with pytest.warns(RecoveryWarning, match=r"begins again: node [12] was lost$"):
        report = searched(slow, prune=prune, seeds=2, executor=transport, path=tmp_path / "study")
    assert report.trials == expected.trials and transport.losses


@pytest.mark.slow
def test_trainings_that_wait_are_lost_with_their_node(tmp_path: Path) -> None:
    """And begin again on a new one, where they are asked for nothing that the old one had."""
    begun, transport = tmp_path / "begun", InProcess(2, 2)

    def train(trial: Trial) -> None:
        (tmp_path / f"{trial.number} {os.getpid()}").touch()
        if trial.number == 0:  # at home: others wait for its first report
            while not begun.exists():
                time.sleep(0.01)
        curve(trial)

    def lose() -> None:
        while len([*tmp_path.glob("[23] *")]) < 2:
            time.sleep(0.01)
        time.sleep(0.5)  # both have reported by then
        transport.lose(1)
        begun.touch()

    losing = threading.Thread(target=lose)
    losing.start()
    with pytest.warns(RecoveryWarning, match="begins again: node 1 was lost$"):
        report = searched(train, prune=HALVING, executor=transport)
    losing.join()
    assert report.trials == searched(prune=HALVING, executor="inline").trials
    assert len([*tmp_path.glob("[23] *")]) == 4


@pytest.mark.slow
def test_a_node_that_is_always_lost() -> None:
    class Gone(Careless):
        def replace(self, node: int) -> None:
            super().replace(node)
            self.left[node] = 1

    with pytest.warns(RecoveryWarning, match="begins again"):
        report = searched(trials=6, executor=Gone(2, 1, 1))
    failed = {one.error for one in report.trials if one.state == "failed"}
    assert failed == {"NodeDiedError: its machine was lost, 2 times"} and report.count("complete")


def test_nodes_must_see_the_record(tmp_path: Path) -> None:
    class Elsewhere(InProcess):
        """Nodes that see no record."""

        def launch(self, configs: Any) -> None:
            (tmp_path / "study" / "trials.jsonl").unlink()
            super().launch(configs)

    with pytest.raises(ValueError, match=r"path must be a folder that all machines share: .* has no .*study"):
        searched(executor=Elsewhere(2, 1), path=tmp_path / "study")


def test_a_trial_is_drawn_when_others_have_ended() -> None:
    """By hand: Optuna is asked and told in the order that the page says."""
    study = optuna.create_study(direction="maximize", sampler=TPESampler(seed=3, n_startup_trials=3))
    running: list[optuna.Trial] = []
    for number in range(10):
        if number >= 4:
            first = running.pop(0)
            study.tell(first, -abs(first.params["x"] - 2))
        running.append(study.ask(dict(SPACE)))
    report = searched(
        lambda trial: -abs(trial.params["x"] - 2), trials=10, sampler=TPESampler(seed=3, n_startup_trials=3), executor="inline"
    )
    assert [dict(one.params) for one in report.trials] == [one.params for one in study.get_trials()]


def test_in_flight_is_part_of_the_search() -> None:
    some = searched(executor="inline", sampler=TPESampler(seed=1, n_startup_trials=2))
    other = searched(executor="inline", sampler=TPESampler(seed=1, n_startup_trials=2), in_flight=2)
    assert [one.params for one in some.trials[:2]] == [one.params for one in other.trials[:2]]
    assert some.fingerprint() != other.fingerprint()


def test_rungs_are_passed_by_the_best_so_far() -> None:
    """Each trial is judged by those before it: the first one passes, then one in three."""
    report = searched(prune=SuccessiveHalving((100,), 3), executor="inline", trials=12)
    seen: list[float] = []
    for one in report.trials:
        first = one.reports[0][100]
        seen.append(first)
        best = sorted(seen, reverse=True)[: max(1, len(seen) // 3)]
        assert (one.state == "complete") == (first in best)
    assert [len(one.reports[0]) for one in report.trials] == [3 if one.state == "complete" else 1 for one in report.trials]


def test_a_space_may_be_a_function() -> None:
    report = searched(space=by_function, executor="inline", trials=8)
    assert {tuple(sorted(one.params)) for one in report.trials} == {("kind", "x"), ("big_x", "kind")}
    assert report.best.value is not None


@pytest.mark.slow
def test_models_are_evaluated_and_kept(tmp_path: Path) -> None:
    """Whole trainings of SB3's: the same weights in the calling thread and in processes."""
    arguments: dict[str, Any] = {"trials": 2, "seeds": 2, "episodes": 2, "prune": SuccessiveHalving((128,), 2)}
    report = searched(small_ppo, executor="processes", workers=2, path=tmp_path / "study", **arguments)
    assert report.fingerprint() == searched(small_ppo, executor="inline", **arguments).fingerprint()
    best = report.best
    assert len(best.digests) == len(best.models) == len(best.values) == 2 and all(path.exists() for path in best.models)
    low, high = best.interval()
    assert best.value == np.mean(best.values) and low <= best.value <= high
    assert all(set(reports) == {128} for reports in best.reports)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_trainers_of_ours_are_searched_too() -> None:
    arguments: dict[str, Any] = {"trials": 3, "episodes": 4, "env": "CartPole-v1", "prune": SuccessiveHalving((128,), 2)}
    found = {
        searched(small_trainer, executor=executor, workers=2, **arguments).fingerprint() for executor in ("inline", "processes")
    }
    assert len(found) == 1


# ---------------------------------------------------------------------- failures, deaths, and going on


def test_a_training_that_raises_is_a_failed_trial(tmp_path: Path) -> None:
    reports = [searched(brittle, executor=executor, workers=2) for executor in ("inline", "processes")]
    assert len({report.fingerprint() for report in reports}) == 1
    report = reports[1]
    assert {one.state for one in report.trials} == {"complete", "failed"}
    for one in report.trials:
        assert (one.state == "failed") == (one.params["x"] < 1.5)
        assert one.error == (f"ArithmeticError: x is {one.params['x']:.1f}" if one.state == "failed" else "")
        assert one.state != "failed" or ("brittle" in one.text and one.value is None)
    assert "failed: ArithmeticError: x is" in str(report)
    states = [one.state for one in report.study.get_trials()]
    assert states == [TrialState.FAIL if one.state == "failed" else TrialState.COMPLETE for one in report.trials]


@pytest.mark.slow
@pytest.mark.parametrize("prune", ["none", pytest.param("halving", marks=pytest.mark.faults)])
def test_a_killed_process_changes_nothing(tmp_path: Path, prune: str) -> None:
    train = partial(mortal, str(tmp_path / "marker"), 2)
    expected = searched(train, prune=PRUNERS[prune](), trials=8, executor="inline").fingerprint()
    with pytest.warns(RecoveryWarning, match="trial 2, training 0 begins again"):
        report = searched(train, prune=PRUNERS[prune](), trials=8, executor="processes", workers=2)
    assert report.fingerprint() == expected and (tmp_path / "marker").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_study_where_processes_are_killed(tmp_path: Path) -> None:
    """On one worker, on two and on four, with a model of SB3's in each training."""
    arguments: dict[str, Any] = {"trials": 4, "seeds": 2, "episodes": 2, "prune": SuccessiveHalving((128,), 2)}
    found = {searched(small_ppo, executor="inline", **arguments).fingerprint()}
    for workers in (1, 2, 4):
        train = partial(mortal_ppo, str(tmp_path / f"{workers}"), 1)
        with pytest.warns(RecoveryWarning, match="trial 1, training 0 begins again"):
            found.add(searched(train, executor="processes", workers=workers, **arguments).fingerprint())
    assert len(found) == 1


def test_a_training_that_always_dies_is_a_failed_trial() -> None:
    with pytest.warns(RecoveryWarning, match="begins again"):
        report = searched(partial(mortal, "", 2), trials=6, executor="processes", workers=2)
    assert [one.state for one in report.trials] == ["complete", "complete", "failed", "complete", "complete", "complete"]
    assert report.trials[2].error == "WorkerDiedError: its process died by signal 9, 2 times"


@pytest.mark.slow
def test_a_search_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "study"
    whole = searched(executor="inline", seeds=2, prune=HALVING, path=path)
    lines = (path / "trials.jsonl").read_text().splitlines(keepends=True)
    for kept in (1, len(lines) // 3, len(lines) // 2, len(lines) - 1):
        # The writer died within a line, which was longer than all that will be written there.
        (path / "trials.jsonl").write_text("".join(lines[:kept]) + lines[kept][:11] + " " * 20_000)
        again = searched(executor="inline", seeds=2, prune=HALVING, path=path)
        assert again.fingerprint() == whole.fingerprint()
        found = (path / "trials.jsonl").read_text().splitlines(keepends=True)
        assert found[:kept] == lines[:kept] and set(found) <= set(lines)
    more = searched(executor="inline", seeds=2, prune=HALVING, path=path, trials=15)
    assert [one.params for one in more.trials[:12]] == [one.params for one in whole.trials]


SCRIPT = """
import sys, time
from swept import SPACE, curve
from reactor_sb3 import SuccessiveHalving, sweep

def slow(trial):
    time.sleep(0.05)
    return curve(trial)

if __name__ == "__main__":
    report = sweep(
        slow, SPACE, 12, seed=3, in_flight=4, prune=SuccessiveHalving((100, 200)), path=sys.argv[1], workers=2,
        executor="processes", progress_bar=False,
    )
    print(report.fingerprint())
"""


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("how", "lines"), [(signal.SIGKILL, 4), (signal.SIGINT, 20)], ids=["killed", "interrupted"])
def test_a_search_that_was_stopped_goes_on(tmp_path: Path, how: signal.Signals, lines: int) -> None:
    """After kill -9, and after Ctrl-C."""
    expected = searched(executor="inline", prune=HALVING).fingerprint()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "study")]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, cwd=FOLDER)
    record, until = tmp_path / "study" / "trials.jsonl", time.monotonic() + 100
    while not record.exists() or record.read_text().count("\n") < lines:
        assert time.monotonic() < until and first.poll() is None
        time.sleep(0.01)
    first.send_signal(how)
    _, said = first.communicate(timeout=60)
    assert first.returncode == (-9 if how == signal.SIGKILL else -2), said
    known = record.read_text().count("\n")
    again = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, cwd=FOLDER)
    assert again.stdout.strip() == expected
    assert record.read_text().count("\n") > known


def test_a_training_finds_its_folder(tmp_path: Path) -> None:
    """What it has left there before its process died."""

    def train(trial: Trial) -> float:
        assert trial.folder is not None
        begun = trial.folder / "begun"
        if trial.number == 1 and not begun.exists():
            begun.write_text(str(trial.seed))
            os.kill(os.getpid(), signal.SIGKILL)
        return float(begun.exists())

    with pytest.warns(RecoveryWarning, match="trial 1, training 0 begins again"):
        report = searched(train, trials=3, executor="processes", workers=1, path=tmp_path / "study")
    assert [one.value for one in report.trials] == [0.0, 1.0, 0.0]


# ---------------------------------------------------------------------- the user's study


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite", "journal"])
def test_a_study_gets_every_trial(tmp_path: Path, storage: str) -> None:
    def study() -> optuna.Study:
        if storage == "sqlite":
            where: Any = f"sqlite:///{tmp_path}/study.db"
        else:
            backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
            where = optuna.storages.JournalStorage(backend)
        return optuna.create_study(
            study_name="one", storage=where, sampler=TPESampler(seed=3), direction="maximize", load_if_exists=True
        )

    alone = searched(executor="inline", prune=HALVING)
    report = searched(executor="inline", prune=HALVING, study=study(), path=tmp_path / "record", trials=7)
    assert [one.params for one in alone.trials[:7]] == [one.params for one in report.trials]
    report = searched(executor="inline", prune=HALVING, study=study(), path=tmp_path / "record")
    assert report.fingerprint() == alone.fingerprint()
    theirs = study().get_trials()
    assert [one.params for one in theirs] == [one.params for one in report.trials]
    assert [one.value for one in theirs] == [one.value for one in report.trials]
    assert [one.intermediate_values for one in theirs] == [dict(one.reports[0]) for one in report.trials]
    with pytest.raises(ValueError, match="has 12 trials, of which the record of this search has 0"):
        searched(executor="inline", prune=HALVING, study=study())
    other = optuna.create_study(sampler=TPESampler(seed=3), direction="maximize")
    other.add_trial(optuna.trial.create_trial(value=3.0, params={"x": 1.0}, distributions={"x": SPACE["x"]}))
    with pytest.raises(ValueError, match="has trials of another search: its trial 0 has"):
        searched(executor="inline", prune=HALVING, study=other, path=tmp_path / "record")


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train": 3}, TypeError, "train must be a function of a trial, got 3"),
        ({"space": {}}, ValueError, "space is empty"),
        ({"space": {"x": 3}}, TypeError, "space must map names to Optuna's distributions, got 'x': 3"),
        ({"space": 3}, TypeError, "space must be a dict of Optuna's distributions, or a function"),
        ({"trials": 0}, ValueError, "`trials` must be positive"),
        ({"seeds": 0}, ValueError, "`seeds` must be positive"),
        ({"in_flight": 0}, ValueError, "`in_flight` must be positive"),
        ({"executor": "threads"}, ValueError, "threads would share the generators"),
        ({"executor": "fast"}, ValueError, "executor must be 'auto', 'inline', 'processes', 'federated' or 'ray', got 'fast'"),
        ({"prune": 3}, TypeError, "prune must be a SuccessiveHalving or one of Optuna's pruners, got 3"),
        ({"direction": "up"}, ValueError, "direction must be 'maximize' or 'minimize', got 'up'"),
        ({"sampler": 3}, TypeError, "sampler must be one of Optuna's, got 3"),
        ({"sampler": TPESampler()}, ValueError, r"sampler TPESampler draws something else each time: .* TPESampler\(seed=0\)"),
        ({"sampler": CmaEsSampler()}, ValueError, "sampler CmaEsSampler draws something else each time"),
        ({"sampler": GPSampler()}, ValueError, "sampler GPSampler draws something else each time"),
        ({"study": 3}, TypeError, "study must be an optuna.Study, got 3"),
        ({"env": 3}, TypeError, "env must be an id, a spec, or a function"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        searched(**{"path": tmp_path / "study", "executor": "inline", **arguments})
    assert not (tmp_path / "study").exists()


def test_a_study_whose_sampler_has_no_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="the study's sampler TPESampler draws something else each time"):
        searched(study=optuna.create_study())
    with pytest.raises(ValueError, match="has 2 objectives"):
        searched(study=optuna.create_study(directions=["minimize", "maximize"], sampler=RandomSampler(seed=0)))


class Dicing(optuna.samplers.RandomSampler):
    """Draws from numpy's global generator."""

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return param_distribution.to_external_repr(float(np.random.default_rng().uniform(0, 4)))


def test_a_sampler_that_draws_otherwise_is_found_out() -> None:
    with pytest.raises(ValueError, match="sampler Dicing draws something else each time"):
        searched(space={"x": FloatDistribution(0, 4)}, sampler=Dicing(seed=0))


def test_a_record_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study"
    searched(executor="inline", path=path)
    before = (path / "trials.jsonl").read_text()
    with pytest.raises(ValueError, match="its seed is 3, here it is 4"):
        searched(executor="inline", path=path, seed=4)
    with pytest.raises(ValueError, match="its in_flight is 4, here it is 3"):
        searched(executor="inline", path=path, in_flight=3)
    with pytest.raises(ValueError, match="the record of another search: its space is"):
        searched(executor="inline", path=path, space={"x": FloatDistribution(0, 1)})
    with pytest.raises(ValueError, match=r"its trial 0 has .*, here it has .*The sampler, its seed"):
        searched(executor="inline", path=path, sampler=TPESampler(seed=9))
    assert (path / "trials.jsonl").read_text() == before
    (path / "trials.jsonl").write_text("hello\n")
    with pytest.raises(ValueError, match="is not a record of a search"):
        searched(executor="inline", path=path)
    assert (path / "trials.jsonl").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (lambda trial: None, "ValueError: the training has returned nothing, and reported nothing"),
        (lambda trial: "good", "TypeError: what a training returns, unless it is a model, must be a number, got 'good'"),
        (lambda trial: float("nan"), "must be finite, got nan"),
        (lambda trial: trial.report("good", 3), "TypeError: the reported value must be a number, got 'good'"),
        (lambda trial: [trial.report(1.0, 3), trial.report(2.0, 3)], "ValueError: step 3 was reported after step 3"),
        (lambda trial: trial.callback(), "ValueError: callback() needs every="),
        (lambda trial: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_a_training_that_makes_no_sense_fails(train: Any, message: str) -> None:
    report = searched(train, trials=2, executor="inline")
    assert [one.state for one in report.trials] == ["failed"] * 2 and message in report.trials[0].error
    with pytest.raises(ValueError, match="no trial of the search is complete; trial 0 failed with"):
        report.best  # noqa: B018


def test_rungs_that_make_no_sense() -> None:
    for rungs in ((), (200, 100), (100, 100)):
        with pytest.raises(ValueError, match="rungs must be steps that rise"):
            SuccessiveHalving(rungs)
    with pytest.raises(ValueError, match="`reduction_factor` must be at least 2"):
        SuccessiveHalving((100,), 1)


def test_the_caller_keeps_its_random_numbers() -> None:
    np.random.seed(3)
    expected = np.random.random(3)
    np.random.seed(3)
    searched(executor="inline", trials=2)
    assert np.array_equal(np.random.random(3), expected)


@pytest.mark.slow
def test_the_report_says_what_it_found() -> None:
    pytest.importorskip("pandas")
    report = searched(executor="inline", seeds=2, prune=HALVING)
    table = report.to_dataframe()
    assert len(table) == len(report) == 12 and list(table["state"]) == [one.state for one in report.trials]
    assert report.fingerprint() in str(report) and "95 % interval, 2 seeds" in str(report) and "<table" in report._repr_html_()
    assert report.best.value == max(one.value for one in report.trials if one.state == "complete")
    assert report.study.best_trial.number == report.best.number
    assert "complete=" in repr(report) and max(max(one.reports[0]) for one in report.trials) == STEPS[-1]
    assert json.dumps([dict(one.params) for one in report.trials])


@pytest.mark.parametrize("prune", [None, optuna.pruners.HyperbandPruner(min_resource=100), optuna.pruners.MedianPruner()])
def test_samplers_and_pruners_may_be_used_again(prune: Any) -> None:
    sampler = TPESampler(seed=0)
    reports = [searched(sampler=sampler, prune=prune, executor="inline") for _ in range(2)]
    assert reports[0].fingerprint() == reports[1].fingerprint()


def test_another_pruner_is_another_search(tmp_path: Path) -> None:
    searched(path=tmp_path, prune=optuna.pruners.MedianPruner(n_startup_trials=5), executor="inline", trials=3)
    with pytest.raises(ValueError, match="prune"):
        searched(path=tmp_path, prune=optuna.pruners.MedianPruner(n_startup_trials=50), executor="inline", trials=3)


def test_a_search_is_carried_out_by_one_process(tmp_path: Path) -> None:
    searched(path=tmp_path, executor="inline", trials=2)
    before = (tmp_path / "trials.jsonl").read_text()
    with (tmp_path / "trials.jsonl").open("a") as file:
        assert locked(file)
        with pytest.raises(ValueError, match="another process carries out the search"):
            searched(path=tmp_path, executor="inline", trials=2)
    assert (tmp_path / "trials.jsonl").read_text() == before


@pytest.mark.parametrize(("last", "every", "passed"), [(-1, None, 0), (256, None, 1), (600, None, 2), (256, 100, 2), (-1, 100, 0)])
def test_a_training_that_goes_on_has_reported_already(last: int, every: int | None, passed: int) -> None:
    reports = {} if last < 0 else {last: 1.0}
    trial = Trial(Job(0, 0, 0, {}, (256, 512), reports, None, None, 1, 0), lambda report: False)
    callback: Any = trial.callback(every=every)
    callback.model = SimpleNamespace(num_timesteps=max(last, 0))
    callback.on_training_start({}, {})
    assert callback.passed == passed
