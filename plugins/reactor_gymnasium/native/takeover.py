"""How kernels and forms take environments and their wrappers over, step them, and give them back before anybody looks at them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.utils import create_zero_array

from reactor_gymnasium.environments.bypass import MANY, NO_LIMIT, WATCHED, Bypassed, WrapperBypass, wrappers_pristine
from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.rows import IDLE, EnvRows, StepBuffers, kept_whole
from reactor_gymnasium.native.forms import ALL, Around, Failures, RowForm, RowResults, numbers_of
from reactor_gymnasium.native.functions import EachObservation, EachReward
from reactor_gymnasium.native.guards import switched_off
from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, Taken, error_state
from reactor_gymnasium.native.kernels import choose_kernel, in_words, take_over
from reactor_gymnasium.native.watching import CodeWatch, watch_of

__all__ = ["Takeover"]

Array = npt.NDArray[Any]

NEVER = 2**62
"""A step that is never reached."""
AT_ONCE = 8
"""Environments that were taken over for so many steps are taken over again at once: with fewer, taking over and giving back would
cost more than a kernel saves. Chosen.
"""
LONGEST_WAIT = 256
"""Steps after which a kernel is looked for again at the latest. A look goes through all environments and their wrappers; so seldom
it takes a small share of the time. With more, environments would stay slow for long after what was in the way has gone. Chosen.
"""
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
        engaged: Whether something stands in for the environments or their wrappers.
        given: What to step by Python in this step, after the forms' wrappers: actions, and what these have raised.
        whole: What all rows show as one array, where forms make it.
        at: The value of ``envs.now`` at which a kernel is looked for.
    """

    def __init__(self, rows: EnvRows, envs: Bypassed, observations: list[Any], kernels: bool) -> None:
        self.rows, self.envs, self.observations = rows, envs, observations
        self.kernel: BlockKernel | None = None
        self.around: Around | None = None
        self.engaged = False
        self.given: tuple[Any, Failures] = None, []
        self.whole: Array | None = None
        self.at = 0 if kernels else NEVER
        self._watch: CodeWatch  # over what the kernel and the forms were written from, and the wrappers that are left out
        self._kind: type  # of what the kernel steps
        self._paid: type = float  # of the kernel's rewards
        self._own: Any = None  # makes an observation of a row of the kernel's, where that is no array
        self._since, self._wait = 0, 0

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
        kernel, around = self.kernel, self.around
        failures: Failures = []
        if around is not None:
            if rows.autoreset is AutoresetMode.DISABLED and around.refuses():
                self.give_back()
                return False
            if around.acts:
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
        rewards = None if out is None else out.rewards
        ends = count > 0 and (rewards is None or around is not None or rows.autoreset is AutoresetMode.SAME_STEP)
        ended: list[int] = (kernel.terminated | kernel.truncated).nonzero()[0].tolist() if ends else []
        results = None if around is None else self._carry(kernel, around, ended)
        if ended and (rewards is None or rows.autoreset is AutoresetMode.SAME_STEP):
            self.envs.stepping = True
            try:
                self._end_episodes(kernel, results, ended, shown, listed=rewards is None)
            finally:
                self.envs.stepping = False
        if out is not None and not known:
            rows.failures += out.write_all(self.observations, self.whole)
            for part, seen in out.copies:
                part[...] = seen
            if rows.finals:
                rows.failures += out.write_each(((row, last) for row, (last, _) in rows.finals.items()), final=True)
        paid = kernel.rewards if results is None else results.rewards if results.moved is ALL else _where_moved(results)
        if rewards is None:
            rows.rewards = paid.tolist()
        else:
            assert out is not None and out.terminations is not None and out.truncations is not None
            rewards[...] = paid
            out.terminations[...] = kernel.terminated
            out.truncations[...] = kernel.truncated
        if results is not None:
            for row, returned in results.alone.items():
                results.infos[row] = returned[-1]
                if len(returned) == 5:
                    rows.failures += self._pay_alone(row, returned[1], rewards)
            if results.made is not None and rows.autoreset is not AutoresetMode.SAME_STEP:
                rows.infos = {row: info for row, info in sorted(results.infos.items()) if info}
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

    def _carry(self, kernel: BlockKernel, around: Around, ended: list[int]) -> RowResults | None:
        """Let the wrappers' forms have the results of a kernel's step; rows show what a step led to, before a reset."""
        rows, n = self.rows, len(kernel.rewards)
        again = rows.autoreset is AutoresetMode.SAME_STEP and rows.seeds is None
        if around.functions is not None:
            self._see(kernel, around.functions, range(n), ended if again else ())
            return None
        moved: Any = ALL
        begun, shown = None, kernel.observations
        resets = rows.autoreset is AutoresetMode.NEXT_STEP and kernel.was_reset.any()
        if around.counts and not (ended or resets or rows.failures):
            for form in around.forms:
                form.count_step(kernel.rewards, self._paid)
            return None
        if resets:
            begun = np.flatnonzero(kernel.was_reset)
        if begun is not None or rows.failures:
            left = np.ones(n, np.bool_)
            left[[*(() if begun is None else begun), *(row for row, _ in rows.failures)]] = False
            moved = np.flatnonzero(left) if left.any() else None
        make_infos: Any = kernel.infos_by_row
        if again and ended:
            make_infos = partial(_final_infos, kernel, ended)
            if around.observes:
                shown = shown.copy()
                for row in ended:
                    shown[row] = kernel.final(row)
        results = RowResults(
            n, shown, moved, begun, kernel.rewards, self._paid, kernel.terminated, kernel.truncated, ended, make_infos, self._own,
            again,
        )  # fmt: skip
        self.carry(around, results, around.observes)
        return results

    def carry(self, around: Around, results: RowResults, observes: bool = True) -> None:
        """Let forms do the work of their wrappers; rows show what these make.

        Args:
            around: The forms.
            results: What they are given.
            observes: Whether rows show something else by now.
        """
        around.outward(results)
        self.rows.failures += results.failures
        if observes:
            self._show(results)

    def _show(self, results: RowResults) -> None:
        whole, shown = self.whole, results.observations
        numbers = numbers_of(results.rows, results.n)
        if isinstance(shown, list):
            self._show_each((row, shown[row]) for row in numbers)
        elif results.own is not None:
            self._show_each(zip(numbers, results.objects(numbers), strict=True))
        elif whole is not None and whole.dtype == shown.dtype and whole.shape == shown.shape:
            if results.rows is not None:
                whole[results.rows] = shown[results.rows]
        elif results.rows is ALL:
            self._keep_whole(shown.copy())
        else:
            self._show_each((row, shown[row, ...]) for row in numbers)
        self._show_each((row, returned[0]) for row, returned in results.alone.items())

    def _show_each(self, found: Iterable[tuple[int, Any]]) -> None:
        """Rows show something from here on, which somebody else may have, too."""
        whole = self.whole
        for row, seen in found:
            if whole is not None and type(seen) is np.ndarray and seen.dtype == whole.dtype and seen.shape == whole.shape[1:]:
                whole[row] = seen
            else:
                self.whole = whole = None
                self.observations[row] = own(seen)

    def _see(self, kernel: BlockKernel, functions: list[list[Any]], numbers: Iterable[int], finals: Collection[int] = ()) -> None:
        """Rows show what functions make of a kernel's observations.

        Args:
            kernel: The kernel.
            functions: Those of each row, the innermost first.
            numbers: The rows.
            finals: Those of them that show the last observation of an episode, while another one has begun.
        """
        seen, failures, found = kernel.rows(), self.rows.failures, []
        failed = {row for row, _ in failures}
        for row in numbers:
            if row in failed:
                continue
            try:
                value = kernel.final(row) if row in finals else kernel.own(seen[row])
                for function in functions[row]:
                    value = function(value)
                found.append((row, value))
            except Exception as error:
                failures.append((row, error))
        self._show_each(found)

    def _keep_whole(self, whole: Array) -> None:
        """Rows show the rows of an array from here on."""
        self.whole = whole
        self.observations[:] = [whole[row, ...] for row in range(len(whole))]

    def _end_episodes(self, kernel: BlockKernel, results: RowResults | None, over: list[int], shown: Any, listed: bool) -> None:
        """Note which episodes the kernel's step has ended, in a list if there is no buffer, and reset those that need a seed."""
        rows, around = self.rows, self.around
        if listed:
            terminated, truncated = kernel.terminated.tolist(), kernel.truncated.tolist()
            rows.ended = [(row, terminated[row], truncated[row]) for row in over]
        if rows.autoreset is not AutoresetMode.SAME_STEP:
            return
        seen, before_reset, again = self.observations, rows.before_reset, rows.seeds is None
        observes = around is not None and around.observes
        if results is not None:
            told = results.infos
            if results.alone:
                told = told | {row: returned[-1] for row, returned in results.alone.items()}
        else:
            told = {row: kernel.final_info(row) for row in over} if again else kernel.infos_by_row()
        ours = before_reset is kept_whole and again  # already
        for row in over:
            last = own(seen[row]) if observes else kernel.final(row) if again else kernel.own(seen[row])
            info = told.get(row, {})
            rows.finals[row] = last, info if ours else before_reset(row, info)
        if again:
            self._begin(kernel, over, {}, again=True)
            return
        resets = {row: rows.seeds(row) for row in over}  # type: ignore[misc]
        begun = {row: dict(kwargs) for row, kwargs in resets.items() if kwargs is not None}
        kernel.reset(begun)
        rows.failures += kernel.failures
        self._begin(kernel, [*begun], begun)
        if shown is not None:
            shown[...] = kernel.observations
        if len(begun) < len(resets):
            self.give_back()
            for row in resets.keys() - begun:
                rows.pending[row], self.envs.due[row] = IDLE, NO_LIMIT

    def _begin(self, kernel: BlockKernel, begun: list[int], kwargs: Mapping[int, Any], again: bool = False) -> None:
        """Let the wrappers' forms have what a kernel's resets have results."""
        around = self.around
        if around is None or not begun or (again and not around.observes):
            return
        if around.functions is not None:
            self._see(kernel, around.functions, begun)
            return
        results = RowResults(
            len(kernel.rewards), kernel.observations, None, np.array(begun), make_infos=kernel.infos_by_row, own=self._own,
            again=again, kwargs=kwargs,
        )  # fmt: skip
        self.carry(around, results, around.observes)

    # ------------------------------------------------------------------ resets

    def reset(self, resets: Mapping[int, Mapping[str, Any]], out: StepBuffers | None) -> bool:
        """Reset environments between steps by the kernel, which keeps them; ``False`` if nothing was: they have to be opened."""
        rows, kernel, around = self.rows, self.kernel, self.around
        if kernel is None or self._untrue() or not all(map(_plain_reset, resets.values())):
            return False
        kernel.reset({row: dict(kwargs) for row, kwargs in resets.items()})
        rows.failures, rows.ended, rows.finals = list(kernel.failures), [], {}
        self._begin(kernel, sorted(resets), {row: dict(kwargs) for row, kwargs in resets.items()})
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
        most, why = 0, switched_off() or error_state()
        if why is None:
            most, why = self._levels()
        idle = IDLE in rows.pending or (rows.seeds is not None and rows.autoreset is not AutoresetMode.SAME_STEP)
        if not envs.settled or not wrappers_pristine() or idle:
            envs.engage()
            self.at = envs.now + 1
            if idle:
                self._later()
            return
        if any(observation is None for observation in self.observations):
            most, why = 0, "they were not reset yet"
        levels = [[held.levels[level] for held in envs.held] for level in range(most)]
        forms = [of_rows[0][0] for of_rows in levels]
        kernel = why or self._fitting(forms)
        if isinstance(kernel, str):
            self._tell(kernel)
            if not most or sum(form.saves for form in forms) * len(envs.held) < WORTH:
                envs.engage()
                self._later()
                return
        made = [form([wrapper for _, wrapper in of_rows]) for form, of_rows in zip(forms, levels, strict=True)]
        around = Around(made) if made else None
        self.around, self.engaged, self._since, self.whole = around, True, envs.now, None
        observes = around is not None and around.observes
        if observes and _alike(self.observations):
            self._keep_whole(np.array(self.observations))
        codes = [] if around is None else [*around.codes]
        self._kind = type(envs.targets[0])
        if isinstance(kernel, str):
            self.at = envs.now + LONGEST_WAIT
        else:
            self.kernel, self._paid, self._own = kernel, kernel.paid or kernel.summed, _own_of(kernel)
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
        envs.engage(MANY, rows.pending)
        if not envs.settled:
            return 0, None
        most, why = _common_levels(envs.held)
        if any(len(held.levels) != most for held in envs.held):
            envs.engage(most, rows.pending)
        return most, why

    def _fitting(self, forms: Sequence[type[RowForm]]) -> BlockKernel | str:
        """The kernel for what is to be stepped, or why it has no kernel.

        Args:
            forms: Of the wrappers around it.
        """
        rows, envs = self.rows, self.envs
        if isinstance(kind := choose_kernel(type(envs.targets[0])), str):
            return kind
        if not all(held.alone for held in envs.held):
            return "somebody else refers to one of them"
        observes = any(form.observes for form in forms)
        mode = rows.autoreset if rows.seeds is None else AutoresetMode.DISABLED
        assert mode is not None
        left = [due - envs.now for due in envs.due]
        limits = [held.limit for held in envs.held]
        shown = [create_zero_array(env.observation_space) for env in envs.targets] if observes else self.observations
        kernel = take_over(Taken(envs.targets, left, limits, rows.pending, shown, mode))
        if isinstance(kernel, str):  # else it was compared with Python by now
            return kernel
        if kernel.paid is None and any(issubclass(form, EachReward) for form in forms):
            return "its rewards are of several types"
        if kernel.keeps and any(issubclass(form, EachObservation) for form in forms):
            return "it keeps the array that it shows, and a wrapper may write into that"
        return kernel

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
        self.engaged, self._own = self.around is not None, None  # which refers to the kernel
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
        self.engaged = False
        if around is not None:
            if self.whole is not None:
                self.observations[:] = [self.whole[row].copy() for row in range(len(self.whole))]
                self.whole = None
            around.give_back()
            del around
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


