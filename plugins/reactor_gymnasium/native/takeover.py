"""How kernels and forms take environments and their wrappers over, step them, and give them back before anybody looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.utils import create_zero_array

from reactor_gymnasium.environments.bypass import NO_LIMIT, WATCHED, Bypassed, WrapperBypass, wrappers_pristine
from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.rows import IDLE, EnvRows, StepBuffers, kept_whole
from reactor_gymnasium.native.forms import ALL, Around, Brought, Failures, numbers_of
from reactor_gymnasium.native.guards import switched_off
from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, Taken, error_state
from reactor_gymnasium.native.kernels import choose_kernel, in_words, take_over
from reactor_gymnasium.native.watching import Watch, watch_of

__all__ = ["Takeover"]

Array = npt.NDArray[Any]

NEVER = 2**62
AT_ONCE = 8
"""Environments that were taken over for so many steps are taken over again at once."""
LONGEST_WAIT = 256
"""Steps after which a kernel is looked for again at the latest."""
MANY = 2**31
"""Wrappers are left out, however many there are."""
WORTH = 20.0
"""Microseconds of a step that forms must save around what Python steps, for they take time, too."""


class Takeover:
    """Lets a kernel step the environments of some rows in their place, and forms do the work of their wrappers, while nobody looks.

    Args:
        rows: The rows.
        envs: Their environments.
        observations: The last one of each.
        kernels: Whether kernels and forms may be used.

    Attributes:
        kernel: The one that has taken the environments over; ``None`` while Python steps them.
        around: The forms of the wrappers around what is stepped; ``None`` if there are none.
        given: What to step by Python in this step, after the forms' wrappers: actions, and what these have raised.
        whole: What all rows show as one array, where forms make it.
        at: The value of ``envs.now`` at which a kernel is looked for.
    """

    def __init__(self, rows: EnvRows, envs: Bypassed, observations: list[Any], kernels: bool) -> None:
        self.rows, self.envs, self.observations = rows, envs, observations
        self.kernel: BlockKernel | None = None
        self.around: Around | None = None
        self.given: tuple[Any, Failures] = None, []
        self.whole: Array | None = None
        self.at = 0 if kernels else NEVER
        self._watch: Watch  # over what the kernel and the forms were written from, and the wrappers that are left out
        self._kind: type  # of what the kernel steps
        self._since, self._wait = 0, 0

    @property
    def engaged(self) -> bool:
        """Whether something stands in for the environments or their wrappers."""
        return self.kernel is not None or self.around is not None

    # ------------------------------------------------------------------ steps

    def step(self, actions: Any, out: StepBuffers | None) -> bool:
        """Take a step by a kernel, if there is one; ``False`` if Python has to, by :attr:`given` where there are forms."""
        rows, took = self.rows, False
        if self.engaged and self._untrue():
            self.give_back()
            return False
        if not self.engaged or self.envs.now >= self.at:
            self.give_back()
            took = True
            self._take_over()
            if not self.engaged:
                return False
        kernel, around, failures = self.kernel, self.around, []
        if around is not None:
            if rows.autoreset is AutoresetMode.DISABLED and around.refuses():
                self.give_back()
                return False
            actions, failures = around.inward(actions, self._moving())
            self.given = actions, failures
        if kernel is None:
            return False
        if type(actions) is list:
            actions = _as_array(actions)
        if failures or type(actions) is not np.ndarray or actions.dtype not in kernel.actions or not actions.flags.c_contiguous:
            self._leave_kernel()
            if not failures:
                self._tell("it was given other actions than a kernel takes")
            return False
        shown, led_to, known = None, None, out is None
        if out is not None and out.kind == kernel.kind and not (around and around.observes):
            shown, led_to, known = out.shown, out.led_to, True
        count = kernel.step(actions, shown, led_to)
        if count == REFUSED:
            self._leave_kernel()
            return False
        if took:
            self._tell(kernel)
        self.envs.now += 1
        rows.failures, rows.ended, rows.finals, rows.infos = list(kernel.failures), [], {}, {}
        brought = self._carry(kernel, around, count) if around is not None else None
        rewards = None if out is None else out.rewards
        if count and (rewards is None or rows.autoreset is AutoresetMode.SAME_STEP):
            self.envs.stepping = True
            try:
                self._end_episodes(kernel, brought, shown, listed=rewards is None)
            finally:
                self.envs.stepping = False
        if out is not None and not known:
            rows.failures += out.write_all(self.observations, self.whole)
            for part, seen in out.copies:
                part[...] = seen
            if rows.finals:
                rows.failures += out.write_each(((row, last) for row, (last, _) in rows.finals.items()), final=True)
        paid = kernel.rewards if brought is None else _paid(brought)
        if rewards is None:
            rows.rewards = paid.tolist()
        else:
            assert out is not None and out.terminations is not None and out.truncations is not None
            rewards[...] = paid
            out.terminations[...] = kernel.terminated
            out.truncations[...] = kernel.truncated
        if brought is not None:
            for row, results in brought.alone.items():
                brought.infos[row] = results[-1]
                if len(results) == 5:
                    rows.failures += self._pay_alone(row, results[1], rewards)
            if brought.made and rows.autoreset is not AutoresetMode.SAME_STEP:
                rows.infos = {row: info for row, info in sorted(brought.infos.items()) if info}
        if not rows.keep_infos:
            rows.infos = {}
        elif not rows.infos:
            rows.infos = kernel.infos() if rewards is not None else kernel.infos_by_row()
        return True

    def _moving(self) -> Sequence[int]:
        """Which rows take a step now."""
        if self.kernel is None:
            pending = self.rows.pending
            return [row for row, over in enumerate(pending) if not over] if any(pending) else range(len(pending))
        waiting = self.kernel.pending
        return np.flatnonzero(~waiting).tolist() if waiting.any() else range(len(waiting))

    def _pay_alone(self, row: int, reward: Any, rewards: Array | None) -> Failures:
        if rewards is None:
            self.rows.rewards[row] = reward
            return []
        try:
            rewards[row] = np.asarray(reward, np.float64).item()
        except (TypeError, ValueError, OverflowError) as error:
            return [(row, error)]
        return []

    def _untrue(self) -> bool:
        """Whether Python would do something else by now than what has taken the environments over."""
        watch, targets, kind = self._watch, self.envs.targets if self.kernel is not None else [], self._kind
        return not (watch.look(targets, kind) or watch.same(targets, kind)) or error_state() is not None

    # ------------------------------------------------------------------ outwards

    def _carry(self, kernel: BlockKernel, around: Around, count: int) -> Brought:
        """Let the forms have what a kernel's step has brought."""
        rows, n = self.rows, len(kernel.rewards)
        again = rows.autoreset is AutoresetMode.SAME_STEP and rows.seeds is None
        ended = np.flatnonzero(kernel.terminated | kernel.truncated).tolist() if count else []
        moved: Any = ALL
        begun = None
        if rows.autoreset is AutoresetMode.NEXT_STEP and count and kernel.was_reset.any():
            begun = np.flatnonzero(kernel.was_reset)
        if begun is not None or rows.failures:
            left = np.ones(n, np.bool_)
            left[[*(() if begun is None else begun), *(row for row, _ in rows.failures)]] = False
            moved = np.flatnonzero(left) if left.any() else None
        shown = kernel.observations
        if again and ended and around.observes:
            shown = shown.copy()
            for row in ended:
                shown[row] = kernel.final(row)
        brought = Brought(
            n, shown, moved, begun, kernel.rewards, kernel.paid or float, kernel.terminated, kernel.truncated, ended,
            (lambda: {row: kernel.final_info(row) for row in ended}) if again else kernel.infos_by_row, _own_of(kernel), again,
        )  # fmt: skip
        around.outward(brought)
        rows.failures += brought.failures
        if around.observes:
            self.show(brought)
        return brought

    def show(self, brought: Brought) -> None:
        """Let rows show what forms have made."""
        whole, shown = self.whole, brought.observations
        if isinstance(shown, np.ndarray) and brought.own is None:
            if whole is not None and whole.dtype == shown.dtype and whole.shape == shown.shape:
                if brought.rows is not None:
                    whole[brought.rows] = shown[brought.rows]
            elif brought.rows is ALL:
                whole = self.whole = shown.copy()
                self.observations[:] = [whole[row, ...] for row in range(brought.n)]
            else:
                self._show_each(brought)
        else:
            self._show_each(brought)
        whole = self.whole
        for row, results in brought.alone.items():
            seen = results[0]
            if whole is not None and type(seen) is np.ndarray and seen.dtype == whole.dtype and seen.shape == whole.shape[1:]:
                whole[row] = seen
            else:
                self.whole = whole = None
                self.observations[row] = own(seen)

    def _show_each(self, brought: Brought) -> None:
        self.whole = None
        numbers = numbers_of(brought.rows, brought.n)
        for row, shown in zip(numbers, brought.objects(numbers), strict=True):
            self.observations[row] = shown

    def _end_episodes(self, kernel: BlockKernel, brought: Brought | None, shown: Any, listed: bool) -> None:
        """Note which episodes the kernel's step has ended, in a list if there is no buffer, and reset those that need a seed."""
        rows, around = self.rows, self.around
        over = (kernel.terminated | kernel.truncated).nonzero()[0].tolist()
        if listed:
            terminated, truncated = kernel.terminated.tolist(), kernel.truncated.tolist()
            rows.ended = [(row, terminated[row], truncated[row]) for row in over]
        if rows.autoreset is not AutoresetMode.SAME_STEP:
            return
        observes, before_reset = around is not None and around.observes, rows.before_reset
        if rows.seeds is None:
            told = {row: kernel.final_info(row) for row in over} if brought is None else brought.infos
            infos = {row: told.get(row, {}) for row in over}
            if brought is not None:
                infos |= {row: results[4] for row, results in brought.alone.items() if row in infos}
            last = brought.last if observes and brought is not None else kernel.final
            ours = before_reset is kept_whole  # already
            rows.finals = {row: (last(row), info if ours else before_reset(row, info)) for row, info in infos.items()}
            if around is not None and over:
                self._begin(kernel, around, over, {}, again=True)
            return
        if brought is None:
            seen, told = kernel.rows(), kernel.infos_by_row()
            last_of = {row: kernel.own(seen[row]) for row in over}
        else:
            told = brought.infos | {row: results[4] for row, results in brought.alone.items()}
            seen = kernel.rows()
            last_of = {row: brought.last(row) if observes else kernel.own(seen[row]) for row in over}
        rows.finals = {row: (last, before_reset(row, told.get(row, {}))) for row, last in last_of.items()}
        resets = {row: rows.seeds(row) for row in over}
        begun = {row: dict(kwargs) for row, kwargs in resets.items() if kwargs is not None}
        kernel.reset(begun)
        rows.failures += kernel.failures
        if around is not None and begun:
            self._begin(kernel, around, [*begun], begun)
        if shown is not None:
            shown[...] = kernel.observations
        if idle := [row for row, kwargs in resets.items() if kwargs is None]:
            self.give_back()
            for row in idle:
                rows.pending[row], self.envs.due[row] = IDLE, NO_LIMIT

    def _begin(self, kernel: BlockKernel, around: Around, begun: list[int], kwargs: Mapping[int, Any], again: bool = False) -> None:
        """Let the forms have what a kernel's resets have brought."""
        rows = self.rows
        brought = Brought(
            len(kernel.rewards), kernel.observations, None, np.array(begun), infos=kernel.infos_by_row, own=_own_of(kernel),
            again=again, kwargs=kwargs,
        )  # fmt: skip
        around.outward(brought)
        rows.failures += brought.failures
        if around.observes:
            self.show(brought)

    # ------------------------------------------------------------------ resets

    def reset(self, resets: Mapping[int, Mapping[str, Any]], out: StepBuffers | None) -> bool:
        """Reset environments between steps by the kernel, which keeps them; ``False`` if nothing was: they have to be opened."""
        rows, kernel, around = self.rows, self.kernel, self.around
        if kernel is None or self._untrue() or not all(map(_plain_reset, resets.values())):
            return False
        kernel.reset({row: dict(kwargs) for row, kwargs in resets.items()})
        rows.failures, rows.ended, rows.finals = list(kernel.failures), [], {}
        if around is not None and resets:
            self._begin(kernel, around, sorted(resets), {row: dict(kwargs) for row, kwargs in resets.items()})
        if out is not None:
            if out.kind == kernel.kind and out.shown is not None and not (around and around.observes):
                out.shown[...] = kernel.observations
            else:
                rows.failures += out.write_all(self.observations, self.whole)
        infos = kernel.infos_by_row()
        rows.infos = {row: infos[row] for row in resets if row in infos}
        return True

    def around_python(self, resets: Mapping[int, Mapping[str, Any]]) -> Around | None:
        """The forms around what Python resets, ``None`` if environments have to be opened for it."""
        plain = self.around is not None and self.kernel is None and not self._untrue() and all(map(_plain_reset, resets.values()))
        return self.around if plain else None

    # ------------------------------------------------------------------ there and back

    def _take_over(self) -> None:
        """Let a kernel take the environments over, and forms their wrappers, if there are any."""
        rows, envs = self.rows, self.envs
        self.at = NEVER
        rows.failures = []  # an exception refers to the frames that it has left
        if switched_off() or error_state():
            self._tell(switched_off() or error_state() or "")
            if envs.looked:
                envs.engage()
            self._later()
            return
        most, why = self._levels()
        if not envs.settled or not wrappers_pristine():
            envs.engage()
            self.at = envs.now + 1
            return
        if IDLE in rows.pending or (rows.seeds is not None and rows.autoreset is not AutoresetMode.SAME_STEP):
            envs.engage()
            self._later()
            return
        if any(observation is None for observation in self.observations):
            envs.engage()
            self._later()
            self._tell("they were not reset yet")
            return
        levels = [[held.levels[level] for held in envs.held] for level in range(most)]
        observes = any(of_rows[0][0].observes for of_rows in levels)
        kernel: BlockKernel | str = why or self._fitting(observes)
        saved = sum(of_rows[0][0].saves for of_rows in levels) * len(envs.held)
        if isinstance(kernel, str):
            self._tell(kernel)
            if saved < WORTH:
                envs.engage()
                self._later()
                return
            if not levels:
                self._later()
                return
        around = Around([of_rows[0][0]([wrapper for _, wrapper in of_rows]) for of_rows in levels]) if levels else None
        self.around, self._since, self.whole = around, envs.now, None
        codes = [] if around is None else [*around.codes]
        self._kind = type(envs.targets[0])
        if isinstance(kernel, str):
            self.at = envs.now + LONGEST_WAIT
        else:
            self.kernel = kernel
            codes.append(kernel.comes_to())
            if not observes:
                self.observations[:] = kernel.rows()
        self._watch = watch_of(*codes, called=WATCHED)

    def _levels(self) -> tuple[int, str | None]:
        """Go into the wrappers as far as all rows have forms for them, and those have the same constants.

        Returns:
            How many forms there are, and why no kernel steps what is inside of them; ``None`` if one may.
        """
        envs, rows = self.envs, self.rows
        if not envs.looked:
            envs.write_back()
        envs.engage(MANY, rows.pending)
        if not envs.settled:
            return 0, None
        most, why = _common_levels(envs.held)
        if any(len(held.levels) != most for held in envs.held):
            envs.engage(most, rows.pending)
        return most, why

    def _fitting(self, observes: bool) -> BlockKernel | str:
        """The kernel for what is to be stepped, or why it has no kernel.

        Args:
            observes: Whether what rows show is not what the environments show.
        """
        rows, envs = self.rows, self.envs
        if isinstance(kernel := choose_kernel(type(envs.targets[0])), str):
            return kernel
        if not all(held.alone for held in envs.held):
            return "somebody else refers to one of them"
        mode = rows.autoreset if rows.seeds is None else AutoresetMode.DISABLED
        assert mode is not None
        left = [due - envs.now for due in envs.due]
        limits = [held.limit for held in envs.held]
        shown = [create_zero_array(env.observation_space) for env in envs.targets] if observes else self.observations
        return take_over(Taken(envs.targets, left, limits, rows.pending, shown, mode))

    def _tell(self, kernel: BlockKernel | str) -> None:
        """Note who steps, where that is news."""
        if (words := in_words(kernel)) != self.rows.stepper:
            self.rows.stepper = words

    def _later(self, lasted: int = 0) -> None:
        """Look for a kernel again: at once if the last one stayed for a while, else in twice as many steps as the last time."""
        self._wait = 0 if lasted >= AT_ONCE else min(max(2 * self._wait, 1), LONGEST_WAIT)
        self.at = self.envs.now + self._wait

    def _leave_kernel(self) -> None:
        """Let the environments have what a kernel has made of them; forms stay, and Python steps what is inside of them."""
        rows, envs = self.rows, self.envs
        kernel, self.kernel = self.kernel, None
        if kernel is None:
            return
        shown = kernel.give_back()
        if self.around is None or not self.around.observes:
            self.observations[:] = shown
        rows.pending[:] = kernel.pending.tolist()
        envs.due = [envs.now + left for left in kernel.left.tolist()]
        envs.soonest = min(envs.due)
        self._later(envs.now - self._since)

    def give_back(self) -> None:
        """Let environments and wrappers have what was made of them, and look for a kernel later."""
        envs = self.envs
        if not self.engaged:
            return
        wait = self._wait
        self._leave_kernel()
        self._wait, around, self.around = wait, self.around, None
        if around is not None:
            if self.whole is not None:
                self.observations[:] = [self.whole[row].copy() for row in range(len(self.whole))]
                self.whole = None
            around.give_back()
            del around
            envs.write_back()
            envs.engage()
        self._later(envs.now - self._since)

    def forbid(self, why: str) -> None:
        """Let no kernel take the environments over from now on.

        Args:
            why: For :attr:`EnvRows.stepper`.
        """
        if self.at != NEVER or self.engaged:
            self.give_back()
            self.at = NEVER
            self._tell(why)


