"""``GymRows``: Gymnasium's environments as rows, one after the other, or all of them by a kernel.

An environment may return the same arrays and dicts at every step, share them with another one, and keep or change the action that
it is given. So it is given copies, and what it returns is copied before the next environment takes its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from sys import getrefcount
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.bypass import NO_LIMIT, WRAPPERS, Bypassed, WrapperBypass
from reactor_gymnasium.environments.owning import IMMUTABLE, SOLE, own, parts_alone
from reactor_gymnasium.environments.returned import check_info, explain_returned
from reactor_gymnasium.environments.rows import IDLE, EnvRows, MakeSeeds, SavedEnv, StepBuffers, marked
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.native.compiled import CompiledKernel
from reactor_gymnasium.native.forms import ALL, Around, RowResults, numbers_of
from reactor_gymnasium.native.kernels import in_words
from reactor_gymnasium.native.takeover import Takeover
from reactor_rl.plugin import Pickled

__all__ = ["REAL_DONE", "GymRows"]

REAL_DONE = "was_real_done"
"""Attribute of an ``EpisodicLifeEnv`` (SB3's, and those of others): whether the last end was a game's, and not only a life's."""

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]


def _held(kernels: bool, env: Any, index: int) -> WrapperBypass:
    return WrapperBypass(env, kernels)


