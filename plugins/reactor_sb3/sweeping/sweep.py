"""``sweep``: a search for hyperparameters, the same on any number of workers."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reactor_gymnasium.plugin import checked_number, env_maker, progress
from reactor_rl import NodeDiedError, RecoveryWarning, WorkerDiedError
from reactor_rl.plugin import (
    CHOICES,
    ExecutorName,
    check_nodes,
    encode,
    may_start_processes,
    require_extra,
    transport_for,
    usable_cores,
)  # fmt: skip
from reactor_sb3.sweeping.pruning import Contender, Pruner, pruner_of
from reactor_sb3.sweeping.records import Record
from reactor_sb3.sweeping.report import SearchReport, TrialReport
from reactor_sb3.sweeping.rooms import GRACE, seats_on
from reactor_sb3.sweeping.seats import InlineSeat, ProcessSeat, Seat, close_all
from reactor_sb3.sweeping.training import MODEL, Ended, Job, Reported, Trial

if TYPE_CHECKING:
    import optuna

    from reactor_sb3.sweeping.drawing import Drawing, Space

__all__ = ["sweep"]

CHOICES_HERE = ", ".join(repr(one) for one in CHOICES if one not in ("threads", "ray")) + " or 'ray'"
POLL = 0.02
"""Seconds in which the caller looks at each worker once."""


def sweep(
    train: Callable[[Trial], Any],
    space: Space,
    trials: int = 64,
    seeds: int = 1,
    *,
    workers: int | None = None,
    prune: Any = None,
    path: str | os.PathLike[str] | None = None,
    seed: int = 0,
    in_flight: int = 8,
    direction: Literal["maximize", "minimize"] = "maximize",
    sampler: optuna.samplers.BaseSampler | None = None,
    study: optuna.Study | None = None,
    env: Any = None,
    episodes: int = 20,
    executor: ExecutorName = "auto",
    nodes: Any = None,
    restarts: int = 1,
    progress_bar: bool | None = None,
    start_method: str | None = None,
) -> SearchReport:
    """Search hyperparameters. The trials are the same, bit for bit, for any ``workers``, ``executor`` and ``nodes``.

    Each training has a core and one thread. Optuna draws trial ``k`` when the trials up to ``k - in_flight`` have ended, and is
    told of them in their order; a report is judged by the trials before it. So it is never a matter of which training was faster.

    Args:
        train: Called for each training with a :class:`~reactor_sb3.sweeping.training.Trial`: its ``params``, ``seed``, ``folder``.
            Returns a model of Stable-Baselines3, sb3-contrib or ours (with ``workers=1``), which is evaluated; or a number; or
            nothing, then its last report counts.
        space: Optuna's distributions by name, or a function of a trial of Optuna's that asks it for hyperparameters. If it returns
            a dict, trainings are given that.
        trials: How many, counted with those that ``path`` has already; fewer if the sampler has no more to draw.
        seeds: Trainings of each trial, with seeds ``seed``, ``seed + 1`` and so on. The first one is judged by ``prune``, and the
            others begin when it is complete.
        workers: Trainings at the same time, on each node if there are several; ``None`` for the cores that each may use.
        prune: A :class:`~reactor_sb3.SuccessiveHalving`, or one of Optuna's pruners. By default every training goes to its end.
        path: A folder for the record of the search and the models. After a crash or Ctrl-C call again with the same arguments: what
            has ended is not done again, and a training that had begun finds its ``folder`` as it left it. All nodes must see it.
        seed: Of the search.
        in_flight: Trials that have begun and not ended, at most. It is part of the search: with another number others are drawn.
        direction: Whether more is better, ``"maximize"``, or less, ``"minimize"``; a study has its own.
        sampler: One of Optuna's with a seed; by default ``TPESampler(seed=seed)``, or the study's.
        study: A study of Optuna's, in SQLite or a journal, say. Trials are added to it in their order when they have ended.
        env: What models are evaluated in: an id, a spec, or a function; by default the environment that they learned in.
        episodes: How many, the same for all models.
        executor: ``"processes"``, ``"inline"`` (in the calling thread), ``"auto"``: processes where this one may start some; or
            ``"ray"``: processes on the machines of a cluster, this one included.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them.
        restarts: How often a training begins again whose process or machine has died, before its trial counts as failed.
        progress_bar: Whether to show one, if it takes longer than a second. By default on a terminal and in notebooks.
        start_method: How processes start: ``"forkserver"``, ``"spawn"`` or ``"fork"``.

    Returns:
        The trials, with intervals over seeds. A training that raises is a failed trial that says why.

    Raises:
        TypeError: If an argument is of a wrong kind.
        ValueError: If one makes no sense, the sampler draws something else each time, or ``path`` or ``study`` has the trials of
            another search.
        ModuleNotFoundError: If Optuna is not installed.

    Example:
        >>> from optuna.distributions import FloatDistribution
        >>> from reactor_sb3 import sweep
        >>> report = sweep(lambda trial: -abs(trial.params["x"] - 2), {"x": FloatDistribution(0, 5)}, trials=12, executor="inline")
        >>> len(report), report.best.value > -1
        (12, True)
    """
    with require_extra("sweep", "sweep"):
        from reactor_sb3.sweeping.drawing import Drawing, space_of
    if not callable(train):
        raise TypeError(f"train must be a function of a trial, got {train!r}")
    for name, number, least in (
        ("trials", trials, 1), ("seeds", seeds, 1), ("in_flight", in_flight, 1), ("episodes", episodes, 1), ("seed", seed, 0),
        ("restarts", restarts, 0),
    ):  # fmt: skip
        checked_number(name, number, least)
    if workers is not None:
        checked_number("workers", workers, 1)
    if executor == "threads":
        raise ValueError(f"executor must be {CHOICES_HERE}, got 'threads': threads would share the generators of torch and numpy")
    if isinstance(executor, str) and executor not in CHOICES:
        raise ValueError(f"executor must be {CHOICES_HERE}, got {executor!r}")
    check_nodes(executor, nodes)
    if env is not None:
        env_maker(env)  # for its errors
    pruner, plain = pruner_of(prune), space_of(space)
    drawing = Drawing(space, sampler, seed, direction, study, kept=path is not None)
    about = {
        "space": plain, "sampler": drawing.sampler, "direction": drawing.direction, "seeds": seeds, "seed": seed,
        "in_flight": in_flight, "prune": repr(pruner), "env": None if env is None else env_maker(env)[1], "episodes": episodes,
    }  # fmt: skip
    try:
        sent = encode(train)
    except Exception as error:
        raise TypeError(f"train cannot be sent to a worker: {error}") from error
    began = time.perf_counter()
    with ExitStack() as stack:
        transport = transport_for(executor, nodes, workers)
        if transport is not None:
            stack.callback(transport.close, GRACE)
        record = stack.enter_context(Record(path, about))
        update = stack.enter_context(progress(trials, "trial", shown=progress_bar))
        search = _Search(drawing, record, pruner, trials, seeds, seed, in_flight, env, episodes, update)
        search.advance()
        drawing.check_all_told(search.told)
        useful = min(in_flight * seeds, trials * seeds)
        seats: list[Seat]
        if transport is not None:
            seats = seats_on(transport, useful, sent, start_method, record.path)
        elif executor == "inline" or (executor == "auto" and not may_start_processes()):
            seats = [InlineSeat(sent, search.judged_at_once)]
        else:
            seats = [ProcessSeat(sent, start_method) for _ in range(min(workers or usable_cores(), useful))]
        stack.callback(close_all, seats)
        _carry_out(search, seats, restarts)
    ended = tuple(one.report(record) for one in search.trials)
    return SearchReport(
        ended, drawing.direction, seeds, seed, drawing.sampler, drawing.study if study is None else study,
        time.perf_counter() - began,
    )  # fmt: skip


@dataclass
class _Training:
    """One training of a trial, and how far it is."""

    trial: _Trial
    repeat: int
    began: bool = False
    deaths: int = 0
    reports: dict[int, float] = field(default_factory=dict)  # those that were judged
    stops: bool = False  # whether it was told to
    end: Ended | None = None


@dataclass
class _Trial:
    """A trial that was drawn."""

    number: int
    given: Mapping[str, Any]
    contender: Contender
    trainings: list[_Training] = field(default_factory=list)

    @property
    def outcome(self) -> tuple[str, float | None] | None:
        """State and value of a trial that has ended: the first training's if that is not complete, else all of them count."""
        first = self.trainings[0].end
        if first is None or (first.state == "complete" and any(one.end is None for one in self.trainings)):
            return None
        if self.failure is not None:
            return "failed", None
        for one in self.trainings:
            if one.end is not None and one.end.state == "pruned":
                return "pruned", one.reports[max(one.reports)] if one.reports else None
        return "complete", float(np.mean(self.values))

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(one.end.value for one in self.trainings if one.end is not None and one.end.value is not None)

    @property
    def failure(self) -> Ended | None:
        """Why it failed: the first of its trainings that did."""
        return next((one.end for one in self.trainings if one.end is not None and one.end.state == "failed"), None)

    def report(self, record: Record) -> TrialReport:
        outcome, failure = self.outcome, self.failure
        assert outcome is not None
        state, value = outcome
        folders = [record.folder_of(self.number, one.repeat) for one in self.trainings if one.end is not None and one.end.digest]
        return TrialReport(
            self.number, dict(self.contender.params), state, value,  # type: ignore[arg-type]
            values=self.values if state == "complete" else (),
            reports=tuple(dict(one.reports) for one in self.trainings if one.end is not None),
            error="" if failure is None else failure.error, text="" if failure is None else failure.text,
            digests=tuple(one.end.digest for one in self.trainings if one.end is not None and one.end.digest),
            models=tuple(Path(folder) / MODEL for folder in folders if folder is not None),
        )  # fmt: skip


