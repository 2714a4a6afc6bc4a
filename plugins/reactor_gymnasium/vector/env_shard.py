"""The reactor that steps a contiguous block of Gymnasium environments: the unit of placement. Row = index of environment."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from sys import getrefcount
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.env_state import load
from reactor_gymnasium.environments.folded import NO_LIMIT, Folded, steps_untouched, untouched
from reactor_gymnasium.environments.owning import IMMUTABLE, SOLE, own
from reactor_gymnasium.environments.storage import Casting, Leaves
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_rl.plugin import decode, loads

__all__ = ["EnvShard"]

_Ended = list[tuple[int, Any, Any]]
_Put = Callable[[int, Any], None]
_Work = Iterator[tuple[int, Any, gymnasium.Env[Any, Any], bool]]


class EnvShard(Shard):
    """Environments ``first`` to ``first + len(env_fns) - 1`` of a vector environment.

    Args:
        env_fns: What makes them, each encoded by itself: what two of them share must not depend on where they are.
        first: Index of the first one.
        row: Row of the first one in its batch.
        single_observation_space: The space that its observations are batched by.
        single_action_space: The space that every environment's actions come from.
        same_observations: Whether observation spaces must be equal, or only have the same shape and dtype.
        autoreset_mode: When an environment whose episode has ended is reset.
        apart: See :func:`~reactor_gymnasium.environments.infos.pack`.
        casting: See :class:`~reactor_gymnasium.environments.storage.Leaves`.
        owner: Name of the class that the user has made, for messages.
        watched: Whether to tell at any time which environment is being stepped.
        ways: How each of them can be saved, if that is known already.
        whole: Whether it has every environment, in the caller's process.
    """

    envs: list[Folded]

    def __init__(
        self,
        env_fns: Sequence[Any],
        first: int,
        row: int,
        single_observation_space: gymnasium.Space[Any],
        single_action_space: gymnasium.Space[Any],
        same_observations: bool,
        autoreset_mode: AutoresetMode,
        apart: bool,
        casting: Casting,
        owner: str,
        watched: bool = False,
        ways: Sequence[str | None] = (),
        whole: bool = False,
    ) -> None:
        super().__init__(first, row, len(env_fns), Leaves(single_observation_space, casting), watched, ways)
        self.apart, self.owner, self.env_fns, self.whole = apart, owner, tuple(env_fns), whole
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.same_observations, self.autoreset_mode = same_observations, autoreset_mode

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        for row, env_fn in enumerate(self.env_fns):
            try:
                self.envs.append(Folded(decode(env_fn)()))
            except Exception as error:
                error.add_note(f"while environment {self.first + row} was constructed")
                raise
        self._check_spaces()
        n = len(self.envs)
        self.done = [False] * n  # whether the next step resets (NEXT_STEP)
        self.now = 0  # steps of this shard
        self.due = [NO_LIMIT] * n  # the value of `now` at which a folded time limit truncates
        self.soonest = NO_LIMIT  # nothing of `due` comes before it
        self.unsettled = True  # whether there may be more to fold
        self.pack_rewards = struct.Struct(f"{n}d").pack_into  # three times as fast as numpy with a list of numbers
        self.rows: Any = None  # the buffer that `put` and `put_all` write to
        self._refold()

    def _check_spaces(self) -> None:
        for index, held in enumerate(self.envs, self.first):
            env = held.env
            if self.same_observations:
                if env.observation_space != self.single_observation_space:
                    raise RuntimeError(
                        f"{self.owner}(..., observation_mode='same') however the sub-environments observation spaces are not "
                        f"equivalent. Environment {index} has {env.observation_space}, environment 0 has "
                        f"{self.single_observation_space}. If this is intentional, use `observation_mode='different'` instead."
                    )
            elif not is_space_dtype_shape_equiv(env.observation_space, self.single_observation_space):
                raise RuntimeError(
                    f"{self.owner}(..., observation_mode='different' or custom space) however the sub-environments observation "
                    f"spaces do not share a common shape and dtype: environment {index} has {env.observation_space}, expected is "
                    f"{self.single_observation_space}"
                )
            if env.action_space != self.single_action_space:
                raise RuntimeError(
                    f"Environment {index} has the action space {env.action_space}, different from {self.single_action_space} of "
                    "environment 0. In order to batch actions, the action spaces from all environments must be equal."
                )

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        if self.actions.present:
            # Environments may keep the action that they were given, so it must not be a view of the port.
            actions: Iterable[Any] = self.actions.value.copy()
        else:
            actions = self.items.value
        if self.folding and not steps_untouched():
            self._unfold()
            self._refold()
        self.now += 1
        finals: Infos = {}
        infos: Infos = {}
        failures: Failures = []
        n = len(self.envs)
        rewards = [0.0] * n
        ended: _Ended = []
        put = put_all = None
        if self.leaves.arrays:
            rows = self.observations.buffer
            if rows is not self.rows:
                self.rows, self.put, self.put_all = rows, self.leaves.writer(rows), self.leaves.batch_writer(rows)
            put, put_all = self.put, self.put_all
        self._step_each(
            # The caller has counted the actions. Nobody keeps this, for what is referred to elsewhere is not folded.
            zip(self._numbers(), actions, self.inner, self.done, strict=False),
            None if put_all else put, rewards, ended, finals, infos, failures,
        )  # fmt: skip
        if self.now >= self.soonest:
            self.soonest = min(self.due)
        if put_all and not failures:
            try:
                put_all(self.last)
            except (TypeError, ValueError):
                self._blame(failures)
        self._write_rewards(rewards, failures)
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        terminations.fill(False)
        truncations.fill(False)
        for row, terminated, truncated in ended:
            terminations[row], truncations[row] = terminated, truncated
        if infos or failures or finals or self.leaves.objects:
            self._send(finals, infos, failures)
        if self.unsettled:
            self._unfold()
            self._refold()

    def _step_each(
        self, work: _Work, put: _Put | None, rewards: list[Any], ended: _Ended, finals: Infos, infos: Infos, failures: Failures
    ) -> None:
        """Step each environment, or reset it where its episode is over: in this step or the next, as the mode says, if at all."""
        done, due, now, last = self.done, self.due, self.now, self.last
        ndarray, immutable, counted = np.ndarray, IMMUTABLE, getrefcount
        limited = now >= self.soonest
        while True:
            row = 0
            try:
                for row, action, env, over in work:
                    if over:  # NEXT_STEP: no account is taken of the action
                        done[row] = False
                        observation, info = self._reset(row, env)
                    else:
                        observation, reward, terminated, truncated, info = env.step(action)
                        rewards[row] = reward if type(reward) in immutable else own(reward)
                        if limited and now >= due[row]:
                            truncated = True
                        if terminated or truncated:
                            ended.append((row, bool(terminated), bool(truncated)))
                            if self.autoreset_mode is AutoresetMode.NEXT_STEP:
                                done[row] = True
                            elif self.autoreset_mode is AutoresetMode.SAME_STEP:
                                finals[row] = {"final_obs": own(observation), "final_info": own(info)}
                                observation, info = self._reset(row, env)
                    if put:
                        put(row, observation)
                    # An array that nobody else refers to is ours already; a view's memory is somebody else's.
                    kind = type(observation)
                    alone = counted(observation) == SOLE and observation.base is None if kind is ndarray else kind in immutable
                    last[row] = observation if alone else own(observation)
                    if info:
                        alone = type(info) is dict and counted(info) == SOLE and immutable.issuperset(map(type, info.values()))
                        infos[row] = info if alone else own(info)
                return
            except Exception as error:  # the others still take their step
                failures.append(self._failure(row, error))

    def _reset(self, row: int, env: gymnasium.Env[Any, Any]) -> tuple[Any, dict[str, Any]]:
        if self.folding and not untouched():
            self._unfold()
            env, self.unsettled = self.envs[row].env, True  # all of them are looked at again behind this step
        observation, info = env.reset()
        self.due[row] = self.now + self.envs[row].limit
        return observation, info

    def _blame(self, failures: Failures) -> None:
        """Find out which observations could not be written together with the others."""
        for row, observation in enumerate(self.last):
            try:
                self.leaves.check(observation)
            except (TypeError, ValueError) as error:
                failures.append(self._failure(row, error))
        if not failures:
            raise

    def _write_rewards(self, rewards: list[Any], failures: Failures) -> None:
        out = self.rewards.buffer
        try:
            self.pack_rewards(out, 0, *rewards)
        except (struct.error, TypeError, ValueError, OverflowError):
            # An array of one element is a reward too; anything else is that environment's mistake.
            for row, reward in enumerate(rewards):
                try:
                    out[row] = np.asarray(reward, np.float64).item()
                except (TypeError, ValueError, OverflowError) as error:
                    error.add_note(f"the reward is {reward!r}")
                    failures.append(self._failure(row, error))

    # ------------------------------------------------------------------ other requests

    def serve(self) -> None:
        self._unfold()
        super().serve()
        self._refold()

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        self.done[number] = False
        observation, info = self.envs[number].env.reset(**kwargs)
        self.last[number] = own(self._begun(observation))
        if info:
            infos[number] = own(info)

    def _write_last(self, failures: Failures) -> None:
        put = self.leaves.writer(self.observations.buffer)
        for row, observation in enumerate(self.last):
            if observation is not None:
                try:
                    put(row, observation)
                except Exception as error:
                    failures.append(self._failure(row, error))

    # ------------------------------------------------------------------ folded wrappers

    def _unfold(self) -> None:
        """Write the counts of folded time limits back into the wrappers, before anybody looks at them."""
        for held, due in zip(self.envs, self.due, strict=True):
            held.write_back(held.limit - (due - self.now))

    def _refold(self) -> None:
        """Find out anew what to call for each environment; its wrappers, and what they have counted, may have changed."""
        self.inner: list[gymnasium.Env[Any, Any]] = []  # beforehand, for what is referred to elsewhere is not folded
        for held in self.envs:
            held.fold()
        self.inner = [held.inner for held in self.envs]
        self.due = [self.now + held.limit - held.elapsed for held in self.envs]
        self.soonest = min(self.due)
        self.folding = any(held.folded for held in self.envs)
        self.unsettled = not all(held.settled for held in self.envs)

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        self._unfold()
        kept = [
            self._saved(row, held.env, last, make, self.owner)
            for row, (held, last, make) in enumerate(zip(self.envs, self.last, self.env_fns, strict=True))
        ]
        return {"kept": kept, "done": list(self.done)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for row, (held, (saved, last)) in enumerate(zip(self.envs, state["kept"], strict=True)):
            held.unfold()
            load(held.env, saved)
            self.last[row] = loads(last)
        self.done = state["done"]
        self._refold()
