"""``ReactorVectorEnv.of``: vector environments that step many rows by themselves, joined to one, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import check_actions, checked_makers, checked_seed, checked_seeds, kind_of, make_probe, one_seed
from reactor_gymnasium.placement import StepCosts, env_costs, median_step, random_actions
from reactor_gymnasium.traces import looked_at
from reactor_gymnasium.vector.env_program import EnvBatch, HostStyle, Inputs
from reactor_gymnasium.vector.sharded import ShardedVectorEnv
from reactor_gymnasium.vector.vector_unit import SubEnvSpec, VectorRows, sub_env_spec
from reactor_rl.plugin import Execution, ExecutorName, decode

__all__ = ["JoinedVectorEnv", "VectorEnvFn"]

VectorEnvFn = Callable[[], VectorEnv[Any, Any, Any]]
_Column = npt.NDArray[Any]


def _call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a member, or get an attribute, of the outermost wrapper that has one."""
    attribute = getattr(_having(env, name), name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def _set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute of a member, or of the wrapper around it that has one."""
    setattr(_having(env, name), name, value)


def _having(env: Any, name: str) -> Any:
    while not hasattr(env, name) and isinstance(env, VectorWrapper):
        env = env.env
    return env


class JoinedVectorEnv(ShardedVectorEnv):
    """Steps the rows of several vector environments, each of which steps its own: what ``ReactorVectorEnv.of`` returns.

    Row = first row of the shard + row there. Everything is as the members alone would give it, for any number of workers.

    **Resets.** ``seed`` is ``None``; an int ``s``, and each shard is reset with ``s`` plus its first row, so that rows with
    generators of their own have ``s``, ``s + 1``, ...; one int for each shard; or a sequence of one for each row, of which each
    shard is given its part, if it takes that. Of ``options["reset_mask"]`` each shard has its part; one of which no row is selected
    is left alone, and one that does not know masks can be reset as a whole only. Infos are of the shards that were reset.

    Its arguments are those of :meth:`ReactorVectorEnv.of`.

    Attributes:
        bounds: The first row of each shard, and the row after the last one.
    """

    _style = HostStyle("ReactorVectorEnv.of", "shards", "shard", makers_option="vector_env_fns")
    _call_one = staticmethod(_call)
    _set_one = staticmethod(_set_attribute)

    def __init__(
        self,
        vector_env_fns: Sequence[VectorEnvFn],
        *,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        copy: bool = True,
        context: str | None = None,
        caller_works: bool = True,
        restarts: int = 0,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        makers = checked_makers(vector_env_fns, self._title, "vector_env_fns")
        self._reward_dtypes: dict[int, str] = {}  # by the first row of a shard
        execution = Execution(
            workers=workers, executor=executor, nodes=nodes, start_method=context, caller_works=caller_works, restarts=restarts,
            timeout=timeout, method_option=self._style.context_option,
        )  # fmt: skip
        self._construct(makers, execution, copy=copy)

    # ------------------------------------------------------------------ hooks

    def _describe(self, probe: Any) -> Sequence[int]:
        self._specs = specs = _specs_of(probe, self._encoded)
        self.metadata = {**getattr(probe, "metadata", {})}
        self.render_mode = getattr(probe, "render_mode", None)
        self.bounds = [0, *accumulate(spec.rows for spec in specs)]
        self.num_envs = self.batch_size = self.bounds[-1]
        self.single_observation_space, self.single_action_space = specs[0].observation_space, specs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        return self.bounds

    def _time(self, probe: Any, workers: int) -> StepCosts:
        return env_costs(probe, self._encoded, workers, _step_cost)

    def _shard_settings(self, lo: int, hi: int, worker: int) -> dict[str, Any]:
        specs = dict(enumerate(self._specs[lo:hi], lo))
        return {"make_rows": partial(VectorRows, layout=self._layout, specs=specs)}

    def _reset_kwargs(self, seed: Any, options: dict[str, Any] | None) -> Mapping[int, dict[str, Any]]:
        seeds = _seeds_of(seed, self.bounds)
        mask, others = self._masked(options)
        self._assert_all_first(bool(mask.all()), "rows")
        arguments: dict[int, dict[str, Any]] = {}
        for index, (lo, hi) in enumerate(pairwise(self.bounds)):
            part = mask[lo:hi]
            if part.any():
                arguments[index] = {} if seed is None else {"seed": seeds[index]}
                if others or not part.all():
                    arguments[index]["options"] = others if part.all() else {**(others or {}), "reset_mask": part}
        return arguments

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        self._assert_was_reset()
        if self._plain_actions and isinstance(actions, np.ndarray):
            if actions.dtype == self._action_dtype and actions.shape == self._action_shape:
                return actions
            check_actions(actions, self.single_action_space, self.num_envs)
        # Another dtype travels as it is, for the member is to see what it would see alone.
        parts = [_sliced(self.single_action_space, actions, lo, hi) for lo, hi in pairwise(self.bounds)]
        return self._encode_items(batch, parts)

    def _batch_infos(self, batch: EnvBatch, parts: Sequence[list[tuple[int, int, tuple[str, Any]]]]) -> dict[str, Any]:
        told = [of_one for part in parts for of_one in part]
        if news := {row: dtype for row, _, (dtype, _) in told if dtype}:
            self._reward_dtypes.update(news)
            dtype = np.result_type(*(self._reward_dtypes[row] for row in sorted(self._reward_dtypes)))
            batch.copy_rewards = partial(batch.rewards.astype, dtype)
        return stack_infos([(row, count, infos) for row, count, (_, infos) in told if infos], self.num_envs)

    # ------------------------------------------------------------------ shards

    def render(self) -> tuple[Any, ...] | None:
        """The frames of all rows, or ``None`` where the shards have no ``render_mode``."""
        frames = super().call("render")
        return None if all(of_one is None for of_one in frames) else tuple(chain.from_iterable(frames))

    def _name(self) -> str:
        return f"{super()._name()} {self._units} shards".strip()


def _specs_of(dummy: Any, encoded: Sequence[Any]) -> list[SubEnvSpec]:
    """The specification of each member, from throw-away ones: one of each kind, of which ``dummy`` is the first one's.

    Raises:
        RuntimeError: If one does not go together with the first one, with its index.
        Exception: If one cannot be made, with its index as a note.
    """
    first = sub_env_spec(dummy, "shard 0")
    kinds: dict[Any, SubEnvSpec] = {kind_of(encoded[0]): first}
    found = [first]
    for index, one in enumerate(encoded[1:], 1):
        if (kind := kind_of(one)) not in kinds:
            name = f"shard {index}"
            kinds[kind] = looked_at(partial(make_probe, decode(one), name), partial(sub_env_spec, where=name))
        found.append(kinds[kind])
        for name in ("observation_space", "action_space", "autoreset_mode"):
            here, there = getattr(found[-1], name), getattr(first, name)
            if here != there:
                what = name.replace("_", " ")
                raise RuntimeError(
                    f"shard {index} has the {what} {here}, and shard 0 has {there}: all rows of a vector environment have the same"
                )
    return found


def _step_cost(env: Any) -> float | None:
    """Median seconds of a step of a member that is thrown away; see :func:`~reactor_gymnasium.placement.median_step`."""

    def step(actions: Any) -> bool:
        env.step(actions)
        return False

    return median_step(lambda seed: env.reset(), random_actions(batch_space(env.single_action_space, env.num_envs)).__next__, step)


def _seeds_of(seed: Any, bounds: Sequence[int]) -> list[Any]:
    """The seed that each member is reset with, given one of all: its part; see :class:`JoinedVectorEnv`.

    Raises:
        ValueError: If there are not as many seeds as members or rows, or one is negative.
        TypeError: If one is not an integer.
    """
    members = len(bounds) - 1
    if seed is not None and one_seed(seed):
        return [checked_seed(seed) + first for first in bounds[:-1]]
    if seed is None or len(seed) == members:
        return [*checked_seeds(seed, members)]
    if len(seed) == bounds[-1]:
        numbers = checked_seeds(seed, bounds[-1])
        of_rows: Any = seed if isinstance(seed, np.ndarray) else numbers  # some members take arrays, and no lists
        return [of_rows[lo:hi] for lo, hi in pairwise(bounds)]
    raise ValueError(
        f"{len(seed)} seeds were given: pass one for each of the {members} shards, or of the {bounds[-1]} rows, or an int"
    )


def _sliced(space: Space[Any], actions: Any, lo: int, hi: int) -> Any:
    """The actions of some rows, of a batch of a single action space."""
    if isinstance(space, spaces.Dict):
        return {key: _sliced(part, actions[key], lo, hi) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_sliced(part, of_part, lo, hi) for part, of_part in zip(space.spaces, actions, strict=True))
    if len(actions[lo:hi]) != hi - lo:
        raise ValueError(f"there are no actions for rows {lo} to {hi - 1}: {len(actions)} were given")
    return actions[lo:hi]


def stack_infos(blocks: Sequence[tuple[int, int, dict[str, Any]]], rows: int) -> dict[str, Any]:
    """The infos of all rows, in the form that Gymnasium's vector environments give them: each key with its mask ``_key``.

    A key without a mask counts for all rows of its block; rows of which a key says nothing are zero, or ``None``. What is neither
    a dict nor a column is the value of every row of its block. ``env_id`` counts on from block to block.

    Args:
        blocks: First row, number of rows, and their infos, in order of rows.
        rows: How many rows there are.
    """
    keys = dict.fromkeys(key for _, _, infos in blocks for key in infos if not (key[:1] == "_" and key[1:] in infos))
    stacked: dict[str, Any] = {}
    for key in keys:
        having = [(first, count, infos) for first, count, infos in blocks if key in infos]
        values = [infos[key] for _, _, infos in having]
        if all(isinstance(value, dict) for value in values):
            stacked[key] = stack_infos([(first, count, infos[key]) for first, count, infos in having], rows)
        else:
            columns = [(first, _joined_column(value, count)) for (first, count, _), value in zip(having, values, strict=True)]
            if key == "env_id":
                columns = [(first, column + first if column.dtype.kind in "iu" else column) for first, column in columns]
            stacked[key] = _joined(columns, rows)
        mask = stacked[f"_{key}"] = np.zeros(rows, np.bool_)
        for first, count, infos in having:
            mask[first : first + count] = infos.get(f"_{key}", True)
    return stacked


def _joined_column(value: Any, count: int) -> _Column:
    """The values of ``count`` rows."""
    if isinstance(value, np.ndarray) and value.ndim and len(value) == count:
        return value
    if isinstance(value, (bool, int, float, np.bool_, np.number)):
        return np.full(count, value)
    of_rows = value if isinstance(value, (list, tuple)) and len(value) == count else [value] * count
    column = np.empty(count, object)
    for row, one in enumerate(of_rows):  # one by one, for they may be sequences themselves
        column[row] = one
    return column


def _joined(columns: Sequence[tuple[int, _Column]], rows: int) -> _Column:
    """One column of all rows; of objects, where blocks have values of different shapes or no common dtype."""
    shape = columns[0][1].shape[1:]
    try:
        dtype = np.result_type(*[column.dtype for _, column in columns])
    except TypeError:
        dtype = np.dtype(object)
    if dtype.hasobject or any(column.shape[1:] != shape for _, column in columns):
        joined = np.full(rows, None, object)
        for first, column in columns:
            for row, one in enumerate(column, first):
                joined[row] = one
        return joined
    joined = np.zeros((rows, *shape), dtype)
    for first, column in columns:
        joined[first : first + len(column)] = column
    return joined
