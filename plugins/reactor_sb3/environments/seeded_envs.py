"""The environments of an actor or evaluator: episodes seeded by what they are for, and how they are saved between two steps."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.plugin import (
    EndedEpisode,
    EnvRows,
    EpisodeLog,
    EpisodePlayer,
    GymRows,
    OfRounds,
    SavedEnv,
    kept_whole,
    own,
    save_strategy,
)
from reactor_rl import RunError
from reactor_rl.plugin import Pickled, decode, dumps
from reactor_sb3.environments.reached import EnvRequest
from reactor_sb3.streams import Purpose, seed_of

__all__ = ["MakeRows", "SeededEnvs", "kept_info", "single_envs"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

MakeRows = Callable[[int], EnvRows]
"""From the number of the first environment to what steps them."""

single_envs: MakeRows = partial(GymRows, autoreset=AutoresetMode.SAME_STEP)

LOGGED = 8192
"""Actions after which the next game with lives is seeded. Repeating them takes seconds, where an emulator cannot be saved."""

_KEPT = ("episode", "is_success")


def kept_info(row: int, info: dict[str, Any]) -> dict[str, Any]:
    """A copy of the last info of an episode, as it is reported where nobody watches."""
    return {key: own(info[key]) for key in _KEPT if key in info} if info else {}


class SeededEnvs:
    """Environments that play, what may be asked of them, and the actions that lead to where they are.

    With lives (``EpisodicLifeEnv``) a game that begins less than :data:`LOGGED` steps after one that was seeded is not seeded, see
    :class:`~reactor_gymnasium.environments.player.OfRounds`: seeding an emulator takes as long as hundreds of steps.

    Args:
        makers: What makes each of them, encoded.
        seed: Of the trainer.
        purpose: What the environments are for.
        first: Number of the first one, among those for that purpose.
        make_rows: Makes what steps them.

    Attributes:
        rows: The environments.
        player: Takes their steps.
        log: The rewards of the round, and of each episode sum and length up to the end of the last round.
    """

    def __init__(
        self, makers: Sequence[Pickled], seed: int, purpose: Purpose, first: int, make_rows: MakeRows = single_envs
    ) -> None:
        self.makers, self.seed, self.purpose, self.first = makers, seed, purpose, first
        n = len(makers)
        self.rows, self.log = make_rows(first), EpisodeLog(n)
        self._episodes = OfRounds(n, self._seed, self._spared)
        self._monitored = [False] * n  # whether a Monitor waits for the end of the game
        self._seeds = [0] * n  # of the last seeded resets
        self._logs: list[list[Array]] = [[] for _ in makers]  # actions since then, round by round
        self._logged = [0] * n  # how many of them, up to the end of the last round
        self._logged_from = [0] * n  # from which step of this round on
        self._changed = [""] * n  # what somebody has called last that may have changed it

    def build(self) -> None:
        """Make the environments, here where they will live."""
        rows = self.rows
        rows.build(self.makers, _uncounted if self.purpose is Purpose.EPISODES else _throw_away)
        rows.look_for_lives()
        with rows.opened(changes=False) as envs:
            self._monitored = [is_wrapped(env, Monitor) for env in envs]
        self.player = EpisodePlayer(rows, self._episodes, self.log)

    # ------------------------------------------------------------------ rounds

    def watch(self, watched: bool) -> None:
        """Say whether every info is wanted, or of an episode's last one what is reported of episodes."""
        self.rows.keep_infos, self.rows.before_reset = watched, kept_whole if watched else kept_info

    def begin_round(self, afresh: bool) -> None:
        """To be called before the first step of a round; begins new episodes if told so, and where none has begun."""
        self._episodes.begin_round()
        self._begin(range(len(self.makers)) if afresh else None)
        self._logged_from = [0] * len(self.makers)

    def _begin(self, envs: Sequence[int] | None) -> None:
        """Begin episodes between two rounds."""
        for row in envs or ():
            self._logged[row] = 0  # there is no action after which a log could tell of this reset
        self.player.begin(None, envs)

    def end_round(self, actions: Array) -> None:
        """To be called after the last step of a round.

        Args:
            actions: Those of the round, ``(steps, n, *shape)``; copied.
        """
        for row, (begun, log) in enumerate(zip(self._logged_from, self._logs, strict=True)):
            # A copy, for the port's slot is written over in the next round.
            log.append(actions[begun:, row].copy())
            self._logged[row] += len(log[-1])
        self.log.settle()

    def reported(self, end: EndedEpisode) -> bool:
        """Whether an episode is told of, as in SB3: not a lost life, if a ``Monitor`` waits for the end of the game."""
        return end.over or not self._monitored[end.row] or "episode" in end.info

    def _seed(self, row: int, episode: int) -> int:
        """The seed of an episode, from where on actions are logged."""
        self._logged_from[row] = self.log.steps + 1  # the step that this is asked in is not noted yet
        self._logs[row], self._logged[row] = [], 0
        seed = self._seeds[row] = seed_of(self.seed, self.purpose, self.first + row, episode)
        return seed

    def _spared(self, row: int) -> bool:
        return row in self.rows.lives and 0 < self._logged[row] < LOGGED

    def asking(self, fields: Mapping[str, Array], methods: Mapping[str, str]) -> Callable[[int], None]:
        """A function that asks every environment before the actions of a step; to be called when a round has begun.

        Args:
            fields: Where answers go, by name, ``(steps, n, ...)``.
            methods: The method to ask for each.

        Raises:
            AttributeError: If an environment has no such method. For invalid masks, the function raises ``ValueError``.
        """
        self.rows.keep_from_kernels("somebody asks it before each step")
        with self.rows.opened() as envs:  # what the methods refer to is not left out
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

    def ask(self, asked: EnvRequest, numbers: Collection[int]) -> dict[int, Pickled]:
        """Ask something of environments between two rounds.

        Args:
            asked: What.
            numbers: Of which environments, of those that are there.

        Returns:
            By number, encoded: whether it went well, and the answer or else the error.
        """
        answers: dict[int, Pickled] = {}
        with self.rows.opened(changes=asked.changes) as envs:
            for row, env in enumerate(envs):
                if self.first + row not in numbers:
                    continue
                if asked.changes:
                    self._changed[row] = asked.title
                answers[self.first + row] = _answer(asked, env)
        return answers

    # ------------------------------------------------------------------ saving

    def saved(self) -> list[dict[str, Any]]:
        """All that the coming steps of each depend on: plain numbers, and a pickle or an array, see ``saved_env()``."""
        return [self._saved(row) for row in range(len(self.makers))]

    def _saved(self, row: int) -> dict[str, Any]:
        log, episode = self.log, self._episodes.playing[row]
        way = save_strategy(self.makers[row]) if episode >= 0 else None
        if way != "state" and self._changed[row]:
            raise RunError(
                f"environment {self.first + row} was changed by {self._changed[row]} of training_env or get_env(), and cannot be "
                "saved exactly as it is now, so that a run that goes on from here would have lost the change: give the environment "
                "__getstate__() and __setstate__(), or no checkpoints and restarts to this run"
            )
        saved: dict[str, Any] = {
            "way": way, "episode": episode, "length": log.lengths[row], "total": float(log.totals[row])
        }  # fmt: skip
        if way == "state":
            saved["state"] = Pickled(pickle.dumps(self.rows.save(row)[:2]))
            saved["logged"] = self._logged[row]
        elif way == "replay":
            taken = self._logs[row]
            saved["seed"] = self._seeds[row]
            saved["actions"] = np.concatenate(taken) if taken else np.zeros(0, np.int64)
        return saved

    def put_back(self, saved: Sequence[dict[str, Any]]) -> None:
        """Make the environments, which have just been made, what they were; begins new episodes where nothing else is possible."""
        rows, log = self.rows, self.log
        self._episodes.begin_round()
        for row, one in enumerate(saved):
            self._episodes.playing[row], log.lengths[row], log.totals[row] = one["episode"], one["length"], one["total"]
            if one["way"] == "state":
                state, shown = decode(one["state"])
                rows.load(row, SavedEnv(state, shown, False))
                self._logged[row] = one["logged"]
            elif one["way"] == "replay":
                self._seeds[row], actions = one["seed"], one["actions"]
                self._logs[row], self._logged[row] = [actions], len(actions)
                rows.replay(row, {"seed": self._seeds[row]}, actions)
            elif one["episode"] >= 0:
                self._begin([row])


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


def _answer(asked: EnvRequest, env: Env) -> Pickled:
    try:
        found: Any = True, asked(env)
    except Exception as error:
        # Without frames, which cannot be pickled and would keep the environment alive.
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
