"""The agents of a PettingZoo environment: who they are, which spaces they share, and what stands for one that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector.utils import create_empty_array
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel

from reactor_gymnasium.plugin import check_travel, encode_makers, looked_at
from reactor_pettingzoo.reading import MASK, AgentID, MaskReader, agents_listed, broken, choices_of, first_of, info_of, reset_with

__all__ = [
    "AgentGroup",
    "AgentSpecs",
    "EnvFn",
    "agents_of",
    "as_parallel",
    "listed_agents",
    "padding",
    "probe_agents",
    "shared_space",
    "travelling",
]

EnvFn = Callable[[], Any]
"""Makes a ``ParallelEnv`` or an ``AECEnv``."""
MOST_ACTIONS = 4096
"""With more actions than that, masks must be there after the first reset: else no record has room for them."""


def as_parallel(env: Any) -> ParallelEnv:
    """The environment as a ``ParallelEnv``.

    Raises:
        TypeError: If it is something else, or an ``AECEnv`` whose agents take turns.
    """
    if isinstance(env, ParallelEnv):
        return env
    if not isinstance(env, AECEnv):
        raise TypeError(f"env_fn must make a pettingzoo.ParallelEnv, and it made {env!r} of type {type(env).__name__}")
    if not env.metadata.get("is_parallelizable", False):
        raise TypeError(
            f"env_fn made {env}, an AECEnv whose agents take turns (its metadata has no 'is_parallelizable': True). If one agent "
            "acts at a time, convert it with pettingzoo.utils.conversions.turn_based_aec_to_parallel, or use MultiAgentRunner; "
            "if it updates only after all agents have acted, set metadata['is_parallelizable'] = True"
        )
    return aec_to_parallel(env)


def agents_of(env: ParallelEnv) -> tuple[AgentID, ...]:
    """All agents that may ever appear; of an environment that does not say so, those that are there after a reset.

    Raises:
        ValueError: If it has no agents.
    """
    # A copy: some environments change the list itself while they are played.
    agents = listed_agents(env)
    if not agents:
        reset_with(env, seed=0)
        agents = listed_agents(env) or tuple(agents_listed(env.agents, {}, broken))
    if not agents:
        raise ValueError(f"{env} has no possible_agents, and no agents after a reset")
    return agents


def travelling(env_fn: EnvFn, owner: str, name: str = "env_fn") -> Any:
    """The function, pickled, which every environment is made from: parameter ``name`` of ``owner``, which the user calls.

    Raises:
        ProgramError: If it cannot be pickled.
    """
    (made,) = encode_makers((env_fn,))
    check_travel((env_fn,), (made,), owner, "", name)
    return made


def listed_agents(env: Any) -> tuple[AgentID, ...]:
    """The environment's ``possible_agents``; none if it does not say, or not yet, which there may be."""
    named = getattr(env, "possible_agents", None)
    return () if named is None else tuple(agents_listed(named, {}, broken, "possible_agents"))


def shared_space(env: ParallelEnv, agents: tuple[AgentID, ...], kind: Literal["observation", "action"]) -> Space[Any]:
    """The one observation space or action space that all agents have.

    Raises:
        ValueError: If two agents have different ones.
    """
    space_of, pad = (
        (env.observation_space, "supersuit.pad_observations_v0")
        if kind == "observation"
        else (env.action_space, "supersuit.pad_action_space_v0")
    )
    first: Space[Any] = space_of(agents[0])
    for agent in agents[1:]:
        if space_of(agent) != first:
            raise ValueError(
                f"agent {agents[0]!r} has the {kind} space {first} and agent {agent!r} has {space_of(agent)}: all agents of a "
                f"ParallelVectorEnv need the same one. Wrap the environment so that they are equal ({pad} pads them), or use "
                "MultiAgentRunner, where every agent has its own"
            )
    return first


def padding(space: Space[Any]) -> Any:
    """The observation of an agent that is not there: zeros, empty where that means nothing."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: padding(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(padding(part) for part in space.spaces)
    empty = create_empty_array(space, 1)
    return empty[0] if isinstance(empty, tuple) and empty else empty


@dataclass(frozen=True)
class AgentGroup:
    """Agents with equal spaces: one array holds what they see, another what they do.

    Attributes:
        number: Number of the group.
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
    def choices(self) -> int:
        """Choices that an action mask tells of, those of all parts of an action together; 0 if there can be no mask."""
        return sum(choices_of(self.action_space))

    @cached_property
    def mask_reader(self) -> MaskReader:
        """Reads their action masks."""
        return MaskReader(self.action_space)

    @property
    def single(self) -> bool:
        """Whether an observation is one array."""
        return not isinstance(self.space, spaces.Dict)

    def path(self, key: str) -> tuple[Any, ...]:
        """The keys that lead to a part in what the environment returns."""
        besides = _besides_mask(self.observation_space) if self.mask == "observation" else []
        return (*(besides if len(besides) == 1 else ()), *(() if self.single else (key,)))

    def fields(self) -> list[tuple[str, npt.DTypeLike, tuple[int, ...]]]:
        """The fields of an environment's record that belong to the group."""
        fields: list[tuple[str, npt.DTypeLike, tuple[int, ...]]] = [(self.field("alive"), np.bool_, (self.rows,))]
        for key, space in self.parts.items():
            assert space.shape is not None and space.dtype is not None
            fields.append((self.field(f"observation.{key}"), space.dtype, (self.rows, *space.shape)))
        if self.mask:
            fields.append((self.field(MASK), np.int8, (self.rows, self.choices)))
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
class AgentSpecs:
    """The agents of an environment.

    Attributes:
        agents: All that there may be, in the environment's order.
        turns: Whether they take turns (``AECEnv``) or act together (``ParallelEnv``).
        groups: Blocks of agents with equal spaces.
        name: Name of the environment.
        fps: Frames per second when it is rendered.
    """

    agents: tuple[AgentID, ...]
    turns: bool
    groups: tuple[AgentGroup, ...]
    name: str
    fps: float

    def record(self) -> np.dtype[Any]:
        """An environment's record of a tick: ``acting``, the index of the agent whose turn it is, and each group's fields."""
        return np.dtype([("acting", np.int64), *(field for group in self.groups for field in group.fields())], align=True)

    def group_of(self, agent: AgentID) -> tuple[AgentGroup, int]:
        """The group of an agent, and its row there."""
        for group in self.groups:
            if agent in group.agents:
                return group, 0 if self.turns else group.agents.index(agent)
        raise KeyError(agent)


