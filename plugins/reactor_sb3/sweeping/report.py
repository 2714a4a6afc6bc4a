"""The result of a search: its trials in their order, their values with intervals, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reactor_gymnasium.plugin import Table, hashed, interval_of, intervals_told
from reactor_rl.plugin import require_module

if TYPE_CHECKING:
    import optuna
    import pandas as pd

__all__ = ["SearchReport", "TrialReport"]

SHOWN = 10
"""Trials in a printed table: what fits a terminal; ``trials`` has all of them."""


@dataclass(frozen=True)
class TrialReport:
    """A trial of a search.

    Attributes:
        number: Of the trial.
        params: Its hyperparameters, as they were drawn.
        state: ``"complete"``, ``"pruned"`` or ``"failed"``.
        value: The mean of ``values``; of a pruned trial what it reported last, if anything; of a failed one ``None``.
        values: What its trainings were worth, one for each seed; none of a trial that is not complete.
        reports: What each training has reported, by step.
        error: Why it failed, in a line.
        text: The same with its traceback.
        digests: A hash of each model that was returned.
        models: Where the returned models are, if the search has a ``path``; beside one that learned under a ``VecNormalize`` its
            statistics, ``vecnormalize.pkl``.
    """

    number: int
    params: Mapping[str, Any]
    state: Literal["complete", "pruned", "failed"]
    value: float | None
    values: tuple[float, ...] = ()
    reports: tuple[Mapping[int, float], ...] = ()
    error: str = ""
    text: str = field(default="", repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)
    models: tuple[Path, ...] = field(default=(), repr=False)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of ``value`` over seeds (Student's, without scipy the normal one); NaN for fewer than two.

        Args:
            level: How sure it is to be, between 0 and 1.

        Raises:
            ValueError: If it is not.
        """
        return interval_of(self.values, level)


@dataclass(frozen=True, repr=False, eq=False)
class SearchReport:
    """The trials of a search.

    Attributes:
        trials: In the order in which they were drawn.
        direction: ``"maximize"`` or ``"minimize"``.
        seeds: Trainings of each trial that is not given up.
        seed: Of the search.
        sampler: Who drew them.
        study: Optuna's study with the same trials: the user's, or one in memory.
        seconds: How long it took. The fingerprint does not cover this.
    """

    trials: tuple[TrialReport, ...]
    direction: str
    seeds: int
    seed: int
    sampler: str
    study: optuna.Study
    seconds: float

    @property
    def best(self) -> TrialReport:
        """The complete trial with the best value; the first of equals.

        Raises:
            ValueError: If none is complete.
        """
        ranked = self._ranked()
        if not ranked:
            failed = [one for one in self.trials if one.state == "failed"]
            why = f"; trial {failed[0].number} failed with {failed[0].error}" if failed else ""
            raise ValueError(f"no trial of the search is complete{why}")
        return ranked[0]

    def _ranked(self) -> list[TrialReport]:
        sign = -1.0 if self.direction == "maximize" else 1.0
        done = [(sign * one.value, one.number, one) for one in self.trials if one.state == "complete" and one.value is not None]
        return [one for _, _, one in sorted(done, key=lambda entry: entry[:2])]

    def count(self, state: str) -> int:
        """How many trials are ``"complete"``, ``"pruned"`` or ``"failed"``."""
        return sum(one.state == state for one in self.trials)

    def fingerprint(self) -> str:
        """A hash of all trials: hyperparameters, states, values, reports, and what models have learned."""
        return hashed(
            [
                (
                    one.number,
                    dict(one.params),
                    one.state,
                    one.value,
                    list(one.values),
                    list(map(dict, one.reports)),
                    list(one.digests),
                )
                for one in self.trials
            ]
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A table of pandas with a row for each trial: ``trial``, ``state``, ``value``, ``low``, ``high``, and hyperparameters.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        pandas = require_module("pandas", "SearchReport.to_dataframe")
        rows = []
        for one in self.trials:
            low, high = one.interval()
            value = math.nan if one.value is None else one.value
            rows.append({"trial": one.number, "state": one.state, "value": value, "low": low, "high": high, **one.params})
        table: pd.DataFrame = pandas.DataFrame(rows)
        return table

    def __len__(self) -> int:
        """How many trials."""
        return len(self.trials)

    def __repr__(self) -> str:
        counts = ", ".join(f"{state}={self.count(state)}" for state in ("complete", "pruned", "failed"))
        return f"SearchReport(trials={len(self)}, {counts}, seeds={self.seeds}, seed={self.seed}, sampler={self.sampler})"

    def __str__(self) -> str:
        """The best trials with their intervals, and why others failed."""
        return str(self._table())

    def _repr_html_(self) -> str:
        """The same table, in a notebook."""
        return self._table().html()

    def _table(self) -> Table:
        counts = ", ".join(f"{self.count(state)} {state}" for state in ("complete", "pruned", "failed"))
        title = f"{len(self)} trials ({counts}) in {self.seconds:.1f} s, seed {self.seed}, fingerprint {self.fingerprint()}"
        head = ("trial", "value", f"95 % interval, {self.seeds} seeds" if self.seeds > 1 else "", "hyperparameters")
        rows: list[Sequence[str]] = []
        for one in self._ranked()[:SHOWN]:
            low, high = one.interval()
            between = f"[{low:.4g}, {high:.4g}]" if self.seeds > 1 else ""
            params = ", ".join(f"{name}={_short(value)}" for name, value in one.params.items())
            rows.append((str(one.number), f"{one.value:.6g}", between, params))
        failed = [f"trial {one.number} failed: {one.error}" for one in self.trials if one.state == "failed"]
        left = [f"and {len(failed) - SHOWN} more failed"] if len(failed) > SHOWN else []
        told = [intervals_told()] if self.seeds > 1 else []
        return Table(title, head, rows, [*told, *failed[:SHOWN], *left])


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
