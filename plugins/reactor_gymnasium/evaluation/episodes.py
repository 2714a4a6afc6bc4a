"""Episodes by their numbers: who plays them, and what is told of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium.environments.gym_rows import REAL_DONE, GymRows
from reactor_gymnasium.environments.player import EndedEpisode, EpisodeLog, EpisodePlayer, Numbered
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.asking import Asking, seed_of
from reactor_gymnasium.evaluation.policies import AskedPolicy, is_plain, masks_of
from reactor_rl.plugin import Pickled

__all__ = ["NumberedPlayer", "played"]

Array = npt.NDArray[Any]


class NumberedPlayer(EpisodePlayer):
    """Makes environments, here where they will live, that play the episodes of a queue.

    Args:
        rows: What is to have the environments, whatever is raised.
        makers: What makes each environment, encoded.
        layout: Of an observation.
        action_space: Of each.
        max_steps: After how many steps an episode is cut off; ``None`` for never.

    Attributes:
        queue: Numbers of episodes that are to begin.
        playing: The number of each environment's episode; ``None`` where it is idle.
        out: Where to write what is shown, which :meth:`actions` are chosen by.
    """

    rows: GymRows
    seeds: Numbered
    out: StepBuffers | None = None

    def __init__(
        self, rows: GymRows, makers: Sequence[Pickled], layout: ObservationLayout, action_space: gymnasium.Space[Any],
        max_steps: int | None,
    ) -> None:  # fmt: skip
        rows.build(makers, partial(_limited, max_steps))
        rows.look_for_lives()
        rows.keep_infos, rows.before_reset = False, _numbers
        log = EpisodeLog(len(makers), floats=True, hashing="arrays" if is_plain(action_space) else "objects")
        super().__init__(rows, Numbered(len(makers), partial(seed_of, 0)), log)
        self.layout, self.queue, self.playing = layout, self.seeds.queue, self.seeds.playing

    def ask(self, policy: AskedPolicy, batch: int, seed: int) -> None:
        """Let a policy choose :meth:`actions`, a batch of rows at a call, in an evaluation with a seed."""
        self.seeds.seed_of = partial(seed_of, seed)
        self._asking = asking = Asking(policy, batch, self.layout, len(self.playing), seed)
        self.out = None if asking.rows is None else StepBuffers(self.layout, asking.rows)

    def actions(self) -> Any:
        """The policy's actions for what is shown now."""
        self._asking.follow(self.playing)
        return self._asking(self.objects(), self.allowed() if self._asking.policy.masked else None)

    def objects(self) -> list[tuple[Any, ...]] | None:
        """The object leaves of the observations of all rows, if they have some.

        Raises:
            TypeError: If one has no observation.
        """
        if not self.layout.objects:
            return None
        found = self.rows.objects(self.layout)
        for row, (leaves, number) in enumerate(zip(found, self.playing, strict=True)):
            if leaves is None and number is not None:
                raise TypeError(
                    f"environment {self.rows.first + row} returned None as the observation in episode {number}, its space is "
                    f"{self.layout.space}"
                )
        return [leaves or () for leaves in found]

    def allowed(self) -> list[Array | None]:
        """Which choices the environments allow now, ``None`` for idle rows.

        Raises:
            Exception: What an environment raised, with a note that says which one.
        """
        found: list[Array | None] = []
        self.rows.keep_from_kernels("its masks are asked for before each step")
        with self.rows.opened(changes=False) as envs:
            for row, number in enumerate(self.playing):
                try:
                    found.append(None if number is None else masks_of(envs[row]))
                except Exception as error:
                    error.add_note(f"raised in episode {number}, in environment {self.rows.first + row}")
                    raise
        return found


def played(episode: EndedEpisode) -> EndedEpisode:
    """An episode as it is told of: with the sum and length of a ``Monitor`` or ``RecordEpisodeStatistics``, where there is one."""
    total, length = episode.info.pop(_WHOLE, (episode.total, episode.length))
    return episode._replace(total=total, length=length)


class _GameLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts off a game after so many steps; a ``TimeLimit`` would count those of a life."""

    def __init__(self, env: gymnasium.Env[Any, Any], max_steps: int) -> None:
        super().__init__(env)
        self.max_steps, self.steps = max_steps, 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps >= self.max_steps and not truncated:
            terminated, truncated = terminated and self.env.get_wrapper_attr(REAL_DONE), True
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.env.get_wrapper_attr(REAL_DONE):
            self.steps = 0
        return self.env.reset(seed=seed, options=options)


def _limited(max_steps: int | None, env_fn: Callable[[], gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    env = env_fn()
    if max_steps is None:
        return env
    return _GameLimit(env, max_steps) if env.has_wrapper_attr(REAL_DONE) else TimeLimit(env, max_steps)


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
