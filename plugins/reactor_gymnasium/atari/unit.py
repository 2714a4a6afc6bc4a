"""``AtariUnit``: a game as a unit of one row; and what makes the games of a shard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.atari.game import AtariGame
from reactor_gymnasium.environments.rows import ColumnSpec, StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.environments.unit_rows import only

__all__ = ["COLUMNS", "AtariUnit", "MakeGame", "call"]

COLUMNS: dict[str, ColumnSpec] = dict.fromkeys(("lives", "frame_number", "episode_frame_number"), (np.int32, ()))
"""Columns that a game tells of itself: lives, frames of all episodes, frames of this one."""


def call(game: AtariGame, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a game or, where it has none of that name, of its emulator; or get an attribute."""
    attribute = getattr(game.ale if hasattr(game.ale, name) and not hasattr(game, name) else game, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


class MakeGame:
    """Makes the games of one shard; they have a screen between them.

    Args:
        core: The core that its worker is bound to, if it is a helper; ``None`` for none.
    """

    def __init__(self, core: int | None) -> None:
        self.core, self.caller = core, os.getpid()
        self.screen = np.zeros((210, 160), np.uint8)

    def __call__(self, make: Callable[..., AtariGame]) -> AtariGame:
        if self.core is not None and os.getpid() != self.caller and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # a core that this process may not use: ALE's own goes on too
                os.sched_setaffinity(0, {self.core})
        return make(screen=self.screen)


class AtariUnit:
    """A game.

    Args:
        game: The game.
        index: Which one it is.
        threshold: Value above which a joystick counts as moved, where actions are continuous; ``None`` otherwise.
    """

    rows, keeps, takes_batch, flags, batched = 1, True, False, None, None
    infos: Mapping[int, Any] = {}

    def __init__(self, game: AtariGame, index: int, threshold: float | None) -> None:
        self.env = self.state = game
        self.threshold = threshold
        self.over = True
        self.rewards = (0,)
        self.ended: Sequence[tuple[int, bool, bool]] = ()

    def reset(self, **kwargs: Any) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        self.env.reset(**kwargs)
        self.over, self.rewards, self.ended = False, (0,), ()

    def step(self, actions: Any) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        game = self.env
        if self.threshold is None:
            game.step(int(actions[0]), 1.0)
        else:
            game.step(*_decoded(actions, self.threshold))
        # The loss of a life may be reported without being an end.
        self.ended = ((0, game.terminated, game.truncated),) if game.terminated or game.truncated else ()
        self.over, self.rewards = game.over, (game.reward,)

    def show(self, out: StepBuffers, lo: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        if (shown := only(out.observations)) is not None:
            self.env.write(shown[lo])
        if columns := out.columns:
            columns["lives"][lo], columns["frame_number"][lo], columns["episode_frame_number"][lo] = self.env.numbers()

    def leaves(self, layout: ObservationLayout) -> list[tuple[Any, ...] | None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        return [()]

    def last(self, row: int) -> Any:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        return self.env.frames()


def _decoded(actions: npt.NDArray[np.float32], threshold: float) -> tuple[int, float]:
    """Index of an action and strength of the paddle; a joystick at an angle is moved along each axis beyond the threshold."""
    radius, angle, fire = actions.T
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    across, along = [1 - (axis < -threshold).astype(int) + (axis > threshold) for axis in (x, y)]
    return int(_joystick()[across, along, (fire > threshold).astype(int)][0]), float(radius[0])


@cache
def _joystick() -> npt.NDArray[Any]:
    from ale_py.env import AtariEnv

    moves = range(-1, 2)
    return np.array([[[AtariEnv.map_action_idx(x, y, bool(f)).value for f in (0, 1)] for y in moves] for x in moves])
