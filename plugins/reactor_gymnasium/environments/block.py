"""The one place where environments are stepped: a block of them, one after the other.

An environment may return the same arrays and dicts at every step, share them with another one, and keep or change the action that
it is given. So it is given copies, and what it returns is copied before the next environment takes its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.atari.unseen import UnseenScreens
from reactor_gymnasium.environments.bound_rows import BoundRows, Put
from reactor_gymnasium.environments.bypass import NO_LIMIT, WrapperBypass, steps_pristine, wrappers_pristine
from reactor_gymnasium.environments.owning import IMMUTABLE, SOLE, check_info, own, referred_to
from reactor_gymnasium.environments.units import close_all, marked
from reactor_gymnasium.native.kernel import REFUSED, BlockKernel, error_state, watch_of
from reactor_gymnasium.native.recorders import Recorder, left_out
from reactor_gymnasium.native.takeover import choose_kernel, in_words, take_over, within
from reactor_gymnasium.native.watching import Watch
from reactor_rl.plugin import Pickled, decode

__all__ = ["IDLE", "REAL_DONE", "EnvBlock"]

IDLE = 2
"""In :attr:`EnvBlock.pending`: the environment takes no steps until it is reset."""

REAL_DONE = "was_real_done"
"""Attribute of an ``EpisodicLifeEnv`` (SB3's, and those of others): whether the last end was a game's, and not only a life's."""


Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]