def _common_levels(held: list[WrapperBypass]) -> tuple[int, str | None]:
    """How many levels all rows have forms for, and why no kernel steps what is inside of these; ``None`` if one may."""
    for level, (form, wrapper) in enumerate(held[0].levels):
        others = [one.levels[level] if level < len(one.levels) else (None, None) for one in held]
        if any(other is not form for other, _ in others):
            return level, "their wrappers differ"
        constants = form.constants(wrapper)
        if any(form.constants(other) != constants for _, other in others):
            return level, f"the constants of their {form.owner} differ"
    most = len(held[0].levels)
    if why := next((one.why for one in held if one.why is not None), None):
        return most, why
    return most, None if all(len(one.levels) == most for one in held) else "their wrappers differ"


def _own_of(kernel: BlockKernel) -> Any:
    """How to make an observation of a row, where the kernel's environments show no arrays."""
    return None if type(kernel).own is BlockKernel.own and kernel.observations.ndim > 1 else kernel.own


def _paid(brought: Brought) -> Array:
    """The rewards of all rows: 0 where a row took no step."""
    if isinstance(brought.moved, slice):
        return brought.rewards  # type: ignore[no-any-return]
    paid = np.zeros(brought.n)
    if brought.moved is not None:
        paid[brought.moved] = brought.rewards[brought.moved]
    return paid


def _as_array(actions: list[Any]) -> Any:
    """Actions that came one by one as one array, if they are what its rows are: those of an array of one axis are no arrays."""
    if set(map(type, actions)) != {np.ndarray} or len({(action.dtype, action.shape) for action in actions}) != 1:
        return actions
    return np.array(actions) if actions[0].ndim else actions


def _plain_reset(kwargs: Mapping[str, Any]) -> bool:
    """Whether a reset asks for nothing that a kernel does not know."""
    seed = kwargs.get("seed")
    return not kwargs.get("options") and (seed is None or (type(seed) is int and seed >= 0))
