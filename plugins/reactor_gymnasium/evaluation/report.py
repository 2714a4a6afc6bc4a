"""The report of an evaluation: returns, lengths and last infos in the order of episodes, their mean and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.player import EndedEpisode
from reactor_gymnasium.evaluation.contents import hashed
from reactor_rl.plugin import html_figure, html_table, require_module

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EvaluationReport", "columns_of", "student"]

Array = npt.NDArray[Any]
BARS, WIDTH, HEIGHT = 20, 420, 120


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
                Wilson's. Episodes that lack an info do not count.

        Returns:
            Its ends; of fewer than two numbers, NaN.

        Raises:
            ValueError: If the level is not between 0 and 1.
            KeyError: If there is no such info.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, got {level}")
        numbers = self.returns if of == "returns" else self.lengths if of == "lengths" else self.infos[of]
        if numbers.dtype == np.bool_:
            return _wilson(int(numbers.sum()), len(numbers), level)
        numbers = numbers[~np.isnan(numbers)]
        count = len(numbers)
        if count < 2:
            return math.nan, math.nan
        half = student(level, count - 1) * float(numbers.std(ddof=1)) / math.sqrt(count)
        middle = float(numbers.mean())
        return middle - half, middle + half

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
        rows = [("", "mean", "95 % interval", "lowest", "highest"), *self._rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._title(), *lines, f"the policy was asked {self.policy}"])

    def _repr_html_(self) -> str:
        """The same table and a histogram of the returns, in a notebook."""
        table = html_table(("", "mean", "95 % interval", "lowest", "highest"), self._rows())
        return html_figure(f"{self._title()}; the policy was asked {self.policy}", table + self._histogram())

    def _title(self) -> str:
        acting = "best actions" if self.deterministic else "drawn actions"
        return (
            f"{self.env}: {len(self)} episodes, {self.steps:,} steps in {self.seconds:.2f} s, {acting}, seed {self.seed}, "
            f"fingerprint {self.fingerprint()}"
        )

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

    def _histogram(self) -> str:
        """The returns as bars, SVG."""
        finite = self.returns[np.isfinite(self.returns)]
        if not len(finite):
            return ""
        counts, edges = np.histogram(finite, min(BARS, max(1, len(finite))))
        width = WIDTH / len(counts)
        bars = "".join(
            f'<rect x="{at * width + 1:.1f}" y="{HEIGHT * (1 - count / counts.max()):.1f}" width="{width - 2:.1f}" '
            f'height="{HEIGHT * count / counts.max():.1f}" fill="#4080e0"><title>{count} of {edges[at]:.4g} to '
            f"{edges[at + 1]:.4g}</title></rect>"
            for at, count in enumerate(counts.tolist())
        )
        axis = (
            f'<text x="0" y="{HEIGHT + 14}" font-size="11" fill="currentColor">{edges[0]:.4g}</text><text x="{WIDTH}" '
            f'y="{HEIGHT + 14}" font-size="11" fill="currentColor" text-anchor="end">return {edges[-1]:.4g}</text>'
        )
        return f'<svg width="{WIDTH}" height="{HEIGHT + 20}" xmlns="http://www.w3.org/2000/svg" role="img">{bars}{axis}</svg>'


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


def student(level: float, freedom: int) -> float:
    """Two-sided quantile of Student's distribution (Abramowitz and Stegun 26.7.5; exact for 1 and 2)."""
    if freedom == 1:
        return math.tan(math.pi * level / 2)
    if freedom == 2:
        return level * math.sqrt(2 / (1 - level**2))
    z = NormalDist().inv_cdf((1 + level) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _wilson(successes: int, count: int, level: float) -> tuple[float, float]:
    """Wilson's interval for a share."""
    if not count:
        return math.nan, math.nan
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = successes / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
