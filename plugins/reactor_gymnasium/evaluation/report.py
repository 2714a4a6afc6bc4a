"""The report of an evaluation: returns, lengths and last infos in the order of episodes, their mean and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.evaluation.contents import hashed
from reactor_gymnasium.reporting import Table, histogram, interval_of, intervals_told
from reactor_rl.plugin import require_module

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EvaluationReport", "columns_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, repr=False, eq=False)
class EvaluationReport:
    """Episodes of an evaluation, by their numbers.

    Attributes:
        env: The environment's id or name.
        policy: How the policy was asked, in words.
        row_independent: Whether the policy's answer for a row does not depend on the rows beside it, by construction or as far as
            it was tried, nor on what it was asked before. If not, the report depends on ``num_envs`` and ``workers``.
        deterministic: Whether it took its best action, or drew one.
        seed: Of the evaluation.
        returns: Of each episode, ``(episodes,)``, float64.
        lengths: In steps, ``(episodes,)``, int64.
        terminated: Whether the environment ended an episode and no limit, ``(episodes,)``, bool.
        infos: What episodes' last infos had of numbers and truth values, by name, ``(episodes,)``; NaN where an episode had none. A
            key that is no string is written out.
        digests: A hash of each episode's actions and rewards.
        seconds: How long it took. The fingerprint does not cover this.
        videos: Paths of the recorded episodes, by number. Neither does it cover these.
    """

    env: str
    policy: str
    row_independent: bool
    deterministic: bool
    seed: int
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    infos: Mapping[str, Array]
    digests: tuple[str, ...]
    seconds: float
    videos: Mapping[int, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Steps of all episodes together."""
        return int(self.lengths.sum())

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns, as ``np.std`` has it."""
        return float(self.returns.std())

    def interval(self, level: float = 0.95, of: str = "returns") -> tuple[float, float]:
        """The confidence interval of a mean.

        Args:
            level: How sure it is to be, between 0 and 1.
            of: ``"returns"``, ``"lengths"``, or a name of ``infos``. For numbers it is Student's interval, for truth values
                Wilson's, without scipy the normal one for both. Episodes that lack an info do not count.

        Returns:
            Its ends; of fewer than two numbers, NaN.

        Raises:
            ValueError: If the level is not between 0 and 1.
            KeyError: If there is no such info.
        """
        numbers = self.returns if of == "returns" else self.lengths if of == "lengths" else self.infos[of]
        return interval_of(numbers[~np.isnan(numbers)], level)

    def fingerprint(self) -> str:
        """A hash of every action and reward, and of all that is reported of episodes."""
        arrays = {name: self.infos[name] for name in sorted(self.infos)}
        return hashed((self.seed, self.deterministic, self.returns, self.lengths, self.terminated, arrays, list(self.digests)))

    def to_dataframe(self) -> pd.DataFrame:
        """A table of pandas with a row for each episode: ``episode``, ``return``, ``length``, ``terminated``, and the infos.

        An info that is called like one of the first four is ``info.NAME``.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        pandas = require_module("pandas", "EvaluationReport.to_dataframe")
        columns = {"return": self.returns, "length": self.lengths, "terminated": self.terminated}
        taken = {"episode", *columns}
        columns |= {f"info.{name}" if name in taken else name: values for name, values in self.infos.items()}
        table: pd.DataFrame = pandas.DataFrame(columns)
        table.insert(0, "episode", range(len(self.returns)))
        return table

    def __len__(self) -> int:
        """How many episodes."""
        return len(self.returns)

    def __repr__(self) -> str:
        return f"EvaluationReport({self.env}, episodes={len(self)}, seed={self.seed}, mean={self.mean:.6g})"

    def __str__(self) -> str:
        """A table: means of returns, lengths and infos with 95 % intervals, lowest and highest."""
        return str(self._table())

    def _repr_html_(self) -> str:
        """The same table and a histogram of the returns, in a notebook."""
        return self._table().html(histogram(self.returns, "return"))

    def _table(self) -> Table:
        acting = "best actions" if self.deterministic else "drawn actions"
        title = (
            f"{self.env}: {len(self)} episodes, {self.steps:,} steps in {self.seconds:.2f} s, {acting}, seed {self.seed}, "
            f"fingerprint {self.fingerprint()}"
        )
        rates = any(numbers.dtype == np.bool_ for numbers in self.infos.values())
        notes = (intervals_told(rates), f"the policy was asked {self.policy}")
        return Table(title, ("", "mean", "95 % interval", "lowest", "highest"), self._rows(), notes)

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for name, of, numbers in [
            ("return", "returns", self.returns),
            ("length", "lengths", self.lengths),
            *((name, name, numbers) for name, numbers in self.infos.items()),
        ]:
            low, high = self.interval(of=of)
            known = numbers[~np.isnan(numbers)].astype(np.float64)
            if len(known):
                shown = f"[{low:.4g}, {high:.4g}]"
                rows.append((name, f"{known.mean():.4g}", shown, f"{known.min():.4g}", f"{known.max():.4g}"))
        return rows


def columns_of(episodes: Sequence[EndedEpisode]) -> dict[str, Array]:
    """Infos by name: truth values if all episodes have one, integers likewise, else float64 with NaN for those without."""
    names = sorted({name for one in episodes for name in one.info})
    columns: dict[str, Array] = {}
    for name in names:
        values = [one.info.get(name, math.nan) for one in episodes]
        kinds = {type(value) for value in values}
        dtype = np.bool_ if kinds == {bool} else np.int64 if kinds == {int} else np.float64
        try:
            columns[name] = np.array(values, dtype)
        except OverflowError:  # an integer of more than 64 bits
            columns[name] = np.array(values, np.float64)
    return columns
