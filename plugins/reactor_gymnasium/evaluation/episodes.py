"""Episodes by their numbers: each one's seed, return and length, and what is kept of it; the rows that play them, one by one."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.environments.gym_rows import REAL_DONE, GymRows
from reactor_gymnasium.environments.owning import as_number
from reactor_gymnasium.environments.rows import IDLE, StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import seed_of
from reactor_gymnasium.evaluation.policies import is_plain, masks_of
from reactor_rl.plugin import Pickled, aligned_zeros, canonical, new_hash

__all__ = ["Played", "Player"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Played:
    """An episode that has ended.

    Attributes:
        number: Its number.
        total: Sum of its rewards; a ``Monitor``'s or ``RecordEpisodeStatistics``' where there is one.
        length: Its steps, likewise.
        terminated: Whether the environment ended it, and no limit.
        infos: The numbers and truth values in its last info.
        digest: A hash of its actions and rewards.
    """

    number: int
    total: float
    length: int
    terminated: bool
    infos: Mapping[str, float | int | bool] = field(default_factory=dict)
    digest: str = ""


class _Count:
    """One episode so far."""

    __slots__ = ("actions", "begun", "length", "number", "rewards", "total")

    def __init__(self, number: int, begun: int) -> None:
        self.number, self.begun = number, begun  # from which of the noted steps on it has not been counted
        self.total, self.length = 0.0, 0
        self.actions, self.rewards = new_hash(), new_hash()


class Player:
    """Rows that play episodes: where one ends, the next one of a queue begins.

    Args:
        makers: What makes each environment, encoded.
        first: Index of the first one, for messages.
        layout: Of an observation.
        action_space: Of each environment.
        max_steps: After how many steps an episode is cut off; ``None`` for never.

    Attributes:
        seed: Of the evaluation.
        queue: Numbers of episodes that are to begin.
        playing: Number of the episode of each row, ``None`` where it is idle.
        begun: Rows in which an episode has begun since somebody has emptied this.
        ended: Episodes that have ended since then.
    """

    def __init__(
        self,
        makers: Sequence[Pickled],
        first: int,
        layout: ObservationLayout,
        action_space: gymnasium.Space[Any],
        max_steps: int | None,
    ) -> None:
        self.block = GymRows(first, AutoresetMode.SAME_STEP, self._next)
        self.makers, self.first, self.layout, self.max_steps = makers, first, layout, max_steps
        self.seed = 0
        self.queue: deque[int] = deque()
        self.playing: list[int | None] = [None] * len(makers)
        self.begun: list[int] = []
        self.ended: list[Played] = []
        self.plain = is_plain(action_space)
        self._counts: list[_Count | None] = [None] * len(makers)
        self._rewards: list[list[Any]] = []  # of each noted step, of each row
        self._actions: list[Any] = []

    def build(self) -> None:
        """Make the environments, here where they will live."""
        self.block.build(self.makers, partial(_limited, self.max_steps))
        self.block.keep_infos, self.block.before_reset = False, _numbers
        self.block.pending[:] = [IDLE] * len(self.makers)

    def rows(self) -> Array | None:
        """Memory for the array leaves of the observations of all rows; ``None`` if there are no such leaves."""
        if not self.layout.arrays:
            return None
        shape, dtype = self.layout.storage()
        return aligned_zeros((len(self.makers), *shape), dtype)

    @property
    def idle(self) -> bool:
        """Whether no row plays."""
        return all(number is None for number in self.playing)

    def objects(self) -> list[tuple[Any, ...]] | None:
        """The object leaves of the observations of all rows, if they have some."""
        if not self.layout.objects:
            return None
        for row, last in enumerate(self.block.observations):
            if last is None and self.playing[row] is not None:
                raise TypeError(
                    f"environment {self.first + row} returned None as the observation in episode {self.playing[row]}, its space is "
                    f"{self.layout.space}"
                )
        return [() if last is None else self.layout.take_objects(last) for last in self.block.observations]

    def masks(self) -> list[Array | None]:
        """Which choices the environments allow now, ``None`` for idle rows.

        Raises:
            Exception: What an environment raised, with a note that says which one.
        """
        found: list[Array | None] = []
        self.block.keep_from_kernels("its masks are asked for before each step")
        with self.block.opened(changes=False) as envs:
            for row, number in enumerate(self.playing):
                try:
                    found.append(None if number is None else masks_of(envs[row]))
                except Exception as error:
                    error.add_note(f"raised in episode {number}, in environment {self.first + row}")
                    raise
        return found

    def wake(self, out: StepBuffers | None) -> None:
        """Begin episodes of the queue where a row is idle."""
        block = self.block
        idle = [row for row, number in enumerate(self.playing) if number is None][: len(self.queue)]
        if not idle:
            return
        block.reset({row: self._next(row) or {} for row in idle}, None)
        for row, error in block.failures:
            error.add_note(f"raised by the reset of episode {self.playing[row]}, in environment {self.first + row}")
            raise error
        if out is not None:
            for row, failure in out.write_each(block.observations):
                failure.add_note(f"raised in environment {self.first + row}")
                raise failure

    def _next(self, row: int) -> dict[str, Any] | None:
        """The arguments of the reset that begins the next episode, ``None`` if there is no further one."""
        if not self.queue:
            self.playing[row] = None
            return None
        number = self.playing[row] = self.queue.popleft()
        self.begun.append(row)
        return {"seed": seed_of(self.seed, number)}

    def step(self, actions: Any, out: StepBuffers | None) -> None:
        """Take a step in each row that is not idle.

        Args:
            actions: One for each row: an array, or a list.
            out: Where observations are written.

        Raises:
            Exception: What the first of the environments that failed raised, with a note that says in which episode.
        """
        block, playing = self.block, list(self.playing)
        for row in self.begun:
            if playing[row] is not None:
                self._counts[row] = _Count(int(playing[row] or 0), len(self._rewards))
        self.begun.clear()
        self._actions.append(actions.copy())
        block.step(actions, out)
        if block.failures:
            row, error = min(block.failures, key=lambda failure: failure[0])
            where = f"raised in episode {playing[row]}"
            if row in self.begun:  # which is of this step: the episode before has ended
                where = f"raised by the reset of episode {self.playing[row]}"
            error.add_note(f"{where}, in environment {self.first + row}")
            raise error
        self._rewards.append(block.rewards)
        for row, terminated, _ in block.ended:
            self._end(row, terminated)

    def note(self) -> None:
        """Count what has been noted so far: to be called now and then, lest it become too much."""
        for row, count in enumerate(self._counts):
            if count is not None:
                self._add(row, count)
                count.begun = 0
        self._rewards.clear()
        self._actions.clear()

    def _add(self, row: int, count: _Count) -> None:
        """Bring an episode's length, return and hashes up to date."""
        try:
            rewards = [float(as_number(of_step[row])) for of_step in self._rewards[count.begun :]]
        except ValueError as error:
            error.add_note(f"raised in episode {count.number}, in environment {self.first + row}")
            raise
        for reward in rewards:  # not by sum(), which rounds otherwise since Python 3.12
            count.total += reward
        count.length += len(rewards)
        count.rewards.update(np.array(rewards, "<f8").tobytes())
        taken = [of_step[row] for of_step in self._actions[count.begun :]]
        if self.plain:
            for _, alike in itertools.groupby(taken, key=lambda action: action.dtype):  # each in the dtype that the policy gave it
                array = np.array(list(alike))
                count.actions.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        else:
            for action in taken:
                canonical(action, count.actions)

    def _end(self, row: int, terminated: bool) -> None:
        count = self._counts[row]
        assert count is not None
        self._add(row, count)
        self._counts[row] = None
        infos = self.block.finals[row][1]
        total, length = infos.pop(_WHOLE, (count.total, count.length))
        digest = f"{count.actions.hexdigest()[:16]}{count.rewards.hexdigest()[:16]}"
        self.ended.append(Played(count.number, total, length, terminated, infos, digest))


