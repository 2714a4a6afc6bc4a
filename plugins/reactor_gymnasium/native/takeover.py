"""How a kernel takes environments over, steps them, and gives them back before anybody looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.bypass import NO_LIMIT, WATCHED, Bypassed, wrappers_pristine
from reactor_gymnasium.environments.owning import referred_to
from reactor_gymnasium.environments.rows import IDLE, EnvRows, StepBuffers, kept_whole
from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, Taken, error_state
from reactor_gymnasium.native.kernels import choose_kernel, in_words, take_over, within
from reactor_gymnasium.native.recorders import Recorder, left_out
from reactor_gymnasium.native.watching import Watch, watch_of

__all__ = ["Takeover"]

NEVER = -1
AT_ONCE = 64
"""A kernel that has taken so many steps takes the environments over again at once."""
LONGEST_WAIT = 256
"""Steps after which a kernel is looked for again at the latest."""


class Takeover:
    """Lets a kernel step the environments of some rows in their place, until somebody looks at them.

    Args:
        rows: The rows.
        envs: Their environments.
        observations: The last one of each.
        kernels: Whether kernels may step them.

    Attributes:
        kernel: The one that has taken the environments over; ``None`` while Python steps them.
        at: The value of ``envs.now`` at which one is looked for.
    """

    def __init__(self, rows: EnvRows, envs: Bypassed, observations: list[Any], kernels: bool) -> None:
        self.rows, self.envs, self.observations = rows, envs, observations
        self.kernel: BlockKernel | None = None
        self.at = 0 if kernels else NEVER
        self._recorder: Recorder | None = None  # what stands for the outermost wrappers meanwhile
        self._watch: Watch  # over what the kernel was written from, and the wrappers that are left out
        self._kind: type  # of what it steps
        self._since, self._wait = 0, 1

    # ------------------------------------------------------------------ steps

    def step(self, actions: Any, out: StepBuffers | None) -> bool:
        """Take a step by the kernel that has taken the environments over, or may now; ``False`` if Python has to."""
        rows, kernel, took = self.rows, self.kernel, False
        if kernel is None:
            kernel, took = self._take_over(), True
        elif self._untrue():
            self.give_back()
            return False
        if kernel is None:
            return False
        recorder = self._recorder
        if recorder is not None and rows.autoreset is AutoresetMode.DISABLED and recorder.refuses():
            self.give_back()
            return False
        if type(actions) is list:
            actions = _as_array(actions)
        if type(actions) is not np.ndarray or actions.dtype not in kernel.actions or not actions.flags.c_contiguous:
            self.give_back()
            self._tell("it was given other actions than a kernel takes")
            return False
        shown, led_to, known = None, None, out is None
        if out is not None and out.kind == kernel.kind:
            shown, led_to, known = out.shown, out.led_to, True
        count = kernel.step(actions, shown, led_to)
        if count == REFUSED:
            self.give_back()
            return False
        if took:
            self._tell(kernel)
        self.envs.now += 1
        rows.failures, rows.ended, rows.finals, rows.infos = list(kernel.failures), [], {}, {}
        if recorder is not None:
            assert rows.autoreset is not None
            rows.infos, failures = recorder.record(kernel, rows.autoreset)
            rows.failures += failures
        rewards = None if out is None else out.rewards
        if count and (rewards is None or rows.autoreset is AutoresetMode.SAME_STEP):
            self.envs.stepping = True
            try:
                self._end_episodes(kernel, shown, listed=rewards is None)
            finally:
                self.envs.stepping = False
        if out is not None and not known:
            rows.failures += out.write_each(enumerate(self.observations))
            for part, seen in out.copies:
                part[...] = seen
            if rows.finals:
                rows.failures += out.write_each(((row, last) for row, (last, _) in rows.finals.items()), final=True)
        if rewards is None:
            rows.rewards = kernel.rewards.tolist()
        else:
            assert out is not None and out.terminations is not None and out.truncations is not None
            rewards[...] = kernel.rewards
            out.terminations[...] = kernel.terminated
            out.truncations[...] = kernel.truncated
        if not rows.keep_infos:
            rows.infos = {}
        elif not rows.infos:
            rows.infos = kernel.infos() if rewards is not None else kernel.infos_by_row()
        return True

    def _untrue(self) -> bool:
        """Whether Python would do something else by now than the kernel that has taken the environments over."""
        watch, targets, kind = self._watch, self.envs.targets, self._kind
        return not (watch.look(targets, kind) or watch.same(targets, kind)) or error_state() is not None

    def reset(self, resets: Mapping[int, Mapping[str, Any]], out: StepBuffers | None) -> bool:
        """Reset environments between steps by the kernel, which keeps them; ``False`` if nothing was: they have to be opened."""
        rows, kernel, recorder = self.rows, self.kernel, self._recorder
        if kernel is None or self._untrue() or not all(map(_plain_reset, resets.values())):
            return False
        kernel.reset({row: dict(kwargs) for row, kwargs in resets.items()})
        rows.failures, rows.ended, rows.finals = list(kernel.failures), [], {}
        if recorder is not None:
            recorder.begin_all(resets)
        if out is not None:
            if out.kind == kernel.kind and out.shown is not None:
                out.shown[...] = kernel.observations
            else:
                rows.failures += out.write_each(enumerate(self.observations))
        infos = kernel.infos_by_row()
        rows.infos = {row: infos[row] for row in resets if row in infos}
        return True

    def _end_episodes(self, kernel: BlockKernel, shown: Any, listed: bool) -> None:
        """Note which episodes the kernel's step has ended, in a list if there is no buffer, and reset those that need a seed."""
        rows = self.rows
        over = (kernel.terminated | kernel.truncated).nonzero()[0].tolist()
        if listed:
            terminated, truncated = kernel.terminated.tolist(), kernel.truncated.tolist()
            rows.ended = [(row, terminated[row], truncated[row]) for row in over]
        if rows.autoreset is not AutoresetMode.SAME_STEP:
            return
        recorder, before_reset = self._recorder, rows.before_reset
        if rows.seeds is None:
            infos = {row: kernel.final_info(row) for row in over}
            if recorder is not None:
                rows.failures += recorder.end_all(infos, again=True)
            ours = before_reset is kept_whole  # already
            rows.finals = {row: (kernel.final(row), info if ours else before_reset(row, info)) for row, info in infos.items()}
            return
        last, told = kernel.rows(), kernel.infos_by_row()
        infos = {row: told.get(row, {}) for row in over}
        if recorder is not None:
            rows.failures += recorder.end_all(infos)
        rows.finals = {row: (kernel.own(last[row]), before_reset(row, info)) for row, info in infos.items()}
        resets = {row: rows.seeds(row) for row in over}
        begun = {row: dict(kwargs) for row, kwargs in resets.items() if kwargs is not None}
        kernel.reset(begun)
        rows.failures += kernel.failures
        if recorder is not None:
            recorder.begin_all(begun)
        if shown is not None:
            shown[...] = kernel.observations
        if idle := [row for row, kwargs in resets.items() if kwargs is None]:
            self.give_back()
            for row in idle:
                rows.pending[row], self.envs.due[row] = IDLE, NO_LIMIT

    # ------------------------------------------------------------------ there and back

    def _take_over(self) -> BlockKernel | None:
        """Let a kernel take the environments over, if there is one."""
        rows, envs = self.rows, self.envs
        self.at = NEVER
        rows.failures = []
        if envs.looked:
            envs.engage()
        if not envs.settled or not wrappers_pristine():
            self.at = envs.now + 1
            return None
        if IDLE in rows.pending or (rows.seeds is not None and rows.autoreset is not AutoresetMode.SAME_STEP):
            self._later()
            return None
        kernel = self._taken()
        if isinstance(kernel, str):
            self._tell(kernel)
            self._later()
            return None
        self.kernel, self._since = kernel, envs.now
        recorders = () if self._recorder is None else (self._recorder.comes_to(),)
        self._watch, self._kind = watch_of(kernel.comes_to(), *recorders, called=WATCHED), type(envs.targets[0])
        self.observations[:] = kernel.rows()
        return kernel

    def _taken(self) -> BlockKernel | str:
        """The kernel that takes the environments over, without the wrappers that record episodes; or why none does."""
        envs = self.envs
        outermost = {left_out(held.env, bool(over)) for held, over in zip(envs.held, self.rows.pending, strict=True)}
        for why in outermost:
            if isinstance(why, str):
                return why
        recorder, *others = outermost
        if others:
            return "some of them record episodes in another way"
        if recorder is None:
            return self._fitting()
        kernel = choose_kernel(type(within(envs.held[0].env)[0]))  # in no variable, which would be one more reference to it
        if isinstance(kernel, str):
            return kernel
        envs.engage(recording=True)
        taken = self._fitting() if envs.settled else "their first steps are checked"
        if isinstance(taken, str):
            envs.engage()
        else:
            assert isinstance(recorder, type)
            self._recorder = recorder([held.env for held in envs.held], taken.summed)
        return taken

    def _fitting(self) -> BlockKernel | str:
        """The kernel for what is to be stepped, or why it has no kernel."""
        rows, envs = self.rows, self.envs
        if referred_to(envs.targets):
            return "somebody else refers to one of them"
        mode = rows.autoreset if rows.seeds is None else AutoresetMode.DISABLED
        assert mode is not None
        left = [due - envs.now for due in envs.due]
        limits = [held.limit for held in envs.held]
        return take_over(Taken(envs.targets, left, limits, rows.pending, self.observations, mode))

    def _tell(self, kernel: BlockKernel | str) -> None:
        """Note who steps, where that is news."""
        if (words := in_words(kernel)) != self.rows.stepper:
            self.rows.stepper = words

    def _later(self) -> None:
        """Look for a kernel again, in twice as many steps as the last time."""
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        self.at = self.envs.now + self._wait

    def give_back(self) -> None:
        """Let the environments have what a kernel has made of them, and look for one later."""
        rows, envs = self.rows, self.envs
        kernel, self.kernel = self.kernel, None
        if kernel is None:
            return
        self.observations[:] = kernel.give_back()
        rows.pending[:] = kernel.pending.tolist()
        envs.due = [envs.now + left for left in kernel.left.tolist()]
        envs.soonest = min(envs.due)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.hand_over()
            envs.write_back()
            envs.engage()
        if envs.now - self._since >= AT_ONCE:
            self._wait = 1
        self._later()

    def forbid(self, why: str) -> None:
        """Let no kernel take the environments over from now on.

        Args:
            why: For :attr:`EnvRows.stepper`.
        """
        if self.at != NEVER or self.kernel is not None:
            self.give_back()
            self.at = NEVER
            self._tell(why)


def _as_array(actions: list[Any]) -> Any:
    """Actions that came one by one as one array, if they are what its rows are: those of an array of one axis are no arrays."""
    if set(map(type, actions)) != {np.ndarray} or len({(action.dtype, action.shape) for action in actions}) != 1:
        return actions
    return np.array(actions) if actions[0].ndim else actions


def _plain_reset(kwargs: Mapping[str, Any]) -> bool:
    """Whether a reset asks for nothing that a kernel does not know."""
    seed = kwargs.get("seed")
    return not kwargs.get("options") and (seed is None or (type(seed) is int and seed >= 0))
