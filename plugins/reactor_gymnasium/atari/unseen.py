"""Atari games in the wrappers of SB3 or Gymnasium that fetch no screen which nobody looks at.

An ``AtariEnv`` fetches a picture in colour, 100 KB, after every frame. SB3's ``MaxAndSkipEnv`` looks at two of four and takes the
larger one of each number, of which ``WarpFrame`` makes a picture of 84 x 84 in grey. Gymnasium's ``AtariPreprocessing`` looks at
none of them, for it asks the emulator for two in grey. All this takes nearly as long as the emulator itself.

Here the emulator is asked for palette indices, twice a step, of which the kernel of :mod:`reactor_gymnasium.atari.game` makes the
same picture, to the bit. Everything else the wrappers do themselves. Before anybody may look at an environment it is as it always
was, buffers of pictures included; see :mod:`reactor_gymnasium.environments.bypass`.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import PassiveEnvChecker, RecordEpisodeStatistics

from reactor_gymnasium.atari.game import ColourFrames, CompiledFrames, kernel_missing
from reactor_gymnasium.environments.owning import ours_alone
from reactor_gymnasium.native.guards import PASSING, switched_off, unlike
from reactor_gymnasium.native.kernel import ROOTS, found_by_name, name_of
from reactor_gymnasium.native.recorders import RECORDERS
from reactor_gymnasium.native.watching import CodeWatch
from reactor_rl.plugin import code_of

__all__ = ["UnseenScreens", "checked", "unseen_screens"]

Bytes = npt.NDArray[np.uint8]
Name: TypeAlias = tuple[str, str]
Results: TypeAlias = tuple[Any, Any, bool, bool, dict[str, Any]]

_SB3, _PREPROCESSING, _GAME = "stable_baselines3.common.atari_wrappers", "gymnasium.wrappers.atari_preprocessing", "ale_py.env"
_FIRE = _SB3, "FireResetEnv"
_OF_GYMNASIUM: tuple[Name, ...] = tuple(map(name_of, PASSING))
_OF_SB3: tuple[Name, ...] = (_FIRE, *((_SB3, name) for name in ("NoopResetEnv", "EpisodicLifeEnv", "StickyActionEnv")))
_WRITTEN_FROM: dict[Name, tuple[str, ...]] = {
    **{name_of(kind): known for kind, known in PASSING.items()},
    **{(recorder.module, recorder.owner): recorder.written_from for recorder in RECORDERS},
    _FIRE: ("e2cdd5327436",),
    (_SB3, "NoopResetEnv"): ("beb1ed30ae50",),
    (_SB3, "EpisodicLifeEnv"): ("f2fae046ade6",),
    (_SB3, "StickyActionEnv"): ("f3ec178bcec2",),
    (_SB3, "WarpFrame"): ("0e8455a60a6a",),
    (_SB3, "MaxAndSkipEnv"): ("a32cffd5de3b",),
    (_PREPROCESSING, "AtariPreprocessing"): ("6bb6078a3a3d",),
    (_GAME, "AtariEnv"): ("22408d72a402", "46c38d5d5962", "59b769429c9b"),  # of ale-py 0.11.0, 0.11.2, 0.12
}
"""By class the fingerprints of what all this was written from."""
_RECORDERS: tuple[Name, ...] = tuple([(recorder.module, recorder.owner) for recorder in RECORDERS])
_AROUND = "gymnasium.wrappers.", "stable_baselines3.common.", "reactor_sb3.environments.wrapped_alone"
"""Where wrappers are from that look at nothing but what the wrappers inside of them return."""
_SCREEN = object()
"""The observation in the place of a picture in colour of what the emulator shows."""


class UnseenScreens(ABC):
    """The screens of an Atari game that are not fetched, and what its wrappers do instead.

    The environment and the wrappers that look at screens are replaced by objects of classes of their own, which share all
    attributes with them and have other methods (:func:`_stand_in`).

    Args:
        outers: What has each of these as its ``env``.
        frames: What makes frames of the emulator's screens.
        game: The environment.
        *wrappers: Those that look at screens, the outermost one first.
    """

    looking: ClassVar[tuple[Name, ...]]
    """The classes of these wrappers."""
    handing_on: ClassVar[tuple[Name, ...]]
    """Those inside that hand observations on and do not look at them, but for the first ones (``PassiveEnvChecker``)."""
    make_frames: ClassVar[type[Any]]
    """The class of ``frames``."""

    methods: ClassVar[tuple[tuple[str, ...], ...]]
    """Those of each of ``looking`` that are replaced by the methods here which have the same name behind ``screen_``."""

    def __init__(self, outers: Sequence[Any], frames: Any, game: Any, *wrappers: Any) -> None:
        self.game, self.frames = game, frames
        self._fetch = game._get_obs
        replaced = (("_get_obs",), *self.methods)
        self._replaced = [(outer, real) for outer, real in zip(outers, (game, *wrappers), strict=True)]
        for (outer, real), names in zip(self._replaced, replaced, strict=True):
            outer.env = _stand_in(real, self, names)

    def release(self) -> None:
        """Let the environment and its wrappers be what they always were, before anybody looks at them."""
        for outer, real in self._replaced:
            outer.env = real
        self._replaced.clear()

    def screen__get_obs(self) -> Any:
        return _SCREEN

    @classmethod
    def unlike(cls) -> str | None:
        """Complain of a class that is not what this was written from, or that somebody has changed."""
        return next(filter(None, (unlike(kind, _WRITTEN_FROM[name_of(kind)]) for kind in _classes(cls))), None)

    @classmethod
    def changed(cls) -> str | None:
        """Complain of what somebody has changed since it was first asked; asked before each step."""
        return _watch(cls).changed()

    @classmethod
    @abstractmethod
    def misfit(cls, *wrappers: Any) -> bool:
        """Whether these wrappers do something else than is done here."""

    @classmethod
    @abstractmethod
    def differs(cls, ale: Any, random: np.random.Generator) -> bool:
        """Whether frames are not here what OpenCV makes of two random screens of ``ale``, a :class:`_Pictures`."""


def _stand_in(real: Any, screens: UnseenScreens, names: tuple[str, ...]) -> Any:
    """An object that shares all attributes with another one, and of whose methods some are of the screens."""
    kind: Any = type(real)
    # Without __init__: that would wrap or open a game again.
    stand_in: Any = object.__new__(_kind_of(kind, names))
    stand_in.__dict__ = vars(real)
    stand_in.screens = screens
    return stand_in


@cache
def _kind_of(kind: type, names: tuple[str, ...]) -> type:
    def instead(name: str) -> Any:
        return lambda self, *args, **kwargs: getattr(self.screens, f"screen_{name}")(*args, **kwargs)

    # `step` is there in any case, so that no form of a wrapper is taken for this one.
    methods = {"step": vars(kind).get("step", kind.step), **{name: instead(name) for name in names}}  # type: ignore[attr-defined]
    return type(kind.__name__, (kind,), {"__slots__": ("screens",), "__module__": kind.__module__, **methods})


class SkippedScreens(UnseenScreens):
    """``WarpFrame`` around ``MaxAndSkipEnv``, both of SB3."""

    looking = (_SB3, "WarpFrame"), (_SB3, "MaxAndSkipEnv")
    handing_on, make_frames = (*_OF_GYMNASIUM, *_RECORDERS, *_OF_SB3), ColourFrames

    methods = ("observation",), ("step",)

    def __init__(self, outers: Sequence[Any], frames: ColourFrames, game: Any, warp: Any, skip: Any) -> None:
        super().__init__(outers, frames, game, warp, skip)
        self.warp, self.skip = warp, skip
        self._seen = [False, False]  # whether the frames have what is in either half of the wrapper's buffer

    def release(self) -> None:
        super().release()
        self._show()

    @classmethod
    def misfit(cls, warp: Any, skip: Any) -> bool:
        buffer = skip._obs_buffer
        shaped = (buffer.shape, buffer.dtype, buffer.flags.c_contiguous) == ((2, 210, 160, 3), np.uint8, True)
        return not shaped or "observation" in vars(warp) or (warp.width, warp.height) != (84, 84)

    def screen_step(self, action: Any) -> Results:
        """``MaxAndSkipEnv.step``, with a finished frame for the larger picture."""
        skip, frames, seen = self.skip, self.frames, self._seen
        step, last = skip.env.step, skip._skip - 1
        total, terminated, truncated = 0.0, False, False
        for number in range(skip._skip):
            _, reward, terminated, truncated, info = step(action)
            # The last two, because games draw some things in every other frame only.
            if number == last:
                frames.see_last()
                seen[1] = True
            elif number == last - 1:
                frames.see_first()
                seen[0] = True
            total += float(reward)
            if terminated or truncated:
                break
        return self._finished(), total, terminated, truncated, info

    def _finished(self) -> Bytes:
        if all(self._seen):
            frame = np.empty((84, 84, 1), np.uint8)
            self.frames.finish(frame[..., 0])
            return frame
        self._show()  # an early end: half of the buffer is older than this
        return self._warped(self.skip._obs_buffer.max(axis=0))

    def _show(self) -> None:
        """Put what was seen into the wrapper's buffer."""
        if any(self._seen):
            self.frames.show(self.skip._obs_buffer, self._seen)

    def screen_observation(self, frame: Any) -> Any:
        """``WarpFrame.observation``."""
        return self._warped(self._fetch()) if frame is _SCREEN else frame

    def _warped(self, picture: Bytes) -> Bytes:
        frame: Bytes = type(self.warp).observation(self.warp, picture)
        return frame

    @classmethod
    def differs(cls, ale: Any, random: np.random.Generator) -> bool:
        frames, buffer, frame = ColourFrames(ale), np.zeros((2, 210, 160, 3), np.uint8), np.zeros((84, 84), np.uint8)
        for number, see in enumerate((frames.see_first, frames.see_last)):
            ale.draw(random)
            buffer[number] = ale.getScreenRGB()
            see()
        frames.finish(frame)
        warped = sys.modules[_SB3].WarpFrame.observation(SimpleNamespace(width=84, height=84), buffer.max(axis=0))
        return not np.array_equal(warped[..., 0], frame)