class EnvBlock:
    """Environments ``first`` to ``first + n - 1``, which are stepped together.

    The wrappers that ``gymnasium.make`` adds are left out, see :mod:`reactor_gymnasium.environments.bypass`, and a kernel may have
    the environments' states. So nobody gets at an environment but within :meth:`opened`, which puts all that right before.

    Args:
        first: Index of the first environment, for messages.
        autoreset: When an environment whose episode has ended is reset.
        seeds: From a row to the arguments of a reset that follows an episode; by default it has no arguments. ``None`` for no
            reset: the row is idle then.
        kernels: Whether a kernel may step all of them in one call, where there is one, or make the pictures of Atari games, with
            the same results; see :mod:`reactor_gymnasium.native` and :mod:`reactor_gymnasium.atari.unseen`.
        columns: Whether the owner takes rewards, ends and infos from :attr:`stepped`, if a kernel took the step.

    Attributes:
        observations: The last one of each environment, a copy; ``None`` before the first reset.
        pending: Whether the next step resets an environment (``NEXT_STEP``), or is not for it at all (:data:`IDLE`).
        rewards: Of the last step, as the environments returned them; 0.0 of a step that was a reset.
        ended: Row, ``terminated`` and ``truncated`` of the episodes that the last step ended.
        finals: By row the last observation of these episodes, a copy, and what :attr:`last_info` gave, if they were reset in the
            same step.
        infos: By row those infos of the last step that are not empty, copies; those of a reset, where the same step had one.
        keep_infos: Whether they are kept.
        last_info: From the row and the last info of an episode to what is kept of it; called before a reset in the same step.
            It may look at the environments where no kernel steps them; see :meth:`keep_from_kernels`.
        failures: Row and exception of what failed in the last step, while the others took theirs.
        stepped: The kernel that took the last step; ``None`` if Python did.
        stepper: Who steps them, as it was decided last, in words; empty before that.
        mark: If it is set, the row that is being stepped is written here, counted from 1, and 0 after the step.
    """

    def __init__(
        self,
        first: int,
        autoreset: AutoresetMode,
        seeds: Callable[[int], Mapping[str, Any] | None] | None = None,
        kernels: bool = True,
        columns: bool = False,
    ) -> None:
        self.first, self.autoreset, self.seeds, self.kernels, self.columns = first, autoreset, seeds, kernels, columns
        self._held: list[WrapperBypass] = []  # nobody else may refer to what is in them
        self.observations: list[Any] = []
        self.pending: list[int] = []
        self.rewards: list[Any] = []
        self.ended: list[tuple[int, bool, bool]] = []
        self.finals: dict[int, tuple[Any, Any]] = {}
        self.infos: dict[int, Any] = {}
        self.failures: list[tuple[int, Exception]] = []
        self.keep_infos = True
        self.last_info: Callable[[int, Any], Any] = _copied
        self.mark: Array | None = None
        self._rows = range(0)
        self._now = 0  # steps of this block
        self._due: list[int] = []  # the value of `_now` at which a time limit that is left out truncates
        self._soonest = NO_LIMIT  # nothing of `_due` comes before it
        self._targets: list[Env] = []  # what to step
        self._bypassing = False  # whether wrappers are left out
        self._unseen: set[type[UnseenScreens]] = set()  # what has screens that are not fetched
        self._unsettled = True  # whether there may be more to leave out
        self._looked = True  # whether somebody may have changed them since that was found out
        self._stepping = False  # whether somebody who looks does so within a step
        self.stepped: BlockKernel | None = None
        self.stepper = "" if kernels else in_words("kernels=False")
        self._kernel: BlockKernel | None = None  # what has taken the environments over
        self._recorder: Recorder | None = None  # what stands for their outermost wrappers meanwhile
        self._watch: Watch  # over what it was written from
        self._kind: type  # of what it steps
        self._taken_at, self._wait = 0, 1
        self._take_at = 0 if kernels else NEVER  # the value of `_now` at which a kernel is looked for

    def build(self, makers: Sequence[Pickled], construct: Callable[[Callable[[], Env]], Env] | None = None) -> None:
        """Make the environments, here where they will live.

        Args:
            makers: What makes each of them, encoded by itself: what two of them share must not depend on where they are.
            construct: How to call that, if not just so.

        Raises:
            Exception: What a maker raised, with a note that says which one; those that were made before are to be closed.
        """
        for index, maker in enumerate(makers, self.first):
            try:
                env_fn = decode(maker)
                self._held.append(WrapperBypass(env_fn() if construct is None else construct(env_fn), self.kernels))
            except Exception as error:
                error.add_note(f"while environment {index} was constructed")
                raise
        self.observations += [None] * len(self._held)
        self.pending, self._rows = [False] * len(self._held), range(len(self._held))
        self._settle()

    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        envs = list(self._held)
        self._held.clear()
        close_all((index, held.env) for index, held in enumerate(envs, self.first))

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return len(self._held)

    @property
    def bypassed(self) -> list[bool]:
        """For each environment: whether its wrappers were left out when it was last inspected."""
        return [held.engaged for held in self._held]

    # ------------------------------------------------------------------ steps

    def step(self, actions: Sequence[Any] | Array, out: BoundRows | None) -> None:
        """Step each environment, or reset it where the episode is over, in this step or the next one, as the mode says.

        Args:
            actions: One for each environment; rows of an array are copied.
            out: Where to write the observations; ``None`` if no part of them is an array.
        """
        if (self._kernel is not None or self._now == self._take_at) and self._step_by_kernel(actions, out):
            return
        if isinstance(actions, np.ndarray) and actions.ndim > 1:  # what an array of one axis gives are scalars
            actions = actions.copy()
        if self._unsettled or (self._bypassing and not steps_pristine()) or any(kind.changed() for kind in self._unseen):
            self._write_back()
            self._settle()
        self._stepping = True
        self._now = now = self._now + 1
        self.stepped = None
        envs, pending, last, due = self._targets, self.pending, self.observations, self._due
        rewards: list[Any] = [0.0] * len(envs)
        self.rewards = rewards
        self.ended = ended = []
        self.finals = finals = {}
        self.infos = infos = {}
        self.failures = failures = []
        autoreset, ndarray, immutable, counted = self.autoreset, np.ndarray, IMMUTABLE, getrefcount
        limited, keep_infos, last_info = now >= self._soonest, self.keep_infos, self.last_info
        put = None if out is None or out.put_all else out.put
        # The caller has counted the actions, and `strict=` takes longer than the rest of this call. Nobody keeps this, for what is
        # referred to elsewhere is not left out.
        work = zip(self._rows if self.mark is None else marked(self._rows, self.mark), actions, envs, pending)  # noqa: B905
        while True:
            row = 0
            try:
                for row, action, env, over in work:
                    if over:  # NEXT_STEP: no account is taken of the action
                        if over == IDLE:
                            continue
                        pending[row] = False
                        observation, info = self._begin(row, env, {} if self.seeds is None else self.seeds(row) or {})
                    else:
                        observation, reward, terminated, truncated, info = env.step(action)
                        rewards[row] = reward if type(reward) in immutable else own(reward)
                        if type(info) is not dict:
                            check_info(info, "step")
                        if limited and now >= due[row]:
                            truncated = True
                        if terminated or truncated:
                            ended.append((row, bool(terminated), bool(truncated)))
                            if autoreset is AutoresetMode.NEXT_STEP:
                                pending[row] = True
                            elif autoreset is AutoresetMode.SAME_STEP:
                                finals[row] = own(observation), last_info(row, info)
                                kwargs = {} if self.seeds is None else self.seeds(row)
                                if kwargs is None:
                                    pending[row], due[row], info = IDLE, NO_LIMIT, {}
                                else:
                                    observation, info = self._begin(row, env, kwargs)
                    if put:
                        put(row, observation)
                    # An array that nobody else refers to is ours already; a view's memory is somebody else's.
                    kind = type(observation)
                    alone = counted(observation) == SOLE and observation.base is None if kind is ndarray else kind in immutable
                    last[row] = observation if alone else own(observation)
                    if info and keep_infos:
                        alone = type(info) is dict and counted(info) == SOLE and immutable.issuperset(map(type, info.values()))
                        infos[row] = info if alone else own(info)
                break
            except Exception as error:  # the others still take their step
                failures.append((row, error))
            except BaseException:
                self._stepping = False
                raise
        self._stepping = False
        if now >= self._soonest:
            self._soonest = min(due)
        if out is not None:
            if out.put_all and not failures:
                try:
                    out.put_all(last)
                except (TypeError, ValueError):
                    failures += out.write_each(last)
                    failures += [
                        (row, TypeError(f"the environment returned None as the observation, its space is {env.observation_space}"))
                        for row, env in zip(self._rows, envs, strict=True) if last[row] is None and pending[row] != IDLE
                    ]  # fmt: skip
            for part, shown in out.copies:  # what the step led to is seen now, but for the last observations of episodes
                part[...] = shown
            if finals and out.put_next:
                self._write_finals(out.put_next)

    def _step_by_kernel(self, actions: Any, out: BoundRows | None) -> bool:
        """Take the step by the kernel that has taken the environments over, or may now; ``False`` if Python has to."""
        kernel, took = self._kernel, False
        if kernel is None:
            kernel, took = self._take_over(), True
        elif self._untrue():
            self._give_back()
            return False
        if kernel is None:
            return False
        recorder = self._recorder
        if recorder is not None and self.autoreset is AutoresetMode.DISABLED and recorder.refuses():
            self._give_back()
            return False
        if type(actions) is list:
            actions = _as_array(actions)
        if type(actions) is not np.ndarray or actions.dtype not in kernel.actions or not actions.flags.c_contiguous:
            self._give_back()
            self._told("it was given other actions than a kernel takes")
            return False
        shown, led_to, known = None, None, out is None
        if out is not None and out.kind == kernel.kind:
            shown, led_to, known = out.shown, out.led_to, True
        count = kernel.step(actions, shown, led_to)
        if count == REFUSED:
            self._give_back()
            return False
        if took:
            self._told(kernel)
        self._now += 1
        self.stepped, self.failures, self.ended, self.finals, self.infos = kernel, list(kernel.failures), [], {}, {}
        if recorder is not None:
            self.infos, failures = recorder.record(kernel, self.autoreset)
            self.failures += failures
        if count and (self.autoreset is AutoresetMode.SAME_STEP or not self.columns):
            self._stepping = True
            try:
                self._end_episodes(kernel, shown)
            finally:
                self._stepping = False
        if out is not None and not known:
            self._write_rows(out)
        if not self.columns:
            self._tell(kernel)
        return True

    def _untrue(self) -> bool:
        """Whether Python would do something else by now than the kernel that has taken the environments over."""
        watch, targets, kind = self._watch, self._targets, self._kind
        same = wrappers_pristine() and (watch.look(targets, kind) or watch.same(targets, kind))
        return not same or error_state() is not None

    @property
    def taken_over(self) -> bool:
        """Whether a kernel has taken the environments over."""
        return self._kernel is not None

    def reset_by_kernel(self, resets: Mapping[int, Mapping[str, Any]], out: BoundRows | None) -> dict[int, Any] | None:
        """Reset rows between steps, if a kernel has taken the environments over; it keeps them.

        Args:
            resets: By row the arguments of its ``reset()``.
            out: Where to write the observations of all rows, as for :meth:`step`.

        Returns:
            The infos that are not empty, by row; ``None`` if environments have to be :meth:`opened`, for nothing was reset.
        """
        kernel = self._kernel
        if kernel is None or self._untrue() or not all(map(_plain_reset, resets.values())):
            return None
        recorder = self._recorder
        kernel.reset({row: dict(kwargs) for row, kwargs in resets.items()})
        self.failures = list(kernel.failures)
        if recorder is not None:
            recorder.begin_all(resets)
        if out is not None:
            if out.kind == kernel.kind and out.shown is not None:
                out.shown[...] = kernel.observations
            else:
                self.failures += out.write_each(self.observations)
        infos = kernel.infos_by_row()
        return {row: infos[row] for row in resets if row in infos}

    def _end_episodes(self, kernel: BlockKernel, shown: Array | None) -> None:
        """Note which episodes the kernel's step has ended, and reset those that need a seed."""
        over = (kernel.terminated | kernel.truncated).nonzero()[0].tolist()
        if self.autoreset is AutoresetMode.SAME_STEP and over:
            recorder, last_info = self._recorder, self.last_info
            if self.seeds is None:
                infos = {row: kernel.final_info(row) for row in over}
                if recorder is not None:
                    self.failures += recorder.end_all(infos, again=True)
                mine = last_info is _copied  # already
                self.finals = {row: (kernel.final(row), info if mine else last_info(row, info)) for row, info in infos.items()}
            else:
                last, told = kernel.rows(), kernel.infos_by_row()
                infos = {row: told.get(row, {}) for row in over}
                if recorder is not None:
                    self.failures += recorder.end_all(infos)
                self.finals = {row: (kernel.own(last[row]), last_info(row, info)) for row, info in infos.items()}
                resets = {row: self.seeds(row) for row in over}
                begun = {row: dict(kwargs) for row, kwargs in resets.items() if kwargs is not None}
                kernel.reset(begun)
                self.failures += kernel.failures
                if recorder is not None:
                    recorder.begin_all(begun)
                if shown is not None:
                    shown[...] = kernel.observations
                if idle := [row for row, kwargs in resets.items() if kwargs is None]:
                    self._give_back()
                    for row in idle:
                        self.pending[row], self._due[row] = IDLE, NO_LIMIT
        if not self.columns:
            terminated, truncated = kernel.terminated.tolist(), kernel.truncated.tolist()
            self.ended = [(row, terminated[row], truncated[row]) for row in over]

    def _write_rows(self, out: BoundRows) -> None:
        """Write the observations of a kernel's step where they are not laid out as the kernel has them."""
        self.failures += out.write_each(self.observations)
        for part, shown in out.copies:
            part[...] = shown
        if self.finals and out.put_next:
            self._write_finals(out.put_next)

    def _tell(self, kernel: BlockKernel) -> None:
        """Let the owner have what a kernel's step brought, row by row."""
        self.rewards = kernel.rewards.tolist()
        if not self.keep_infos:
            self.infos = {}
        elif not self.infos:
            self.infos = kernel.infos_by_row()

    # ------------------------------------------------------------------ kernels

    def _take_over(self) -> BlockKernel | None:
        """Let a kernel take the environments over, if there is one."""
        self._take_at = NEVER
        if self._looked:
            self._settle()
        if self._unsettled or not wrappers_pristine():
            self._take_at = self._now + 1
            return None
        self.stepped, self.failures = None, []
        if IDLE in self.pending or (self.seeds is not None and self.autoreset is not AutoresetMode.SAME_STEP):
            self._later()
            return None
        kernel = self._taken()
        if isinstance(kernel, str):
            self._told(kernel)
            self._later()
            return None
        self._kernel, self._taken_at = kernel, self._now
        recorders = () if self._recorder is None else (type(self._recorder),)
        self._watch, self._kind = watch_of(type(kernel), *recorders), type(self._targets[0])
        self.observations[:] = kernel.rows()
        return kernel

    def _taken(self) -> BlockKernel | str:
        """The kernel that takes the environments over, without the wrappers that record episodes; or why none does."""
        outermost = {left_out(held.env, bool(over)) for held, over in zip(self._held, self.pending, strict=True)}
        for why in outermost:
            if isinstance(why, str):
                return why
        recorder, *others = outermost
        if others:
            return "some of them record episodes in another way"
        if recorder is None:
            return self._fitting()
        kernel = choose_kernel(type(within(self._held[0].env)[0]))  # in no variable, which would be one more reference to it
        if isinstance(kernel, str):
            return kernel
        self._engage(recording=True)
        taken = "their first steps are checked" if self._unsettled else self._fitting()
        if isinstance(taken, str):
            self._engage()
        else:
            assert isinstance(recorder, type)
            self._recorder = recorder([held.env for held in self._held], taken.summed)
        return taken

    def _fitting(self) -> BlockKernel | str:
        """The kernel for what is to be stepped, or why it has no kernel."""
        if referred_to(self._targets):
            return "somebody else refers to one of them"
        mode = AutoresetMode.DISABLED if self.seeds is not None else self.autoreset
        left = [due - self._now for due in self._due]
        limits = [held.limit for held in self._held]
        return take_over(self._targets, left, limits, self.pending, self.observations, mode)

    def _told(self, kernel: BlockKernel | str) -> None:
        """Note who steps, where that is news."""
        if (words := in_words(kernel)) != self.stepper:
            self.stepper = words

    def _later(self) -> None:
        """Look for a kernel again, in twice as many steps as the last time."""
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        self._take_at = self._now + self._wait

    def _give_back(self) -> None:
        """Let the environments have what a kernel has made of them, and look for one later."""
        kernel, self._kernel, self.stepped = self._kernel, None, None
        if kernel is None:
            return
        self.observations[:] = kernel.give_back()
        self.pending[:] = kernel.pending.tolist()
        self._due = [self._now + left for left in kernel.left.tolist()]
        self._soonest = min(self._due)
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.hand_over()
            self._count_limits()
            self._engage()
        if self._now - self._taken_at >= AT_ONCE:
            self._wait = 1
        self._later()

    def _begin(self, row: int, env: Env, kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Reset an environment whose episode has ended."""
        if self._bypassing and not wrappers_pristine():
            self._write_back()
            env, self._unsettled = self._held[row].env, True  # the next step looks at all of them again
        held = self._held[row]
        if held.engaged and env is held.target:  # what is left out would name both
            kwargs = {"seed": None, "options": None, **kwargs}
        observation, info = env.reset(**kwargs)
        if type(info) is not dict:
            check_info(info, "reset")
        self._due[row] = self._now + held.limit
        return observation, info

    def _write_finals(self, put: Put) -> None:
        """Write the last observations of episodes."""
        for row, (observation, _) in self.finals.items():
            try:
                put(row, observation)
            except Exception as error:
                self.failures.append((row, error))

    # ------------------------------------------------------------------ between steps

    @contextmanager
    def opened(self, changes: bool = True) -> Iterator[list[Env]]:
        """Let somebody look at the environments, or change them: they are, and their wrappers count, as if none were left out.

        Args:
            changes: Whether they may be changed. If not, the next step need not find out anew what they are; within a step
                (in ``last_info`` and ``seeds``) it is always so.

        Yields:
            The environments in all their wrappers. The list is empty afterwards; whoever keeps one of them is noticed at the next
            step, in which nothing of it is left out then.

        Raises:
            RuntimeError: Within the step of a kernel.
        """
        if self._stepping:
            if self._kernel is not None:
                raise RuntimeError("nobody may look at environments within a kernel's step: keep_from_kernels() before")
            changes = False
        self._write_back()
        if changes:
            self._looked = self._unsettled = True
        envs = [held.env for held in self._held]
        try:
            yield envs
        finally:
            envs.clear()

    def goes_on(self, row: int) -> bool:
        """Whether only a life was lost, so that a reset begins no game; of an environment with lives, within a step as well."""
        return not self._held[row].env.get_wrapper_attr(REAL_DONE)

    def keep_from_kernels(self, why: str) -> None:
        """Let no kernel take the environments over: somebody looks at them before each step, or within steps.

        Args:
            why: For :attr:`stepper`.
        """
        if self._take_at != NEVER or self._kernel is not None:
            self._give_back()
            self._take_at = NEVER
            self._told(why)

    def reset(self, row: int, kwargs: Mapping[str, Any]) -> Any:
        """Reset an environment of an :meth:`opened` block, in all its wrappers.

        Args:
            row: Its row.
            kwargs: The arguments of ``reset()``.

        Returns:
            The info; the observation is in ``observations``.

        Raises:
            TypeError: If ``reset()`` returned no observation: ``None`` stands for a row that was never reset.
        """
        self.pending[row] = False
        env = self._held[row].env
        observation, info = env.reset(**kwargs)
        if observation is None:
            raise TypeError(f"reset() returned None as the observation, its space is {env.observation_space}")
        self.observations[row] = own(observation)
        check_info(info, "reset")
        return own(info)

    def replay(self, row: int, kwargs: Mapping[str, Any], actions: Array) -> None:
        """Reset an environment of an :meth:`opened` block, and take steps with it; an episode that ends is followed by another one.

        Args:
            row: Its row.
            kwargs: The arguments of the first ``reset()``.
            actions: ``(steps, *shape)``; copied.
        """
        env = self._held[row].env
        observation, _ = env.reset(**kwargs)
        for action in actions.copy():
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                observation, _ = env.reset()
        self.observations[row] = own(observation)

    def _write_back(self) -> None:
        """Write the counts of time limits that are left out back into the wrappers, before anybody looks at them."""
        self._give_back()
        if not self._looked:
            self._count_limits()

    def _count_limits(self) -> None:
        if self._unseen:
            self._unseen, self._unsettled = set(), True  # all screens are fetched from now on
        for held, due in zip(self._held, self._due, strict=True):
            held.write_back(held.limit - (due - self._now))

    def _settle(self) -> None:
        """Find out anew what to call for each environment; its wrappers, and what they have counted, may have changed."""
        self.failures = []  # what is referred to elsewhere is not left out, and an exception refers to the frames that it has left
        self._looked = False
        self._engage()

    def _engage(self, recording: bool = False) -> None:
        """Find out what to call for each environment; ``recording``: without the outermost wrappers, which record episodes."""
        self._targets = []
        for held in self._held:
            held.engage(recording)
        self._targets = [held.target for held in self._held]
        self._due = [self._now + held.limit - held.elapsed for held in self._held]
        self._soonest = min(self._due)
        self._bypassing = any(held.engaged for held in self._held)
        self._unseen = {type(held.screens) for held in self._held if held.screens is not None}
        self._unsettled = not all(held.final for held in self._held)


NEVER = -1
AT_ONCE = 64
"""A kernel that has taken so many steps takes the environments over again at once."""
LONGEST_WAIT = 256
"""Steps after which a kernel is looked for again at the latest."""


def _as_array(actions: list[Any]) -> Any:
    """Actions that came one by one as one array, if they are what its rows are: those of an array of one axis are no arrays."""
    if set(map(type, actions)) != {np.ndarray} or len({(action.dtype, action.shape) for action in actions}) != 1:
        return actions
    return np.array(actions) if actions[0].ndim else actions


def _plain_reset(kwargs: Mapping[str, Any]) -> bool:
    """Whether a reset asks for nothing that a kernel does not know."""
    seed = kwargs.get("seed")
    return not kwargs.get("options") and (seed is None or (type(seed) is int and seed >= 0))


def _copied(row: int, info: Any) -> Any:
    return own(info)
