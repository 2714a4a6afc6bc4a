"""The reactor that holds a contiguous block of environments: the unit of placement. Row = index of environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.closing import close_all
from reactor_gymnasium.fold import NO_LIMIT, Folded, fold
from reactor_gymnasium.infos import Packed, pack
from reactor_gymnasium.leaves import Leaves
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.failure import Failure
from reactor_rl.serialise import decode, dumps

__all__ = ["EnvShard", "Extras"]

Extras = tuple[Packed, list[tuple[int, Failure]]]
"""What some steps have besides: infos, and failures by environment."""

_Infos = dict[int, dict[str, Any]]
_Failures = list[tuple[int, Failure]]
_Ended = list[tuple[int, Any, Any]]
_Put = Callable[[int, Any], None]
_Work = Iterator[tuple[int, Any, Callable[[Any], Any]]]


class EnvShard(Reactor):
    """Environments ``first`` to ``first + len(env_fns) - 1`` of a vector environment.

    Args:
        env_fns: What makes them, each encoded by itself: what two of them share must not depend on where they are.
        first: Index of the first one.
        bank: Index of the first environment of the bank that they belong to.
        single_observation_space: The space that its observations are batched by.
        single_action_space: The space that every environment's actions come from.
        same_observations: Whether observation spaces must be equal, or only have the same shape and dtype.
        autoreset_mode: When an environment whose episode has ended is reset.
        apart: See :func:`~reactor_gymnasium.infos.pack`.
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
        bank: int,
        single_observation_space: gymnasium.Space[Any],
        single_action_space: gymnasium.Space[Any],
        same_observations: bool,
        autoreset_mode: AutoresetMode,
        apart: bool,
    ) -> None:
        self.apart = apart
        self.env_fns, self.first, self.bank = tuple(env_fns), first, bank
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.same_observations, self.autoreset_mode = same_observations, autoreset_mode
        self.envs: list[gymnasium.Env[Any, Any]] = []
        self.leaves = Leaves(single_observation_space)
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
                self.envs.append(decode(env_fn)())
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
        self.finals: _Infos = {}  # what this step tells of episodes that ended in it (SAME_STEP)
        self.folded: list[Folded] = []
        self.rows: Any = None  # the buffer that `put` and `put_all` write to
        self._refold()

    def _check_spaces(self) -> None:
        for row, env in enumerate(self.envs):
            index = self.first + row
            if self.same_observations:
                if env.observation_space != self.single_observation_space:
                    raise RuntimeError(
                        "ReactorVectorEnv(..., observation_mode='same') however the sub-environments observation spaces are not "
                        f"equivalent. Environment {index} has {env.observation_space}, environment 0 has "
                        f"{self.single_observation_space}. If this is intentional, use `observation_mode='different'` instead."
                    )
            elif not is_space_dtype_shape_equiv(env.observation_space, self.single_observation_space):
                raise RuntimeError(
                    "ReactorVectorEnv(..., observation_mode='different' or custom space) however the sub-environments observation "
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
        close_all(enumerate(envs, self.first))

    # ------------------------------------------------------------------ steps

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, extras))
    def step(self) -> None:
        """Step every environment once."""
        if self.actions.present:
            # Environments may keep the action that they were given, so it must not be a view of the port.
            actions: Iterable[Any] = self.actions.value.copy()
        else:
            actions = self.items.value
        self.now += 1
        infos: _Infos = {}
        failures: _Failures = []
        loop = self._next_step if self.autoreset_mode is AutoresetMode.NEXT_STEP else self._same_step
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
        loop(zip(range(n), actions, self.steps, strict=False), None if put_all else put, rewards, ended, infos, failures)
        if self.now >= self.soonest:
            self.soonest = min(self.due)
        if put_all and not failures:
            put_all(self.last)
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
        done, due, now, last, unsettled = self.done, self.due, self.now, self.last, self.unsettled
        limited = now >= self.soonest
        while True:
            row = 0
            try:
                for row, action, step in work:
                    if done[row]:
                        done[row] = False
                        observation, info = self._reset(row, self.resets[row])
                    else:
                        observation, reward, terminated, truncated, info = step(action)
                        rewards[row] = reward
                        if limited and now >= due[row]:
                            truncated = True
                        if terminated or truncated:
                            done[row] = True
                            ended.append((row, terminated, truncated))
                        if unsettled:
                            self.leaves.check(observation)
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
                for row, action, step in work:
                    observation, reward, terminated, truncated, info = step(action)
                    rewards[row] = reward
                    if limited and now >= due[row]:
                        truncated = True
                    if self.unsettled:
                        self.leaves.check(observation)
                    if terminated or truncated:
                        ended.append((row, terminated, truncated))
                        if resets:
                            # The environment may write its next observation into the same array.
                            self.finals[row] = {"final_obs": deepcopy(observation), "final_info": deepcopy(info)}
                            observation, info = self._reset(row, self.resets[row])
                    last[row] = observation
                    if put:
                        put(row, observation)
                    if info:
                        infos[row] = info
                return
            except Exception as error:  # the others still take their step
                failures.append(self._failure(row, error))

    def _reset(self, row: int, reset: Callable[..., Any], **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = reset(**kwargs)
        self.leaves.check(observation)
        self.due[row] = self.now + self.folded[row].limit
        return observation, info

    def _write_rewards(self, rewards: list[Any], failures: _Failures) -> None:
        out = self.rewards.buffer
        try:
            out[:] = rewards
        except (TypeError, ValueError):  # an array of one element is a reward too; anything else is that environment's mistake
            for row, reward in enumerate(rewards):
                try:
                    out[row] = np.asarray(reward, np.float64).item()
                except (TypeError, ValueError) as error:
                    error.add_note(f"the reward is {reward!r}")
                    failures.append(self._failure(row, error))

    def _failure(self, row: int, error: Exception) -> tuple[int, Failure]:
        where = f"environment {self.first + row}"
        return self.first + row, Failure.of(row, where, self.tag, error)

    def _finish(self, infos: _Infos, failures: _Failures) -> None:
        if self.leaves.objects:
            self.objects.set([None if found is None else self.leaves.take_objects(found) for found in self.last])
        if infos or failures or self.finals:
            self.extras.set((pack(self.first - self.bank, self.finals, infos, apart=self.apart), failures))
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
                    self.last[row], info = self._reset(row, self.envs[row].reset, **decode(kwargs))
                    if info:
                        infos[row] = info
                except Exception as error:
                    failures.append(self._failure(row, error))
        if self.leaves.arrays:
            put = self.leaves.writer(self.observations.buffer)
            for row, observation in enumerate(self.last):
                if observation is not None:
                    put(row, observation)
        self._finish(infos, failures)
        self._refold()

    def _serve_call(self, function: Callable[..., Any], given: Sequence[Any]) -> None:
        results: list[bytes | None] = []
        failures: _Failures = []
        self._unfold()
        for row, (env, args) in enumerate(zip(self.envs, given, strict=True)):
            if args is not None:
                try:
                    results.append(dumps(function(env, *decode(args))))
                except Exception as error:
                    failures.append(self._failure(row, error))
        self._refold()
        self.replies.set(results)
        self._finish({}, failures)

    # ------------------------------------------------------------------ folded wrappers

    def _unfold(self) -> None:
        """Write the counts of folded time limits back into the wrappers, before anybody looks at them."""
        for row, folded in enumerate(self.folded):
            folded.write_back(folded.limit - (self.due[row] - self.now))

    def _refold(self) -> None:
        """Find out anew what to call for each environment; its wrappers, and what they have counted, may have changed."""
        self.folded = [fold(env) for env in self.envs]
        self.steps = [folded.step for folded in self.folded]
        self.resets = [folded.reset for folded in self.folded]
        self.due = [self.now + folded.limit - folded.elapsed for folded in self.folded]
        self.soonest = min(self.due)
        self.unsettled = not all(folded.settled for folded in self.folded)
