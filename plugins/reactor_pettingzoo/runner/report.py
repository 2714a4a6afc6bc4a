"""The report of a run: its summaries, tables and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import Table, interval_of, intervals_told, saved_figure
from reactor_rl.plugin import require_module

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Episode", "Report", "Summary"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Summary:
    """Mean of some numbers, with its confidence interval.

    Attributes:
        mean: Their mean; NaN without values.
        low: Lower end of the 95 % interval (Student's t, without scipy the normal one); NaN with fewer than two numbers.
        high: Upper end.
        count: How many numbers.
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Summary:
        """Summarise numbers."""
        return cls(fmean(numbers) if numbers else math.nan, *interval_of(numbers), len(numbers))

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Episode:
    """One episode.

    Attributes:
        copy: Index of the environment.
        returns: Return of each agent that took part.
        lengths: Steps in which each of them acted.
    """

    copy: int
    returns: Mapping[Any, float]
    lengths: Mapping[Any, int]


@dataclass(frozen=True, repr=False)
class Report:
    """The results of a run.

    Attributes:
        seed: Seed of the run; the same seed gives the same report again, but for ``seconds``.
        steps: Steps taken in all environments together; where agents take turns, an action is a step.
        seconds: How long it took.
        episodes: Episodes that ended, in the order of their ends, environment by environment at one tick.
        policy_of: The policy of each agent.
        fingerprint: A hash of every action and reward.
        trajectories: With ``record=True``, arrays by name, each ``(ticks, environments, ...)``, see :meth:`MultiAgentRunner.run`.
    """

    seed: int
    steps: int
    seconds: float
    episodes: tuple[Episode, ...]
    policy_of: Mapping[Any, str]
    fingerprint: str
    trajectories: Mapping[str, Array] = field(default_factory=dict, repr=False)

    @property
    def steps_per_second(self) -> float:
        """Steps per second of all environments together."""
        return self.steps / self.seconds

    @property
    def returns(self) -> dict[Any, Summary]:
        """Return of an episode, for each agent."""
        return self._of_agents([one.returns for one in self.episodes])

    @property
    def lengths(self) -> dict[Any, Summary]:
        """Steps of an episode in which an agent acted, for each agent."""
        return self._of_agents([one.lengths for one in self.episodes])

    def _of_agents(self, episodes: Sequence[Mapping[Any, float]]) -> dict[Any, Summary]:
        return {agent: Summary.of([float(one[agent]) for one in episodes if agent in one]) for agent in self.policy_of}

    @property
    def returns_of_policies(self) -> dict[str, Summary]:
        """Return of an episode, for each policy: in every episode the mean over its agents."""
        return self._of_policies([one.returns for one in self.episodes])

    @property
    def lengths_of_policies(self) -> dict[str, Summary]:
        """Steps of an episode in which an agent acted, for each policy: in every episode the mean over its agents."""
        return self._of_policies([one.lengths for one in self.episodes])

    def _of_policies(self, episodes: Sequence[Mapping[Any, float]]) -> dict[str, Summary]:
        by_policy: dict[str, list[float]] = {name: [] for name in dict.fromkeys(self.policy_of.values())}
        for episode in episodes:
            for name, means in by_policy.items():
                numbers = [number for agent, number in episode.items() if self.policy_of[agent] == name]
                if numbers:
                    means.append(fmean(numbers))
        return {name: Summary.of(means) for name, means in by_policy.items()}

    def __repr__(self) -> str:
        """Sizes and mean returns of the policies; :meth:`__str__` is the whole table."""
        by_policy = list(self.returns_of_policies.items())
        means = ", ".join([f"{name!r}: {one.mean:.4g}" for name, one in by_policy[:4]] + ["..."] * (len(by_policy) > 4))
        kept = f", {len(self.trajectories)} arrays recorded" if self.trajectories else ""
        return (
            f"Report({len(self.episodes)} episodes of {len(self.policy_of)} agents, {self.steps:,} steps, seed={self.seed}, "
            f"returns={{{means}}}{kept})"
        )

    def __str__(self) -> str:
        """A table: returns and lengths of each agent and of each policy, with 95 % intervals."""
        return str(self._table())

    def _repr_html_(self) -> str:
        """The same table, in a notebook."""
        return self._table().html()

    def _table(self) -> Table:
        returns, lengths = self.returns, self.lengths
        rows = [(str(a), str(name), str(returns[a]), str(lengths[a])) for a, name in self.policy_of.items()]
        of_policies, lengths_of = self.returns_of_policies, self.lengths_of_policies
        rows += [("(mean)", str(name), str(summary), str(lengths_of[name])) for name, summary in of_policies.items()]
        title = (
            f"{len(self.episodes)} episodes, {self.steps:,} steps in {self.seconds:.2f} s ({self.steps_per_second:,.0f} a second), "
            f"seed {self.seed}, fingerprint {self.fingerprint}"
        )
        summaries, notes = [*returns.values()], [intervals_told()]
        if any(one.low == one.high for one in summaries) and all(one.count < 2 or one.low == one.high for one in summaries):
            notes.append(
                "all episodes are alike: if nobody draws anything they are one game again and again, and the intervals say nothing"
            )
        return Table(title, ("agent", "policy", "return", "length"), rows, notes)

    def to_dataframe(self) -> pd.DataFrame:
        """Its episodes as a table of pandas, a row for each agent of an episode: episode, copy, agent, policy, return, length.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        pandas = require_module("pandas", "Report.to_dataframe")

        columns = ["episode", "copy", "agent", "policy", "return", "length"]
        rows = [
            (number, one.copy, agent, self.policy_of[agent], one.returns[agent], one.lengths[agent])
            for number, one in enumerate(self.episodes)
            for agent in one.returns
        ]
        table: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
        return table

    def save(self, path: str | Path) -> None:
        """Write the trajectories to a ``.npz`` file.

        Raises:
            ValueError: If nothing was recorded.
        """
        if not self.trajectories:
            raise ValueError("there is nothing to save: call run(..., record=True)")
        arrays: dict[str, Any] = dict(self.trajectories)
        np.savez_compressed(path, **arrays)

    def plot(self, path: str | Path) -> None:
        """Draw the return of each agent with its confidence interval. Needs matplotlib.

        Raises:
            ValueError: If nothing was recorded.
        """
        if not self.episodes:
            raise ValueError("no episode has ended; run for more steps, or with episodes=")
        with saved_figure(path, "Report.plot") as axes:
            returns, names = self.returns, list(dict.fromkeys(self.policy_of.values()))
            axes.figure.set_size_inches(1.5 + 0.5 * len(returns), 3.6)
            for at, (agent, summary) in enumerate(returns.items()):
                color = f"C{names.index(self.policy_of[agent]) % 10}"
                half = 0.0 if math.isnan(summary.low) else summary.high - summary.mean
                axes.errorbar(at, summary.mean, half, fmt="o", capsize=4, color=color)
            axes.set_xticks(range(len(returns)), [str(agent) for agent in returns], rotation=60, ha="right")
            axes.set_ylabel(f"return, mean of {len(self.episodes)} episodes, 95 %")
