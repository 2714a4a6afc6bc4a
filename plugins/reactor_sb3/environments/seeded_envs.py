"""The environments of an actor or evaluator: episodes seeded by what they are for, and how they are saved between two steps."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.plugin import REAL_DONE, EnvRows, GymRows, SavedEnv, StepBuffers, as_number, own, save_strategy
from reactor_rl import RunError
from reactor_rl.plugin import Pickled, decode, dumps
from reactor_sb3.environments.reached import Asked
from reactor_sb3.streams import Purpose, seed_of

__all__ = ["End", "SeededEnvs", "check", "kept_info"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

LOGGED = 8192
"""Actions after which the next game with lives is seeded. Repeating them takes seconds, where an emulator cannot be saved."""

_KEPT = ("episode", "is_success")
_FLOATS = frozenset((float,))


def kept_info(row: int, info: dict[str, Any]) -> dict[str, Any]:
    """A copy of the last info of an episode, as it is reported where nobody watches."""
    return {key: own(info[key]) for key in _KEPT if key in info} if info else {}


def _whole_info(row: int, info: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = own(info)
    return copied


class End(NamedTuple):
    """The end of an episode.

    Attributes:
        terminated: Whether the environment ended it, and no limit.
        total: Sum of its rewards.
        length: Its steps.
        reported: Whether it is told of, as in SB3: not a lost life, if a ``Monitor`` waits for the end of the game.
    """

    terminated: bool
    total: Any
    length: int
    reported: bool


class SeededEnvs:
    """Environments that are stepped together, and their episodes.

    The first reset of an environment in a round is seeded by (seed, purpose, environment, episode), so that what has happened since
    can be repeated from the actions alone, and is never longer than an episode and a round. (Seeding every reset would cost more
    than some episodes do.) With lives (``EpisodicLifeEnv``) a reset that goes on with a game is not seeded, nor one that begins a
    game less than :data:`LOGGED` steps after one that was: seeding an emulator takes as long as hundreds of steps.

    Args:
        makers: What makes each of them, encoded.
        seed: Of the trainer.
        purpose: What the environments are for.
        first: Number of the first one, among those for that purpose.

    Attributes:
        block: The environments, see :class:`~reactor_gymnasium.environments.gym_rows.GymRows`.
        first: Likewise.
        rewards: Of this round's steps, one after the other, as the environments gave them, numbers.
        lengths: Steps of each episode, up to the end of the last round.
        totals: Sums of the rewards of each episode, likewise.
        ended: The episodes that the last step ended, by row.
    """

    def __init__(self, makers: Sequence[Pickled], seed: int, purpose: Purpose, first: int) -> None:
        self.makers, self.seed, self.purpose, self.first = makers, seed, purpose, first
        self.block: EnvRows
        n = len(makers)
        self.rewards: list[Any] = []
        self.lengths, self.totals = [0] * n, [0.0] * n
        self.ended: dict[int, End] = {}
        self._episodes = [-1] * n
        self._steps = 0  # of this round
        self._counted = [0] * n  # up to which of them lengths and totals are known
        self._logged_from: list[int | None] = [None] * n  # step of this round; None before its first reset
        self._seeds = [0] * n  # of the last seeded resets
        self._with_lives = [False] * n  # whether a reset may begin no game
        self._monitored = [False] * n  # whether a Monitor waits for the end of the game
        self._logs: list[list[Array]] = [[] for _ in makers]  # actions since then, round by round
        self._changed = [""] * n  # what somebody has called last that may have changed it
        self._logged = [0] * n  # how many of them, up to the end of the last round

    def build(self) -> None:
        """Make the environments, here where they will live."""
        rows = getattr(self._maker(), "rows", None)
        self.block = GymRows(self.first, AutoresetMode.SAME_STEP, self._seed) if rows is None else rows(self.first, self._seed)
        self.block.build(self.makers, _uncounted if self.purpose is Purpose.EPISODES else _throw_away)
        with self.block.opened(changes=False) as envs:
            self._with_lives = [env.has_wrapper_attr(REAL_DONE) for env in envs]
            self._monitored = [is_wrapped(env, Monitor) for env in envs]
        if any(self._with_lives):
            self.block.keep_from_kernels("its lives are asked for at the ends of episodes")

    def _maker(self) -> Any:
        """What makes the first one, and may have rows of its own kind."""
        try:
            return decode(self.makers[0])
        except Exception as error:
            error.add_note(f"while environment {self.first} was constructed")
            raise

    # ------------------------------------------------------------------ rounds

    def watch(self, watched: bool) -> None:
        """Say whether every info is wanted, or of an episode's last one what is reported of episodes."""
        self.block.keep_infos, self.block.before_reset = watched, _whole_info if watched else kept_info

    def begin_round(self, afresh: bool) -> None:
        """To be called before the first step of a round; begins new episodes if told so, and where none has begun."""
        n = len(self.makers)
        self._steps, self._logged_from, self._counted, self.rewards = 0, [None] * n, [0] * n, []
        rows = [row for row, episode in enumerate(self._episodes) if afresh or episode < 0]
        for row in rows:
            self._begin(row)

    def show(self, out: StepBuffers) -> None:
        """Write what each environment shows when a round begins.

        Raises:
            TypeError, ValueError: If one does not fit the environment's space, with a note that says whose it is.
        """
        self.block.show(out)
        self.block.raise_failure()

    def asking(self, fields: Mapping[str, Array], methods: Mapping[str, str]) -> Callable[[int], None]:
        """A function that asks every environment before the actions of a step; to be called when a round has begun.

        Args:
            fields: Where answers go, by name, ``(steps, n, ...)``.
            methods: The method to ask for each.

        Raises:
            AttributeError: If an environment has no such method. For invalid masks, the function raises ``ValueError``.
        """
        self.block.keep_from_kernels("somebody asks it before each step")
        with self.block.opened() as envs:  # what the methods refer to is not left out
            asked = [
                (fields[name], fields[name].shape[2:], row, method, env.action_space, self._method(row, env, method))
                for name, method in methods.items()
                for row, env in enumerate(envs)
            ]

        def ask(step: int) -> None:
            for field, shape, row, name, space, method in asked:
                try:
                    answer = method()
                    if type(answer) is not np.ndarray or answer.dtype != field.dtype or answer.shape != shape:
                        answer = _fitting(f"{name}() of environment {self.first + row}", answer, space, field)
                    field[step, row] = answer
                except Exception as error:
                    error.add_note(f"raised in environment {self.first + row}")
                    raise

        return ask

    def _method(self, row: int, env: Env, name: str) -> Callable[[], Any]:
        try:
            method: Callable[[], Any] = env.get_wrapper_attr(name)
        except AttributeError:
            raise AttributeError(
                f"environment {self.first + row} has no {name}(), which is asked before each action: give it that method, "
                "or wrap it so that it has one"
            ) from None
        return method

    def step(self, actions: Array, out: StepBuffers) -> None:
        """Take a step in each environment.

        Args:
            actions: ``(n, *shape)``.
            out: Where the observations are written.

        Raises:
            Exception: What the first of the environments that failed raised, with a note that says which one it was.
        """
        block = self.block
        self._steps += 1
        block.step(actions, out)
        block.raise_failure()
        rewards = block.rewards
        self.rewards += rewards if _FLOATS.issuperset(map(type, rewards)) else map(self._number, count(), rewards)
        self.ended = {}
        for row, terminated, _ in block.ended:
            self._count(row)
            reported = "episode" in block.finals[row][1] or not (self._monitored[row] and self._goes_on(row))
            self.ended[row] = End(terminated, self.totals[row], self.lengths[row], reported)
            self.totals[row], self.lengths[row] = 0.0, 0

    def _count(self, row: int) -> None:
        """Bring the length and the total of an episode up to date: once an episode and round, for it costs more than some steps."""
        n, counted, total = len(self.makers), self._counted[row], self.totals[row]
        for reward in self.rewards[counted * n + row :: n]:  # not by sum(), which rounds otherwise since Python 3.12
            total += reward
        self.totals[row], self._counted[row] = total, self._steps
        self.lengths[row] += self._steps - counted

    def end_round(self, actions: Array) -> None:
        """To be called after the last step of a round.

        Args:
            actions: Those of the round, ``(steps, n, *shape)``; copied.
        """
        for row, (begun, log) in enumerate(zip(self._logged_from, self._logs, strict=True)):
            log.append(actions[begun or 0 :, row].copy())
            self._logged[row] += len(log[-1])
            self._count(row)

    def _seed(self, row: int) -> dict[str, Any]:
        """The arguments of a reset."""
        self._episodes[row] += 1
        if self._logged_from[row] is not None:
            return {}
        if self._goes_on(row) or (self._with_lives[row] and 0 < self._logged[row] < LOGGED):
            self._logged_from[row] = 0  # the log goes on, too
            return {}
        self._logged_from[row], self._logs[row], self._logged[row] = self._steps, [], 0
        seed = self._seeds[row] = seed_of(self.seed, self.purpose, self.first + row, self._episodes[row])
        return {"seed": seed}

    def _goes_on(self, row: int) -> bool:
        """Whether only a life was lost, so that the reset begins no game."""
        return self._with_lives[row] and self.block.goes_on(row)

    def _begin(self, row: int) -> None:
        """Begin an episode between two rounds."""
        self._logged[row] = 0  # there is no action after which a log could tell of this reset
        if self._goes_on(row):
            with self.block.opened() as envs:
                envs[row].set_wrapper_attr(REAL_DONE, True)  # else the old game goes on
        self.block.reset({row: self._seed(row)}, None)
        self.block.raise_failure()
        self.lengths[row], self.totals[row] = 0, 0.0

    def _number(self, row: int, reward: Any) -> Any:
        try:
            return reward if type(reward) is float else as_number(reward)
        except ValueError as error:
            error.add_note(f"raised in environment {self.first + row}")
            raise

    def ask(self, asked: Asked, numbers: Collection[int]) -> dict[int, Pickled]:
        """Ask something of environments between two rounds.

        Args:
            asked: What.
            numbers: Of which environments, of those that are there.

        Returns:
            By number, encoded: whether it went well, and the answer or else the error.
        """
        answers: dict[int, Pickled] = {}
        with self.block.opened(changes=asked.changes) as envs:
            for row, env in enumerate(envs):
                if self.first + row not in numbers:
                    continue
                if asked.changes:
                    self._changed[row] = asked.title
                answers[self.first + row] = _answer(asked, env)
        return answers

    # ------------------------------------------------------------------ saving

    def saved(self) -> list[dict[str, Any]]:
        """All that the coming steps of each depend on: plain numbers, and a pickle or an array; see :func:`check`."""
        return [self._saved(row) for row in range(len(self.makers))]

    def _saved(self, row: int) -> dict[str, Any]:
        way = save_strategy(self.makers[row]) if self._episodes[row] >= 0 else None
        if way != "state" and self._changed[row]:
            raise RunError(
                f"environment {self.first + row} was changed by {self._changed[row]} of training_env or get_env(), and cannot be "
                "saved exactly as it is now, so that a run that goes on from here would have lost the change: give the environment "
                "__getstate__() and __setstate__(), or no checkpoints and restarts to this run"
            )
        saved: dict[str, Any] = {
            "way": way, "episode": self._episodes[row], "length": self.lengths[row], "total": float(self.totals[row])
        }  # fmt: skip
        if way == "state":
            saved["state"] = Pickled(pickle.dumps(self.block.save(row)[:2]))
            saved["logged"] = self._logged[row]
        elif way == "replay":
            log = self._logs[row]
            saved["seed"] = self._seeds[row]
            saved["actions"] = np.concatenate(log) if log else np.zeros(0, np.int64)
        return saved

    def put_back(self, saved: Sequence[dict[str, Any]]) -> None:
        """Make the environments, which have just been made, what they were; begins new episodes where nothing else is possible."""
        for row, one in enumerate(saved):
            self._put_back(row, one)

    def _put_back(self, row: int, saved: dict[str, Any]) -> None:
        block = self.block
        self._episodes[row], self.lengths[row], self.totals[row] = saved["episode"], saved["length"], saved["total"]
        if saved["way"] == "state":
            state, shown = decode(saved["state"])
            block.load(row, SavedEnv(state, shown, False))
            self._logged[row] = saved["logged"]
        elif saved["way"] == "replay":
            self._seeds[row], actions = saved["seed"], saved["actions"]
            self._logs[row], self._logged[row] = [actions], len(actions)
            block.replay(row, {"seed": self._seeds[row]}, actions)
        elif self._episodes[row] >= 0:
            self._steps, self._logged_from[row] = 0, None
            self._begin(row)