class PreprocessedScreens(UnseenScreens):
    """Gymnasium's ``AtariPreprocessing``."""

    looking = ((_PREPROCESSING, "AtariPreprocessing"),)
    handing_on, make_frames = (*_OF_GYMNASIUM, name_of(RecordEpisodeStatistics)), CompiledFrames

    methods = (("step", "reset"),)

    def __init__(self, outers: Sequence[Any], frames: CompiledFrames, game: Any, wrapper: Any) -> None:
        super().__init__(outers, frames, game, wrapper)
        self.wrapper = wrapper
        self._load()

    def release(self) -> None:
        super().release()
        last, first = self.wrapper.obs_buffer
        first[...], last[...] = self.frames.remembered()

    @classmethod
    def misfit(cls, wrapper: Any) -> bool:
        buffers = {(buffer.shape, buffer.dtype) for buffer in wrapper.obs_buffer}
        usual = (
            wrapper.grayscale_obs and wrapper.frame_skip > 1 and wrapper.screen_size == (84, 84) and "_get_obs" not in vars(wrapper)
        )
        return not usual or buffers != {((210, 160), np.dtype(np.uint8))}

    def _load(self) -> None:
        last, first = self.wrapper.obs_buffer
        # The wrapper keeps the last frame first, the frames here keep them in the order of time.
        self.frames.recall(np.stack([first, last]))

    def screen_step(self, action: Any) -> Results:
        """``AtariPreprocessing.step``."""
        wrapper, frames = self.wrapper, self.frames
        step, lives, last = wrapper.env.step, self.game.ale.lives, wrapper.frame_skip - 1
        total, terminated, truncated = 0.0, False, False
        info: dict[str, Any] = {}
        for number in range(wrapper.frame_skip):
            _, reward, terminated, truncated, info = step(action)
            total += reward
            wrapper.game_over = terminated
            if wrapper.terminal_on_life_loss:
                left = lives()
                wrapper.game_over = terminated = terminated or left < wrapper.lives
                wrapper.lives = left
            if terminated or truncated:
                break
            if number == last:
                frames.see_last()
            elif number == last - 1:
                frames.see_first()
        return self._finished(), total, terminated, truncated, info

    def _finished(self) -> Any:
        frame = np.empty((84, 84, 1) if self.wrapper.grayscale_newaxis else (84, 84), np.uint8)
        self.frames.finish(frame.reshape(84, 84))
        return np.asarray(frame, np.float32) / 255.0 if self.wrapper.scale_obs else frame

    def screen_reset(self, **kwargs: Any) -> Any:
        """``AtariPreprocessing.reset``."""
        begun = type(self.wrapper).reset(self.wrapper, **kwargs)
        self._load()
        return begun

    @classmethod
    def differs(cls, ale: Any, random: np.random.Generator) -> bool:
        import cv2

        frames, buffer, frame = CompiledFrames(ale), np.zeros((2, 210, 160), np.uint8), np.zeros((84, 84), np.uint8)
        for number, see in enumerate((frames.see_first, frames.see_last)):
            ale.draw(random)
            ale.getScreenGrayscale(buffer[number])
            see()
        frames.finish(frame)
        return not np.array_equal(cv2.resize(buffer.max(axis=0), (84, 84), interpolation=cv2.INTER_AREA), frame)


