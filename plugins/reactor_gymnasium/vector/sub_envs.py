"""The vector environments that ``ReactorVectorEnv.of`` joins, and the reactor that holds some of them."""

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

from reactor_gymnasium.arguments import Bools, checked_seed, make_probe, one_seed
from reactor_gymnasium.environments.owning import check_info, own
from reactor_gymnasium.environments.saving import load_env
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.placement import median_step, random_actions
from reactor_gymnasium.traces import looked_at
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_rl.plugin import Pickled, decode, loads

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
    "SubVectorShard",
    "SubVectorExtras",
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

SubVectorExtras = tuple[list[tuple[int, str]], list[Block]]
"""Dtypes of rewards, by member, when they are new; and infos, by rows of the vector environment."""


@dataclass
class _Member:
    """A vector environment, its rows in this reactor, and the dtype of its rewards, once it has given some."""

    env: Any
    rows: slice
    rewards: np.dtype[Any] | None = None


class SubVectorShard(Shard):
    """Members ``first`` to ``first + len(makers) - 1`` of a vector environment; each has several rows.

    Args:
        makers: What makes them, each encoded by itself.
        facts: What they said of themselves when they were looked at.
        **shared: As for :class:`~reactor_gymnasium.vector.shard.Shard`.
    """

    unit = "shard"
    envs: list[_Member]

    def __init__(
        self,
        makers: Sequence[Any],
        facts: Sequence[SubEnvSpec],
        **shared: Any,
    ) -> None:
        super().__init__(rows=sum(one.rows for one in facts), layout=ObservationLayout(facts[0].observation_space), **shared)
        self.makers, self.facts = tuple(makers), tuple(facts)
        self.last = [None] * len(facts)  # of each member, batched
        self.news: list[tuple[int, str]] = []

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        row = 0
        for index, (maker, expected) in enumerate(zip(self.makers, self.facts, strict=True), self.first):
            try:
                env = decode(maker)()
                self.envs.append(_Member(env, slice(row, row + expected.rows)))
                found = sub_env_spec(env, f"shard {index}")
            except Exception as error:
                error.add_note(f"while shard {index} was constructed")
                raise
            if found != expected:
                raise RuntimeError(
                    f"shard {index} is another one each time that it is made: {found}, and before that {expected}. Its function "
                    "must make the same whenever it is called"
                )
            row += expected.rows

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        together = self.actions.present
        given: Any = self.actions.value if together else list(map(decode, self.items.value))
        infos: Infos = {}
        failures: Failures = []
        rows = self.observations.buffer if self.layout.arrays else None
        flags = self.rewards.buffer, self.terminations.buffer, self.truncations.buffer
        for number, member in zip(self._numbers(), self.envs, strict=True):
            try:
                # It may keep the actions that it was given, so they must not be a view of the port.
                actions = given[member.rows].copy() if together else given[number]
                observations, *of_rows, info = member.env.step(actions)
                self.last[number] = own(observations)  # it, or the next member, may write into the same arrays again
                if rows is not None:
                    self.layout.write_block(rows, member.rows, observations)
                self._write_flags(member, flags, of_rows)
                check_info(info, "step")
                if info:
                    infos[number] = _masked(own(info), flags[1][member.rows] | flags[2][member.rows])
            except Exception as error:  # the others still take their step
                failures.append(self._failure(number, error))
        self._send({}, infos, failures)

    def _write_flags(self, member: _Member, flags: Sequence[Any], given: Sequence[Any]) -> None:
        """Write rewards, terminations and truncations."""
        rows = member.rows.stop - member.rows.start
        for name, out, value in zip(("rewards", "terminations", "truncations"), flags, given, strict=True):
            array = np.asarray(value)
            if array.shape != (rows,):
                raise ValueError(f"the {name} have shape {array.shape}; of {rows} rows they have shape {(rows,)}")
            out[member.rows] = array
            if name == "rewards" and member.rewards != array.dtype:
                member.rewards = array.dtype
                self.news.append((self.first + self.envs.index(member), array.dtype.str))

    # ------------------------------------------------------------------ other requests

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        member = self.envs[number]
        mask: Bools | None = (kwargs.get("options") or {}).get("reset_mask")
        before = self.last[number]
        observations, info = member.env.reset(**kwargs)
        self.last[number] = own(self._begun(observations))
        check_info(info, "reset")
        if mask is not None and not isinstance(member.env, VectorWrapper):  # a wrapper may change what it gives of rows left alone
            self._check_left_alone(member, ~mask, before, self.last[number])
        if info:
            infos[number] = own(info)

    def _write_last(self, failures: Failures) -> None:
        rows = self.observations.buffer
        for number, (member, observations) in enumerate(zip(self.envs, self.last, strict=True)):
            if observations is not None:
                try:
                    self.layout.write_block(rows, member.rows, observations)
                except Exception as error:
                    failures.append(self._failure(number, error))

    def _check_left_alone(self, member: _Member, alone: Bools, before: Any, after: Any) -> None:
        """Refuse what reset all its rows when it was to reset some, as those do that know nothing of masks."""
        for path, _, _ in self.layout.arrays:
            old, new = before, after
            for key in path:
                old, new = old[key], new[key]
            if np.asarray(old)[alone].tobytes() != np.asarray(new)[alone].tobytes():
                raise ValueError(
                    f"{type(member.env).__name__} has reset rows that options['reset_mask'] leaves out: it does not support masks. "
                    "Reset whole shards of it, or all"
                )

    def _send(self, finals: Infos, infos: Infos, failures: Failures) -> None:
        if self.layout.objects:
            self.objects.set(
                [
                    leaves
                    for member, observations in zip(self.envs, self.last, strict=True)
                    for leaves in self.layout.take_block(observations, member.rows.stop - member.rows.start)
                ]
            )
        if infos or failures or self.news:
            rows = [self.envs[number].rows for number in infos]
            blocks = [
                (self.row + of_one.start, of_one.stop - of_one.start, info)
                for of_one, info in zip(rows, infos.values(), strict=True)
            ]
            self.extras.set(((self.news, blocks), failures))
            self.news = []

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        kept = [
            self._saved(number, member.env, last, maker, "ReactorVectorEnv.of")
            for number, (member, last, maker) in enumerate(zip(self.envs, self.last, self.makers, strict=True))
        ]
        return {"kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for number, (member, (saved, last)) in enumerate(zip(self.envs, state["kept"], strict=True)):
            load_env(member.env, saved)
            self.last[number] = loads(last)


def _masked(info: dict[str, Any], ended: Bools) -> dict[str, Any]:
    """Infos in which last observations and infos are those of rows whose episodes have ended, even if the member has no masks."""
    missing = {f"_{key}": ended for key in ("final_obs", "final_info") if key in info and f"_{key}" not in info}
    return {**info, **missing}