def _fitting(method: str, answer: Any, space: spaces.Space[Any], field: Array) -> Array:
    """Bring what a method has returned into the shape of its field.

    Masks may be flat or, as for a ``MultiDiscrete``, have a row for each choice.

    Raises:
        ValueError: If it has another shape, or masks that are neither true nor false.
    """
    shape = field.shape[2:]
    try:
        array = np.asarray(answer)
    except ValueError:  # rows of several lengths
        array = np.asarray(None)
    if field.dtype != np.bool_:
        return array.reshape(shape)
    match space:
        case spaces.MultiDiscrete():
            rows = space.nvec.reshape(-1).tolist()
        case spaces.MultiBinary():
            rows = [2] * math.prod(space.shape)
        case _:
            rows = list(shape)
    if isinstance(answer, (list, tuple, np.ndarray)) and [np.shape(part) for part in answer] == [(count,) for count in rows]:
        array = np.concatenate(answer)
    if array.shape != shape:
        said = f"an array of shape {array.shape}" if array.shape else repr(answer)[:200]
        raise ValueError(f"{method} returned {said}, and for actions of {space} there are {shape[0]} masks in a row")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise ValueError(f"{method} returned {repr(answer)[:200]}, in which some masks are neither true nor false, 1 nor 0")
    return array


