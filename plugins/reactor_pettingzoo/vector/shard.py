"""The reactor that holds a contiguous block of environments, each with a row for every agent: the unit of placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.plugin import InfosAndFailures, Leaves, close_all, pack
from reactor_pettingzoo.agents import Agent, as_parallel, padding
from reactor_pettingzoo.vector.agent_rows import AgentRows, Infos
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Failure, decode, dumps

__all__ = ["InfosAndFailures", "ParallelShard"]

_Failures = list[tuple[int, Failure]]


class ParallelShard(Reactor):
    """Environments ``first`` to ``first + n - 1``; row = environment * number of agents + index of the agent.

    Args:
        env_fn: What makes an environment, encoded.
        first: Index of the first environment.
        n: How many they are.
        agents: The agents of each.
        single_observation_space: Every agent's observation space.
        single_action_space: Every agent's action space.
        autoreset_mode: When an environment whose episode is over is reset.
    """

    actions = Input()
    """Actions as one array, ``(n * len(agents), *single_action_space.shape)``."""
    items = Input()
    """Actions as a list of ``n * len(agents)`` objects, where they are no such array."""
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
        env_fn: Any,
        first: int,
        n: int,
        agents: Sequence[Agent],
        single_observation_space: Space[Any],
        single_action_space: Space[Any],
        autoreset_mode: AutoresetMode,
    ) -> None:
        self.env_fn, self.first, self.n, self.agents = env_fn, first, n, tuple(agents)
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.autoreset_mode = autoreset_mode
        self.copies: list[AgentRows] = []
        self.leaves = Leaves(single_observation_space)
        rows = n * len(self.agents)
        shape, dtype = self.leaves.storage()
        if self.leaves.arrays:
            self.observations = Output((rows, *shape), dtype)
        self.rewards, self.terminations, self.truncations = Output(rows, np.float64), Output(rows, np.bool_), Output(rows, np.bool_)

    # ------------------------------------------------------------------ start and end

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        nobody = padding(self.single_observation_space)
        for index in range(self.first, self.first + self.n):
            try:
                env = as_parallel(decode(self.env_fn)())
                self.copies.append(AgentRows(env, self.agents, nobody, self.leaves.check, f"environment {index}"))
                self._check_agents(env)
            except Exception as error:
                error.add_note(f"while environment {index} was constructed")
                raise
        self.rows: Any = None  # the buffer that `put` and `put_all` write to
        self.last: list[Any] = [nobody] * (self.n * len(self.agents))  # the last observation of each row

    def _check_agents(self, env: Any) -> None:
        named = tuple(getattr(env, "possible_agents", self.agents))
        if named != self.agents:
            raise RuntimeError(f"the agents of every environment must be {list(self.agents)}, and here they are {list(named)}")
        for kind, space_of, space in (
            ("observation", env.observation_space, self.single_observation_space),
            ("action", env.action_space, self.single_action_space),
        ):
            for agent in self.agents:
                if space_of(agent) != space:
                    raise RuntimeError(f"the {kind} space of every agent must be {space}; {agent!r} has {space_of(agent)}")

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        copies, self.copies = self.copies, []
        close_all(((index, copy.env) for index, copy in enumerate(copies, self.first)))

    # ------------------------------------------------------------------ steps

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, extras))
    def step(self) -> None:
        """Step every environment once."""
        # Environments may keep the actions that they were given, so they must not be views of the port.
        actions: Sequence[Any] = self.actions.value.copy() if self.actions.present else self.items.value
        agents, rewards = len(self.agents), self.rewards.buffer
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        rewards.fill(0.0)
        terminations.fill(False)
        truncations.fill(False)
        finals: Infos = {}
        infos: Infos = {}
        failures: _Failures = []
        for number, copy in enumerate(self.copies):
            lo = number * agents
            try:
                if copy.over:
                    # This is NEXT_STEP: with SAME_STEP it has been reset, and with DISABLED the caller does not come here.
                    observations, found = copy.reset()
                else:
                    observations, gains, ends, found = copy.step(actions[lo : lo + agents])
                    _write(rewards[lo : lo + agents], gains)
                    for row, terminated, truncated in ends:
                        terminations[lo + row], truncations[lo + row] = terminated, truncated
                    if ends and self.autoreset_mode is AutoresetMode.SAME_STEP:
                        # The environment may write its next observations into the same arrays.
                        for row in sorted(row for row, _, _ in ends):
                            finals[lo + row] = deepcopy({"final_obs": observations[row], "final_info": found.get(row, {})})
                        if copy.over:
                            observations, found = copy.reset()
                self.last[lo : lo + agents] = observations
                infos.update((lo + row, info) for row, info in found.items())
            except Exception as error:  # the others still take their step
                failures.append(self._failure(number, error))
        self._finish(finals, infos, failures)

    def _finish(self, finals: Infos, infos: Infos, failures: _Failures) -> None:
        """Write the observations of all rows, and what there is besides."""
        if self.leaves.arrays:
            self._write_observations(failures)
        if self.leaves.objects:
            self.objects.set([self.leaves.take_objects(found) for found in self.last])
        if infos or failures or finals:
            self.extras.set((pack(self.first * len(self.agents), finals, infos), failures))

    def _write_observations(self, failures: _Failures) -> None:
        rows = self.observations.buffer
        if rows is not self.rows:
            self.rows, self.put, self.put_all = rows, self.leaves.writer(rows), self.leaves.batch_writer(rows)
        put, put_all = self.put, self.put_all
        if put_all and not failures:
            try:
                put_all(self.last)
                return
            except (TypeError, ValueError):  # one of them has another shape; which one is found out below
                pass
        agents = len(self.agents)
        for number in range(self.n):
            try:
                for row in range(number * agents, (number + 1) * agents):
                    if put_all:
                        self.leaves.check(self.last[row])
                    put(row, self.last[row])
            except Exception as error:
                failures.append(self._failure(number, error))

    def _failure(self, number: int, error: Exception) -> tuple[int, Failure]:
        index = self.first + number
        return index, Failure.of(number, f"environment {index}", self.tag, error)

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
        infos: Infos = {}
        failures: _Failures = []
        agents = len(self.agents)
        for number, (copy, kwargs) in enumerate(zip(self.copies, given, strict=True)):
            if kwargs is not None:
                lo = number * agents
                try:
                    self.last[lo : lo + agents], found = copy.reset(**decode(kwargs))
                    infos.update((lo + row, info) for row, info in found.items())
                except Exception as error:
                    failures.append(self._failure(number, error))
        self._finish({}, infos, failures)

    def _serve_call(self, function: Callable[..., Any], given: Sequence[Any]) -> None:
        results: list[bytes] = []
        failures: _Failures = []
        for number, (copy, args) in enumerate(zip(self.copies, given, strict=True)):
            if args is not None:
                try:
                    results.append(dumps(function(copy.env, *decode(args))))
                except Exception as error:
                    failures.append(self._failure(number, error))
        self.replies.set(results)
        if failures:
            self.extras.set((pack(0, {}, {}), failures))


def _write(out: npt.NDArray[np.float64], rewards: list[Any]) -> None:
    try:
        out[:] = rewards
    except (TypeError, ValueError):  # an array of one element is a reward, too
        out[:] = [np.asarray(reward, np.float64).item() for reward in rewards]