def _alike(observations: list[Any]) -> bool:
    """Whether what rows show are arrays of numbers, of one dtype and shape."""
    first = observations[0]
    if type(first) is not np.ndarray or first.dtype.hasobject:
        return False
    return all(type(seen) is np.ndarray and (seen.dtype, seen.shape) == (first.dtype, first.shape) for seen in observations)


def _final_infos(kernel: BlockKernel, ended: list[int]) -> dict[int, dict[str, Any]]:
    return {row: kernel.final_info(row) for row in ended}


def _own_of(kernel: BlockKernel) -> Any:
    """How to make an observation of a row, where the kernel's environments show no arrays."""
    return None if type(kernel).own is BlockKernel.own and kernel.observations.ndim > 1 else kernel.own


def _where_moved(results: RowResults) -> Array:
    """The rewards of all rows: 0 where a row took no step."""
    paid = np.zeros(results.n)
    if results.moved is not None:
        paid[results.moved] = results.rewards[results.moved]
    return paid


def _as_array(actions: list[Any]) -> Any:
    """Actions that came one by one as one array, if they are what its rows are: those of an array of one axis are no arrays."""
    kinds = set(map(type, actions))
    if kinds == {np.int64}:
        return np.array(actions)
    if kinds != {np.ndarray} or len({(action.dtype, action.shape) for action in actions}) != 1:
        return actions
    return np.array(actions) if actions[0].ndim else actions


def _plain_reset(kwargs: Mapping[str, Any]) -> bool:
    """Whether a reset asks for nothing that a kernel does not know."""
    seed = kwargs.get("seed")
    return not kwargs.get("options") and (seed is None or (type(seed) is int and seed >= 0))
