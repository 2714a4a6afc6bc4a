"""A copy that is tried before a run: how long its steps take, and whether it does the same again."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from reactor_gymnasium.plugin import make_probe
from reactor_pettingzoo.agent_record import CopyRecord
from reactor_pettingzoo.agents import AgentSpecs
from reactor_pettingzoo.copies import copy_of
from reactor_pettingzoo.reading import choices_of, segments
from reactor_pettingzoo.rows import AgentsProbe, AgentsUnit
from reactor_rl.plugin import decode

__all__ = ["RecordProbe"]


class RecordProbe(AgentsProbe):
    """A copy whose agents see what is in a record.

    An action is a number from which those of all agents are drawn: only here it is known which ones their masks allow.
    """

    def __init__(self, env: Any, specs: AgentSpecs) -> None:
        places = [(group.number, row) for group, row in map(specs.group_of, specs.agents)]
        super().__init__(AgentsUnit(copy_of(env, specs.agents, specs.turns), places), spaces.Discrete(2**31))
        self._specs, self._record = specs, np.zeros(1, specs.record())
        self._write = CopyRecord(specs, self._record[0, ...]).write

    @classmethod
    def of(cls, env_fn: Any, specs: AgentSpecs) -> RecordProbe:
        """One of an encoded function."""
        return cls(make_probe(decode(env_fn)), specs)

    def reset(self, *, seed: int | None = None) -> tuple[bytes, dict[str, Any]]:
        """Begin an episode; :meth:`sample` draws anew."""
        if seed is not None:
            self._seed(seed)
        return super().reset(seed=seed)

    def sample(self) -> list[Any]:
        """Random actions of all agents, for :meth:`act`."""
        actions = []
        for group in self._specs.groups:
            masks = group.masks(self._record[0])
            actions.append([_sample(group.action_space, mask) for mask in ([None] * group.rows if masks is None else masks)])
        return actions

    def act(self, actions: list[Any]) -> bool:
        """Take a step; whether the episode is over."""
        self.unit.step(actions)
        self._write(self.unit.copy)
        return bool(self.unit.over)

    def _seen(self) -> bytes:
        self._write(self.unit.copy)
        return self._record.tobytes()

    def _actions(self, number: Any) -> list[Any]:
        self._seed(int(number))
        return self.sample()

    def _seed(self, number: int) -> None:
        for group in self._specs.groups:
            group.action_space.seed(number)


def _sample(space: Any, mask: Any) -> Any:
    if mask is None or not mask.any():
        sampled = space.sample()
    elif isinstance(space, spaces.Discrete):
        sampled = space.sample(mask)
    else:
        chosen = [space.np_random.choice(np.flatnonzero(mask[part])) for part in segments(choices_of(space))]
        sampled = np.reshape(np.array(chosen, space.dtype), space.shape) + space.start
    return int(sampled) if isinstance(space, spaces.Discrete) else sampled
