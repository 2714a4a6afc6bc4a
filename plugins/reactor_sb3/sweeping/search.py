"""Which trials there are, and which training may begin or is to stop: decided by the order of trials alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reactor_sb3.sweeping.pruning import Pruner
from reactor_sb3.sweeping.records import Record
from reactor_sb3.sweeping.training import Died, Ended, Job, Reported
from reactor_sb3.sweeping.trials import SearchedTrial, TrialTraining

if TYPE_CHECKING:
    from reactor_sb3.sweeping.study import OrderedStudy

__all__ = ["Search"]


class Search:
    """A search, whoever carries out its trainings.

    Args:
        study: Where trials come from.
        record: Where everything is kept, and was kept the last time.
        pruner: Who judges reports; ``None`` for nobody.
        count: How many trials.
        seeds: Trainings of each.
        seed: Of the search.
        in_flight: Trials that have begun and not ended, at most.
        env: What models are evaluated in.
        episodes: How many.
        update: Called with 1 when a trial has ended.

    Attributes:
        trials: Those that were drawn.
        told: How many of them have ended, with all before them, which the study was told.
    """

    def __init__(
        self, study: OrderedStudy, record: Record, pruner: Pruner | None, count: int, seeds: int, seed: int, in_flight: int,
        env: Any, episodes: int, update: Callable[[int], object],
    ) -> None:  # fmt: skip
        self.study, self.record, self.pruner, self.count = study, record, pruner, count
        self.seeds, self.seed, self.in_flight, self.env, self.episodes = seeds, seed, in_flight, env, episodes
        self.update = update
        self.trials: list[SearchedTrial] = []
        self.told = 0

    @property
    def over(self) -> bool:
        """Whether all trials have ended."""
        return self.told == (len(self.trials) if self.study.stopped else self.count)

    def advance(self) -> None:
        """Ask the study for the trials that are due, and tell it which have ended: always in the same order."""
        while True:
            number = len(self.trials)
            if number < self.count and number - self.told < self.in_flight and not self.study.stopped:
                self._ask(number)
            elif self.told < number and self.trials[self.told].outcome is not None:
                self._tell(self.trials[self.told])
            else:
                return

    def _ask(self, number: int) -> None:
        given, params, distributions = self.study.ask()
        self.record.draw(number, params)
        trial = SearchedTrial(number, params, distributions, given, self.seeds)
        self.trials.append(trial)
        for training in trial.trainings:
            self._remember(training)

    def _remember(self, training: TrialTraining) -> None:
        """Put a training where the record has it."""
        known = training.trial.number, training.repeat
        for step, value, stops, attributes in self.record.reports.get(known, []):
            training.reports[step] = value
            if training.repeat == 0:
                training.trial.attributes[step] = attributes
            if stops:
                training.end = Ended("pruned")  # it may have died before it did
        if known in self.record.ends:
            training.end = Ended(**self.record.ends[known])

    def _tell(self, trial: SearchedTrial) -> None:
        assert trial.outcome is not None
        (state, value), failure = trial.outcome, trial.failure
        attributes: dict[str, Any] = {"values": list(trial.values)} if self.seeds > 1 and state == "complete" else {}
        if failure is not None:
            attributes["error"] = failure.error
        self.study.tell(trial.number, state, value, trial.first.reports, attributes)
        self.told += 1
        self.update(1)

    def next(self) -> TrialTraining | None:
        """The first training that may begin: other seeds of a trial come when its first one is complete."""
        for trial in self.trials[self.told :]:
            end = trial.first.end
            for training in [trial.first] if end is None else trial.trainings[1:] if end.state == "complete" else []:
                if training.end is None and not training.began:
                    training.began = True
                    return training
        return None

    def job(self, training: TrialTraining) -> Job:
        """A training, as it is carried out."""
        trial = training.trial
        rungs = () if self.pruner is None else self.pruner.rungs
        return Job(
            trial.number, training.repeat, self.seed + training.repeat, trial.given, rungs, dict(training.reports),
            self.record.folder_of(trial.number, training.repeat), self.env, self.episodes, self.seed,
        )  # fmt: skip

    def judged(self, training: TrialTraining, report: Reported) -> bool | None:
        """Whether a training that has reported is to stop; ``None`` if that cannot be told yet."""
        trial, stops, step = training.trial, False, report.step
        training.reports[step], training.unjudged = report.value, step
        if self.pruner is not None and training.repeat == 0:
            ended = max(0, trial.number - self.in_flight + 1)
            found = self.pruner.stops(self.trials[: trial.number], ended, trial, step, self.study.sign)
            if found is None:
                return None
            stops = found
        training.unjudged, training.stops = None, stops
        attributes = trial.attributes.get(step, {}) if training.repeat == 0 else {}
        self.record.report(trial.number, training.repeat, step, report.value, stops, attributes)
        return stops

    def ended(self, training: TrialTraining, end: Ended) -> None:
        """A training has ended."""
        training.end = Ended("pruned") if training.stops else end  # whatever it has done since
        self.record.end(training.trial.number, training.repeat, vars(training.end))

    def died(self, training: TrialTraining, death: Died, restarts: int) -> str:
        """The process of a training has died: it begins again, if it may.

        Returns:
            What is to be said of that; nothing if it has ended.
        """
        training.deaths += 1
        if training.unjudged is not None:
            del training.reports[training.unjudged]
            training.unjudged = None
        if not training.stops and training.deaths <= restarts:
            training.began = False
            return f"trial {training.trial.number}, training {training.repeat} begins again: {death.why}"
        times = "" if training.deaths == 1 else f", {training.deaths} times"
        self.ended(training, Ended("failed", error=f"{death.error}{times}", text=death.why))
        return ""
