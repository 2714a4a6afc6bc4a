"""Copies whose agents are rows, and the reactor that holds a contiguous block of them: the unit of placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from pettingzoo import ParallelEnv

from reactor_gymnasium.plugin import Failures, Infos, ObservationLayout, Shard, UnitBlock, load_env, make_probe, own
from reactor_pettingzoo.agents import as_parallel, listed_agents, padding
from reactor_pettingzoo.copies import ParallelCopy
from reactor_pettingzoo.reading import AgentID
from reactor_rl.plugin import decode, loads

__all__ = ["PaddedCopy", "ParallelShard", "ProbeRows", "call", "set_attribute"]


class AgentStep(NamedTuple):
    """The results of a step: observations and rewards of all rows, the rows that ended with how they did, and infos."""

    observations: list[Any]
    rewards: Sequence[Any]
    ends: list[tuple[int, bool, bool]]
    infos: Infos


class PaddedCopy(ParallelCopy):
    """A ``ParallelEnv`` whose agents have a row each. A row whose agent is not there is padded.

    Args:
        env: The environment.
        agents: The agents; row = index in it.
        padding: The observation of padded rows.
        check: Raises if an observation has not the shape that its space says; agents' first ones are checked.
        name: What errors call the environment.
        check_agents: Raises if its agents are others than those, or have other spaces. It is called after the first reset, if it
            has not been before: some know their agents only then.
    """

    def __init__(
        self,
        env: ParallelEnv,
        agents: Sequence[AgentID],
        padding: Any,
        check: Callable[[Any], None],
        name: str,
        check_agents: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(env, agents)
        self.padding, self.check, self.name, self._check_agents, self.call = padding, check, name, check_agents, ""
        self._live: list[tuple[int, AgentID]] = []
        self._padded: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """The state that an episode depends on, for :func:`~reactor_gymnasium.environments.saving.save_env`."""
        return {name: value for name, value in vars(self).items() if name not in _NO_STATE}

    def check_agents(self) -> None:
        """Hold the environment's agents against those of the others, once."""
        if self._check_agents is not None:
            self._check_agents(self.env)
            self._check_agents = None

    def reset(self, **kwargs: Any) -> tuple[list[Any], Infos]:
        """Begin an episode. Returns observations of all rows, and infos.

        Raises:
            RuntimeError: If the environment has no agents then, one that is not among its possible agents, or one that has no
                observation.
        """
        self.call = "reset()"
        self.begin(**kwargs)
        self.check_agents()
        observations = [self.padding] * len(self.agents)
        for row, agent in self._live:
            observations[row] = self._first(agent)
        return observations, self._infos_of(self._live, self._padded)

    def step(self, actions: Sequence[Any]) -> AgentStep:
        """Step the environment with the actions of those who are alive.

        Args:
            actions: One for each row; those of padded rows are ignored.

        Raises:
            RuntimeError: If the environment returns no observation, reward or flag for a live agent, or if its ``agents``
                contradict the flags.
        """
        self.call = "step()"
        live, padded = self._live, self._padded
        self.act({agent: actions[row] for row, agent in live})
        observations, of_agents = [self.padding] * len(self.agents), self.observations
        ends = [(self.index[agent], terminated, truncated) for agent, terminated, truncated in self.ends]
        for row, agent in live:
            seen = of_agents.get(agent)
            if seen is not None:
                observations[row] = seen
            elif (row, True, False) not in ends:  # where nobody goes on from it, one may go without a last observation
                raise self.blind(agent)
        if self._live is not live:
            before = dict(live)
            joined = [(row, agent) for row, agent in self._live if row not in before]
            for row, agent in joined:
                observations[row] = self._first(agent)
            live = live + joined
            padded = self._others(live)
            if self.over:  # for a learner the padding ends here, too
                ends += [(row, True, False) for row in padded]
        return AgentStep(observations, self.gains, ends, self._infos_of(live, padded))

    def _arrive(self, names: Iterable[AgentID]) -> None:
        super()._arrive(names)
        self._live = [(self.index[agent], agent) for agent in self.live]
        self._padded = self._others(self._live)

    def _others(self, live: list[tuple[int, AgentID]]) -> list[int]:
        there = {row for row, _ in live}
        return [row for row in range(len(self.agents)) if row not in there]

    def _first(self, agent: AgentID) -> Any:
        seen = self.observation(agent)
        try:
            self.check(seen)
        except Exception as error:
            error.add_note(f"as {self.call} of {self.name} returned it for agent {agent!r}")
            raise
        return seen

    def _infos_of(self, live: list[tuple[int, AgentID]], padded: list[int]) -> Infos:
        of_rows: Infos = {}
        if any(self.infos.values()):
            of_rows = {row: info for row, agent in live if (info := self.info(agent))}
        of_rows.update((row, {"padded": True}) for row in padded)
        return dict(sorted(of_rows.items()))

    def broken(self, what: str) -> Exception:
        return RuntimeError(f"{self.name}: {what}")

    def blind(self, agent: AgentID) -> Exception:
        return self.broken(f"{self.call} returned no observation for agent {agent!r}")