class _WholeGames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Games instead of lives: a reset after a lost life goes on with the game, and takes no account of its seed."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated and not truncated and not self.env.get_wrapper_attr(REAL_DONE):
            terminated, (observation, _) = False, self.env.reset()
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.set_wrapper_attr(REAL_DONE, True)  # else a game that a limit has cut off would go on
        return self.env.reset(seed=seed, options=options)


def _limited(max_steps: int | None, env_fn: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    env = env_fn()
    if env.has_wrapper_attr(REAL_DONE):
        env = _WholeGames(env)
    return env if max_steps is None else TimeLimit(env, max_steps)


_WHOLE = object()
"""Key of those that a wrapper tells of a whole episode."""


def _numbers(row: int, info: Any) -> dict[Any, Any]:
    """Numbers and truth values of a last info; return and length of an ``"episode"`` of some wrapper's.

    Names that are no strings are written out. Whatever an environment has put there, it costs no report.
    """
    kept: dict[Any, Any] = {}
    if not isinstance(info, Mapping):
        return kept
    for key, value in info.items():
        name = _name(key)
        if name is None or (name != key and name in info):
            continue
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if name == "episode" and isinstance(value, Mapping) and {"r", "l"} <= value.keys():
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # then it is counted here
                kept[_WHOLE] = float(np.asarray(value["r"]).item()), int(np.asarray(value["l"]).item())
        elif isinstance(value, bool | np.bool_):
            kept[name] = bool(value)
        elif isinstance(value, int | np.integer):
            if abs(int(value)) < _LONGEST:
                kept[name] = int(value)
        elif isinstance(value, float | np.floating):
            kept[name] = float(value)
    return kept


_LONGEST = 10**300
"""Whole numbers from here on are no floats."""


def _name(key: Any) -> str | None:
    """The name of an info in a report; ``None`` for an object, whose text may be another one in another process."""
    try:
        if isinstance(key, tuple):
            return repr(key) if all(_name(part) is not None for part in key) else None
        plain = isinstance(key, str | int | float | complex | bytes | np.generic | Enum | type(None))
        return str(key) if plain else None
    except Exception:  # of an Enum's own text
        return None
