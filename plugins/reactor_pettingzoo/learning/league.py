"""Self-play: a policy that learns against snapshots of itself, drawn from a pool by a rule.

Everything that a league knows is in buffers of the trainer's policy, which every checkpoint has; who plays whom in a round is drawn
from streams that are keyed by the round alone. Snapshots play each other beside the training, on a worker that would wait: which
match is played, and what is known of it, is decided between two rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_gymnasium.plugin import checked_number
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.learning.payoffs import Payoffs, nash_of
from reactor_pettingzoo.learning.seated_unit import JointMaker
from reactor_pettingzoo.reading import AgentID
from reactor_rl.plugin import encode, require_module
from reactor_sb3.plugin import Evaluation, PlayConfig, copied

__all__ = ["MAIN", "OPPONENT", "PLAYERS", "League", "Pool", "sides_of"]

Array = npt.NDArray[Any]
Rule = Literal["latest", "uniform", "pfsp", "nash"]
MAIN, OPPONENT = "main", "opponent"
"""Names of the policy that learns, and of those that it plays."""
PLAYERS = "first", "second"
"""Names of the policies that play a match."""
_STREAM = 36
"""Key of the streams that opponents and matches are drawn from; no other stream of a trainer has it (``reactor_sb3/streams.py``).
"""
_OPPONENTS, _MATCH = 0, 1
"""Purposes of these streams: they are part of the key, so a change would draw other opponents and matches."""
GAMES = 4
"""Games of a match, on either side by turns, if that many are wanted. An even number, for the first move is an advantage in most
games. Chosen.
"""
_BASE = 2**31
"""More snapshots than there ever are: a match is a number in two digits."""


@dataclass(frozen=True)
class League:
    """How a policy plays snapshots of itself; see the argument ``league`` of :class:`~reactor_pettingzoo.learning.SyncIPPO`.

    A snapshot enters the pool every ``every`` rounds, the first one before the training; a full pool loses its oldest. Some
    opponents are there at the same time: the first one is always the newest snapshot, the others are drawn anew for each round. An
    actor plays one of them, on either side; a game that is under way when a round ends goes on with the next opponent. Evaluations
    are played against the newest snapshot.

    Beside the training snapshots play each other: in each round up to ``n_steps`` moves, on a worker that would wait. Their games
    are what :meth:`~reactor_pettingzoo.learning.SyncIPPO.payoffs` tells.

    Args:
        every: Rounds from one snapshot to the next.
        size: Snapshots that the pool holds.
        opponents: How many there are at the same time: actor ``i`` plays the ``i``-th, round and round.
        rule: ``"latest"``: all are the newest snapshot. ``"uniform"``: each in the pool is as likely (fictitious self-play).
            ``"pfsp"``: prioritised fictitious self-play (Vinyals et al. 2019): as likely as the square of the share of games that
            is not won against it, by all training games so far and by the payoffs of the newest snapshot. ``"nash"``: as likely as
            its share in the mixture of snapshots that none of them beats (policy-space response oracles, Lanctot et al. 2017).
            That needs scipy.
        games: Games after which two snapshots have played enough; 0: they do not play each other.

    Raises:
        TypeError: If a number is not one.
        ValueError: If it is too small, or there is no such rule.
        ModuleNotFoundError: If scipy is not installed, and wanted.
    """

    every: int = 10
    size: int = 16
    opponents: int = 4
    rule: Rule = "pfsp"
    games: int = 8

    def __post_init__(self) -> None:
        for name in ("every", "size", "opponents"):
            checked_number(name, getattr(self, name), 1)
        checked_number("games", self.games, 0)
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule={self.rule!r}: there are {', '.join(map(repr, get_args(Rule)))}")
        if self.rule == "nash":
            require_module("scipy", "League(rule='nash')")
            if not self.games:
                raise ValueError("rule='nash' draws by the games of snapshots against each other, and games=0 lets none be played")

    def draw(self, seed: int, round: int, newest: int, games: Array, payoffs: Array) -> list[int]:
        """Draw the opponents of a round.

        Args:
            seed: Of the trainer.
            round: Number of the round.
            newest: Place of the newest snapshot.
            games: Training games against each snapshot in the pool, and how many of them were won, ``(snapshots, 2)``; a draw is
                half a win.
            payoffs: Likewise, of games between snapshots, ``(snapshots, snapshots, 2)``.

        Returns:
            Their places in the pool.
        """
        if self.rule == "latest" or self.opponents == 1:
            return [newest] * self.opponents
        weights = np.ones(len(games))
        if self.rule == "pfsp":
            played, won = (games + payoffs[newest]).T
            weights = (1 - (won + 1) / (played + 2)) ** 2  # as if one had been won, and one lost
        elif self.rule == "nash":
            weights = nash_of(payoffs[..., 0], payoffs[..., 1])
        drawn = _stream(seed, round, _OPPONENTS).choice(len(weights), self.opponents - 1, p=weights / weights.sum())
        return [newest, *map(int, drawn)]

    def pair(self, seed: int, round: int, played: Array) -> tuple[int, int] | None:
        """Draw who play the next match, of those who have played the least.

        Args:
            seed: Of the trainer.
            round: Number of the round.
            played: Games between snapshots in the pool, ``(snapshots, snapshots)``.

        Returns:
            Their places in the pool; ``None`` if all have played enough.
        """
        one, other = np.triu_indices(len(played), 1)
        if not len(one) or (least := played[one, other].min()) >= self.games:
            return None
        which = np.flatnonzero(played[one, other] == least)
        drawn = which[int(_stream(seed, round, _MATCH).integers(len(which)))]
        return int(one[drawn]), int(other[drawn])


def _stream(seed: int, round: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAM, round, purpose))))


class Pool(nn.Module):
    """Snapshots of a policy, and what is known of their games: buffers, of which checkpoints and ``save()`` take care.

    It is the :class:`~reactor_sb3.plugin.Referee` of the league: which snapshots play each other beside the training.

    Raises:
        ValueError: If the policy normalises batches, or has more to it than parameters and buffers.

    Attributes:
        buffer_0: The first of what a policy keeps besides parameters, such as running statistics of its own, of each snapshot,
            ``(size, ...)``; and so on. Most policies have none.
    """

    weights: torch.Tensor
    """Parameters of each snapshot, ``(size, n)``, float32."""
    rounds: torch.Tensor
    """Round after which each was taken, ``(size,)``, int64; -1 for members that were not taken."""
    games: torch.Tensor
    """Training games against each, and those that were won, ``(size, 2)``, float64."""
    payoffs: torch.Tensor
    """Games of each against each, and those that the first one has won, ``(size, size, 2)``, float64."""
    drawn: torch.Tensor
    """The opponents now and in the round before, counted from the first snapshot ever taken, ``(2, opponents)``, int64."""
    counts: torch.Tensor
    """Rounds, and snapshots, so far, ``(2,)``, int64."""
    match: torch.Tensor
    """Which snapshots, counted from the first one ever taken, may play each other now, ``(2,)``, int64; -1 for none."""

    def __init__(self, policy: nn.Module, league: League) -> None:
        super().__init__()
        if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in policy.modules()):
            raise ValueError(
                "a snapshot in a league is a policy's parameters, without the running statistics of batch normalisation: "
                "use layer normalisation"
            )
        for name, part in policy.named_modules():
            if type(part).get_extra_state is not nn.Module.get_extra_state:
                raise ValueError(
                    f"a snapshot in a league is a policy's parameters and buffers, and {type(part).__name__} {name!r} has an extra "
                    "state besides: keep it in buffers"
                )
        self.league = league
        size = sum(one.numel() for one in policy.parameters())
        self.register_buffer("weights", torch.zeros(league.size, size))
        for number, one in enumerate(policy.buffers()):
            self.register_buffer(f"buffer_{number}", one.new_zeros((league.size, *one.shape)))
        self.register_buffer("rounds", torch.full((league.size,), -1))
        self.register_buffer("games", torch.zeros(league.size, 2, dtype=torch.float64))
        self.register_buffer("payoffs", torch.zeros(league.size, league.size, 2, dtype=torch.float64))
        self.register_buffer("drawn", torch.zeros(2, league.opponents, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("match", torch.full((2,), -1))
        self.add(policy)

    def add(self, policy: nn.Module) -> None:
        """Take a snapshot."""
        place = int(self.counts[1]) % self.league.size
        with torch.no_grad():
            for kept, one in self._kept(place, policy):
                kept.copy_(one)
        self.rounds[place], self.games[place] = self.counts[0], 0
        self.payoffs[place] = self.payoffs[:, place] = 0
        self.counts[1] += 1

    def _kept(self, place: int, policy: nn.Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Parameters and buffers of a policy, each with its place in a snapshot before it."""
        flat = torch.split(self.weights[place], [one.numel() for one in policy.parameters()])
        for kept, one in zip(flat, policy.parameters(), strict=True):
            yield kept.view_as(one), one
        buffers = [one for name, one in self.named_buffers() if name.startswith("buffer_")]
        for kept, buffer in zip(buffers, policy.buffers(), strict=True):
            yield kept[place], buffer

    @property
    def newest(self) -> int:
        """Place of the newest snapshot."""
        return (int(self.counts[1]) - 1) % self.league.size

    @property
    def filled(self) -> int:
        """How many snapshots there are."""
        return min(int(self.counts[1]), self.league.size)

    def put(self, place: int, policy: nn.Module) -> None:
        """Let a policy be a snapshot."""
        with torch.no_grad():
            for kept, one in self._kept(place, policy):
                one.copy_(kept)

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
            number, size = int(self.drawn[late, slot]), self.league.size
            if number >= int(self.counts[1]) - size:  # else it has gone meanwhile
                self.games[number % size, 0] += 1
                self.games[number % size, 1] += score
        self.counts[0] += 1
        if int(self.counts[0]) % self.league.every == 0:
            self.add(policy)
        there = slice(self.filled)
        games, payoffs = self.games[there].numpy(), self.payoffs[there, there].numpy()
        drawn = self.league.draw(seed, int(self.counts[0]), self.newest, games, payoffs)
        self.drawn[1] = self.drawn[0].clone()
        self.drawn[0] = torch.tensor([self._number(place) for place in drawn])
        return drawn

    def _number(self, place: int) -> int:
        """Of a place's snapshot, counted from the first one ever taken."""
        return int(self.counts[1]) - 1 - (self.newest - place) % self.league.size

    # ------------------------------------------------------------------ matches between snapshots, as their referee

    def plan(self, model: Any, played: Callable[..., PlayConfig]) -> PlayConfig:
        episodes = min(GAMES, self.league.games)
        make = JointMaker(model.env.get_attr("env_fn")[0], replace(model.seats, rivals=True))
        return played(make=encode(make), policy=model.match_policy(), every=1, episodes=episodes, steps=model.n_steps, drawn=True)

    def due(self) -> int | None:
        first, second = self.match.tolist()
        return None if first < 0 else first * _BASE + second

    def over(self, match: Evaluation) -> None:
        self.match_over(*divmod(match.timesteps, _BASE), (1 + np.sign(match.returns)) / 2)

    def begin_match(self, seed: int) -> tuple[int, int] | None:
        """Draw who may play each other in the next round: their places; ``None`` if all have played enough."""
        there = slice(self.filled)
        pair = self.league.pair(seed, int(self.counts[0]), self.payoffs[there, there, 0].numpy())
        numbers = [-1, -1] if pair is None else [self._number(place) for place in pair]
        self.match[:] = torch.tensor(numbers)
        return pair

    def match_over(self, first: int, second: int, scores: Array) -> None:
        """Count games of two snapshots, counted from the first one ever taken, if both are still there.

        Args:
            scores: Whether the first one has won, 0 to 1, ``(games,)``.
        """
        size = self.league.size
        if min(first, second) < int(self.counts[1]) - size:
            return
        one, other = first % size, second % size
        won = torch.tensor([len(scores), float(scores.sum())], dtype=torch.float64)
        self.payoffs[one, other] += won
        self.payoffs[other, one] += torch.stack([won[0], won[0] - won[1]])

    # ------------------------------------------------------------------ what is told

    def _by_age(self) -> dict[str, int]:
        """Places of the snapshots by name, the oldest first."""
        there = sorted((int(round), place) for place, round in enumerate(self.rounds) if round >= 0)
        return {f"round {round}": place for round, place in there}

    def snapshots(self, policy: nn.Module) -> dict[str, nn.Module]:
        """Policies as they were, the oldest first, by the round after which they were taken."""
        found = {}
        for name, place in self._by_age().items():
            found[name] = one = copied(policy, {id(getattr(policy, "optimizer", None)): None})
            self.put(place, one)
        return found

    def told(self) -> Payoffs:
        """The payoffs, the oldest snapshot first."""
        by_age = self._by_age()
        places = list(by_age.values())
        found = self.payoffs[places][:, places].numpy()
        return Payoffs(tuple(by_age), found[..., 0], found[..., 1])


def sides_of(specs: AgentSpecs) -> tuple[dict[AgentID, str], dict[AgentID, str]]:
    """Who plays whom, one way and the other.

    Raises:
        ValueError: If there are not two agents with equal spaces.
    """
    if len(specs.agents) != 2 or len(specs.groups) != 1:
        raise ValueError(f"a league is of two agents with equal spaces, and {specs.name} has {list(specs.agents)}")
    one, other = specs.agents
    return {one: MAIN, other: OPPONENT}, {one: OPPONENT, other: MAIN}