_KINDS: tuple[type[UnseenScreens], ...] = (SkippedScreens, PreprocessedScreens)


# ---------------------------------------------------------------------- where they fit


def unseen_screens(held: Any, frames: Any = None) -> tuple[UnseenScreens | None, bool]:
    """Do without the screens of an environment that nobody looks at.

    Args:
        held: Its attribute ``env`` is the environment in all its wrappers, and the only reference to it.
        frames: Those that the environment had before, if it had any.

    Returns:
        That which does without them, ``None`` if nothing can; and ``False`` if it can once the first steps were checked.
    """
    if name_of(type(getattr(held.env, "unwrapped", None))) != (_GAME, "AtariEnv") or switched_off():
        return None, True
    levels = _levels(held)
    names = [name_of(type(level)) for level in levels]
    for kind in _KINDS:
        if all(names.count(name) == 1 for name in kind.looking):
            return _fitting(kind, held, levels, [names.index(name) for name in kind.looking], frames)
    return None, True


def _fitting(
    kind: type[UnseenScreens], held: Any, levels: list[Any], at: list[int], frames: Any
) -> tuple[UnseenScreens | None, bool]:
    names = [name_of(type(level)) for level in levels]
    inside = [name for place, name in enumerate(names[:-1]) if place > at[0] and place not in at]
    around = all(module.startswith(_AROUND) for module, _ in names[: at[0]])
    game, wrappers = levels[-1], [levels[place] for place in at]
    if (
        at != sorted(at)
        or not around
        or not {*kind.handing_on}.issuperset(inside)
        or names[-1] != (_GAME, "AtariEnv")
        or _FIRE in names[at[-1] :]  # inside it may return a screen from before a reset
        or not all(found_by_name(type(level)) for level in levels)
    ):
        return None, True
    if "_get_obs" in vars(game) or game._obs_type != "rgb" or game.sound_obs or tuple(game.ale.getScreenDims()) != (210, 160):
        return None, True
    if kind.misfit(*wrappers) or _untrue(kind) or kind.changed():
        return None, True
    if not all(map(checked, levels)):
        return None, False
    if type(frames) is not kind.make_frames or frames.ale is not game.ale:
        frames = kind.make_frames(game.ale)
    outers = [levels[place - 1] if place else held for place in (len(levels) - 1, *at)]
    return kind(outers, frames, game, *wrappers), True


