"""The reactor that plays a contiguous block of Atari games."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pickle import PicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.atari.game import AtariGame, AtariOptions
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_rl import Output, RunError, reaction

__all__ = ["AtariShard", "call"]


def call(game: AtariGame, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a game or, where it has none of that name, of its emulator; or get an attribute."""
    attribute = getattr(game.ale if hasattr(game.ale, name) and not hasattr(game, name) else game, name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


class AtariShard(Shard):
    """Games ``first`` to ``first + n - 1`` of a vector environment.

    Args:
        options: What the games are played with.
        n: How many they are.
        layout: The space of one observation.
        autoreset_mode: When a game that is over begins anew.
        continuous_action_threshold: Value above which a joystick counts as moved, where actions are continuous; ``None`` otherwise.
        core: The core that its worker is bound to, if it is a helper; ``None`` for none.
        **shared: As for :class:`~reactor_gymnasium.vector.shard.Shard`.
    """

    envs: list[AtariGame]
    numbers = Output((0,), np.int32)
    """Lives, frames of all episodes, frames of this one: a row for each game."""

    def __init__(
        self,
        options: AtariOptions,
        n: int,
        layout: ObservationLayout,
        autoreset_mode: AutoresetMode,
        continuous_action_threshold: float | None,
        core: int | None,
        **shared: Any,
    ) -> None:
        super().__init__(rows=n, layout=layout, **shared)
        self.options, self.n, self.autoreset_mode, self.core = options, n, autoreset_mode, core
        self.continuous_action_threshold = continuous_action_threshold
        self.rewards, self.numbers = Output(n, np.int32), Output((n, 3), np.int32)
        self.caller = os.getpid()

    def build(self) -> None:
        if self.core is not None and os.getpid() != self.caller and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # a core that this process may not use: ALE's own goes on too
                os.sched_setaffinity(0, {self.core})
        screen = np.zeros((210, 160), np.uint8)
        self.envs = [AtariGame(self.options, screen) for _ in range(self.n)]
        if self.continuous_action_threshold is not None:
            from ale_py.env import AtariEnv

            moves = range(-1, 2)
            self.joystick = np.array(
                [[[AtariEnv.map_action_idx(x, y, bool(f)).value for f in (0, 1)] for y in moves] for x in moves]
            )

    def _env(self, held: AtariGame) -> AtariGame:
        return held

    # ------------------------------------------------------------------ steps

    @reaction(
        Shard.actions,
        effects=(Shard.observations, Shard.rewards, Shard.terminations, Shard.truncations, numbers, Shard.extras, Shard.at),
    )
    def step(self) -> None:
        """Play every game for one step."""
        actions, strengths = self._decoded(self.actions.value)
        observations, rewards, numbers = self.observations.buffer, self.rewards.buffer, self.numbers.buffer
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        finals: dict[int, bytes] = {}
        failures: Failures = []
        for row, game, action, strength in zip(self._numbers(), self.envs, actions, strengths, strict=True):
            try:
                if game.over and next_step:
                    game.reset()
                else:
                    game.step(action, strength)
                rewards[row], terminations[row], truncations[row] = game.reward, game.terminated, game.truncated
                game.write(observations[row])
                if not next_step and (game.terminated or game.truncated):
                    finals[self.row + row] = observations[row].tobytes()
                    if game.over:  # the loss of a life may be reported without being an end
                        game.reset()
                        game.write(observations[row])
                numbers[row] = game.numbers()
            except Exception as error:  # the others still take their step
                failures.append(self._failure(row, error))
        self._send(finals, {}, failures)

    def _send(self, finals: Any, infos: Infos, failures: Failures) -> None:
        if finals or failures:
            self.extras.set((finals, failures))

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

    # ------------------------------------------------------------------ other requests

    @reaction(Shard.request, effects=(Shard.observations, numbers, Shard.extras, Shard.replies))
    def answer_request(self) -> None:
        """Begin some games anew, while the others report what they last did; or call some."""
        super().answer_request()

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        self.envs[number].reset(**kwargs)

    def _write_last(self, failures: Failures) -> None:
        observations, numbers = self.observations.buffer, self.numbers.buffer
        for row, game in enumerate(self.envs):
            game.write(observations[row])
            numbers[row] = game.numbers()

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        try:
            return {"kept": [save_env(game) for game in self.envs]}
        except PicklingError as error:
            raise RunError(
                f"games {self.first} to {self.first + self.n - 1} of AtariVectorEnv cannot be saved and restored exactly: {error}"
            ) from error

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for game, saved in zip(self.envs, state["kept"], strict=True):
            load_env(game, saved)