def _answer(asked: Asked, env: Env) -> Pickled:
    try:
        found: Any = True, asked(env)
    except Exception as error:
        found = False, error.with_traceback(None)
    try:
        return Pickled(dumps(found))
    except Exception as error:
        why = f"what {asked.title} gave is with an actor, perhaps in another process, and cannot be pickled: {error}"
        return Pickled(dumps((False, TypeError(why))))


def _throw_away(env_fn: Callable[[], Env]) -> Env:
    """An environment that leaves no traces, if the function that makes environments can make one."""
    env: Env = getattr(env_fn, "throw_away", env_fn)()
    return env


def _uncounted(env_fn: Callable[[], Env]) -> Env:
    """Without a ``Monitor`` that counts no more than :class:`SeededEnvs` does, and costs as much as a cheap environment."""
    env = env_fn()
    if type(env) is not Monitor or env.results_writer is not None or not env.allow_early_resets:
        return env
    return env if env.info_keywords or env.reset_keywords else env.env


def _are_actions(taken: Array, actions: gymnasium.Space[Any]) -> bool:
    """Whether an environment may have been given them. A bound of a ``Box`` may be missed by a last bit, where one is reckoned."""
    match actions:
        case spaces.Box():
            return bool(np.isfinite(taken).all())
        case spaces.Discrete(n=choices, start=first):
            return bool(((taken >= first) & (taken < first + choices)).all())
        case spaces.Dict(spaces=parts):
            return all(_are_actions(taken[name], part) for name, part in parts.items())
    return all(map(actions.contains, taken))


