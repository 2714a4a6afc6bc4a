"""How far the trials of a search are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reactor_sb3.sweeping.report import TrialReport
from reactor_sb3.sweeping.training import MODEL, Ended

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from reactor_sb3.sweeping.records import Record

__all__ = ["SearchedTrial", "State", "TrialTraining"]

State = Literal["complete", "pruned", "failed"]


@dataclass
class TrialTraining:
    """One training of a trial.

    Attributes:
        trial: Its trial.
        repeat: Which of the trial's trainings it is.
        began: Whether a worker carries it out, or has.
        deaths: How often its process has died.
        reports: What it has reported, by step.
        unjudged: The step of a report that waits to be judged.
        stops: Whether it was told to stop.
        end: How it has ended.
    """

    trial: SearchedTrial = field(repr=False)
    repeat: int
    began: bool = False
    deaths: int = 0
    reports: dict[int, float] = field(default_factory=dict)
    unjudged: int | None = None
    stops: bool = False
    end: Ended | None = None


@dataclass
class SearchedTrial:
    """A trial, as the search and its pruner see it.

    Attributes:
        number: Of the trial.
        params: Its hyperparameters, as they were drawn.
        distributions: What they were drawn from.
        given: The hyperparameters that its trainings are given.
        seeds: How many trainings it has.
        trainings: They.
        attributes: What Optuna's pruner keeps of it, by the step at which it was judged.
    """

    number: int
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]
    given: Mapping[str, Any]
    seeds: int = 1
    trainings: list[TrialTraining] = field(init=False)
    attributes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trainings = [TrialTraining(self, repeat) for repeat in range(self.seeds)]

    @property
    def first(self) -> TrialTraining:
        """The training that is judged."""
        return self.trainings[0]

    @property
    def outcome(self) -> tuple[State, float | None] | None:
        """State and value of a trial that has ended: the first training's if that is not complete, else all of them count."""
        first = self.first.end
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
        """Values of its trainings that are complete."""
        return tuple(one.end.value for one in self.trainings if one.end is not None and one.end.value is not None)

    @property
    def failure(self) -> Ended | None:
        """Why it failed: the first of its trainings that did."""
        return next((one.end for one in self.trainings if one.end is not None and one.end.state == "failed"), None)

    def report(self, record: Record) -> TrialReport:
        """Of a trial that has ended."""
        outcome, failure = self.outcome, self.failure
        assert outcome is not None
        state, value = outcome
        folders = [record.folder_of(self.number, one.repeat) for one in self.trainings if one.end is not None and one.end.digest]
        return TrialReport(
            self.number, dict(self.params), state, value,
            values=self.values if state == "complete" else (),
            reports=tuple(dict(one.reports) for one in self.trainings if one.end is not None),
            error="" if failure is None else failure.error, text="" if failure is None else failure.text,
            digests=tuple(one.end.digest for one in self.trainings if one.end is not None and one.end.digest),
            models=tuple(Path(folder) / MODEL for folder in folders if folder is not None),
        )  # fmt: skip
