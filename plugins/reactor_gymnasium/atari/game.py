"""One Atari game: the emulator, its frames, and their preprocessing."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import Error

from reactor_gymnasium.arguments import checked_number, checked_seed
from reactor_rl.plugin import compiled_module, require_extra

if TYPE_CHECKING:
    from ale_py import ALEInterface

__all__ = [
    "AtariGame",
    "AtariOptions",
    "ColourFrames",
    "CompiledFrames",
    "Frames",
    "OpenCVFrames",
    "emulator_seed",
    "frames_of",
    "kernel_missing",
]

Frame = npt.NDArray[np.uint8]

_frames = compiled_module("reactor_gymnasium.atari._frames")  # else OpenCV does the same, in more time


def frames_of(
    ale: ALEInterface, height: int = 84, width: int = 84, grayscale: bool = True, maxpool: bool = True, screen: Frame | None = None
) -> Frames:
    """A maker of finished frames, for an emulator that has loaded its game.

    Args:
        ale: The emulator.
        height: Rows of a finished frame.
        width: Columns of a finished frame.
        grayscale: Whether frames are grey, or have three colours.
        maxpool: Whether a frame is the larger of the last two screens, or the last one alone.
        screen: Where the emulator may put a screen of 210 x 160, uint8. Emulators that are never played at the same time may have
            one between them, which then stays in the cache.

    Raises:
        ValueError: If a size is not positive.
        ImportError: If OpenCV is needed and not installed.
    """
    if height < 1 or width < 1:
        raise ValueError(f"a frame must have rows and columns, got {height} x {width}")
    if _frames is not None and grayscale and (height, width) == (84, 84) and tuple(ale.getScreenDims()) == (210, 160):
        return CompiledFrames(ale, maxpool, screen=screen)
    return OpenCVFrames(ale, height, width, grayscale, maxpool)


def kernel_missing() -> str | None:
    """Why there are no compiled frames, ``None`` if there are."""
    return "frames were not compiled" if _frames is None else None


class _KernelFrames(ABC):
    """Frames of 84 x 84 from screens of 210 x 160, by the compiled kernel.

    Args:
        ale: The emulator. It must not load a game with another palette later on.
        screen: As for :func:`frames_of`.
        avx2: Whether AVX2 may be used where the processor has it. It never changes a frame.
        pairs: The grey of each pair of colours, where that is wanted.
    """

    def __init__(self, ale: ALEInterface, screen: Frame | None, avx2: bool, pairs: Frame | None = None) -> None:
        self.ale = ale
        self._screen = np.zeros((210, 160), np.uint8) if screen is None else screen
        self._get = ale.getScreen
        self._kernel = _frames.Kernel(self._screen, avx2, pairs)
        self.finish = self._kernel.finish

    def see_first(self) -> None:
        self._see(self._kernel.see_first)

    def see_last(self) -> None:
        self._see(self._kernel.see_last)

    def _see(self, see: Callable[[], bool]) -> None:
        self._get(self._screen)
        if not see():
            self._kernel.learn(self._grey())
            see()

    @abstractmethod
    def _grey(self) -> Frame:
        """The screen in grey, of which the kernel learns its colours: Python cannot read the emulator's palette."""


class CompiledFrames(_KernelFrames):
    """Grey frames; see :class:`OpenCVFrames` for what the methods do.

    Args:
        ale: The emulator. It must not load a game with another palette later on.
        maxpool: As for :func:`frames_of`.
        avx2: Whether AVX2 may be used where the processor has it. It never changes a frame.
        screen: As for :func:`frames_of`.
    """

    def __init__(self, ale: ALEInterface, maxpool: bool = True, avx2: bool = True, screen: Frame | None = None) -> None:
        super().__init__(ale, screen, avx2)
        self._maxpool = maxpool

    def restart(self) -> None:
        self._kernel.restart()
        self.see_last()

    def see_first(self) -> None:
        if self._maxpool:  # else f1 stays black
            super().see_first()

    def remembered(self) -> Frame:
        greys = np.empty((2, 210, 160), np.uint8)  # as OpenCV's frames have them
        self._kernel.store(greys.reshape(420, 160))
        return greys

    def recall(self, remembered: Frame) -> None:
        self._kernel.load(remembered.reshape(420, 160))

    def _grey(self) -> Frame:
        grey = np.empty_like(self._screen)
        self.ale.getScreenGrayscale(grey)
        return grey