def check(saved: Any, actions: gymnasium.Space[Any], dtype: np.dtype[Any]) -> None:
    """Refuse what :meth:`SeededEnvs.saved` cannot have given. Only what is a :class:`Pickled` by its type will be unpickled.

    Args:
        saved: What is to be put back.
        actions: The environment's action space.
        dtype: In which actions are noted.

    Raises:
        ValueError: If it is something else.
    """
    if type(saved) is dict and {"way", "episode", "length", "total"} <= saved.keys() and type(saved["total"]) in (int, float):
        episode, length = saved["episode"], saved["length"]
        begun = type(episode) is int and type(length) is int and 0 <= episode < 2**62 and 0 <= length < 2**62
        match saved["way"], {name: value for name, value in saved.items() if name not in ("way", "episode", "length", "total")}:
            case None, {**more} if not more and (begun or (episode, length) == (-1, 0)):
                return
            case "state", {"state": Pickled(), "logged": logged, **more} if begun and not more:
                if type(logged) is int and 0 <= logged < 2**62:
                    return
            case "replay", {"seed": int() as seed, "actions": np.ndarray() as taken, **more} if begun and not more:
                alike = taken.dtype == dtype and taken.shape[1:] == (actions.shape or ())
                if 0 <= seed < 2**31 and taken.ndim and alike and _are_actions(taken, actions):
                    return
    raise ValueError("the saved state of an environment is not one")