class GymRows(EnvRows):
    """Single environments, of a row each.

    The wrappers that ``gymnasium.make`` adds are left out, see :mod:`reactor_gymnasium.environments.bypass`, and a kernel may have
    the environments' states. So nobody gets at an environment but within :meth:`opened`, which puts all that right before.

    Args:
        first: Index of the first environment, for messages.
        autoreset: When an environment whose episode has ended is reset.
        seeds: See :class:`~reactor_gymnasium.environments.rows.EnvRows`.
        kernels: Whether a kernel may step all of them in one call, where there is one, or make the pictures of Atari games, with
            the same results; see :mod:`reactor_gymnasium.native` and :mod:`reactor_gymnasium.atari.unseen`.

    Attributes:
        observations: The last one of each environment, a copy; ``None`` before the first reset.
    """

    def __init__(self, first: int, autoreset: AutoresetMode, seeds: MakeSeeds | None = None, kernels: bool = True) -> None:
        super().__init__(first, autoreset, partial(_held, kernels), seeds)
        self.stepper = "" if kernels else in_words("kernels=False")
        self.observations: list[Any] = []
        self._envs = Bypassed(self._held)
        self._takeover = Takeover(self, self._envs, self.observations, kernels)

    def build(self, makers: Sequence[Pickled], construct: Callable[[Callable[[], Env]], Env] | None = None) -> None:
        super().build(makers, construct)
        self.observations += [None] * len(makers)
        self.bounds = range(len(makers) + 1)
        self._envs.engage()

    @property
    def bypassed(self) -> list[bool]:
        """For each environment: whether its wrappers were left out when it was last inspected."""
        return [held.engaged for held in self._held]

    # ------------------------------------------------------------------ steps

    def step(self, actions: Sequence[Any] | Array, out: StepBuffers | None) -> None:
        bypassed, takeover = self._envs, self._takeover
        if bypassed.screens and any(kind.changed() for kind in bypassed.screens):
            self._write_back()
            bypassed.settled = False
        if (takeover.engaged or bypassed.now >= takeover.at) and takeover.step(actions, out):
            return
        around = takeover.around
        refused: list[tuple[int, Exception]] = []
        if around is not None:
            actions, refused = takeover.given
        elif isinstance(actions, np.ndarray) and actions.ndim > 1:  # what an array of one axis gives are scalars
            actions = actions.copy()
        if around is None and (
            not bypassed.settled or (bypassed.leaves_out and not (WRAPPERS.look([], object) or WRAPPERS.same([], object)))
        ):
            self._write_back()
            self.failures = []  # an exception refers to the frames that it has left, and what they refer to is not left out
            bypassed.engage()
        bypassed.stepping = True
        bypassed.now = now = bypassed.now + 1
        envs, pending, last, due = bypassed.targets, self.pending, self.observations, bypassed.due
        nothing = float("0")  # an object of its own: nobody returns it
        rewards: list[Any] = [nothing] * len(envs)
        self.rewards = rewards
        self.ended = ended = []
        self.finals = finals = {}
        self.infos = infos = {}
        self.failures = failures = [*refused]
        autoreset, ndarray, immutable, counted = self.autoreset, np.ndarray, IMMUTABLE, getrefcount
        limited, keep_infos, before_reset = now >= bypassed.soonest, self.keep_infos, self.before_reset
        put = None if out is None or out.put_all else out.put
        idle: list[int] = []
        kept: dict[int, Any] | None = None
        if around is not None:  # resets in the same step come after the wrappers' work
            autoreset, last, put, keep_infos, kept = AutoresetMode.DISABLED, [None] * len(envs), None, True, {}
            if self.autoreset is AutoresetMode.NEXT_STEP:
                autoreset = AutoresetMode.NEXT_STEP
            idle = [row for row in self._numbers if pending[row] == IDLE]
            for row, _ in refused:
                pending[row], due[row] = IDLE, due[row] + 1
        begun: list[int] = []
        lives, held = self.lives, self._held
        if lives:
            self._lost = lost = set()
        # The caller has counted the actions, and `strict=True` takes longer than the rest of this call. Nobody keeps this, for what
        # is referred to elsewhere is not left out.
        work = zip(self._numbers if self.mark is None else marked(self._numbers, self.mark), actions, envs, pending)  # noqa: B905
        while True:
            row = 0
            try:
                # The `try` is around the loop, and costs nothing for each row. After an error the iterator goes on behind the row
                # that failed.
                for row, action, env, over in work:
                    if over:  # NEXT_STEP: no account is taken of the action
                        if over == IDLE:
                            continue
                        pending[row] = False
                        begun.append(row)
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
                            if lives and row in lives and not held[row].env.get_wrapper_attr(REAL_DONE):
                                lost.add(row)  # it may have another value after the reset
                            if autoreset is AutoresetMode.NEXT_STEP:
                                pending[row] = True
                            elif autoreset is AutoresetMode.SAME_STEP:
                                finals[row] = own(observation), before_reset(row, info)
                                kwargs = {} if self.seeds is None else self.seeds(row)
                                if kwargs is None:
                                    pending[row], due[row], info = IDLE, NO_LIMIT, {}
                                else:
                                    observation, info = self._begin(row, env, kwargs)
                    if put:
                        put(row, observation)
                    # An array that nobody else refers to is ours already; a view's memory is somebody else's.
                    kind = type(observation)
                    if kind is ndarray:
                        alone = counted(observation) == SOLE and observation.base is None
                    else:
                        alone = counted(observation) == SOLE and parts_alone(observation) if kind is dict else kind in immutable
                    last[row] = observation if alone else own(observation)
                    if not alone and kept is not None:
                        kept[row] = observation
                    if info and keep_infos:
                        alone = type(info) is dict and counted(info) == SOLE and immutable.issuperset(map(type, info.values()))
                        infos[row] = info if alone else own(info)
                break
            except Exception as error:  # the others still take their step
                explain_returned(error)
                failures.append((row, error))
                if rewards[row] is nothing and row not in begun:
                    due[row] += 1  # a step that raises does not count for a time limit
            except BaseException:
                bypassed.stepping = False
                raise
        if around is not None:
            for row, _ in refused:
                pending[row] = False
            try:
                self._carry(around, last, kept, begun, idle)
            finally:
                bypassed.stepping = False
        bypassed.stepping = False
        if now >= bypassed.soonest:
            bypassed.soonest = min(due)
        if out is not None:
            self._write(out)

    def _carry(self, around: Around, raw: list[Any], kept: Any, begun: list[int], idle: list[int]) -> None:
        """Let forms do the work of the wrappers around what was stepped, and reset what has to be reset in the same step.

        Args:
            around: The forms.
            raw: What each row shows inside of them.
            kept: The same by row, where environments keep it.
            begun: The rows that were reset.
            idle: Those that took no step.
        """
        n, failed = len(raw), {row for row, _ in self.failures}
        left = failed.union(begun, idle)
        moved = [row for row in self._numbers if row not in left]
        resets = [row for row in begun if row not in failed]
        terminated, truncated = np.zeros((2, n), np.bool_)
        for row, ends, cut in self.ended:
            terminated[row], truncated[row] = ends, cut
        ended = [row for row, _, _ in self.ended if row not in failed]
        results = RowResults(
            n, raw, ALL if len(moved) == n else np.array(moved) if moved else None, np.array(resets) if resets else None,
            np.zeros(n), float, terminated, truncated, ended, lambda: self.infos, kept=kept,
        )  # fmt: skip
        results.pay({row: self.rewards[row] for row in moved})
        self._outward(around, results)
        paid = results.paid()
        self.rewards = [0.0] * n
        for row in numbers_of(results.moved, n):
            self.rewards[row] = paid[row]
        for row, returned in results.alone.items():
            if len(returned) == 5:
                self.rewards[row] = returned[1]
        last_infos, self.infos = self.infos, {}
        if self.keep_infos:
            self.infos = {row: info for row, info in sorted(last_infos.items()) if info}
        if ended and self.autoreset is AutoresetMode.SAME_STEP:
            self._begin_again(around, ended, last_infos)

    def _begin_again(self, around: Around, ended: list[int], infos: dict[int, Any]) -> None:
        """Reset rows whose episode a step has ended."""
        failed, resets = {row for row, _ in self.failures}, dict[int, Mapping[str, Any]]()
        for row in ended:
            if row in failed:
                continue
            self.finals[row] = own(self.observations[row]), self.before_reset(row, infos.pop(row, {}))
            kwargs = {} if self.seeds is None else self.seeds(row)
            if kwargs is None:
                self.pending[row], self._envs.due[row] = IDLE, NO_LIMIT
            else:
                resets[row] = kwargs
        started = self._begin_rows(around, resets)
        if self.keep_infos:
            self.infos = {row: info for row, info in sorted((infos | started).items()) if info}

    def _begin_rows(self, around: Around, resets: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
        """Reset what is inside of the wrappers whose work forms do. Returns the infos, by row."""
        raw: list[Any] = [None] * len(self.pending)
        kept, infos = dict[int, Any](), dict[int, Any]()
        begun: list[int] = []
        for row, kwargs in sorted(resets.items()):
            try:
                observation, info = self._begin(row, self._envs.targets[row], kwargs)
                raw[row] = own(observation)
                if type(observation) not in IMMUTABLE:
                    kept[row] = observation
                if info:
                    infos[row] = own(info)
                begun.append(row)
            except Exception as error:
                self.failures.append((row, error))
        if begun:
            self._outward(
                around, RowResults(len(raw), raw, None, np.array(begun), make_infos=lambda: infos, kwargs=resets, kept=kept)
            )
        return infos

    def _outward(self, around: Around, results: RowResults) -> None:
        self._takeover.carry(around, results)
        for row, returned in results.alone.items():
            results.infos[row] = returned[-1]

    def _write(self, out: StepBuffers) -> None:
        """Write what a step in Python results, where that was not done environment by environment."""
        failures, last, whole = self.failures, self.observations, self._takeover.whole
        if whole is not None:
            failures += out.write_all(last, whole)
        elif out.put_all and not failures:
            try:
                out.put_all(last)
            except (TypeError, ValueError):
                failures += out.write_each(enumerate(last))
                failures += [
                    (row, _no_observation("the environment", env))
                    for row, env in zip(self._numbers, self._envs.targets, strict=True)
                    if last[row] is None and self.pending[row] != IDLE
                ]
        elif self._takeover.around is not None:
            failures += out.write_each(enumerate(last))
        for part, shown in out.copies:  # what the step led to is seen now, but for the last observations of episodes
            part[...] = shown
        if self.finals:
            failures += out.write_each(((row, last) for row, (last, _) in self.finals.items()), final=True)
        if out.rewards is not None:
            failures += out.write_rewards(self.rewards)
            out.write_ends(self.ended)

    def _begin(self, row: int, env: Env, kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Reset an environment whose episode has ended."""
        bypassed = self._envs
        engaged = self._takeover.engaged  # then that was seen to
        if bypassed.leaves_out and not engaged and not (WRAPPERS.look([], object) or WRAPPERS.same([], object)):
            self._write_back()
            env, bypassed.settled = bypassed.held[row].env, False  # the next step looks at all of them again
        held = bypassed.held[row]
        if env is held.target and env is not held.env:  # what is left out would name both
            kwargs = {"seed": None, "options": None, **kwargs}
        observation, info = env.reset(**kwargs)
        if type(info) is not dict:
            check_info(info, "reset")
        bypassed.due[row] = bypassed.now + held.limit
        return observation, info

    # ------------------------------------------------------------------ between steps

    @contextmanager
    def opened(self, changes: bool = True) -> Iterator[list[Env]]:
        """See :meth:`EnvRows.opened`: their wrappers count as if none were left out.

        Whoever keeps an environment is noticed at the next step, in which nothing of it is left out then.

        Args:
            changes: Whether they may be changed. If not, the next step need not find out anew what they are; within a step
                (in ``before_reset`` and ``seeds``) it is always so.

        Raises:
            RuntimeError: Within the step of a kernel.
        """
        if self._envs.stepping:
            if self._takeover.engaged:
                raise RuntimeError("nobody may look at environments within a kernel's step: keep_from_kernels() before")
            changes = False
        self._write_back()
        if changes:
            self._envs.looked, self._envs.settled = True, False
        with super().opened() as envs:
            yield envs

    def look_for_lives(self) -> None:
        """Find out :attr:`lives`, so that :attr:`over` tells games from lives."""
        with self.opened(changes=False) as envs:
            self.lives = frozenset(row for row, env in enumerate(envs) if env.has_wrapper_attr(REAL_DONE))
        if self.lives:
            self.keep_from_kernels("its lives are asked for at the ends of episodes")

    def end_game(self, env: int) -> None:
        with self.opened() as envs:
            envs[env].set_wrapper_attr(REAL_DONE, True)

    @property
    def in_c(self) -> bool:
        return isinstance(self._takeover.kernel, CompiledKernel)

    def keep_from_kernels(self, why: str) -> None:
        self._takeover.forbid(why)

    def reset(self, resets: Mapping[int, Mapping[str, Any]], out: StepBuffers | None) -> None:
        """See :meth:`EnvRows.reset`; ``None`` as an observation is refused: it stands for a row that was never reset."""
        if self._takeover.reset(resets, out):
            return
        around = self._takeover.around_python(resets)
        if around is None:
            super().reset(resets, out)
            return
        self._forget()
        for row in resets:
            self.pending[row] = False
        self.infos = self._begin_rows(around, resets)
        for row in resets:
            if self.observations[row] is None:
                self.failures.append((row, _no_observation("reset()", self._envs.targets[row])))
        if out is not None:
            self.failures += out.write_all(self.observations, self._takeover.whole)

    def _reset(self, number: int, env: Env, kwargs: Mapping[str, Any]) -> None:
        observation, info = env.reset(**kwargs)
        if observation is None:
            raise _no_observation("reset()", env)
        check_info(info, "reset")
        self.observations[number] = own(observation)
        if info:
            self.infos[number] = own(info)

    def show(self, out: StepBuffers) -> None:
        self.failures += out.write_each(enumerate(self.observations))

    def objects(self, layout: ObservationLayout) -> list[tuple[Any, ...] | None]:
        return [None if last is None else layout.take_objects(last) for last in self.observations]

    def observation(self, row: int) -> Any:
        return self.observations[row]

    def replay(self, number: int, kwargs: Mapping[str, Any], actions: Array) -> None:
        with self.opened() as envs:
            env = envs[number]
            observation, _ = env.reset(**kwargs)
            for action in actions.copy():
                observation, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    observation, _ = env.reset()
            self.observations[number], self.pending[number] = own(observation), False

    def save(self, number: int, saving: Callable[[Any], bytes] = save_env) -> SavedEnv:
        with self.opened() as envs:
            return SavedEnv(saving(envs[number]), self.observations[number], self.pending[number])

    def load(self, number: int, saved: SavedEnv) -> None:
        with self.opened() as envs:
            load_env(envs[number], saved.state)
        self.observations[number], self.pending[number] = saved.shown, saved.pending

    def _write_back(self) -> None:
        """Before anybody looks at environments: the kernel gives them back, and wrappers that are left out count."""
        self._takeover.give_back()
        if not self._envs.looked:
            self._envs.write_back()


def _no_observation(who: str, env: Env) -> TypeError:
    return TypeError(f"{who} returned None as the observation, its space is {env.observation_space}")
