"""``EpisodePlayer``: environments that play episodes whose seeds are keyed by what they are for; ``EpisodeLog``: what came of each.

Trainers' actors and evaluations differ in three things: which episode an environment begins next (:class:`OfRounds`,
:class:`Numbered`), who chooses actions, and what is kept.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.owning import as_number
from reactor_gymnasium.environments.rows import IDLE, EnvRows, StepBuffers
from reactor_rl.plugin import canonical, new_hash

__all__ = ["EndedEpisode", "EpisodeLog", "EpisodePlayer", "Numbered", "OfRounds"]

_FLOATS = frozenset((float,))


# ---------------------------------------------------------------------- what counts


class EpisodeLog:
    """Sums of rewards, lengths and hashes of the episodes of rows.

    What steps bring is noted, and added up when somebody wants to know: that costs more than some steps do. Rewards are added one
    after the other, not by ``sum()``, which rounds otherwise since Python 3.12.

    Args:
        rows: How many rows there are.
        floats: Whether sums are of floats. Else they are of the environments' own numbers: float32 rewards make a float32 sum, as
            Stable-Baselines3's ``Monitor`` has it.
        hashing: Whether an episode's actions and rewards are hashed: where actions are rows of ``"arrays"``, each in the dtype that
            it was given; or are ``"objects"``.

    Attributes:
        noted: The rewards of those steps that have been noted since :meth:`settle`, one after the other.
        totals: The sum of each row's episode, up to what has been counted.
        lengths: Its steps, likewise.
        where: From a row to words for a message.
    """

    def __init__(self, rows: int, floats: bool = False, hashing: Literal["", "arrays", "objects"] = "") -> None:
        self.rows, self.floats, self.hashing = rows, floats, hashing
        self.noted: list[Any] = []
        self.totals: list[Any] = [0.0] * rows
        self.lengths = [0] * rows
        self.where: Callable[[int], str] = "row {}".format
        self._actions: list[Any] = []
        self._since = [0] * rows  # from which of the noted steps on a row has not been counted
        self._hashes: list[tuple[Any, Any] | None] = [None] * rows  # of actions and rewards, where an episode has begun

    @property
    def steps(self) -> int:
        """How many steps have been noted since :meth:`settle`."""
        return len(self.noted) // self.rows

    def note(self, rewards: Sequence[Any], actions: Any = None) -> None:
        """Note a step.

        Args:
            rewards: Of all rows.
            actions: Of all rows, where they are hashed; kept as they are.

        Raises:
            ValueError: If a reward is not a number, with a note that says whose it is.
        """
        floats = _FLOATS.issuperset(map(type, rewards))
        self.noted += rewards if floats else map(self._number, itertools.count(), rewards)
        if actions is not None:
            self._actions.append(actions)

    def _number(self, row: int, reward: Any) -> Any:
        try:
            number = reward if type(reward) is float else as_number(reward)
            return float(number) if self.floats else number
        except ValueError as error:
            error.add_note(f"raised in {self.where(row)}")
            raise

    def count(self, row: int) -> tuple[Any, int]:
        """Bring a row's episode up to date.

        Returns:
            Its sum of rewards, and its length.
        """
        since, total = self._since[row], self.totals[row]
        rewards = self.noted[since * self.rows + row :: self.rows]
        for reward in rewards:
            total += reward
        self.totals[row], self._since[row] = total, since + len(rewards)
        self.lengths[row] += len(rewards)
        hashes = self._hashes[row]
        if hashes is not None:
            hashes[1].update(np.array(rewards, "<f8").tobytes())
            self._hash_actions([of_step[row] for of_step in self._actions[since:]], hashes[0])
        return total, self.lengths[row]

    def _hash_actions(self, taken: Sequence[Any], into: Any) -> None:
        if self.hashing == "objects":
            for action in taken:
                canonical(action, into)
            return
        for _, alike in itertools.groupby(taken, key=lambda action: action.dtype):
            array = np.array(list(alike))
            into.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())

    def begin(self, row: int, idle: bool = False) -> None:
        """Begin a row's episode with the next step; or none, where the row is idle."""
        self.totals[row], self.lengths[row], self._since[row] = 0.0, 0, self.steps
        if self.hashing:
            self._hashes[row] = None if idle else (new_hash(), new_hash())

    def digest(self, row: int) -> str:
        """The hash of a row's actions and rewards, up to what has been counted."""
        hashes = self._hashes[row]
        assert hashes is not None
        return "".join(one.hexdigest()[:16] for one in hashes)

    def settle(self) -> None:
        """Count everything, and forget single steps: to be called now and then, lest they become too many."""
        for row in range(self.rows):
            self.count(row)
        self.noted, self._actions = [], []
        self._since = [0] * self.rows


