"""What the environments are like, seen on a throw-away one: who the agents are, and which of them see and do alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from pettingzoo import AECEnv, ParallelEnv

from reactor_pettingzoo.agents import AgentID
from reactor_rl.plugin import global_random_state

__all__ = ["MASK", "AgentBlock", "EnvFn", "Roster"]

EnvFn = Callable[[], Any]
"""Makes a ``ParallelEnv`` or an ``AECEnv``."""
MASK = "action_mask"
MOST_ACTIONS = 4096
"""With more actions than that, masks must be there after the first reset: else no record has room for them."""


@dataclass(frozen=True)
class AgentBlock:
    """Agents with equal spaces: one array holds what they see, another what they do.

    Attributes:
        number: Number of the block.
        agents: Its agents.
        space: What each of them observes, without an action mask.
        observation_space: What each of them observes, as the environment says.
        action_space: What each of them does.
        mask: Where an agent's action mask is found: ``"observation"``, ``"info"``, ``"later"`` (in infos, too, but no agent has
            one after the first reset, and any may go without), or nowhere (``""``).
        rows: Rows for each environment: one for each agent, or a single one where agents take turns.
    """

    number: int
    agents: tuple[AgentID, ...]
    space: Space[Any]
    observation_space: Space[Any]
    action_space: Space[Any]
    mask: str
    rows: int

    @property
    def parts(self) -> dict[str, Space[Any]]:
        """The arrays that an observation consists of, by key; a :attr:`single` one has the key ``""``."""
        return dict(self.space.spaces) if isinstance(self.space, spaces.Dict) else {"": self.space}

    @property
    def single(self) -> bool:
        """Whether an observation is one array."""
        return not isinstance(self.space, spaces.Dict)

    def path(self, key: str) -> tuple[Any, ...]:
        """The keys that lead to a part in what the environment returns."""
        besides = _besides_mask(self.observation_space) if self.mask == "observation" else []
        return (*(besides if len(besides) == 1 else ()), *(() if self.single else (key,)))

    def fields(self) -> list[tuple[str, npt.DTypeLike, tuple[int, ...]]]:
        """The fields of an environment's record that belong to the block."""
        fields: list[tuple[str, npt.DTypeLike, tuple[int, ...]]] = [(self.field("alive"), np.bool_, (self.rows,))]
        for key, space in self.parts.items():
            assert space.shape is not None and space.dtype is not None
            fields.append((self.field(f"observation.{key}"), space.dtype, (self.rows, *space.shape)))
        if self.mask:
            assert isinstance(self.action_space, spaces.Discrete)
            fields.append((self.field(MASK), np.int8, (self.rows, int(self.action_space.n))))
        if self.mask == "later":
            fields.append((self.field("masked"), np.bool_, (self.rows,)))
        return fields

    def field(self, name: str) -> str:
        """Name of a field of the record."""
        return f"{self.number}.{name}"

    def masks(self, record: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """The action masks of all rows of records, ``None`` if nobody has one."""
        if not self.mask or (self.mask == "later" and not np.count_nonzero(record[self.field("masked")])):
            return None
        return record[self.field(MASK)]


@dataclass(frozen=True)
class Roster:
    """The agents of an environment.

    Attributes:
        agents: All that there may be, in the environment's order.
        turns: Whether they take turns (``AECEnv``) or act together (``ParallelEnv``).
        blocks: Blocks of agents with equal spaces.
        name: Name of the environment.
        fps: Frames per second when it is rendered.
    """

    agents: tuple[AgentID, ...]
    turns: bool
    blocks: tuple[AgentBlock, ...]
    name: str
    fps: float

    def record(self) -> np.dtype[Any]:
        """What an environment tells at a tick: ``acting``, the index of the agent whose turn it is, and each block's fields."""
        return np.dtype([("acting", np.int64), *(field for block in self.blocks for field in block.fields())], align=True)

    def block_of(self, agent: AgentID) -> tuple[AgentBlock, int]:
        """The block of an agent, and its row there."""
        for block in self.blocks:
            if agent in block.agents:
                return block, 0 if self.turns else block.agents.index(agent)
        raise KeyError(agent)

    @classmethod
    def of(cls, env_fn: EnvFn) -> Roster:
        """Look at a throw-away environment. The process's global random generators are put back.

        Raises:
            TypeError: If ``env_fn`` is an environment, or makes no PettingZoo environment, or an agent's observations are no arrays
                of a fixed shape.
            ValueError: If there are no agents.
        """
        if isinstance(env_fn, AECEnv | ParallelEnv):
            raise TypeError(
                f"env_fn is the environment {env_fn}; pass a function that makes one, for every copy needs its own: "
                "MultiAgentRunner(lambda: ..., policies) with what made this one in it"
            )
        if not callable(env_fn):
            raise TypeError(f"env_fn is {env_fn!r}; pass a function that makes a new environment")
        with global_random_state():
            env = env_fn()
            try:
                return cls._of(env)
            finally:
                if hasattr(env, "close"):
                    env.close()

    @classmethod
    def _of(cls, env: Any) -> Roster:
        if not isinstance(env, AECEnv | ParallelEnv):
            raise TypeError(
                f"env_fn made {env!r}, which is neither a pettingzoo ParallelEnv nor an AECEnv; for an environment with one agent "
                "use reactor_gymnasium"
            )
        turns = isinstance(env, AECEnv)
        returned: Any = env.reset(seed=0)
        infos = env.infos if turns else returned[1]
        agents = tuple(getattr(env, "possible_agents", None) or env.agents)
        if not agents:
            raise ValueError(f"{env} has no agents after reset()")
        alike: list[tuple[Space[Any], Space[Any], list[AgentID]]] = []
        for agent in agents:
            observation_space, action_space = env.observation_space(agent), env.action_space(agent)
            for known, known_action, members in alike:
                if (known, known_action) == (observation_space, action_space):
                    members.append(agent)
                    break
            else:
                alike.append((observation_space, action_space, [agent]))
        blocks = []
        for number, (observation_space, action_space, members) in enumerate(alike):
            mask = _mask(observation_space, action_space, [infos.get(agent, {}) for agent in members])
            rows = 1 if turns else len(members)
            space = _unmasked(observation_space, members[0], mask)
            blocks.append(AgentBlock(number, tuple(members), space, observation_space, action_space, mask, rows))
        return cls(agents, turns, tuple(blocks), str(env), float(env.metadata.get("render_fps", 15)))


def _mask(space: Space[Any], action_space: Space[Any], infos: list[dict[str, Any]]) -> str:
    if not isinstance(action_space, spaces.Discrete):
        return ""
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        return "observation"
    if any(info and info.get(MASK) is not None for info in infos):
        return "info"
    return "later" if action_space.n <= MOST_ACTIONS else ""


def _besides_mask(space: Space[Any]) -> list[str]:
    """The keys of what is observed besides the mask."""
    assert isinstance(space, spaces.Dict)
    return [key for key in space.spaces if key != MASK]


def _unmasked(space: Space[Any], agent: AgentID, mask: str) -> Space[Any]:
    """What is left of a space without the mask; what is left alone needs no key."""
    if isinstance(space, spaces.Dict):
        keys = _besides_mask(space) if mask == "observation" else list(space.spaces)
        alone = mask == "observation" and len(keys) == 1
        space = space.spaces[keys[0]] if alone else spaces.Dict({key: space.spaces[key] for key in keys})
    for part in space.spaces.values() if isinstance(space, spaces.Dict) else (space,):
        if part.shape is None or part.dtype is None or np.dtype(part.dtype).hasobject:
            raise TypeError(
                f"agent {agent!r} observes {part}, which is no array of a fixed shape; wrap the environment so that it is"
            )
    return space
