"""Leaving out the standard wrappers that ``gymnasium.make`` adds: the shard's loop does their work.

``TimeLimit``, ``OrderEnforcing`` and, after its first checks, ``PassiveEnvChecker`` add three calls to every step of an
environment that may itself take only a few microseconds. A shard calls the environment underneath and counts the steps itself. Only
the wrappers' own, unmodified classes are left out, and before anybody may look at them (``call``, ``get_attr``, ``set_attr``,
``render``) the count is written back, so nothing that a user can see changes.

What is called is looked up at every call, as Gymnasium does, because environments give themselves another ``step`` when they like.
Of the wrappers that are left out it need not be: nobody else refers to one, so nobody else can change it, and whether somebody has
changed its class can be seen before a step (:func:`wrappers_pristine`).
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

__all__ = ["NO_LIMIT", "WrapperBypass", "steps_pristine", "wrappers_pristine"]

NO_LIMIT = 2**62


class WrapperBypass:
    """One environment as a shard steps it. Whoever has one refers to the environment through it only.

    Args:
        env: The environment, in all its wrappers.

    Attributes:
        env: Likewise.
        target: What to step, and to reset without arguments at the end of an episode, by its methods of that moment.
        limit: Steps after which the shard truncates the episode, NO_LIMIT if no wrapper that is left out does.
        elapsed: Steps of the episode so far, as the wrapper that is left out has counted them.
        final: Whether there is nothing more to leave out later.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.release()

    def release(self) -> None:
        """Step the environment in all its wrappers."""
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
        clock, within, final = self._within(recording) if wrappers_pristine() else (None, self.env, True)
        self.final, self.target = final, within if final else self.env
        if final and clock is not None:
            self._clock, self.limit, self.elapsed = clock, clock._max_episode_steps, clock._elapsed_steps or 0

    def _within(self, recording: bool) -> tuple[TimeLimit[Any, Any] | None, gymnasium.Env[Any, Any], bool]:
        """The time limit and what is inside of the wrappers that can be left out, once each has done what it does only at first."""
        outer: Any = self
        clock, final = None, True
        if recording:
            if not _ours_alone(outer):
                return None, outer.env, True
            outer = outer.env
        if type(outer.env) is TimeLimit and _ours_alone(outer):
            clock = outer = outer.env
            final = clock._elapsed_steps is not None
        if type(outer.env) is OrderEnforcing and _ours_alone(outer):
            outer = outer.env
            final = final and outer._has_reset  # its error is still to come
        if type(outer.env) is PassiveEnvChecker and _ours_alone(outer):
            outer = outer.env
            # `checked_data_reuse` came with Gymnasium 1.4.
            final = final and outer.checked_step and outer.checked_reset and getattr(outer, "checked_data_reuse", True)
        return clock, outer.env, final

    @property
    def engaged(self) -> bool:
        """Whether wrappers are left out."""
        return self.target is not self.env

    def write_back(self, elapsed: int) -> None:
        """Let the time limit that is left out know how many steps the episode has taken."""
        if self._clock is not None:
            self._clock._elapsed_steps = elapsed  # type: ignore[assignment]


class _Holder:
    def __init__(self) -> None:
        self.env = object()


_holder = _Holder()
_ALONE = sys.getrefcount(_holder.env)
"""The reference count of an object that one attribute refers to and nothing else."""


def _ours_alone(outer: Any) -> bool:
    """Whether nobody has put another `step` or `reset` on a wrapper, and only `outer` refers to it, so that nobody will."""
    if sys.getrefcount(outer.env) > _ALONE:
        return False
    own = vars(outer.env)
    return "step" not in own and "reset" not in own


_METHODS = tuple(getattr(cls, name) for cls in (TimeLimit, OrderEnforcing, PassiveEnvChecker) for name in ("step", "reset"))
_AS_WRITTEN = all(
    method.__module__ == cls.__module__ and not hasattr(method, "__wrapped__")
    for cls in (TimeLimit, OrderEnforcing, PassiveEnvChecker)
    for method in (cls.step, cls.reset)
)
"""Whether nobody had changed the wrappers' classes before this was imported."""


def steps_pristine() -> bool:
    """Whether the wrappers' classes have the `step` that Gymnasium gave them: of :func:`wrappers_pristine`, what each step asks."""
    a, _, c, _, e, _ = _METHODS
    return TimeLimit.step is a and OrderEnforcing.step is c and PassiveEnvChecker.step is e


def wrappers_pristine() -> bool:
    """Whether the wrappers' classes have the methods that Gymnasium gave them."""
    a, b, c, d, e, f = _METHODS
    return (
        TimeLimit.step is a and TimeLimit.reset is b
        and OrderEnforcing.step is c and OrderEnforcing.reset is d
        and PassiveEnvChecker.step is e and PassiveEnvChecker.reset is f
        and _AS_WRITTEN
    )  # fmt: skip