class ColourFrames(_KernelFrames):
    """Frames as SB3's ``MaxAndSkipEnv`` and ``WarpFrame`` make them: the larger of two colours, number by number, and its grey.

    Args:
        ale: As for :class:`CompiledFrames`.
        avx2: Likewise.
    """

    def __init__(self, ale: ALEInterface, avx2: bool = True) -> None:
        self._pairs = np.zeros((256, 256), np.uint8)
        self._colours, self._known = np.zeros((256, 3), np.uint8), np.zeros(256, bool)
        super().__init__(ale, None, avx2, self._pairs)

    def show(self, pictures: Frame, seen: Sequence[bool]) -> None:
        """Put what was seen into ``pictures``, ``(2, 210, 160, 3)``: the last screen but one, and the last one.

        Args:
            pictures: C-contiguous.
            seen: Which of them.
        """
        shown = pictures if all(seen) else np.empty_like(pictures)
        self._kernel.show(self._colours, shown.reshape(420, 480))
        if shown is not pictures:
            pictures[np.array(seen)] = shown[np.array(seen)]

    def _grey(self) -> Frame:
        """Learns the grey of each colour on the screen with all others, too."""
        import cv2

        shown, at = np.unique(self._screen, return_index=True)
        self._colours[shown] = self.ale.getScreenRGB().reshape(-1, 3)[at]
        self._known[shown] = True
        known = np.flatnonzero(self._known)
        grey = cv2.cvtColor(np.maximum(self._colours[shown, None], self._colours[None, known]), cv2.COLOR_RGB2GRAY)
        self._pairs[np.ix_(shown, known)], self._pairs[np.ix_(known, shown)] = grey, grey.T
        of_screen: Frame = self._pairs.diagonal()[self._screen]
        return of_screen


class OpenCVFrames:
    """Finished frames of one emulator, from the screens that it shows: of any size, grey or in colour, through OpenCV.

    The arguments are those of :func:`frames_of`.
    """

    def __init__(self, ale: ALEInterface, height: int, width: int, grayscale: bool, maxpool: bool) -> None:
        rows, columns = ale.getScreenDims()
        colours = () if grayscale else (3,)
        self._show = ale.getScreenGrayscale if grayscale else ale.getScreenRGB
        self._f0, self._f1 = np.zeros((2, rows, columns, *colours), np.uint8)
        self._shape, self._size, self._maxpool = (height, width, *colours), (width, height), maxpool
        self._cv2 = None if (rows, columns) == (height, width) else _opencv()

    def restart(self) -> None:
        """After a reset: f0 is the current screen, f1 is black."""
        self._show(self._f0)
        self._f1.fill(0)

    def see_first(self) -> None:
        """The current screen is the last but one of a step: f1."""
        if self._maxpool:
            self._show(self._f1)

    def see_last(self) -> None:
        """The current screen is the last one of a step: f0."""
        self._show(self._f0)

    def finish(self, out: Frame, /) -> None:
        """Put the finished frame into ``out``, C-contiguous, ``(height, width)`` or ``(height, width, 3)``.

        Raises:
            ValueError: If ``out`` is something else.
        """
        # OpenCV would silently write elsewhere.
        if out.shape != self._shape or out.dtype != np.uint8 or not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError(f"a frame needs a writable, C-contiguous uint8 array of shape {self._shape}, got {_described(out)}")
        if self._maxpool:
            np.maximum(self._f0, self._f1, out=self._f0)
        if self._cv2 is None:
            np.copyto(out, self._f0)
        else:
            self._cv2.resize(self._f0, self._size, dst=out, interpolation=self._cv2.INTER_AREA)

    def remembered(self) -> Frame:
        """f1 and f0 as the last finished frame left them, a copy: an episode's end may come before they are seen anew."""
        return np.stack([self._f1, self._f0])

    def recall(self, remembered: Frame) -> None:
        """Go on from what another one has :meth:`remembered`."""
        self._f1[...], self._f0[...] = remembered


