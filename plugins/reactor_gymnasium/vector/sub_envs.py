"""The vector environments that ``ReactorVectorEnv.of`` joins: how they describe themselves, and what each of them is given."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import checked_seed, make_probe, one_seed
from reactor_gymnasium.placement import median_step, random_actions
from reactor_gymnasium.traces import looked_at
from reactor_rl.plugin import Pickled, decode

__all__ = [
    "Block",
    "SubEnvSpec",
    "VectorEnvFn",
    "call",
    "sub_env_spec",
    "sub_env_cost",
    "sub_env_specs",
    "seeds_of",
    "set_attribute",
    "sliced",
]

VectorEnvFn = Callable[[], VectorEnv[Any, Any, Any]]

_SURFACE = ("num_envs", "single_observation_space", "single_action_space", "reset", "step")


@dataclass(frozen=True)
class SubEnvSpec:
    """A member as it describes itself: how many rows it steps, their spaces, and when it resets those whose episode is over."""

    rows: int
    observation_space: Space[Any]
    action_space: Space[Any]
    autoreset_mode: AutoresetMode | None


def sub_env_spec(env: Any, where: str) -> SubEnvSpec:
    """The specification of a member.

    Args:
        env: The member.
        where: What it is called in messages.

    Raises:
        TypeError: If it is not a vector environment.
        ValueError: If it does not step all its rows together.
    """
    if missing := [name for name in _SURFACE if not hasattr(env, name)]:
        raise TypeError(
            f"{where} is not a vector environment but {env!r}, without {', '.join(missing)}. ReactorVectorEnv.of takes functions "
            "that make vector environments; give functions that make single ones to ReactorVectorEnv itself"
        )
    rows = operator.index(env.num_envs)
    config = getattr(env, "config", None)  # EnvPool's
    together = config.get("batch_size") if isinstance(config, Mapping) else getattr(env, "batch_size", None)
    if (together or rows) != rows:
        raise ValueError(f"{where} steps {together} of its {rows} environments at a time: make it without batch_size")
    return SubEnvSpec(
        rows, env.single_observation_space, env.single_action_space, getattr(env, "metadata", {}).get("autoreset_mode")
    )


def sub_env_specs(dummy: Any, encoded: Sequence[Any]) -> list[SubEnvSpec]:
    """The specification of each member, from throw-away ones: one of each kind. Global random generators are put back.

    Args:
        dummy: A throw-away member 0.
        encoded: What makes each member; see :func:`~reactor_gymnasium.arguments.encode_makers`.

    Raises:
        RuntimeError: If one does not go together with the first one, with its index.
        Exception: If one cannot be made, with its index as a note.
    """
    first = sub_env_spec(dummy, "shard 0")
    kinds: dict[Any, SubEnvSpec] = {_kind(encoded[0]): first}
    found = [first]
    for index, one in enumerate(encoded[1:], 1):
        if _kind(one) not in kinds:
            kinds[_kind(one)] = _looked_at(one, index)
        found.append(kinds[_kind(one)])
        for name in ("observation_space", "action_space", "autoreset_mode"):
            here, there = getattr(found[-1], name), getattr(first, name)
            if here != there:
                what = name.replace("_", " ")
                raise RuntimeError(
                    f"shard {index} has the {what} {here}, and shard 0 has {there}: all rows of a vector environment have the same"
                )
    return found


def _kind(one: Any) -> Any:
    return one.data if type(one) is Pickled else id(one)


def _looked_at(one: Any, index: int) -> SubEnvSpec:
    name = f"shard {index}"
    return looked_at(partial(make_probe, decode(one), name), lambda env: sub_env_spec(env, name))


def sub_env_cost(env: Any) -> float | None:
    """Median seconds of a step of a member that is thrown away; see :func:`~reactor_gymnasium.placement.median_step`."""

    def step(actions: Any) -> bool:
        env.step(actions)
        return False

    return median_step(lambda seed: env.reset(), random_actions(batch_space(env.single_action_space, env.num_envs)).__next__, step)


# ---------------------------------------------------------------------- what each of them is given


def seeds_of(seed: Any, bounds: Sequence[int]) -> list[Any]:
    """The seed that each member is reset with, given one of all: its part.

    Args:
        seed: ``None``; an int ``s``, of which the member whose first row is ``r`` has ``s + r``; one for each member; or a
            sequence of one for each row, of which each member has those of its rows.
        bounds: The first row of each member, and the row after the last one.

    Raises:
        ValueError: If there are not as many seeds as members or rows, or one is negative.
        TypeError: If one is not an integer.
    """
    members = len(bounds) - 1
    if seed is None:
        return [None] * members
    if one_seed(seed):
        return [checked_seed(seed) + first for first in bounds[:-1]]
    if len(seed) == members:
        return [None if one is None else checked_seed(one) for one in seed]
    if len(seed) == bounds[-1]:
        numbers = [None if one is None else checked_seed(one) for one in seed]
        of_rows: Any = seed if isinstance(seed, np.ndarray) else numbers  # some members take arrays, and no lists
        return [of_rows[lo:hi] for lo, hi in pairwise(bounds)]
    raise ValueError(
        f"{len(seed)} seeds were given: pass one for each of the {members} shards, or of the {bounds[-1]} rows, or an int"
    )


def sliced(space: Space[Any], actions: Any, lo: int, hi: int) -> Any:
    """The actions of some rows, of a batch of a single action space."""
    if isinstance(space, spaces.Dict):
        return {key: sliced(part, actions[key], lo, hi) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(sliced(part, of_part, lo, hi) for part, of_part in zip(space.spaces, actions, strict=True))
    if len(actions[lo:hi]) != hi - lo:
        raise ValueError(f"there are no actions for rows {lo} to {hi - 1}: {len(actions)} were given")
    return actions[lo:hi]


def call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a member, or get an attribute, of the outermost wrapper that has one."""
    attribute = getattr(_having(env, name), name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute of a member, or of the wrapper around it that has one."""
    setattr(_having(env, name), name, value)


def _having(env: Any, name: str) -> Any:
    while not hasattr(env, name) and isinstance(env, VectorWrapper):
        env = env.env
    return env


Block = tuple[int, int, dict[str, Any]]
"""The first row, how many rows, and their batched infos: columns of so many values, and masks ``_key`` for some of them."""
