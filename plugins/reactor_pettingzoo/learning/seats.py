"""Which policy acts for which agent, and where what its agents see and do lies in arrays of the whole environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.plugin import ColumnSpec, looked_at
from reactor_pettingzoo.agents import AgentGroup, AgentSpecs, EnvFn
from reactor_pettingzoo.reading import AgentID, reset_with
from reactor_sb3.plugin import MASKS, channels_first

__all__ = ["ACTING", "RETURNS", "REWARDS", "TERMINATIONS", "TRUNCATIONS", "Block", "Seats", "names_of", "seats_of", "state_size"]

Array = npt.NDArray[Any]

ACTING = "acting"
"""Column of all seats: who acts in the coming step."""
REWARDS, TERMINATIONS, TRUNCATIONS, RETURNS = "agent_rewards", "agent_terminations", "agent_truncations", "agent_returns"
"""Columns of all seats: what the last step paid, whose episode it has ended, and how; where seats change, the returns so far."""


@dataclass(frozen=True)
class Block:
    """The agents that one policy acts for.

    Attributes:
        policy: Name of the policy.
        group: Their spaces.
        agents: How many they are.
        rows: How many of them see and act in one step: all, or one where agents take turns.
        first: Their first seat; the others follow.
        state: Numbers that the critic sees besides, 0 where it sees what its agent does.
    """

    policy: str
    group: AgentGroup
    agents: int
    rows: int
    first: int
    state: int

    @property
    def seats(self) -> slice:
        """Their seats."""
        return slice(self.first, self.first + self.agents)

    @cached_property
    def parts(self) -> dict[str, Space[Any]]:
        """The arrays that the policy sees: images are channels-first. A state of the environment for its critic is the last one."""
        parts = {key: channels_first(part) for key, part in self.group.parts.items()}
        return {"own": parts[""], "state": spaces.Box(-np.inf, np.inf, (self.state,), np.float32)} if self.state else parts

    @property
    def observation_space(self) -> Space[Any]:
        """The policy's observations."""
        return spaces.Dict(self.parts) if self.state or not self.group.single else self.parts[""]

    @property
    def action_space(self) -> Space[Any]:
        """The policy's actions: choices count from 0."""
        space = self.group.action_space
        return spaces.Discrete(int(space.n)) if isinstance(space, spaces.Discrete) else space

    @property
    def masked(self) -> bool:
        """Whether some actions may be forbidden."""
        return self.group.mask in ("observation", "info")

    @cached_property
    def _start(self) -> Any:
        """The first of the environment's choices; ``None`` if that is 0, or it has no choices."""
        start = getattr(self.group.action_space, "start", None)
        return start if np.any(start) else None

    def taken(self, actions: Array) -> list[Any]:
        """The policy's actions, one for each row, as the environment takes them: what is chosen among several is an int."""
        if self._start is not None:
            actions = actions + self._start
        chosen = isinstance(self.group.action_space, spaces.Discrete)
        # `actions[row, ...]` stays an array where `actions[row]` would be a NumPy scalar; environments expect Box actions as
        # arrays.
        return actions.tolist() if chosen else [actions[row, ...] for row in range(len(actions))]

    def key(self, part: str = "") -> str:
        """Key of a part of what is seen, in an observation of the whole environment."""
        return f"{self.policy}.{part}" if part else self.policy

    @property
    def keys(self) -> dict[str, str]:
        """From parts of what the policy sees to their keys."""
        return {"own": self.policy, "state": self.state_key} if self.state else {key: self.key(key) for key in self.parts}

    @property
    def state_key(self) -> str:
        """Key of the state, a row for each agent."""
        return f"{self.policy}:state"

    @property
    def mask_key(self) -> str:
        """Column of masks."""
        return f"{self.policy}.{MASKS}"

    def seen(self, arrays: Mapping[str, Any], *leading: int) -> dict[str, Any]:
        """Parts of what they see, ``(*leading, all rows, ...)``, of arrays or tensors ``(..., rows, numbers)`` by key."""
        return {part: arrays[key].reshape(*leading, -1, *(self.parts[part].shape or ())) for part, key in self.keys.items()}


def _rows_of(space: Space[Any], rows: int) -> spaces.Box:
    """Rows of flat observations. Of two axes, so that nobody takes them for an image."""
    dtype: Any = np.dtype(space.dtype)
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return spaces.Box(low, high, (rows, math.prod(space.shape or ())), dtype)


@dataclass(frozen=True)
class Seats:
    """All agents of an environment, ordered by their policies: an agent's seat is its place in that order.

    Attributes:
        specs: The agents.
        blocks: Those of each policy.
        orders: The agent on each seat; of several orders an episode has the next one or, where it is seeded, one by its seed.
        counted: Policies that learn; their agents' rewards make up the environment's.
        whole: Whether the state that critics see is all observations, for the environment says nothing of its state.
        rivals: Whether the return of an episode is by how much policies that learn have got more than the others.
    """

    specs: AgentSpecs
    blocks: tuple[Block, ...]
    orders: tuple[tuple[AgentID, ...], ...]
    counted: frozenset[str]
    whole: bool = False
    rivals: bool = False

    @property
    def count(self) -> int:
        """How many seats there are."""
        return len(self.orders[0])

    @property
    def learning(self) -> tuple[Block, ...]:
        """The blocks whose policies learn."""
        return tuple(block for block in self.blocks if block.policy in self.counted)

    def observation_space(self) -> spaces.Dict:
        """The observations of all together."""
        keys = ((block, part, key) for block in self.blocks for part, key in block.keys.items())
        return spaces.Dict({key: _rows_of(block.parts[part], block.rows) for block, part, key in keys})

    def action_space(self) -> spaces.Dict:
        """The actions of all together: those of all rows of each policy."""
        return spaces.Dict({block.policy: batch_space(_from_zero(block.action_space), block.rows) for block in self.blocks})

    def record(self) -> np.dtype[Any]:
        """An observation of all together, as memory."""
        return _record_of(self.observation_space())

    @cached_property
    def actions(self) -> np.dtype[Any]:
        """An action of all together, as memory: a field for each policy."""
        return _record_of(self.action_space())

    @cached_property
    def told(self) -> dict[str, ColumnSpec]:
        """Columns: what there is to know of a step besides observations."""
        masks: dict[str, ColumnSpec] = {
            block.mask_key: (np.bool_, (block.rows, block.group.choices)) for block in self.blocks if block.masked
        }
        seats: tuple[int, ...] = (self.count,)
        flags = dict.fromkeys((ACTING, TERMINATIONS, TRUNCATIONS), (np.bool_, seats))
        numbers = dict.fromkeys((REWARDS, RETURNS) if len(self.orders) > 1 else (REWARDS,), (np.float32, seats))
        return {**flags, **numbers, **masks}


