"""The reactor that holds a contiguous block of environments, each with a row for every agent: the unit of placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from pettingzoo import ParallelEnv

from reactor_gymnasium.plugin import Failures, Infos, ObservationLayout, Shard, load_env, own
from reactor_pettingzoo.agents import AgentID, as_parallel, padding
from reactor_pettingzoo.vector.agent_rows import AgentRows
from reactor_rl.plugin import decode, loads

__all__ = ["ParallelShard", "call", "set_attribute"]


class ParallelShard(Shard):
    """Environments ``first`` to ``first + n - 1``; row = environment * number of agents + index of the agent.

    Args:
        env_fn: What makes an environment, encoded.
        first: Index of the first environment.
        n: How many they are.
        agents: The agents of each.
        single_observation_space: Every agent's observation space.
        single_action_space: Every agent's action space.
        autoreset_mode: When an environment whose episode is over is reset.
        tried: What makes an environment that is only tried, encoded.
        watched: Whether to tell at any time which environment is being stepped.
        strategies: How each of them can be saved, if that is known already.
    """

    envs: list[AgentRows]

    def __init__(
        self,
        env_fn: Any,
        first: int,
        n: int,
        agents: Sequence[AgentID],
        single_observation_space: Space[Any],
        single_action_space: Space[Any],
        autoreset_mode: AutoresetMode,
        tried: Any,
        watched: bool,
        strategies: Sequence[str | None],
    ) -> None:
        super().__init__(
            first, first * len(agents), n * len(agents), ObservationLayout(single_observation_space), watched, strategies
        )
        self.env_fn, self.n, self.agents = env_fn, n, tuple(agents)
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.autoreset_mode, self.tried = autoreset_mode, tried

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        nobody = padding(self.single_observation_space)
        for index in range(self.first, self.first + self.n):
            try:
                env = as_parallel(decode(self.env_fn)())
                self.envs.append(AgentRows(env, self.agents, nobody, self.layout.check, f"environment {index}"))
                self._check_agents(env)
            except Exception as error:
                error.add_note(f"while environment {index} was constructed")
                raise
        self.last = [nobody] * (self.n * len(self.agents))

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

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        # Environments may keep the actions that they were given, so they must not be views of the port.
        actions: Sequence[Any] = self.actions.value.copy() if self.actions.present else self.items.value
        agents, rewards = len(self.agents), self.rewards.buffer
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        rewards.fill(0.0)
        terminations.fill(False)
        truncations.fill(False)
        finals: Infos = {}
        infos: Infos = {}
        failures: Failures = []
        for number, copy in zip(self._numbers(), self.envs, strict=True):
            lo = number * agents
            try:
                if copy.over:
                    # This is NEXT_STEP: with SAME_STEP it has been reset, and with DISABLED the caller does not come here.
                    observations, of_rows = copy.reset()
                else:
                    observations, gains, ends, of_rows = copy.step(actions[lo : lo + agents])
                    _write(rewards[lo : lo + agents], gains)
                    for row, terminated, truncated in ends:
                        terminations[lo + row], truncations[lo + row] = terminated, truncated
                    if ends and self.autoreset_mode is AutoresetMode.SAME_STEP:
                        for row in sorted(row for row, _, _ in ends):
                            finals[lo + row] = own({"final_obs": observations[row], "final_info": of_rows.get(row, {})})
                        if copy.over:
                            observations, of_rows = copy.reset()
                self._keep(number, observations, of_rows, infos)
            except Exception as error:  # the others still take their step
                failures.append(self._failure(number, error))
        if self.layout.arrays:
            self._write_last(failures)
        self._send(finals, infos, failures)

    def _write_last(self, failures: Failures) -> None:
        out = self._bound()
        assert out is not None
        if out.put_all and not failures:
            try:
                out.put_all(self.last)
                return
            except (TypeError, ValueError):  # one of them has another shape; which one is found out below
                pass
        wrong: dict[int, Exception] = {}
        for row, error in out.write_each(self.last):
            wrong.setdefault(row // len(self.agents), error)
        failures += [self._failure(number, error) for number, error in wrong.items()]

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        self._keep(number, *self.envs[number].reset(**kwargs), infos)

    def _keep(self, number: int, observations: list[Any], of_rows: Infos, infos: Infos) -> None:
        """Take down what the rows of a copy have now: it, or the next copy, may write into the same arrays again."""
        lo, array = number * len(self.agents), np.ndarray
        self.last[lo : lo + len(self.agents)] = [one.copy() if type(one) is array else own(one) for one in observations]
        for row, info in of_rows.items():
            infos[lo + row] = own(info)

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        n = len(self.agents)
        kept = [
            self._saved(number, copy, self.last[number * n : (number + 1) * n], self.tried, "ParallelVectorEnv")
            for number, copy in enumerate(self.envs)
        ]
        return {"kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        n = len(self.agents)
        for number, (copy, (saved, last)) in enumerate(zip(self.envs, state["kept"], strict=True)):
            load_env(copy, saved)
            self.last[number * n : (number + 1) * n] = loads(last)


def _write(out: npt.NDArray[np.float64], rewards: list[Any]) -> None:
    try:
        out[:] = rewards
    except (TypeError, ValueError):  # an array of one element is a reward, too
        out[:] = [np.asarray(reward, np.float64).item() for reward in rewards]


def call(env: ParallelEnv, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of an environment, or get an attribute of it.

    Raises:
        AttributeError: If neither it nor what it wraps has one of that name.
    """
    attribute = getattr(_holder(env, name), name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def set_attribute(env: ParallelEnv, name: str, value: Any) -> None:
    """Set an attribute where it is, or of the outermost wrapper if nothing has it."""
    setattr(_holder(env, name), name, value)


def _holder(env: Any, name: str) -> Any:
    """The outermost of an environment and those that it wraps that has an attribute itself; the environment if none has.

    Wrappers' ``__getattr__`` is not asked: PettingZoo's pass on reading and not writing, and its conversions neither.
    """
    layer = env
    while layer is not None:
        if name in vars(layer) or hasattr(type(layer), name):
            return layer
        layer = vars(layer).get("env") or vars(layer).get("aec_env")
    return env
