"""Leaving out wrappers: the loop that steps environments does their work.

``TimeLimit``, ``OrderEnforcing`` and, after its first checks, ``PassiveEnvChecker`` add three calls to every step of an
environment that may itself take only a few microseconds. So the environment underneath is called, and steps are counted here.
Where forms do the work of other wrappers for all rows (:mod:`reactor_gymnasium.native.forms`), those are left out, too. Only the
wrappers' own, unmodified classes are left out, and before anybody may look at them (``call``, ``get_attr``, ``set_attr``,
``render``) they get their states, so nothing that a user can see changes.

What is called is looked up at every call, as Gymnasium does, because environments give themselves another ``step`` when they like.
Of the wrappers that are left out it need not be: nobody else refers to one, so nobody else can change it, and whether somebody has
changed its class can be seen before a step (:func:`wrappers_pristine`).

Atari games in the wrappers of Gymnasium and SB3 fetch no screens that nobody looks at, likewise until somebody may look: see
:mod:`reactor_gymnasium.atari.unseen`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from reactor_gymnasium.atari.unseen import UnseenScreens, checked, unseen_screens
from reactor_gymnasium.environments.owning import ALONE, ours_alone
from reactor_gymnasium.native.forms import RowForm
from reactor_gymnasium.native.guards import PASSING, unlike
from reactor_gymnasium.native.kernel import ROOTS
from reactor_gymnasium.native.levels import enclosed, form_of
from reactor_gymnasium.native.watching import CodeWatch
from reactor_rl.plugin import code_of

__all__ = [
    "MANY",
    "NO_LIMIT",
    "WATCHED",
    "WRAPPERS",
    "Bypassed",
    "WrapperBypass",
    "counts_plainly",
    "wrappers_pristine",
]

MANY = 2**31
"""Wrappers are left out, however many there are."""
NO_LIMIT = 2**62
"""Steps that no episode reaches; far from the end of a 64-bit number, so that sums with it do not overflow."""
LONGEST = 2**60
"""Steps that a limit may have where somebody else counts them; a quarter of ``NO_LIMIT``, so that it is told apart after a sum."""


class WrapperBypass:
    """One environment as it is stepped. Whoever has one refers to the environment through it only.

    Args:
        env: The environment, in all its wrappers.
        kernels: Whether compiled code may do the work of its wrappers.

    Attributes:
        env: Likewise.
        target: What to step, and to reset without arguments at the end of an episode, by its methods of that moment.
        levels: Wrappers around it whose work is done by forms, with the forms' classes, the outermost one first.
        why: Why nothing inside of the target is left out; ``None`` if it is an environment without wrappers.
        alone: Whether nobody else refers to the target.
        limit: Steps after which the episode is to be truncated, NO_LIMIT if no wrapper that is left out does.
        elapsed: Steps of the episode so far, as the wrapper that is left out has counted them.
        final: Whether there is nothing more to leave out later.
        screens: The screens of an Atari game that are not fetched; ``None`` where all are.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], kernels: bool = True) -> None:
        self.env, self._kernels = env, kernels
        self.target: Any = env
        self.levels: list[tuple[type[RowForm], Any]] = []
        self.why: str | None = None
        self.alone = False
        self.screens: UnseenScreens | None = None
        self._frames: Any = None  # what makes frames of its screens
        self._clock: TimeLimit[Any, Any] | None = None

    def engage(self, most: int = 0, over: bool = False) -> None:
        """Find out how little has to be called to step the environment as its wrappers are now.

        Args:
            most: How many wrappers may be left out besides those of ``gymnasium.make``, for somebody does their work.
            over: Whether the next step resets it.
        """
        self._fetch_screens()
        self.target = self._clock = None  # they are references, too
        self.levels = []
        self.screens, seen = unseen_screens(self, self._frames) if self._kernels else (None, True)
        self.final, self.why, self.alone = True, "its wrappers are not Gymnasium's", False
        if wrappers_pristine():
            self.target = self._inside(most, over)
        self.final = self.final and seen
        if not self.final or self.target is None:
            self.target, self._clock, self.levels = self.env, None, []
        self.limit, self.elapsed = NO_LIMIT, 0
        if self._clock is not None:
            self.limit, self.elapsed = int(self._clock._max_episode_steps), self._clock._elapsed_steps or 0

    def _inside(self, most: int, over: bool) -> gymnasium.Env[Any, Any]:
        """Go inwards as long as wrappers can be left out, and note which; returns what is inside of them."""
        outer: Any = self
        while isinstance(outer.env, gymnasium.Wrapper):
            self.why, form = self._held_up(outer, most, over)
            if self.why is not None:
                return outer.env
            level: Any = outer.env
            if type(level) is TimeLimit:
                self._clock = level
                self.final = self.final and level._elapsed_steps is not None
            elif type(level) is OrderEnforcing:
                self.final = self.final and level._has_reset  # its error is still to come
            elif form is None:
                self.final = self.final and checked(level)
            else:
                self.levels.append((form, level))
            outer, level = level, None  # which would be one more reference to it
        self.why, self.alone = None, sys.getrefcount(outer.env) <= ALONE + enclosed(outer)
        return outer.env  # type: ignore[no-any-return]

    def _held_up(self, outer: Any, most: int, over: bool) -> tuple[str | None, type[RowForm] | None]:
        """Why a wrapper, ``outer.env``, cannot be left out, and else the form that does its work, if it has any."""
        kind, form = type(outer.env), None
        if kind not in PASSING:
            found = form_of(outer.env, over) if len(self.levels) < most else f"no row form of {kind.__name__}"
            if isinstance(found, str):
                return found, None
            if found.asks_ends and self._clock is not None:
                return f"its {kind.__name__} is inside of a time limit", None
            form = found
        if not ours_alone(outer, enclosed(outer)):
            return f"somebody else refers to its {kind.__name__}, or has changed it", None
        if kind is TimeLimit and self._clock is not None:
            return "it has two time limits", None
        if kind is TimeLimit and not counts_plainly(outer.env):
            return f"its time limit is {outer.env._max_episode_steps!r}", None
        return None, form

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