def _from_zero(space: Space[Any]) -> Space[Any]:
    """Actions as a policy has them."""
    # Made anew, which drops `start`: a policy counts choices from 0.
    return spaces.MultiDiscrete(space.nvec, space.dtype) if isinstance(space, spaces.MultiDiscrete) else space


def _record_of(space: spaces.Dict) -> np.dtype[Any]:
    return np.dtype([(name, part.dtype, part.shape) for name, part in space.spaces.items()])


def seats_of(
    specs: AgentSpecs,
    names: Mapping[AgentID, str],
    others: Sequence[Mapping[AgentID, str]] = (),
    state: int | None = 0,
    learns: frozenset[str] | None = None,
) -> Seats:
    """Order agents by their policies.

    Args:
        specs: The agents.
        names: The name of each agent's policy.
        others: Names of policies in further orders, each with as many agents as the first.
        state: Numbers of the environment's state, for critics; 0 for none, ``None`` for all observations in its place.
        learns: Policies that learn; ``None`` for all.

    Raises:
        ValueError: If agents with different spaces have one policy, or a name cannot be a policy's.
        TypeError: If SB3 has no distribution of an agent's actions.
    """
    blocks: list[Block] = []
    size = sum(math.prod(specs.group_of(agent)[0].space.shape or ()) for agent in specs.agents) if state is None else state
    first = 0
    # A dict and not a set: the order of policies, and so of seats, must be the same in each process.
    for name in dict.fromkeys(names.values()):
        if not isinstance(name, str) or not name or "." in name or ":" in name:
            raise ValueError(f"the name of a policy must be a str without '.' and ':', got {name!r}; name policies with policy_of=")
        agents = [agent for agent in specs.agents if names[agent] == name]
        group = specs.group_of(agents[0])[0]
        blocks.append(Block(name, group, len(agents), 1 if specs.turns else len(agents), first, size))
        if state != 0 and not (group.single and isinstance(group.space, spaces.Box)):
            raise ValueError(
                f"a centralised critic needs observations that are one array, and {agents[0]!r} observes {group.space}"
            )
        if not isinstance(group.action_space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise TypeError(
                f"agents with actions of {group.action_space} cannot learn: their spaces may be Discrete, MultiDiscrete, "
                "MultiBinary or Box"
            )
        first += len(agents)
    orders = []
    for one in (names, *others):
        order = [agent for block in blocks for agent in specs.agents if one[agent] == block.policy]
        for block in blocks:
            for agent in order[block.seats]:
                if (other := specs.group_of(agent)[0]) is not block.group:
                    raise ValueError(
                        f"the policy {block.policy!r} is to act for {block.group.agents[0]!r}, which has "
                        f"{block.group.observation_space} and {block.group.action_space}, and for {agent!r}, which has "
                        f"{other.observation_space} and {other.action_space}: give agents with different spaces policies of "
                        "their own"
                    )
        orders.append(tuple(order))
    learning = frozenset(names.values()) if learns is None else learns
    return Seats(specs, tuple(blocks), tuple(orders), learning, state is None)


def names_of(
    specs: AgentSpecs, policies: Sequence[str] | None, policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None
) -> dict[AgentID, str]:
    """The name of each agent's policy.

    Args:
        specs: The agents.
        policies: Names of the policies; ``None`` for those of the agents, or for what ``policy_of`` says.
        policy_of: From an agent to the name of its policy; ``None``: its own name or, if there is just one, that.

    Raises:
        ValueError: If an agent has no policy, or a policy has no agents.
    """
    names: dict[AgentID, str] = {}
    for agent in specs.agents:
        if policy_of is not None:
            name = policy_of[agent] if isinstance(policy_of, Mapping) else policy_of(agent)
        else:
            name = str(policies[0]) if policies is not None and len(policies) == 1 else str(agent)
        if policies is not None and name not in policies:
            raise ValueError(f"agent {agent!r} has no policy among {list(policies)}; add {name!r}, or pass policy_of=")
        names[agent] = name
    if idle := [name for name in policies or () if name not in names.values()]:
        raise ValueError(f"no agent has the policies {idle}; the agents' are {names}")
    return names


def state_size(env_fn: EnvFn, turns: bool) -> int | None:
    """How many numbers the state of an environment has, whose agents may take turns; ``None`` if it has no ``state()``.

    Raises:
        ValueError: If it has none, and nobody sees all observations at the same time.
    """

    def size(env: Any) -> int | None:
        try:
            reset_with(env, seed=0)
            return int(np.asarray(env.state()).size)
        except (AttributeError, NotImplementedError):
            if turns:
                raise ValueError(f"centralised_critic=True needs {env}.state(), for its agents take turns") from None
            return None

    return looked_at(env_fn, size)