def _levels(held: Any) -> list[Any]:
    """The wrappers from the outermost one, and the environment; nothing if somebody else refers to one of them."""
    levels: list[Any] = []
    outer = held
    while ours_alone(outer):
        outer = outer.env
        levels.append(outer)
        if not isinstance(outer, gymnasium.Wrapper):
            return levels
    return []


def checked(level: Any) -> bool:
    """Whether an environment is not a ``PassiveEnvChecker`` that has yet to look at a step or a reset."""
    if type(level) is not PassiveEnvChecker:
        return True
    # `checked_data_reuse` came with Gymnasium 1.4.
    return level.checked_step and level.checked_reset and getattr(level, "checked_data_reuse", True)


# ---------------------------------------------------------------------- whether they are true


class _Pictures:
    """An emulator that shows whatever is drawn, in random colours.

    Attributes:
        screen: Palette indices.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self.colours = random.integers(0, 256, (256, 3)).astype(np.uint8)
        self.greys = random.integers(0, 256, 256).astype(np.uint8)
        self.draw(random)

    def draw(self, random: np.random.Generator) -> None:
        # The emulator's palette has 128 colours, at even indices.
        self.screen = 2 * random.integers(0, 128, (210, 160)).astype(np.uint8)

    def getScreen(self, out: Bytes) -> None:  # noqa: N802
        out[...] = self.screen

    def getScreenRGB(self) -> Bytes:  # noqa: N802
        picture: Bytes = self.colours[self.screen]
        return picture

    def getScreenGrayscale(self, out: Bytes) -> None:  # noqa: N802
        out[...] = self.greys[self.screen]


def _classes(kind: type[UnseenScreens]) -> list[type]:
    names = *kind.looking, *kind.handing_on, (_GAME, "AtariEnv")
    return [getattr(import_module(module), name) for module, name in names]


@cache
def _watch(kind: type[UnseenScreens]) -> CodeWatch:
    return CodeWatch(called=tuple([code_of(cls, ROOTS) for cls in _classes(kind)]))


@cache
def _untrue(kind: type[UnseenScreens]) -> str | None:
    """Why frames may not be made in the place of wrappers here, ``None`` if they may. Found out once a process."""
    random = np.random.default_rng(0)
    try:
        if why := kernel_missing() or kind.unlike():
            return why
        return "OpenCV makes other frames here" if kind.differs(_Pictures(random), random) else None
    except Exception as error:
        return f"they could not be compared: {error!r}"
