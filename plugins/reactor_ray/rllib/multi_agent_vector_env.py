"""RLlib's vector environment of many agents, stepped by ``ParallelVectorEnv`` on several cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from ray.rllib.env.vector.vector_multi_agent_env import VectorMultiAgentEnv

from reactor_gymnasium.plugin import HostStyle
from reactor_pettingzoo import ParallelVectorEnv
from reactor_ray.rllib.multi_agent_env import AsMultiAgentEnv, MakesParallel

__all__ = ["AgentColumns", "ReactorVectorMultiAgentEnv"]

_Bools = npt.NDArray[np.bool_]


class _RowInfoEnvs(ParallelVectorEnv):
    """Infos row by row, as environments returned them, where Gymnasium's come as columns; and who is there as a column."""

    _style = HostStyle(columns=True, makers_option=None, infos="rows")

    def there(self) -> _Bools:
        """``(rows,)``: who is there, or was until the last step."""
        present: _Bools = self._batch.columns["present"].copy()
        return present


@dataclass(frozen=True, slots=True)
class AgentColumns:
    """All agents after a reset or step. Row = environment * number of agents + index of the agent."""

    observations: Any
    """``(rows, *shape)``, or nested as the space is. Zeros where no agent is."""
    rewards: npt.NDArray[np.float64]
    """``(rows,)``."""
    terminated: _Bools
    """``(rows,)``."""
    truncated: _Bools
    """``(rows,)``."""
    there: _Bools
    """``(rows,)``: which agents have an observation, those that end with it included."""
    over: _Bools
    """``(environments,)``: whose episode this step has ended. Their next step resets them."""
    infos: dict[int, dict[str, Any]]
    """The infos that are not empty, by row."""

    @property
    def acting(self) -> _Bools:
        """``(rows,)``: which agents act next."""
        return self.there & ~(self.terminated | self.truncated)


class ReactorVectorMultiAgentEnv(VectorMultiAgentEnv):
    """Environments whose agents all act in every step, in two forms: RLlib's dicts, and rows of arrays.

    As in RLlib's own, the step after an episode's end resets its environment and ignores the actions.

    Args:
        creator: Makes an RLlib ``MultiAgentEnv`` or a PettingZoo environment. All agents must have the same spaces.
        num_envs: How many environments.
        workers: On how many cores; ``None`` for those that this process may use.
        executor: As for ``ParallelVectorEnv``.

    Attributes:
        rows: What the last reset or step brought.
        agents: The agents of an environment, in the order of their rows.
    """

    def __init__(self, creator: Callable[[], Any], num_envs: int, *, workers: int | None, executor: Any) -> None:
        super().__init__()
        self._envs = _RowInfoEnvs(
            MakesParallel(creator), num_envs, workers=workers, executor=executor, autoreset_mode=AutoresetMode.NEXT_STEP
        )
        self.num_envs, self.agents = num_envs, self._envs.agents
        self.metadata, self.render_mode = self._envs.metadata, self._envs.render_mode
        one = AsMultiAgentEnv(self.agents, self._envs.single_observation_space, self._envs.single_action_space)
        self.envs = [one] * num_envs
        self.single_observation_spaces, self.single_action_spaces = one.observation_spaces, one.action_spaces
        self.single_observation_space = spaces.Dict(one.observation_spaces)
        self.single_action_space = spaces.Dict(one.action_spaces)
        self.rows: AgentColumns

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[list[Any], list[Any]]:
        """Reset all environments.

        Args:
            seed: As for ``ParallelVectorEnv.reset``.
            options: Given to every environment.

        Returns:
            Observations and infos: of each environment a dict, by agent.
        """
        observations, infos = self._envs.reset(seed=seed, options=options)
        none = np.zeros(self._envs.num_envs, np.bool_)
        self._take(observations, np.zeros(self._envs.num_envs), none, none, infos)
        return self._dicts(self._observations()), self._dicts(self._infos())

    def step(self, actions: Any) -> Any:
        """Step all environments.

        Args:
            actions: A dict of actions by agent for each environment; or an array of actions for all rows, of which those of agents
                that are not there are ignored.

        Returns:
            For dicts: observations, rewards, terminateds, truncateds and infos, of each environment a dict by agent, with
            ``"__all__"`` among the flags. For an array: :attr:`rows`.
        """
        if isinstance(actions, np.ndarray):
            return self._take(*self._envs.step(actions))
        resets = self.rows.over
        rows = self._take(*self._envs.step(self._filled(actions)))
        rewards = [float(reward) for reward in rows.rewards]
        terminateds = self._dicts(rows.terminated.tolist())
        truncateds = self._dicts(rows.truncated.tolist())
        for index, over in enumerate(rows.over.tolist()):
            all_truncated = over and all(truncateds[index].values())
            truncateds[index]["__all__"], terminateds[index]["__all__"] = all_truncated, over and not all_truncated
        of_agents = self._dicts(rewards)
        for index in np.flatnonzero(resets).tolist():
            of_agents[index] = dict.fromkeys(self.agents, 0.0)
        return self._dicts(self._observations()), of_agents, terminateds, truncateds, self._dicts(self._infos())

    def close_extras(self, **kwargs: Any) -> None:
        """Close all environments and end their workers."""
        self._envs.close()

    # ------------------------------------------------------------------ rows

    def _take(self, observations: Any, rewards: Any, terminated: _Bools, truncated: _Bools, infos: dict[str, Any]) -> AgentColumns:
        there, of_rows = self._envs.there(), infos.get("infos", {})
        # The padding of an episode's end is flagged as terminated; nobody is there who could be.
        terminated, truncated = terminated & there, truncated & there
        over: _Bools = np.logical_not((there & ~(terminated | truncated)).reshape(self.num_envs, -1).any(1))
        self.rows = AgentColumns(observations, rewards, terminated, truncated, there, over, of_rows)
        return self.rows

    def _filled(self, actions: Sequence[dict[Any, Any]]) -> Any:
        """Actions of all rows: those of agents that do not act are anything."""
        space, n = self._envs.single_action_space, self._envs.num_envs
        anything = space.sample()
        items = [of_one.get(agent, anything) for of_one in actions for agent in self.agents]
        batch: Any = create_empty_array(space, n)
        return concatenate(space, items, batch)

    def _dicts(self, of_rows: Sequence[Any]) -> list[dict[Any, Any]]:
        """The observations, rewards and so on of agents that are there, for each environment."""
        n, there = len(self.agents), self.rows.there.tolist()
        begins = range(0, n * self.num_envs, n)
        return [{agent: of_rows[row] for row, agent in enumerate(self.agents, lo) if there[row]} for lo in begins]

    def _observations(self) -> Sequence[Any]:
        return list(iterate(self._envs.observation_space, self.rows.observations))

    def _infos(self) -> Sequence[dict[str, Any]]:
        return [self.rows.infos.get(row, {}) for row in range(self._envs.num_envs)]
