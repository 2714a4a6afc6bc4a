"""A throw-away copy in which agents act at random: its steps are timed, or two of them are compared."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from reactor_gymnasium.plugin import make_probe
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.runner.copies import AECCopy, Copy, ParallelCopy
from reactor_rl.plugin import decode

__all__ = ["ProbeCopy"]


class ProbeCopy:
    """A copy that is tried like an environment of one agent, see :mod:`reactor_gymnasium.environments.saving`.

    An action is a number from which those of all agents are drawn: only here it is known which ones their masks allow.

    Args:
        env: The environment.
        specs: Its agents.
    """

    action_space: ClassVar[spaces.Space[Any]] = spaces.Discrete(2**31)

    def __init__(self, env: Any, specs: AgentSpecs) -> None:
        self._specs = specs
        self._record = np.zeros((), specs.record())
        groups = [specs.group_of(agent)[0].number for agent in specs.agents]
        kind = AECCopy if specs.turns else ParallelCopy
        self._copy: Copy = kind(env, specs, self._record, groups, np.zeros(len(specs.agents), np.bool_))

    @classmethod
    def of(cls, env_fn: Any, specs: AgentSpecs) -> ProbeCopy:
        """One of an encoded function."""
        return cls(make_probe(decode(env_fn)), specs)

    def reset(self, *, seed: int | None = None) -> tuple[bytes, dict[str, Any]]:
        """Begin an episode. Returns what all agents see, and no info."""
        if seed is not None:
            self._seed(seed)
        self._copy.reset(seed)
        self._copy.show()
        return self._record.tobytes(), {}

    def sample(self) -> list[Any]:
        """Random actions of all agents, for :meth:`act`."""
        actions = []
        for group in self._specs.groups:
            masks = group.masks(self._record)
            actions.append([_sample(group.action_space, mask) for mask in ([None] * group.rows if masks is None else masks)])
        return actions

    def act(self, actions: list[Any]) -> tuple[float, ...]:
        """Take a step. Returns every agent's reward."""
        rewards = tuple(self._copy.step(actions))
        self._copy.show()
        return rewards

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._copy.over

    def step(self, number: Any) -> tuple[bytes, tuple[float, ...], bool, bool, dict[str, Any]]:
        """Take a step with the actions that a number stands for. Returns what all agents see, their rewards, and flags."""
        self._seed(int(number))
        rewards = self.act(self.sample())
        return self._record.tobytes(), rewards, self.over, False, {}

    def close(self) -> None:
        """Close the environment."""
        self._copy.env.close()

    def _seed(self, number: int) -> None:
        for group in self._specs.groups:
            group.action_space.seed(number)


def _sample(space: Any, mask: Any) -> Any:
    if isinstance(space, spaces.Discrete):
        return int(space.sample() if mask is None or not mask.any() else space.sample(mask))
    return space.sample()
