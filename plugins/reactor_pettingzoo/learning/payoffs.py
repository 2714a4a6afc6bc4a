"""Who wins against whom among policies, and what follows from it: ratings, and the mixture that nobody beats."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import Table
from reactor_pettingzoo.runner.tournament import Tournament
from reactor_rl.plugin import require_module

__all__ = ["LeagueReport", "Payoffs", "nash_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, repr=False)
class Payoffs:
    """Games between policies. Row ``i`` and column ``j``: policy ``i`` against policy ``j``, whoever begins.

    Attributes:
        names: Names of the policies.
        games: How many games there were, ``(policies, policies)``.
        won: How many of them the row's policy has won, likewise; a draw is half a win.
    """

    names: tuple[str, ...]
    games: Array
    won: Array

    @classmethod
    def of(cls, found: Tournament) -> Payoffs:
        """Those of a tournament between different policies: who has got more than the other one has won."""
        first, second = np.clip((found.payoffs + 1) / 2, 0, 1) if found.won is None else found.won
        others = 1.0 - np.eye(len(found.names))
        return cls(found.names, 2.0 * found.episodes * others, (first + second.T) * found.episodes * others)

    @property
    def shares(self) -> Array:
        """The share of games that the row's policy has won, likewise; NaN where there were none."""
        with np.errstate(invalid="ignore"):
            return self.won / self.games

    @property
    def elo(self) -> dict[str, float]:
        """Rating of each policy, by which its games are the most likely (Bradley, Terry 1952).

        400 points more are ten wins to one, and their mean is 0.
        """
        n = len(self.names)
        if n == 1:
            return {self.names[0]: 0.0}
        wins = self.won + 0.5  # nobody's rating is infinite
        total = wins + wins.T
        np.fill_diagonal(total, 0)
        np.fill_diagonal(wins, 0)
        strength = np.ones(n)
        for _ in range(1000):
            strength = wins.sum(1) / (total / (strength[:, None] + strength[None, :])).sum(1)
            strength /= np.exp(np.log(strength).mean())
        return dict(zip(self.names, (400 * np.log10(strength)).tolist(), strict=True))

    def nash(self) -> dict[str, float]:
        """Share of each policy in the mixture that no policy beats; of several, the most even one (Balduzzi et al. 2018).

        Raises:
            ModuleNotFoundError: If scipy is not installed.
        """
        return dict(zip(self.names, nash_of(self.games, self.won).tolist(), strict=True))

    def __repr__(self) -> str:
        return f"Payoffs({len(self.names)} policies, {int(self.games.sum() / 2)} games)"

    def __str__(self) -> str:
        """Per cent of games that each row's policy has won."""
        rows = [
            [str(name), *("-" if share != share else f"{100 * share:.0f}" for share in of_row)]
            for name, of_row in zip(self.names, self.shares.tolist(), strict=True)
        ]
        return str(Table("", ["", *map(str, self.names)], rows, flush_right=True))


def nash_of(games: Array, won: Array) -> Array:
    """The most even mixture of policies that none of them beats: the symmetric Nash equilibrium of the largest entropy.

    Args:
        games: As in :class:`Payoffs`.
        won: Likewise. Each pairing has a won and a lost game besides, so that one without games is even.

    Returns:
        The share of each policy, to six digits.

    Raises:
        ModuleNotFoundError: If scipy is not installed.
    """
    optimize = require_module("scipy", "Nash averaging").optimize
    n = len(games)
    gains = (won + 1) / (games + 2) - 0.5
    np.fill_diagonal(gains, 0)
    # Of a mixture p each policy j gets -(p @ gains)[j], which is to be at most 0: one of them always exists.
    none, total = np.zeros(n), np.ones((1, n))
    some = optimize.linprog(none, A_ub=-gains.T, b_ub=none, A_eq=total, b_eq=[1.0], bounds=(0, None)).x
    least, begin = 1e-9, 0.5 * some + 0.5 / n
    even = optimize.minimize(
        lambda p: float(p @ np.log(p)), begin, jac=lambda p: np.log(p) + 1, method="SLSQP", bounds=[(least, 1.0)] * n,
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: total},
            {"type": "ineq", "fun": lambda p: gains.T @ p + least * n, "jac": lambda p: gains.T},
        ],
        options={"maxiter": 1000, "ftol": 1e-10},
    )  # fmt: skip
    found = np.round(np.clip(even.x if even.success else some, 0, None), 6)
    share: Array = found / found.sum()
    return share


@dataclass(frozen=True)
class LeagueReport:
    """How snapshots play each other.

    Attributes:
        tournament: Every one against every other one, on both sides.
        elo: Rating of each; see :attr:`Payoffs.elo`.
    """

    tournament: Tournament
    elo: dict[str, float]

    @property
    def payoffs(self) -> Payoffs:
        """The games of the tournament, on whatever side."""
        return Payoffs.of(self.tournament)

    def nash(self) -> dict[str, float]:
        """Share of each in the mixture that none of them beats; see :meth:`Payoffs.nash`."""
        return self.payoffs.nash()

    def __str__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        """The tournament's table and the ratings, in a notebook."""
        return self._table().html()

    def _table(self) -> Table:
        table = self.tournament._table()
        ratings = ", ".join(f"{name} {rating:.0f}" for name, rating in self.elo.items())
        return replace(table, notes=[*table.notes, f"Elo: {ratings}"])
