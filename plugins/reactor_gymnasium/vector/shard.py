"""The reactor that holds a contiguous block of environments: the unit of placement. Row = index of environment."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.closing import close_all
from reactor_gymnasium.environments.env_pickle import pickled
from reactor_gymnasium.environments.fold import NO_LIMIT, Folded, steps_untouched, untouched
from reactor_gymnasium.environments.infos import Packed, pack
from reactor_gymnasium.environments.storage import Casting, Leaves
from reactor_rl import Input, Output, Reactor, RunError, reaction, shutdown, startup
from reactor_rl.plugin import Failure, decode, dumps, loads

__all__ = ["EnvShard", "InfosAndFailures"]

InfosAndFailures = tuple[Packed, list[tuple[int, Failure]]]
"""What some steps have besides: infos, and failures by environment."""

_Infos = dict[int, dict[str, Any]]
_Failures = list[tuple[int, Failure]]
_Ended = list[tuple[int, Any, Any]]
_Put = Callable[[int, Any], None]
_Work = Iterator[tuple[int, Any, gymnasium.Env[Any, Any]]]


class EnvShard(Reactor):
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
    """

    actions = Input()
    """Actions as one array, ``(n, *single_action_space.shape)``."""
    items = Input()
    """Actions as a list of ``n`` objects, where they are no such array."""
    request = Input()
    """What is asked besides stepping: ``("reset", kwargs)``, or ``(function, args)`` to call ``function(env, *args)``; of each
    environment its own, ``None`` for those that are left alone.
    """

    observations = Output((0,), np.uint8)
    objects = Output()
    rewards = Output((0,), np.float64)
    terminations = Output((0,), np.bool_)
    truncations = Output((0,), np.bool_)
    extras = Output()
    replies = Output()

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
    ) -> None:
        self.apart, self.owner = apart, owner
        self.env_fns, self.first, self.row = tuple(env_fns), first, row
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.same_observations, self.autoreset_mode = same_observations, autoreset_mode
        self.envs: list[Folded] = []
        self.leaves = Leaves(single_observation_space, casting)
        n = len(self.env_fns)
        shape, dtype = self.leaves.storage()
        if self.leaves.arrays:
            self.observations = Output((n, *shape), dtype)
        self.rewards, self.terminations, self.truncations = Output(n, np.float64), Output(n, np.bool_), Output(n, np.bool_)

    # ------------------------------------------------------------------ start and end

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
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
        self.last: list[Any] = [None] * n  # each environment's last observation
        self.resets_next = self.autoreset_mode is AutoresetMode.NEXT_STEP
        self.pack_rewards = struct.Struct(f"{n}d").pack_into  # three times as fast as numpy with a list of numbers
        self.finals: _Infos = {}  # what this step tells of episodes that ended in it (SAME_STEP)
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

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        envs, self.envs = self.envs, []
        close_all(enumerate([held.env for held in envs], self.first))

    # ------------------------------------------------------------------ steps

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, extras))
    def step(self) -> None:
        """Step every environment once."""
        if self.actions.present:
            # Environments may keep the action that they were given, so it must not be a view of the port.
            actions: Iterable[Any] = self.actions.value.copy()
        else:
            actions = self.items.value
        if self.folding and not steps_untouched():
            self._unfold()
            self._refold()
        self.now += 1
        infos: _Infos = {}
        failures: _Failures = []
        n = len(self.envs)
        rewards = [0.0] * n
        ended: _Ended = []
        put = put_all = None
        if self.leaves.arrays:
            rows = self.observations.buffer
            if rows is not self.rows:
                self.rows, self.put, self.put_all = rows, self.leaves.writer(rows), self.leaves.batch_writer(rows)
            put, put_all = self.put, self.put_all
        # The caller has counted the actions.
        loop = self._next_step if self.resets_next else self._same_step
        loop(zip(range(n), actions, self.inner, strict=False), None if put_all else put, rewards, ended, infos, failures)
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
        if infos or failures or self.finals or self.leaves.objects:
            self._finish(infos, failures)
        if self.unsettled:
            self._unfold()
            self._refold()

    def _next_step(
        self, work: _Work, put: _Put | None, rewards: list[Any], ended: _Ended, infos: _Infos, failures: _Failures
    ) -> None:
        """The loop in NEXT_STEP mode: the step after the end of an episode resets, and takes no account of the action."""
        done, due, now, last = self.done, self.due, self.now, self.last
        limited = now >= self.soonest
        while True:
            row = 0
            try:
                for row, action, env in work:
                    if done[row]:
                        done[row] = False
                        observation, info = self._reset(row, env)
                    else:
                        observation, reward, terminated, truncated, info = env.step(action)
                        rewards[row] = reward
                        if limited and now >= due[row]:
                            truncated = True
                        if terminated or truncated:
                            done[row] = True
                            ended.append((row, terminated, truncated))
                    last[row] = observation
                    if put:
                        put(row, observation)
                    if info:
                        infos[row] = info
                return
            except Exception as error:  # the others still take their step
                failures.append(self._failure(row, error))

    def _same_step(
        self, work: _Work, put: _Put | None, rewards: list[Any], ended: _Ended, infos: _Infos, failures: _Failures
    ) -> None:
        """The loop in SAME_STEP mode, where the end of an episode resets at once, and in DISABLED mode, where nothing does."""
        due, now, last = self.due, self.now, self.last
        limited = now >= self.soonest
        resets = self.autoreset_mode is AutoresetMode.SAME_STEP
        while True:
            row = 0
            try:
                for row, action, env in work:
                    observation, reward, terminated, truncated, info = env.step(action)
                    rewards[row] = reward
                    if limited and now >= due[row]:
                        truncated = True
                    if terminated or truncated:
                        ended.append((row, terminated, truncated))
                        if resets:
                            # The environment may write its next observation into the same array.
                            self.finals[row] = {"final_obs": deepcopy(observation), "final_info": deepcopy(info)}
                            observation, info = self._reset(row, env)
                    last[row] = observation
                    if put:
                        put(row, observation)
                    if info:
                        infos[row] = info
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

    def _blame(self, failures: _Failures) -> None:
        """Find out which observations could not be written together with the others."""
        for row, observation in enumerate(self.last):
            try:
                self.leaves.check(observation)
            except (TypeError, ValueError) as error:
                failures.append(self._failure(row, error))
        if not failures:
            raise

    def _write_rewards(self, rewards: list[Any], failures: _Failures) -> None:
        out = self.rewards.buffer
        try:
            self.pack_rewards(out, 0, *rewards)
        except (
            struct.error,
            TypeError,
            ValueError,
            OverflowError,
        ):  # an array of one element is a reward too; anything else is that environment's mistake
            for row, reward in enumerate(rewards):
                try:
                    out[row] = np.asarray(reward, np.float64).item()
                except (TypeError, ValueError, OverflowError) as error:
                    error.add_note(f"the reward is {reward!r}")
                    failures.append(self._failure(row, error))

    def _failure(self, row: int, error: Exception) -> tuple[int, Failure]:
        where = f"environment {self.first + row}"
        return self.first + row, Failure.of(row, where, self.tag, error)

    def _finish(self, infos: _Infos, failures: _Failures) -> None:
        if self.leaves.objects:
            self.objects.set([None if found is None else self.leaves.take_objects(found) for found in self.last])
        if infos or failures or self.finals:
            self.extras.set((pack(self.row, self.finals, infos, apart=self.apart), failures))
            self.finals = {}

    # ------------------------------------------------------------------ other requests

    @reaction(request, effects=(observations, objects, extras, replies))
    def serve(self) -> None:
        """Reset some environments, or call something with them. What each is given is pickled by itself: what two of them share
        must not depend on where they are.
        """
        function, given = self.request.value
        if function == "reset":
            self._serve_reset(given)
        else:
            self._serve_call(function, given)

    def _serve_reset(self, given: Sequence[Any]) -> None:
        self._unfold()
        infos: _Infos = {}
        failures: _Failures = []
        for row, kwargs in enumerate(given):
            if kwargs is not None:
                self.done[row] = False
                try:
                    self.last[row], info = self.envs[row].env.reset(**decode(kwargs))
                    if info:
                        infos[row] = info
                except Exception as error:
                    failures.append(self._failure(row, error))
        if self.leaves.arrays:
            put = self.leaves.writer(self.observations.buffer)
            for row, observation in enumerate(self.last):
                if observation is not None:
                    try:
                        put(row, observation)
                    except Exception as error:
                        failures.append(self._failure(row, error))
        self._finish(infos, failures)
        self._refold()

    def _serve_call(self, function: Callable[..., Any], given: Sequence[Any]) -> None:
        results: list[bytes | None] = []
        failures: _Failures = []
        self._unfold()
        for row, (held, args) in enumerate(zip(self.envs, given, strict=True)):
            if args is not None:
                try:
                    results.append(dumps(function(held.env, *decode(args))))
                except Exception as error:
                    failures.append(self._failure(row, error))
        self._refold()
        self.replies.set(results)
        self._finish({}, failures)

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
        kept = []
        for row, held in enumerate(self.envs):
            try:
                # Each by itself: what two of them share must not depend on where they are.
                kept.append(pickled((held.env, self.last[row])))
            except Exception as error:
                raise RunError(
                    f"environment {self.first + row} of {self.owner} ({held.env}) cannot be saved and restored: {error}"
                ) from error
        return {"kept": kept, "done": list(self.done)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        found = [loads(one) for one in state["kept"]]
        for row, (held, (env, observation)) in enumerate(zip(self.envs, found, strict=True)):
            held.env, self.last[row] = env, observation
        self.done = state["done"]
        self._refold()