class _Search:
    """Which trials there are, and what may begin: decided by their order alone.

    Attributes:
        trials: Those that were drawn.
        told: How many of them have ended, and all before them.
    """

    def __init__(
        self, drawing: Drawing, record: Record, pruner: Pruner | None, count: int, seeds: int, seed: int, in_flight: int, env: Any,
        episodes: int, update: Callable[[int], object],
    ) -> None:  # fmt: skip
        self.drawing, self.record, self.pruner, self.count = drawing, record, pruner, count
        self.seeds, self.seed, self.in_flight, self.env, self.episodes = seeds, seed, in_flight, env, episodes
        self.update = update
        self.trials: list[_Trial] = []
        self.told = 0

    @property
    def over(self) -> bool:
        """Whether all trials have ended."""
        return self.told == (len(self.trials) if self.drawing.stopped else self.count)

    def advance(self) -> None:
        """Draw the trials that are due, and tell which have ended: always in the same order."""
        while True:
            number = len(self.trials)
            if number < self.count and number - self.told < self.in_flight and not self.drawing.stopped:
                self._draw(number)
            elif self.told < number and (outcome := self.trials[self.told].outcome) is not None:
                self._tell(self.trials[self.told], *outcome)
            else:
                return

    def _draw(self, number: int) -> None:
        given, params, distributions = self.drawing.draw()
        self.record.draw(number, params)
        trial = _Trial(number, given, Contender(params, distributions))
        trial.trainings = [_Training(trial, repeat) for repeat in range(self.seeds)]
        self.trials.append(trial)
        for training in trial.trainings:
            self._remember(training)

    def _remember(self, training: _Training) -> None:
        """Put a training where the record has it."""
        contender = training.trial.contender
        known = training.trial.number, training.repeat
        for step, value, stops, attributes in self.record.reports.get(known, []):
            training.reports[step] = value
            if training.repeat == 0:
                contender.reports[step], contender.attributes[step] = value, attributes
            if stops:
                training.end = Ended("pruned")  # it may have died before it did
        if known in self.record.ends:
            training.end = Ended(**self.record.ends[known])
        if training.repeat == 0:
            contender.over = training.end is not None

    def _tell(self, trial: _Trial, state: str, value: float | None) -> None:
        contender, failure = trial.contender, trial.failure
        contender.outcome = state, value
        attributes: dict[str, Any] = {"values": list(trial.values)} if self.seeds > 1 and state == "complete" else {}
        if failure is not None:
            attributes["error"] = failure.error
        self.drawing.tell(trial.number, state, value, trial.trainings[0].reports, attributes)
        self.told += 1
        self.update(1)

    def ready(self) -> _Training | None:
        """The first training that may begin."""
        for trial in self.trials[self.told :]:
            first = trial.trainings[0]
            some = [first] if first.end is None else trial.trainings[1:] if first.end.state == "complete" else []
            for training in some:
                if training.end is None and not training.began:
                    return training
        return None

    def job(self, training: _Training) -> Job:
        """A training, as it is carried out."""
        trial = training.trial
        rungs = () if self.pruner is None else self.pruner.rungs
        return Job(
            trial.number, training.repeat, self.seed + training.repeat, trial.given, rungs, dict(training.reports),
            self.record.folder_of(trial.number, training.repeat), self.env, self.episodes, self.seed,
        )  # fmt: skip

    def judged(self, training: _Training, report: Reported) -> bool | None:
        """Whether a training that has reported is to stop; ``None`` if that cannot be told yet."""
        trial, stops = training.trial, False
        attributes: dict[str, Any] = {}
        if training.repeat == 0:
            contender = trial.contender
            contender.reports[report.step] = report.value
            if self.pruner is not None:
                before = [one.contender for one in self.trials[: trial.number]]
                ended = max(0, trial.number - self.in_flight + 1)
                found = self.pruner.stops(before, ended, contender, report.step, self.drawing.sign)
                if found is None:
                    return None
                stops, attributes = found, contender.attributes.get(report.step, {})
        training.reports[report.step], training.stops = report.value, stops
        self.record.report(trial.number, training.repeat, report.step, report.value, stops, attributes)
        return stops

    def judged_at_once(self, job: Job, report: Reported) -> bool:
        """The same where each trial ends before the next one begins."""
        found = self.judged(self.trials[job.trial].trainings[job.repeat], report)
        assert found is not None, "trials before this one have ended"
        return found

    def end(self, training: _Training, end: Ended) -> None:
        """A training has ended."""
        self.record.end(training.trial.number, training.repeat, vars(end))
        training.end = end
        if training.repeat == 0:
            training.trial.contender.over = True