class Bypassed:
    """The environments of some rows, without the wrappers that are left out.

    Args:
        held: Each environment; nobody else refers to what is in them.

    Attributes:
        targets: What to step.
        now: Steps so far.
        due: The value of ``now`` at which a time limit that is left out truncates, for each.
        soonest: None of ``due`` comes before it.
        leaves_out: Whether wrappers are left out.
        screens: The classes of those that have screens that are not fetched.
        settled: Whether there is nothing more to leave out.
        looked: Whether somebody may have changed the environments since that was found out.
        stepping: Whether a step is under way, so that whoever looks at them does so within it.
    """

    def __init__(self, held: list[WrapperBypass]) -> None:
        self.held = held
        self.targets: list[Any] = []
        self.now, self.soonest = 0, NO_LIMIT
        self.due: list[int] = []
        self.leaves_out, self.settled, self.looked, self.stepping = False, False, True, False
        self.screens: set[type[UnseenScreens]] = set()

    def engage(self, most: int = 0, pending: Sequence[int] | None = None) -> None:
        """Find out anew, by :meth:`WrapperBypass.engage`, what to call for each environment: its wrappers may have changed.

        Args:
            most: How many wrappers may be left out besides those of ``gymnasium.make``.
            pending: Which of them the next step resets.
        """
        if not self.looked:
            self.write_back()  # wrappers that are left out do not know how many steps there were
        self.looked, self.targets = False, []
        for number, held in enumerate(self.held):
            held.engage(most, pending is not None and bool(pending[number]))
        self.targets = [held.target for held in self.held]
        self.due = [self.now + held.limit - held.elapsed for held in self.held]
        self.soonest = min(self.due)
        self.leaves_out = any(held.engaged for held in self.held)
        self.screens = {type(held.screens) for held in self.held if held.screens is not None}
        self.settled = all(held.final for held in self.held)

    def write_back(self) -> None:
        """Before anybody looks: write the counts of time limits that are left out back into the wrappers, and fetch all screens."""
        if self.screens:
            self.screens, self.settled = set(), False
        for held, due in zip(self.held, self.due, strict=True):
            held.write_back(held.limit - (due - self.now))


def counts_plainly(clock: Any) -> bool:
    """Whether a ``TimeLimit`` counts whole numbers that 64 bits hold with room to spare; others are left to it."""
    limit, elapsed = clock._max_episode_steps, clock._elapsed_steps
    whole = isinstance(limit, (int, np.integer)) and type(limit) is not bool and type(elapsed) in (int, type(None))
    return whole and abs(int(limit)) <= LONGEST and abs(elapsed or 0) <= LONGEST


WATCHED = tuple(code_of(cls, ROOTS, ("env_reset_passive_checker", "env_step_passive_checker")) for cls in PASSING)
"""All that their methods come to, but for the checks, which are over when they are left out."""
WRAPPERS = CodeWatch(called=WATCHED)
"""Over these methods: what steps and resets ask of :func:`wrappers_pristine`, without a call of Python's."""


def wrappers_pristine() -> bool:
    """Whether the wrappers' classes are those that this was written from, and nobody has changed them."""
    return WRAPPERS.same([], object) and _as_written()


@cache
def _as_written() -> bool:
    return not any(unlike(cls, known) for cls, known in PASSING.items())
