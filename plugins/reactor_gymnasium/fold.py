"""Folding the standard wrappers that ``gymnasium.make`` adds into the shard's loop.

``TimeLimit``, ``OrderEnforcing`` and, after its first checks, ``PassiveEnvChecker`` add three calls to every step of an
environment that may itself take only a few microseconds. A shard calls the environment underneath and counts the steps itself. Only
the wrappers' own, unmodified classes are folded, and before anybody may look at them (``call``, ``get_attr``, ``set_attr``,
``render``) the count is written back, so nothing that a user can see changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

__all__ = ["NO_LIMIT", "Folded", "fold"]

NO_LIMIT = 2**62


class Folded:
    """One environment as a shard steps it.

    Attributes:
        step: What to call with an action.
        reset: What to call, without arguments, at the end of an episode.
        limit: Steps after which the shard truncates the episode, NO_LIMIT if no folded wrapper does.
        elapsed: Steps of the episode so far, as the folded wrapper has counted them.
        settled: Whether there is nothing more to fold later.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], clock: TimeLimit[Any, Any] | None, settled: bool) -> None:
        self.step: Callable[[Any], Any] = env.step
        self.reset: Callable[..., Any] = env.reset
        self._clock, self.settled = clock, settled
        self.limit = NO_LIMIT if clock is None else clock._max_episode_steps
        self.elapsed = 0 if clock is None else clock._elapsed_steps or 0

    def write_back(self, elapsed: int) -> None:
        """Let the folded wrapper know how many steps the episode has taken."""
        if self._clock is not None:
            self._clock._elapsed_steps = elapsed  # type: ignore[assignment]


def fold(env: gymnasium.Env[Any, Any]) -> Folded:
    """Find out how little has to be called to step an environment as its wrappers are now."""
    outermost = env
    clock: TimeLimit[Any, Any] | None = None
    if type(env) is TimeLimit and _untouched(env):
        clock, env = env, env.env
    if type(env) is OrderEnforcing and _untouched(env):
        if not env._has_reset:  # its error is still to come
            return Folded(outermost, None, False)
        env = env.env
    if type(env) is PassiveEnvChecker and _untouched(env):
        # `checked_data_reuse` came with Gymnasium 1.4.
        if not (env.checked_step and env.checked_reset and getattr(env, "checked_data_reuse", True)):
            return Folded(outermost, None, False)
        env = env.env
    if clock is not None and clock._elapsed_steps is None:
        return Folded(outermost, None, False)
    return Folded(env, clock, True)


def _untouched(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    """Whether nobody has put another `step` or `reset` on this very object."""
    return "step" not in vars(wrapper) and "reset" not in vars(wrapper)
