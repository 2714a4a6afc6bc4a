"""``AtariEnv``: one Atari game with the preprocessing of ``AtariVectorEnv``, as an ordinary environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete

from reactor_gymnasium.atari.game import AtariGame, AtariOptions, emulator_seed
from reactor_gymnasium.atari.vector_env import rom_path

__all__ = ["AtariEnv"]

FrameStack = npt.NDArray[np.uint8]


class AtariEnv(gymnasium.Env[FrameStack, Any]):
    """One game as :class:`AtariVectorEnv` plays it, bit for bit, for whoever takes single environments, as SB3 does.

    The arguments that are not described here, and their defaults, are those of :class:`AtariVectorEnv`.

    Args:
        game: Name of the game in snake case, ``"ms_pacman"``, or an id; see :class:`~reactor_gymnasium.AtariVectorEnv`.
        render_mode: ``None`` or ``"rgb_array"``.

    Raises:
        ValueError: If there is no such game, or a number makes no sense.
    """

    def __init__(
        self,
        game: str,
        *,
        max_num_frames_per_episode: int = 108000,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        img_height: int = 84,
        img_width: int = 84,
        grayscale: bool = True,
        stack_num: int = 4,
        frameskip: int = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        reward_clipping: bool = True,
        use_fire_reset: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f'render_mode={render_mode!r}: choose None or "rgb_array"')
        self.render_mode = render_mode
        options = AtariOptions(
            rom_path(game)[1], max_num_frames_per_episode, repeat_action_probability, full_action_space, img_height, img_width,
            grayscale, stack_num, frameskip, maxpool, noop_max, episodic_life, False, reward_clipping, use_fire_reset,
        )  # fmt: skip
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 60 // frameskip}
        self.game = AtariGame(options)
        self.observation_space = Box(0, 255, (stack_num, *options.frame_shape), np.uint8)
        self.action_space = Discrete(len(self.game.actions))
        self._playing = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[FrameStack, dict[str, Any]]:
        """Begin an episode; with a seed, with an emulator that is as good as new.

        Returns:
            The observation, ``(stack_num, img_height, img_width)`` uint8, in colour with a last axis of 3; ``lives``,
            ``frame_number`` (of all episodes) and ``episode_frame_number``.

        Raises:
            ValueError: If the seed has more than 31 bits, or is negative.
            TypeError: If it is no integer.
        """
        seed = None if seed is None else emulator_seed(seed)
        super().reset(seed=seed)
        self.game.reset(seed)
        self._playing = True
        return self.game.frames(), self._info()

    def step(self, action: Any) -> tuple[FrameStack, float, bool, bool, dict[str, Any]]:
        """Play for ``frameskip`` frames, or until the episode ends.

        Raises:
            ValueError: If there is no such action.
            ResetNeeded: Before the first :meth:`reset`.
        """
        if not self._playing:
            raise ResetNeeded("call reset() before the first step")
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not one of {self.action_space}")
        game = self.game
        game.step(int(action), 1.0)
        return game.frames(), float(game.reward), game.terminated, game.truncated, self._info()

    def render(self) -> Any:
        """The screen, ``(height, 160, 3)`` uint8, of most games 210 high, with ``render_mode="rgb_array"``."""
        return self.game.render() if self.render_mode == "rgb_array" else None

    def _info(self) -> dict[str, Any]:
        return dict(zip(("lives", "frame_number", "episode_frame_number"), self.game.numbers(), strict=True))
