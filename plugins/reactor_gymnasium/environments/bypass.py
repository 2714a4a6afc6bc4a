"""Leaving out the standard wrappers that ``gymnasium.make`` adds: the shard's loop does their work.

``TimeLimit``, ``OrderEnforcing`` and, after its first checks, ``PassiveEnvChecker`` add three calls to every step of an
environment that may itself take only a few microseconds. A shard calls the environment underneath and counts the steps itself. Only
the wrappers' own, unmodified classes are left out, and before anybody may look at them (``call``, ``get_attr``, ``set_attr``,
``render``) the count is written back, so nothing that a user can see changes.

What is called is looked up at every call, as Gymnasium does, because environments give themselves another ``step`` when they like.
Of the wrappers that are left out it need not be: nobody else refers to one, so nobody else can change it, and whether somebody has
changed its class can be seen before a step (:func:`wrappers_pristine`).

Atari games in the wrappers of Gymnasium and SB3 fetch no screens that nobody looks at, likewise until somebody may look: see
:mod:`reactor_gymnasium.atari.unseen`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from reactor_gymnasium.atari.unseen import UnseenScreens, checked, unseen_screens
from reactor_gymnasium.environments.owning import ours_alone
from reactor_gymnasium.native.takeover import counts_plainly
from reactor_gymnasium.native.watching import Watch, Watched

__all__ = ["NO_LIMIT", "WrapperBypass", "steps_pristine", "wrappers_pristine"]

NO_LIMIT = 2**62


class WrapperBypass:
    """One environment as a shard steps it. Whoever has one refers to the environment through it only.

    Args:
        env: The environment, in all its wrappers.
        kernels: Whether compiled code may do the work of its wrappers.

    Attributes:
        env: Likewise.
        target: What to step, and to reset without arguments at the end of an episode, by its methods of that moment.
        limit: Steps after which the shard truncates the episode, NO_LIMIT if no wrapper that is left out does.
        elapsed: Steps of the episode so far, as the wrapper that is left out has counted them.
        final: Whether there is nothing more to leave out later.
        screens: The screens of an Atari game that are not fetched; ``None`` where all are.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], kernels: bool = True) -> None:
        self.env, self._kernels = env, kernels
        self.screens: UnseenScreens | None = None
        self._frames: Any = None  # what makes frames of its screens
        self.release()

    def release(self) -> None:
        """Step the environment in all its wrappers."""
        self._fetch_screens()
        self.target: Any = self.env
        self._clock: TimeLimit[Any, Any] | None = None
        self.limit, self.elapsed, self.final = NO_LIMIT, 0, False

    def engage(self, recording: bool = False) -> None:
        """Find out how little has to be called to step the environment as its wrappers are now.

        Args:
            recording: Whether the outermost wrapper is left out, too: one that records episodes, for somebody else does so.
        """
        self.release()
        del self.target  # it is a reference, too
        self.screens, seen = unseen_screens(self, self._frames) if self._kernels else (None, True)
        clock, within, final = self._within(recording) if wrappers_pristine() else (None, self.env, True)
        final = final and seen
        self.final, self.target = final, within if final else self.env
        if final and clock is not None:
            self._clock, self.limit, self.elapsed = clock, int(clock._max_episode_steps), clock._elapsed_steps or 0

    def _within(self, recording: bool) -> tuple[TimeLimit[Any, Any] | None, gymnasium.Env[Any, Any], bool]:
        """The time limit and what is inside of the wrappers that can be left out, once each has done what it does only at first."""
        outer: Any = self
        clock, final = None, True
        if recording:
            if not ours_alone(outer):
                return None, outer.env, True
            outer = outer.env
        if type(outer.env) is TimeLimit and ours_alone(outer) and counts_plainly(outer.env):
            clock = outer = outer.env
            final = clock._elapsed_steps is not None
        if type(outer.env) is OrderEnforcing and ours_alone(outer):
            outer = outer.env
            final = final and outer._has_reset  # its error is still to come
        if type(outer.env) is PassiveEnvChecker and ours_alone(outer):
            outer = outer.env
            final = final and checked(outer)
        return clock, outer.env, final

    def _fetch_screens(self) -> None:
        screens, self.screens = self.screens, None
        if screens is not None:
            self._frames = screens.frames
            screens.release()

    @property
    def engaged(self) -> bool:
        """Whether wrappers are left out."""
        return self.target is not self.env

    def write_back(self, elapsed: int) -> None:
        """Before anybody looks, fetch screens, and tell the time limit that is left out how many steps the episode has taken."""
        self._fetch_screens()
        if self._clock is not None:
            self._clock._elapsed_steps = elapsed  # type: ignore[assignment]


_LEFT_OUT = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
_steps, _all = [
    Watch(*[Watched(cls.__module__, cls.__name__, methods) for cls in _LEFT_OUT]) for methods in (("step",), ("step", "reset"))
]
_AS_WRITTEN = all(
    method.__module__ == cls.__module__ and not hasattr(method, "__wrapped__")
    for cls in _LEFT_OUT
    for method in (cls.step, cls.reset)
)
"""Whether nobody had changed the wrappers' classes before this was imported."""


def steps_pristine() -> bool:
    """Whether the wrappers' classes have the `step` that Gymnasium gave them: of :func:`wrappers_pristine`, what each step asks."""
    return _steps.look([], object) or _steps.same([], object)


def wrappers_pristine() -> bool:
    """Whether the wrappers' classes have the methods that Gymnasium gave them, and these their code."""
    return _AS_WRITTEN and (_all.look([], object) or _all.same([], object))