_NO_STATE = frozenset({"padding", "check", "_check_agents", "observations", "infos", "gains", "ends", "none"})
"""Attributes that a copy has for the step that it takes, or was made with."""


class ProbeRows(PaddedCopy):
    """A copy as :func:`~reactor_gymnasium.environments.saving.probe_save_strategy` tries one: an action of all agents in, no infos
    out.

    Args:
        env: The environment.
        agents: The agents.
        action_space: Every agent's action space.
    """

    def __init__(self, env: ParallelEnv, agents: Sequence[AgentID], action_space: Space[Any]) -> None:
        super().__init__(env, agents, None, lambda observation: None, "environment 0")
        self.action_space = spaces.Tuple([action_space] * len(self.agents))

    @classmethod
    def of(cls, env_fn: Any, agents: Sequence[AgentID], action_space: Space[Any]) -> ProbeRows:
        """A throw-away one, of an encoded function."""
        return cls(as_parallel(make_probe(decode(env_fn))), agents, action_space)

    def step(self, actions: Sequence[Any]) -> Any:
        """Observations, rewards, who has ended, and whether the episode is over."""
        observations, rewards, ends, _ = super().step(actions)
        return observations, rewards, ends, self.over

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class ParallelShard(Shard):
    """Environments ``first`` to ``first + n - 1``; row = environment * number of agents + index of the agent.

    Args:
        env_fn: What makes an environment, encoded.
        n: How many they are.
        agents: The agents of each.
        single_observation_space: Every agent's observation space.
        single_action_space: Every agent's action space.
        autoreset_mode: When an environment whose episode is over is reset.
        tried: What makes an environment that is only tried, encoded.
        **shared: As for :class:`~reactor_gymnasium.vector.shard.Shard`.
    """

    envs: list[PaddedCopy]

    def __init__(
        self,
        env_fn: Any,
        n: int,
        agents: Sequence[AgentID],
        single_observation_space: Space[Any],
        single_action_space: Space[Any],
        autoreset_mode: AutoresetMode,
        tried: Any,
        **shared: Any,
    ) -> None:
        super().__init__(rows=n * len(agents), layout=ObservationLayout(single_observation_space), **shared)
        self.env_fn, self.n, self.agents = env_fn, n, tuple(agents)
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.autoreset_mode, self.tried = autoreset_mode, tried

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        nobody = padding(self.single_observation_space)
        for index in range(self.first, self.first + self.n):
            try:
                env = as_parallel(decode(self.env_fn)())
                copy = PaddedCopy(env, self.agents, nobody, self.layout.check, f"environment {index}", self._check_agents)
                self.envs.append(copy)
                if listed_agents(env):
                    copy.check_agents()
            except Exception as error:
                error.add_note(f"while environment {index} was constructed")
                raise
        self.last = [nobody] * (self.n * len(self.agents))
        self.block = UnitBlock(self.envs, self._on_step, self._on_reset, self._on_end)

    def _check_agents(self, env: Any) -> None:
        named = listed_agents(env)
        if named and set(named) != set(self.agents):
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
        actions: Sequence[Any] = self.actions.value.copy() if self.actions.present else list(map(decode, self.items.value))
        rewards, terminations, truncations = self.flags = self.rewards.buffer, self.terminations.buffer, self.truncations.buffer
        rewards.fill(0.0)
        terminations.fill(False)
        truncations.fill(False)
        self.finals: Infos = {}
        self.infos: Infos = {}
        if self.watched:
            self.block.mark = self.at.buffer
        n = len(self.agents)
        self.block.step([actions[lo : lo + n] for lo in range(0, len(self.last), n)])
        failures: Failures = [self._failure(number, error) for number, error in self.block.failures]
        if self.layout.arrays:
            self._write_last(failures)
        self._send(self.finals, self.infos, failures)

    def _on_step(self, number: int, step: AgentStep) -> None:
        """Take down what a step of a copy brought."""
        observations, gains, ends, of_rows = step
        lo = number * len(self.agents)
        rewards, terminations, truncations = self.flags
        rewards[lo : lo + len(self.agents)] = gains
        for row, terminated, truncated in ends:
            terminations[lo + row], truncations[lo + row] = terminated, truncated
        if ends and self.autoreset_mode is AutoresetMode.SAME_STEP:
            for row in sorted(row for row, _, _ in ends):
                self.finals[lo + row] = own({"final_obs": observations[row], "final_info": of_rows.get(row, {})})
            if self.envs[number].over:
                return  # what a reset brings is seen, and not this
        self._keep(number, observations, of_rows, self.infos)

    def _on_reset(self, number: int, first: tuple[list[Any], Infos]) -> None:
        """Take down what a reset of a copy within a step brought."""
        self._keep(number, *first, self.infos)

    def _on_end(self, number: int) -> dict[str, Any] | None:
        """The arguments of a reset in the step that ended an episode; with NEXT_STEP it is the next step that resets."""
        return {} if self.autoreset_mode is AutoresetMode.SAME_STEP else None

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
