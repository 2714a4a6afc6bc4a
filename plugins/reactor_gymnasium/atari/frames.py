"""Finished frames of one Atari emulator: the larger of its last two screens, scaled down, as ``ale_py.AtariVectorEnv`` makes them.

The rule, in terms of two frames that persist: a reset makes f0 the current screen and f1 black; a step stores the screens that it
reaches before it breaks off, the last but one in f1 and the last one in f0; then f0 becomes the larger of both, in place, and f0
scaled to the wanted size is the finished frame.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from reactor_rl.plugin import extension, needs

if TYPE_CHECKING:
    from ale_py import ALEInterface

__all__ = ["CompiledFrames", "Frames", "OpenCVFrames", "frames_of"]

Frame = npt.NDArray[np.uint8]

_frames = extension("reactor_gymnasium.atari._frames")  # else OpenCV does the same, in more time


class Frames(Protocol):
    """Finished frames of one emulator, from the screens that it shows."""

    def restart(self) -> None:
        """After a reset: f0 is the current screen, f1 is black."""

    def see_first(self) -> None:
        """The current screen is the last but one of a step: f1."""

    def see_last(self) -> None:
        """The current screen is the last one of a step: f0."""

    def finish(self, out: Frame, /) -> None:
        """Put the finished frame into ``out``, C-contiguous, ``(height, width)`` or ``(height, width, 3)``.

        Raises:
            ValueError: If ``out`` is something else.
        """


def frames_of(
    ale: ALEInterface, height: int = 84, width: int = 84, grayscale: bool = True, maxpool: bool = True, screen: Frame | None = None
) -> Frames:
    """What makes the finished frames of an emulator that has loaded its game.

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


class CompiledFrames:
    """Grey frames of 84 x 84 from screens of 210 x 160, by the compiled kernel.

    Args:
        ale: The emulator. It must not load a game with another palette later on.
        maxpool: As for :func:`frames_of`.
        avx2: Whether AVX2 may be used where the processor has it. It never changes a frame.
        screen: As for :func:`frames_of`.
    """

    def __init__(self, ale: ALEInterface, maxpool: bool = True, avx2: bool = True, screen: Frame | None = None) -> None:
        self._ale, self._maxpool = ale, maxpool
        self._screen = np.zeros((210, 160), np.uint8) if screen is None else screen
        self._show = ale.getScreen
        self._kernel = _frames.Kernel(self._screen, avx2)
        self.finish = self._kernel.finish

    def restart(self) -> None:
        self._kernel.restart()
        self.see_last()

    def see_first(self) -> None:
        if self._maxpool:  # else f1 stays black
            self._show(self._screen)
            if not self._kernel.see_first():
                self._learn()
                self._kernel.see_first()

    def see_last(self) -> None:
        self._show(self._screen)
        if not self._kernel.see_last():
            self._learn()
            self._kernel.see_last()

    def _learn(self) -> None:
        """Learn the grey of the colours on the screen: Python cannot read the emulator's palette."""
        grey = np.empty_like(self._screen)
        self._ale.getScreenGrayscale(grey)
        self._kernel.learn(grey)


class OpenCVFrames:
    """Frames of any size, grey or in colour, through OpenCV. The arguments are those of :func:`frames_of`."""

    def __init__(self, ale: ALEInterface, height: int, width: int, grayscale: bool, maxpool: bool) -> None:
        rows, columns = ale.getScreenDims()
        colours = () if grayscale else (3,)
        self._show = ale.getScreenGrayscale if grayscale else ale.getScreenRGB
        self._f0, self._f1 = np.zeros((2, rows, columns, *colours), np.uint8)
        self._shape, self._size, self._maxpool = (height, width, *colours), (width, height), maxpool
        self._cv2 = None if (rows, columns) == (height, width) else _opencv()

    def restart(self) -> None:
        self._show(self._f0)
        self._f1.fill(0)

    def see_first(self) -> None:
        if self._maxpool:
            self._show(self._f1)

    def see_last(self) -> None:
        self._show(self._f0)

    def finish(self, out: Frame, /) -> None:
        # OpenCV would silently write elsewhere.
        if out.shape != self._shape or out.dtype != np.uint8 or not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError(f"a frame needs a writable, C-contiguous uint8 array of shape {self._shape}, got {_described(out)}")
        if self._maxpool:
            np.maximum(self._f0, self._f1, out=self._f0)
        if self._cv2 is None:
            np.copyto(out, self._f0)
        else:
            self._cv2.resize(self._f0, self._size, dst=out, interpolation=self._cv2.INTER_AREA)


@cache
def _opencv() -> Any:
    with needs("atari", "what makes frames of this kind (OpenCV)"):
        import cv2
    cv2.setNumThreads(1)  # workers are processes, one for each core: threads of OpenCV's own would get in their way
    return cv2


def _described(out: Frame) -> str:
    return f"{out.dtype}{list(out.shape)}, strides {out.strides}{'' if out.flags.writeable else ', read-only'}"