def _carry_out(search: _Search, seats: Sequence[Seat], restarts: int) -> None:
    """Carry out all trainings, each by whoever is free."""
    doing: dict[Seat, _Training] = {}
    asked: dict[Seat, Reported] = {}  # who waits for an answer
    while not search.over:
        for seat in seats:
            if seat not in doing and (training := search.ready()) is not None:
                training.began, doing[seat] = True, training
                seat.begin(search.job(training))
        for seat, report in sorted(asked.items(), key=lambda one: doing[one[0]].trial.number):
            stops = search.judged(doing[seat], report)
            if stops is not None:
                del asked[seat]
                seat.answer(stops)
        busy = [seat for seat in doing if seat not in asked]
        assert busy, "every training waits for another one"
        for seat in busy:
            event = seat.poll(max(1e-3, POLL / len(busy)))
            if isinstance(event, Reported):
                asked[seat] = event
            elif event is not None:
                _ended(search, doing.pop(seat), event, restarts)
        search.advance()


def _ended(search: _Search, training: _Training, event: Ended | WorkerDiedError | NodeDiedError, restarts: int) -> None:
    """A training has ended, or its process or its machine has died; then it begins again, if it may."""
    if training.stops:  # whatever it has done since
        event = Ended("pruned")
    if isinstance(event, Ended):
        search.end(training, event)
        return
    training.deaths += 1
    why = str(event).partition(". The run is over")[0]
    which = f"trial {training.trial.number}, training {training.repeat}"
    if training.deaths <= restarts:
        training.began = False
        warnings.warn(f"{which} begins again: {why}", RecoveryWarning, stacklevel=4)
        return
    times = "" if training.deaths == 1 else f", {training.deaths} times"
    if isinstance(event, NodeDiedError):
        search.end(training, Ended("failed", error=f"NodeDiedError: its machine was lost{times}", text=why))
        return
    code = event.exitcode
    how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
    search.end(training, Ended("failed", error=f"WorkerDiedError: its process died{how}{times}", text=why))
