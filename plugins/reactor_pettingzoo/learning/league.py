"""Self-play: a policy that learns against snapshots of itself, drawn from a pool by a rule.

Everything that a league knows is in buffers of the trainer's policy, which every checkpoint has; who plays whom in a round is drawn
from a stream that is keyed by the round alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_gymnasium.plugin import checked_number
from reactor_pettingzoo.agents import AgentID, AgentSpecs, EnvFn
from reactor_pettingzoo.runner.tournament import Tournament, tournament
from reactor_sb3.plugin import copied

if TYPE_CHECKING:
    from reactor_rl.plugin import ExecutorName

__all__ = ["MAIN", "OPPONENT", "League", "LeagueReport", "Pool", "elo_of", "sides_of"]

Array = npt.NDArray[Any]
Rule = Literal["latest", "uniform", "pfsp"]
MAIN, OPPONENT = "main", "opponent"
"""Names of the policy that learns, and of those that it plays."""
_STREAM = 36
"""Key of the streams that opponents are drawn from."""


@dataclass(frozen=True)
class League:
    """How a policy plays snapshots of itself; see the argument ``league`` of :class:`~reactor_pettingzoo.learning.SyncIPPO`.

    A snapshot enters the pool every ``every`` rounds, the first one before the training; a full pool loses its oldest. Some
    opponents are there at the same time: the first one is always the newest snapshot, the others are drawn anew for each round. An
    actor plays one of them, on each side in turn; a game that is under way when a round ends goes on with the next opponent.

    Args:
        every: Rounds from one snapshot to the next.
        size: Snapshots that the pool holds.
        opponents: How many there are at the same time: actor ``i`` plays the ``i``-th, round and round.
        rule: ``"latest"``: all are the newest snapshot. ``"uniform"``: each in the pool is as likely. ``"pfsp"``: prioritised
            fictitious self-play (Vinyals et al. 2019): as likely as the square of the share of games that is not won against it, by
            all training games so far.

    Raises:
        TypeError: If a number is not one.
        ValueError: If it is too small, or there is no such rule.
    """

    every: int = 10
    size: int = 16
    opponents: int = 4
    rule: Rule = "pfsp"

    def __post_init__(self) -> None:
        for name in ("every", "size", "opponents"):
            checked_number(name, getattr(self, name), 1)
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule={self.rule!r}: there are {', '.join(map(repr, get_args(Rule)))}")

    def draw(self, seed: int, round: int, newest: int, played: Array, won: Array) -> list[int]:
        """Draw the opponents of a round.

        Args:
            seed: Of the trainer.
            round: Number of the round.
            newest: Place of the newest snapshot.
            played: Games against each snapshot in the pool, ``(snapshots,)``.
            won: How many of them were won, likewise; a draw is half a win.

        Returns:
            Their places in the pool.
        """
        if self.rule == "latest" or self.opponents == 1:
            return [newest] * self.opponents
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAM, round))))
        weights = np.ones(len(played))
        if self.rule == "pfsp":
            weights = (1 - (won + 1) / (played + 2)) ** 2  # as if one had been won, and one lost
        drawn = random.choice(len(played), self.opponents - 1, p=weights / weights.sum())
        return [newest, *map(int, drawn)]


class Pool(nn.Module):
    """Snapshots of a policy, and what is known of games against them: buffers, of which checkpoints and ``save()`` take care.

    Args:
        policy: The policy.
        league: The league.
    """

    weights: torch.Tensor
    """Parameters of each snapshot, ``(size, n)``, float32."""
    rounds: torch.Tensor
    """Round after which each was taken, ``(size,)``, int64; -1 for members that were not taken."""
    games: torch.Tensor
    """Games against each, and those that were won, ``(size, 2)``, float64."""
    drawn: torch.Tensor
    """Places of the opponents now and in the round before, ``(2, opponents)``, int64."""
    counts: torch.Tensor
    """Rounds, and snapshots, so far, ``(2,)``, int64."""

    def __init__(self, policy: nn.Module, league: League) -> None:
        super().__init__()
        self.league = league
        size = sum(one.numel() for one in policy.parameters())
        self.register_buffer("weights", torch.zeros(league.size, size))
        self.register_buffer("rounds", torch.full((league.size,), -1))
        self.register_buffer("games", torch.zeros(league.size, 2, dtype=torch.float64))
        self.register_buffer("drawn", torch.zeros(2, league.opponents, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.add(policy)

    def add(self, policy: nn.Module) -> None:
        """Take a snapshot."""
        place = int(self.counts[1]) % self.league.size
        with torch.no_grad():
            self.weights[place] = torch.cat([one.detach().flatten() for one in policy.parameters()])
        self.rounds[place], self.games[place] = self.counts[0], 0
        self.counts[1] += 1

    @property
    def newest(self) -> int:
        """Place of the newest snapshot."""
        return (int(self.counts[1]) - 1) % self.league.size

    def put(self, place: int, policy: nn.Module) -> None:
        """Let a policy be a snapshot."""
        at = 0
        with torch.no_grad():
            for one in policy.parameters():
                one.copy_(self.weights[place, at : at + one.numel()].view_as(one))
                at += one.numel()

    def round_over(self, seed: int, policy: nn.Module, slots: Array, scores: Array, late: int) -> list[int]:
        """Count games, take a snapshot if it is time, and draw the opponents of the next round.

        Args:
            seed: Of the trainer.
            policy: What learns.
            slots: Of each game that has ended, which of the opponents was played, ``(games,)``.
            scores: Whether it was won, likewise, 0 to 1.
            late: Rounds by which the learner is behind the actors.

        Returns:
            Places of the opponents.
        """
        for slot, score in zip(slots.tolist(), scores.tolist(), strict=True):
            place = int(self.drawn[late, slot])
            self.games[place, 0] += 1
            self.games[place, 1] += score
        self.counts[0] += 1
        if int(self.counts[0]) % self.league.every == 0:
            self.add(policy)
        there = int((self.rounds >= 0).sum())
        games = self.games[:there].numpy()
        drawn = self.league.draw(seed, int(self.counts[0]), self.newest, games[:, 0], games[:, 1])
        self.drawn[1] = self.drawn[0].clone()
        self.drawn[0] = torch.tensor(drawn)
        return drawn

    def snapshots(self, policy: nn.Module) -> dict[str, nn.Module]:
        """Policies as they were, the oldest first, by the round after which they were taken."""
        there = sorted((int(round), place) for place, round in enumerate(self.rounds) if round >= 0)
        found = {}
        for round, place in there:
            found[f"round {round}"] = one = copied(policy, {id(getattr(policy, "optimizer", None)): None})
            self.put(place, one)
        return found


@dataclass(frozen=True)
class LeagueReport:
    """How snapshots play each other.

    Attributes:
        tournament: Every one against every other one, on both sides.
        elo: Rating of each: 400 points more are ten wins to one, and their mean is 0.
    """

    tournament: Tournament
    elo: dict[str, float]

    def __str__(self) -> str:
        ratings = ", ".join(f"{name} {rating:.0f}" for name, rating in self.elo.items())
        return f"{self.tournament}\nElo: {ratings}"

    @classmethod
    def of(
        cls,
        env_fn: EnvFn,
        population: Mapping[str, Any],
        episodes: int,
        seed: int,
        workers: int | None,
        executor: ExecutorName,
    ) -> LeagueReport:
        """Let them play; what they do is drawn from their distributions."""
        found = tournament(
            env_fn, population, episodes=episodes, seed=seed, deterministic=False, workers=workers, executor=executor,
            progress_bar=False,
        )  # fmt: skip
        return cls(found, elo_of(found))


def elo_of(found: Tournament) -> dict[str, float]:
    """Ratings by which the payoffs of a game that is won (1), lost (-1) or drawn are the most likely (Bradley, Terry 1952)."""
    # What is won on either side: of each policy against each other one.
    won = (np.clip((found.payoffs[0] + 1) / 2, 0, 1) + np.clip((found.payoffs[1].T + 1) / 2, 0, 1)) / 2
    n = len(found.names)
    games = 2.0 * found.episodes
    wins = won * games + 0.5  # nobody's rating is infinite
    total = wins + wins.T
    np.fill_diagonal(total, 0)
    np.fill_diagonal(wins, 0)
    strength = np.ones(n)
    for _ in range(1000):
        strength = wins.sum(1) / (total / (strength[:, None] + strength[None, :])).sum(1)
        strength /= np.exp(np.log(strength).mean())
    return dict(zip(found.names, (400 * np.log10(strength)).tolist(), strict=True)) if n > 1 else {found.names[0]: 0.0}


def sides_of(specs: AgentSpecs) -> tuple[dict[AgentID, str], dict[AgentID, str]]:
    """Who plays whom, one way and the other.

    Raises:
        ValueError: If there are not two agents with equal spaces.
    """
    if len(specs.agents) != 2 or len(specs.groups) != 1:
        raise ValueError(f"a league is of two agents with equal spaces, and {specs.name} has {list(specs.agents)}")
    one, other = specs.agents
    return {one: MAIN, other: OPPONENT}, {one: OPPONENT, other: MAIN}