Frames = CompiledFrames | OpenCVFrames
"""Either kind that :func:`frames_of` makes; both make the same frames."""


@cache
def _opencv() -> Any:
    with require_extra("atari", "what makes frames of this kind (OpenCV)"):
        import cv2
    cv2.setNumThreads(1)  # workers are processes, one for each core: threads of OpenCV's own would get in their way
    return cv2


def _described(out: Frame) -> str:
    return f"{out.dtype}{list(out.shape)}, strides {out.strides}{'' if out.flags.writeable else ', read-only'}"


_REMEMBERED = ("ale", "_stack", "_newest", "np_random", "_elapsed", "reward", "lives", "terminated", "truncated", "over")


@dataclass(frozen=True)
class AtariOptions:
    """Options of a game; names and meanings as of :class:`~reactor_gymnasium.AtariVectorEnv`."""

    rom_path: str
    max_num_frames_per_episode: int
    repeat_action_probability: float
    full_action_space: bool
    img_height: int
    img_width: int
    grayscale: bool
    stack_num: int
    frameskip: int
    maxpool: bool
    noop_max: int
    episodic_life: bool
    life_loss_info: bool
    reward_clipping: bool
    use_fire_reset: bool

    def __post_init__(self) -> None:
        if type(self.frameskip) is not int:
            raise Error(f"Invalid frameskip type: {type(self.frameskip)}.")
        if self.frameskip <= 0:
            raise Error(f"Invalid frameskip of {self.frameskip}, frameskip must be positive.")
        for name in ("img_height", "img_width", "stack_num", "max_num_frames_per_episode"):
            checked_number(name, getattr(self, name), 1)
        checked_number("noop_max", self.noop_max, 0)
        if not 0.0 <= self.repeat_action_probability <= 1.0:
            raise ValueError(f"repeat_action_probability={self.repeat_action_probability!r} is not a probability")

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of one finished frame."""
        return (self.img_height, self.img_width) if self.grayscale else (self.img_height, self.img_width, 3)


def emulator_seed(seed: Any) -> int:
    """A seed that the emulator takes, which has 31 bits for it.

    Raises:
        TypeError: If it is no integer.
        ValueError: If it has more bits, or is negative.
    """
    number = checked_seed(seed)
    if number >= 2**31:
        raise ValueError(f"seed {seed} is not between 0 and 2**31 - 1")
    return number


class AtariGame:
    """An emulator, and what has to be remembered between two of its steps.

    Args:
        options: What it is played with.
        screen: As for :func:`~reactor_gymnasium.atari.game.frames_of`.

    Attributes:
        actions: The emulator's number of each action.
        reward: The reward of the last step, clipped if that was asked for.
        terminated: Whether the last step ended the episode, or lost a life that counts as an end.
        truncated: Whether the last step reached the limit of frames.
        over: Whether the episode has ended, so that a reset must follow.
        lives: Lives that are left.
        ale: The emulator.
        np_random: What draws the no-ops that episodes begin with.
    """

    def __init__(self, options: AtariOptions, screen: npt.NDArray[np.uint8] | None = None) -> None:
        from ale_py import ALEInterface, LoggerMode

        self._options = options
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ale = ALEInterface()
        ale.setFloat("repeat_action_probability", float(options.repeat_action_probability))
        # By the clock: without a seed, two games must not be the same one.
        ale.setInt("random_seed", -1)
        ale.loadROM(options.rom_path)
        actions = ale.getLegalActionSet() if options.full_action_space else ale.getMinimalActionSet()
        self.actions = [int(action.value) for action in actions]
        self._fires = options.use_fire_reset and _FIRE in self.actions
        # Looked up once, as they are called for each emulated frame.
        self._act, self._game_over, self._lives_left = ale.act, ale.game_over, ale.lives
        self._frames = frames_of(ale, options.img_height, options.img_width, options.grayscale, options.maxpool, screen)
        # What happens after an emulated frame, of which there are `frameskip` in a step: only the last two are looked at.
        self._looks = [None] * (options.frameskip - 2) + [self._frames.see_first, self._frames.see_last][-options.frameskip :]
        self._stack = np.zeros((options.stack_num, *options.frame_shape), np.uint8)
        self._newest = 0  # index in the stack, which is a ring
        self.np_random = np.random.RandomState(secrets.randbits(32))
        self.reward = self.lives = self._elapsed = 0
        self.terminated = self.truncated = self.over = False

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode; with a seed, with an emulator that is as good as new."""
        ale = self.ale
        if seed is not None:
            ale.setInt("random_seed", seed)
            self.np_random = np.random.RandomState(seed)
            # Only loading a game makes the emulator take the seed, and that takes as long as hundreds of steps.
            ale.loadROM(self._options.rom_path)
        ale.reset_game()
        if self._fires:
            self._act(_FIRE)
        for _ in range(self._noops() - self._fires):
            self._act(_NOOP)
            if self._game_over():
                ale.reset_game()
        self._stack.fill(0)
        self._frames.restart()
        self._take_frame()
        self._elapsed = self.reward = 0
        self.terminated = self.truncated = self.over = False
        self.lives = self._lives_left()

    def step(self, action: int, strength: float) -> None:
        """Repeat an action for ``frameskip`` frames, or until the episode ends.

        Args:
            action: Index of one of :attr:`actions`.
            strength: How strongly a paddle is moved, 0 to 1.
        """
        act, game_over, lives_left, options = self._act, self._game_over, self._lives_left, self._options
        number, lives, last = self.actions[action], self.lives, options.max_num_frames_per_episode
        reward = 0
        for look in self._looks:
            reward += act(number, strength)
            self._elapsed += 1
            ended, lost = game_over(), 0 < lives_left() < lives
            self.over = ended or self._elapsed >= last or (options.episodic_life and lost)
            if self.over:
                break
            if look is not None:
                look()
        self._take_frame()
        self.lives = lives_left()
        self.reward = max(-1, min(1, reward)) if options.reward_clipping else reward
        self.terminated = ended or (lost and (options.episodic_life or options.life_loss_info))
        self.truncated = self._elapsed >= last and not self.terminated

    def write(self, row: npt.NDArray[np.uint8]) -> None:
        """Write the last frames, oldest first, into ``row``, ``(stack_num, *frame_shape)``."""
        oldest = self._newest + 1
        row[:-oldest] = self._stack[oldest:]
        row[-oldest:] = self._stack[:oldest]

    def frames(self) -> npt.NDArray[np.uint8]:
        """The last frames, oldest first."""
        frames = np.empty_like(self._stack)
        self.write(frames)
        return frames

    def numbers(self) -> tuple[int, int, int]:
        """Lives, frames of all episodes, frames of this one."""
        return self.lives, self.ale.getFrameNumber(), self.ale.getEpisodeFrameNumber()

    def render(self) -> npt.NDArray[np.uint8]:
        """The emulator's picture, ``(height, 160, 3)``, of most games 210 high."""
        shown: npt.NDArray[np.uint8] = self.ale.getScreenRGB()
        return shown

    def close(self) -> None:
        """The emulator has nothing to close."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything that is remembered between two steps, the emulator itself included."""
        return {**{name: vars(self)[name] for name in _REMEMBERED}, "frames": self._frames.remembered()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become what the state says."""
        vars(self).update({name: state[name] for name in _REMEMBERED})
        self._frames.recall(state["frames"])

    def _take_frame(self) -> None:
        self._newest = (self._newest + 1) % len(self._stack)
        self._frames.finish(self._stack[self._newest])

    def _noops(self) -> int:
        """Draw how many no-ops an episode begins with, below ``noop_max``.

        It is the number that ALE draws for the same seed on Linux: ``std::uniform_int_distribution`` of the GNU library over
        ``std::mt19937``, that is, Lemire's method (2019, "Fast Random Integer Generation in an Interval") on 32 bits.
        """
        n = max(1, self._options.noop_max)
        while True:
            product = self._word() * n
            if product % 2**32 >= 2**32 % n:
                return product >> 32

    def _word(self) -> int:
        return int.from_bytes(self.np_random.bytes(4), "little")


_NOOP, _FIRE = 0, 1
"""ALE's numbers of these actions."""