# ---------------------------------------------------------------------- which episode is next


class Numbered:
    """Evaluations: the episodes of a queue, each seeded by its number, wherever there is an environment for it.

    Args:
        envs: How many environments there are.
        seed_of: From the number of an episode to its seed.

    Attributes:
        queue: Numbers of episodes that are to begin.
        playing: The number of each environment's episode; ``None`` where it is idle.
    """

    def __init__(self, envs: int, seed_of: Callable[[int], int]) -> None:
        self.queue: deque[int] = deque()
        self.playing: list[Any] = [None] * envs
        self.seed_of = seed_of

    def __call__(self, env: int, over: bool = True) -> dict[str, Any] | None:
        """The arguments of an environment's next reset, ``None`` if there is no further episode; a lost life is no end."""
        if not over:
            return {}
        number = self.playing[env] = self.queue.popleft() if self.queue else None
        return None if number is None else {"seed": self.seed_of(number)}


class OfRounds:
    """Trainers: an environment's first reset in a round is seeded by the number of its episode, the others are not.

    So what has happened since a seed can be repeated from the actions alone, and is never longer than an episode and a round. (To
    seed every reset would cost more than some episodes do.) A reset after a lost life, which begins no game, is not seeded.

    Args:
        envs: How many environments there are.
        seed_of: From an environment and the number of its episode, lost lives counted, to a seed.
        spared: From an environment to whether it goes without a seed in this round.

    Attributes:
        playing: The number of each environment's episode; -1 before the first one.
    """

    def __init__(self, envs: int, seed_of: Callable[[int, int], int], spared: Callable[[int], bool] = lambda env: False) -> None:
        self.seed_of, self.spared = seed_of, spared
        self.playing = [-1] * envs
        self._fresh = [True] * envs  # whether there was no reset in this round

    def begin_round(self) -> None:
        """Begin a round."""
        self._fresh = [True] * len(self._fresh)

    def __call__(self, env: int, over: bool = True) -> dict[str, Any]:
        """The arguments of an environment's next reset: after a game, or after a lost life."""
        self.playing[env] += 1
        if not self._fresh[env]:
            return {}
        self._fresh[env] = False
        return {"seed": self.seed_of(env, self.playing[env])} if over and not self.spared(env) else {}


# ---------------------------------------------------------------------- who plays


class EndedEpisode(NamedTuple):
    """An episode that has ended.

    Attributes:
        row: Whose it was.
        number: Its number there.
        total: The sum of its rewards.
        length: Its steps.
        terminated: Whether the environment ended it, and no limit.
        over: Whether its environment's game is over, and not only a life lost.
        info: What ``before_reset`` has kept of its last info.
        digest: The hash of its actions and rewards, if they are hashed.
    """

    row: int
    number: int
    total: Any
    length: int
    terminated: bool
    over: bool
    info: Any
    digest: str