def probe_agents(env_fn: EnvFn) -> AgentSpecs:
    """Look at a throw-away environment. The process's global random generators are put back.

    Raises:
        TypeError: If ``env_fn`` is an environment, or makes no PettingZoo environment, or an agent's observations are not arrays
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
    return looked_at(env_fn, _specs_of)


def _specs_of(env: Any) -> AgentSpecs:
    if not isinstance(env, AECEnv | ParallelEnv):
        raise TypeError(
            f"env_fn made {env!r}, which is neither a pettingzoo ParallelEnv nor an AECEnv; for an environment with one agent "
            "use reactor_gymnasium"
        )
    turns = isinstance(env, AECEnv)
    returned = reset_with(env, seed=0)
    first, infos = (_turn(env), env.infos) if turns else first_of(returned, broken)
    agents = listed_agents(env) or tuple(agents_listed(env.agents, {}, broken))
    if not agents:
        raise ValueError(f"{env} has no agents after reset()")
    alike: list[tuple[tuple[Space[Any], Space[Any]], list[AgentID]]] = []
    for agent in agents:
        both = env.observation_space(agent), env.action_space(agent)
        members = next((members for known, members in alike if known == both), None)
        if members is None:
            alike.append((both, members := []))
        members.append(agent)
    groups = []
    for number, ((observation_space, action_space), members) in enumerate(alike):
        mask = _mask(members[0], observation_space, action_space, [info_of(agent, infos, broken) for agent in members])
        if mask in ("later", "") and choices_of(action_space):
            for agent in members:
                if isinstance(first.get(agent), Mapping) and MASK in first[agent]:
                    raise TypeError(
                        f"agent {agent!r} observes an {MASK!r}, which its observation space lacks: add it to {observation_space}"
                    )
        rows = 1 if turns else len(members)
        space = _unmasked(observation_space, members[0], mask)
        groups.append(AgentGroup(number, tuple(members), space, observation_space, action_space, mask, rows))
    return AgentSpecs(agents, turns, tuple(groups), str(env), float(env.metadata.get("render_fps", 15)))


def _turn(env: Any) -> Mapping[AgentID, Any]:
    """Return the observation of the agent whose turn it is first, by agent."""
    agent = getattr(env, "agent_selection", None)
    return {} if agent is None else {agent: env.observe(agent)}


def _mask(agent: AgentID, space: Space[Any], action_space: Space[Any], infos: list[Mapping[str, Any]]) -> str:
    count = sum(choices_of(action_space))
    where = "observation" if isinstance(space, spaces.Dict) and MASK in space.spaces else ""
    if not where and any(info.get(MASK) is not None for info in infos):
        where = "info"
    if where and not count:
        raise TypeError(
            f"agent {agent!r} has an {MASK!r} in its {where}, and its actions are {action_space}: only those of Discrete and "
            "MultiDiscrete spaces can be masked; wrap the environment so that it has another name, or is not there"
        )
    return where or ("later" if 0 < count <= MOST_ACTIONS else "")


def _besides_mask(space: Space[Any]) -> list[str]:
    """The keys of what is observed besides the mask."""
    assert isinstance(space, spaces.Dict)
    return [key for key in space.spaces if key != MASK]


def _unmasked(space: Space[Any], agent: AgentID, mask: str) -> Space[Any]:
    """The rest of a space without the mask; a single part needs no key."""
    if isinstance(space, spaces.Dict):
        keys = _besides_mask(space) if mask == "observation" else list(space.spaces)
        alone = mask == "observation" and len(keys) == 1
        space = space.spaces[keys[0]] if alone else spaces.Dict({key: space.spaces[key] for key in keys})
    for part in space.spaces.values() if isinstance(space, spaces.Dict) else (space,):
        if part.shape is None or part.dtype is None or np.dtype(part.dtype).hasobject:
            raise TypeError(
                f"agent {agent!r} observes {part}, which is not an array of a fixed shape; wrap the environment so that it is"
            )
    return space
