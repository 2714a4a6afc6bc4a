"""One environment of an actor or evaluator: its episode so far, and how to save it between two steps."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.plugin import Folded, known_way, load, own, save, thrown_away, untouched
from reactor_rl.plugin import Pickled, decode
from reactor_sb3.streams import Purpose, seed_of

__all__ = ["KeptEnv", "check"]

Array = npt.NDArray[Any]


class KeptEnv(Folded):
    """An environment and its episode.

    The first reset of a round is seeded by (seed, purpose, environment, episode), so that what has happened since can be replayed
    from the actions alone, and is never longer than an episode and a round. (Seeding every reset would cost more than some episodes
    do.)

    Args:
        make: Makes the environment; encoded.
        seed: Of the trainer.
        purpose: What the environment is for.
        number: Of the environment, among those for that purpose.

    Attributes:
        env: The environment.
        inner: What to step; may leave out wrappers, see :mod:`reactor_gymnasium.environments.folded`.
        limit: Length at which an episode is to be truncated, because the wrapper that does it is left out.
        observation: The last one before this round or reset, from which the next action follows; a copy.
        length: Steps of this episode.
        total: Return of this episode.
    """

    def __init__(self, make: Pickled, seed: int, purpose: Purpose, number: int) -> None:
        env_fn = decode(make)
        super().__init__(_uncounted(env_fn()) if purpose is Purpose.EPISODES else thrown_away(env_fn))
        self.make, self.seed, self.purpose, self.number = make, seed, purpose, number
        self.observation: Any = None
        self.length, self.total = 0, 0.0
        self.episode = -1
        self.log: list[Array] = []  # actions since the last seeded reset, round by round
        self.logged_seed = 0
        self._seeded_at: int | None = None  # step of this round

    # ------------------------------------------------------------------ rounds

    def begin_round(self, afresh: bool) -> None:
        """To be called before the first step of a round; begins a new episode if told so, or if there is none."""
        self._seeded_at = None
        if self.folded and not untouched():
            self.write_back(self.length)
            self.unfold()
        if not self.settled and self.episode >= 0:
            self.fold()
        if afresh or self.episode < 0:
            self.reset(0)

    def reset(self, step: int) -> None:
        """Begin an episode before step ``step`` of the round."""
        self.episode += 1
        if self._seeded_at is None:
            self._seeded_at, self.log = step, []
            self.logged_seed = seed_of(self.seed, self.purpose, self.number, self.episode)
            observation, _ = self.inner.reset(seed=self.logged_seed)
        else:
            observation, _ = self.inner.reset()
        self.observation = own(observation)
        self.length, self.total = 0, 0.0

    def end_round(self, actions: Array) -> None:
        """To be called after the last step of a round, with its actions."""
        self.log.append(actions[self._seeded_at or 0 :].copy())

    def report(self, info: dict[str, Any]) -> dict[str, Any]:
        """The last info of the episode, with what SB3's ``Monitor`` would add, but for the time, which is the caller's."""
        reported: dict[str, Any] = own(info)
        reported.setdefault("episode", {"r": round(float(np.asarray(self.total).item()), 6), "l": self.length})
        return reported

    # ------------------------------------------------------------------ saving

    def saved(self) -> dict[str, Any]:
        """All that the coming steps depend on: plain numbers, and a pickle or an array. :func:`check` knows what is in it."""
        way = known_way(self.make) if self.episode >= 0 else None
        saved: dict[str, Any] = {"way": way, "episode": self.episode, "length": self.length, "total": float(self.total)}
        if way == "state":
            self.write_back(self.length)
            saved["state"] = Pickled(pickle.dumps((save(self.env), self.observation)))
        elif way == "replay":
            saved["seed"] = self.logged_seed
            saved["actions"] = np.concatenate(self.log) if self.log else np.zeros(0, np.int64)
        return saved

    def put_back(self, saved: dict[str, Any]) -> None:
        """Make the environment, which has just been made, what it was; begins a new episode if nothing else is possible."""
        self.unfold()
        self.episode, self.length, self.total = saved["episode"], saved["length"], saved["total"]
        if saved["way"] == "state":
            state, self.observation = decode(saved["state"])
            self.env = load(self.env, state)
            self.unfold()
        elif saved["way"] == "replay":
            self.logged_seed, actions = saved["seed"], saved["actions"]
            self.log = [actions]
            observation, _ = self.env.reset(seed=self.logged_seed)
            for action in actions.copy():  # which it may keep and change; the log is ours
                observation, _, terminated, truncated, _ = self.env.step(action)
                if terminated or truncated:
                    observation, _ = self.env.reset()
            self.observation = own(observation)
        elif self.episode >= 0:
            self._seeded_at = None
            self.reset(0)


def _uncounted(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Without a ``Monitor`` that does no more than :meth:`KeptEnv.report`, and costs as much as a cheap environment."""
    if type(env) is not Monitor or env.results_writer is not None or not env.allow_early_resets:
        return env
    return env if env.info_keywords or env.reset_keywords else env.env


def check(saved: Any, actions: gymnasium.Space[Any], dtype: np.dtype[Any]) -> None:
    """Refuse what :meth:`KeptEnv.saved` cannot have given. Only what is a :class:`Pickled` by its type will be unpickled.

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
            case "state", {"state": Pickled(), **more} if begun and not more:
                return
            case "replay", {"seed": int() as seed, "actions": np.ndarray() as taken, **more} if begun and not more:
                alike = taken.dtype == dtype and taken.shape[1:] == actions.shape
                if 0 <= seed < 2**31 and taken.ndim and alike and all(map(actions.contains, taken)):
                    return
    raise ValueError("the state of an environment is none")