class EpisodePlayer:
    """Environments of one row each that play one episode after the other.

    Args:
        rows: They are idle at first, and reset within the step that ends an episode.
        seeds: Which episode each begins next. A numbered one lasts as long as a game and any limit let it, and does not end with a
            lost life; messages say in which episode something was raised.
        log: What counts.
    """

    def __init__(self, rows: EnvRows, seeds: Numbered | OfRounds, log: EpisodeLog) -> None:
        rows.autoreset, rows.seeds, log.where = AutoresetMode.SAME_STEP, self._next, self._where
        self.rows, self.seeds, self.log, self.numbered = rows, seeds, log, isinstance(seeds, Numbered)
        rows.pending[:] = [IDLE] * rows.num_envs
        self._before: dict[int, int] = {}  # numbers of the episodes that the last step has ended, by environment

    @property
    def idle(self) -> bool:
        """Whether no environment plays."""
        return all(over == IDLE for over in self.rows.pending)

    def begin(self, out: StepBuffers | None, envs: Iterable[int] | None = None) -> None:
        """Begin an episode in environments, as long as there are some.

        Args:
            out: Where to write what all rows show then.
            envs: The environments; by default those that are idle.

        Raises:
            Exception: What the first of the environments that failed raised, with a note that says which one.
        """
        rows, log = self.rows, self.log
        if envs is None:
            envs = [env for env, over in enumerate(rows.pending) if over == IDLE]
        resets = {env: kwargs for env in envs if (kwargs := self.seeds(env)) is not None}
        if not resets:
            return
        self._before.clear()
        for env in resets:
            if env in rows.lives:
                rows.end_game(env)
        rows.reset(resets, None)
        if rows.failures:
            self._raise(resets)
        for env in resets:
            log.begin(env)
        if out is not None:
            rows.show(out)
            rows.raise_failure()

    def step(self, actions: Any, out: StepBuffers | None) -> list[EndedEpisode]:
        """Take a step in each environment that is not idle.

        Args:
            actions: See :meth:`~reactor_gymnasium.environments.rows.EnvRows.step`.
            out: Where to write, without rewards.

        Returns:
            The episodes that it has ended.

        Raises:
            Exception: What the first of the environments that failed raised, with a note that says which one.
        """
        rows, log, before = self.rows, self.log, self._before
        if before:
            before.clear()
        rows.step(actions, out)
        if rows.failures:
            self._raise(before)
        if log.hashing:
            log.note(rows.rewards, actions.copy())
        else:
            log.note(rows.rewards)
        ended: list[EndedEpisode] = []
        if rows.ended:
            overs = rows.over
            for row, terminated, truncated in rows.ended:
                over = row in overs
                if self.numbered and not (over or truncated):
                    continue
                total, length = log.count(row)
                number, digest = before.get(row, self.seeds.playing[row]), log.digest(row) if log.hashing else ""
                ended.append(EndedEpisode(row, number, total, length, terminated, over, rows.finals[row][1], digest))
                log.begin(row, rows.pending[row] == IDLE)
        return ended

    def _next(self, env: int) -> Mapping[str, Any] | None:
        """The arguments of the reset after the end of an episode."""
        rows, seeds = self.rows, self.seeds
        self._before[env] = seeds.playing[env]
        over = env not in rows.lives or env in rows.over
        if self.numbered and not over and rows.ended[-1][2]:  # a limit ends a game, too
            rows.end_game(env)
            over = True
        return seeds(env, over)

    def _raise(self, begun: Mapping[int, Any]) -> None:
        """Raise what the first of the environments that failed raised; those in ``begun`` were to begin an episode."""
        env, error = min(self.rows.failures, key=lambda failure: failure[0])
        where = f"in {self._where(env)}"
        if self.numbered and env in begun and (number := self.seeds.playing[env]) is not None:
            where = f"by the reset of episode {number}, in {self.rows.unit} {self.rows.first + env}"
        error.add_note(f"raised {where}")
        raise error

    def _where(self, row: int) -> str:
        where = f"{self.rows.unit} {self.rows.first + row}"
        return f"episode {self._before.get(row, self.seeds.playing[row])}, in {where}" if self.numbered else where
