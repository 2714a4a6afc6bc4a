"""The reactor that plays a contiguous block of Atari games."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pickle import PicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.atari.game import AtariGame, AtariOptions
from reactor_gymnasium.environments.block import marked
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_rl import Input, Output, Reactor, RunError, reaction, startup
from reactor_rl.plugin import Failure

__all__ = ["AtariShard"]


class AtariShard(Reactor):
    """Environments ``first`` to ``first + n - 1`` of a vector environment.

    Args:
        options: What the games are played with.
        first: Index of the first one.
        n: How many they are.
        row: Row of the first one in its batch.
        autoreset_mode: When a game that is over begins anew.
        continuous_action_threshold: Value above which a joystick counts as moved, where actions are continuous; ``None`` otherwise.
        core: The core that its worker is bound to, if it is a helper; ``None`` for none.
        watched: Whether to tell at any time which game is being played.
    """

    actions = Input()
    """Actions, ``(n,)`` int64, or ``(n, 3)`` float32: radius, angle, fire."""
    request = Input()
    """A reset: a seed for each environment (``None`` for none), and which of them are reset (``None`` for all)."""
    show = Input()
    """That screens are wanted; any value."""

    observations = Output((0,), np.uint8)
    rewards = Output((0,), np.int32)
    terminations = Output((0,), np.bool_)
    truncations = Output((0,), np.bool_)
    numbers = Output((0,), np.int32)
    """Lives, frames of all episodes, frames of this one: a row for each environment."""
    extras = Output()
    """What some steps have besides: last observations of episodes that ended, by row of the batch, and failures by environment."""
    at = Output((), np.int64)
    """Which of its games is being played, counted from 1, 0 for none; written only where somebody watches."""
    screens = Output()
    """What the emulators show, ``(n, height, 160, 3)`` uint8."""

    def __init__(
        self,
        options: AtariOptions,
        first: int,
        n: int,
        row: int,
        autoreset_mode: AutoresetMode,
        continuous_action_threshold: float | None,
        core: int | None,
        watched: bool,
    ) -> None:
        self.options, self.first, self.n, self.row = options, first, n, row
        self.autoreset_mode, self.continuous_action_threshold, self.core = autoreset_mode, continuous_action_threshold, core
        self.observations = Output((n, options.stack_num, *options.frame_shape), np.uint8)
        self.rewards, self.numbers = Output(n, np.int32), Output((n, 3), np.int32)
        self.terminations, self.truncations = Output(n, np.bool_), Output(n, np.bool_)
        self.caller, self.watched = os.getpid(), watched

    @reaction(startup)
    def build(self) -> None:
        """Load the games, here where they will be played."""
        if self.core is not None and os.getpid() != self.caller and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # a core that this process may not use: ALE's own goes on too
                os.sched_setaffinity(0, {self.core})
        screen = np.zeros((210, 160), np.uint8)
        self.games = [AtariGame(self.options, screen) for _ in range(self.n)]
        if self.continuous_action_threshold is not None:
            from ale_py.env import AtariEnv

            moves = range(-1, 2)
            self.joystick = np.array(
                [[[AtariEnv.map_action_idx(x, y, bool(f)).value for f in (0, 1)] for y in moves] for x in moves]
            )

    @reaction(actions, effects=(observations, rewards, terminations, truncations, numbers, extras, at))
    def step(self) -> None:
        """Play every game for one step."""
        actions, strengths = self._decoded(self.actions.value)
        observations, rewards, numbers = self.observations.buffer, self.rewards.buffer, self.numbers.buffer
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        finals: list[tuple[int, bytes]] = []
        failures: list[tuple[int, Failure]] = []
        rows: Iterable[int] = marked(range(self.n), self.at.buffer) if self.watched else range(self.n)
        for row, game, action, strength in zip(rows, self.games, actions, strengths, strict=True):
            try:
                if game.over and next_step:
                    game.reset()
                else:
                    game.step(action, strength)
                rewards[row], terminations[row], truncations[row] = game.reward, game.terminated, game.truncated
                game.write(observations[row])
                if not next_step and (game.terminated or game.truncated):
                    finals.append((self.row + row, observations[row].tobytes()))
                    if game.over:  # the loss of a life may be reported without being an end
                        game.reset()
                        game.write(observations[row])
                numbers[row] = game.numbers()
            except Exception as error:  # the others still take their step
                failures.append(self._failure(row, error))
        if finals or failures:
            self.extras.set((finals, failures))

    @reaction(request, effects=(observations, numbers, extras))
    def reset(self) -> None:
        """Begin some games anew; the others report what they last did."""
        seeds, mask = self.request.value
        observations, numbers = self.observations.buffer, self.numbers.buffer
        failures: list[tuple[int, Failure]] = []
        for row, game in enumerate(self.games):
            try:
                if mask is None or mask[row]:
                    game.reset(seeds[row])
                game.write(observations[row])
                numbers[row] = game.numbers()
            except Exception as error:
                failures.append(self._failure(row, error))
        if failures:
            self.extras.set(([], failures))

    @reaction(show, effects=screens)
    def send_screens(self) -> None:
        """Send what the emulators show."""
        self.screens.set(np.stack([game.screen() for game in self.games]))

    def __getstate__(self) -> dict[str, Any]:
        if not hasattr(self, "games"):
            return self.__dict__.copy()
        try:
            return {"kept": [save_env(game) for game in self.games]}
        except PicklingError as error:
            raise RunError(
                f"games {self.first} to {self.first + self.n - 1} of AtariVectorEnv cannot be saved and restored exactly: {error}"
            ) from error

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for game, saved in zip(self.games, state["kept"], strict=True):
            load_env(game, saved)

    def _decoded(self, actions: npt.NDArray[np.generic]) -> tuple[Sequence[int], Sequence[float]]:
        """Indices of actions and strengths of the paddle; a joystick at an angle is moved along each axis beyond the threshold."""
        if self.continuous_action_threshold is None:
            return actions.tolist(), [1.0] * self.n
        threshold = self.continuous_action_threshold
        radius, angle, fire = actions.T
        x, y = radius * np.cos(angle), radius * np.sin(angle)
        across, along = [1 - (axis < -threshold).astype(int) + (axis > threshold) for axis in (x, y)]
        indices: list[int] = self.joystick[across, along, (fire > threshold).astype(int)].tolist()
        return indices, radius.tolist()

    def _failure(self, row: int, error: Exception) -> tuple[int, Failure]:
        index = self.first + row
        return index, Failure.of(row, f"environment {index}", self.tag, error)
