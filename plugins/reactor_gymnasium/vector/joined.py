"""``ReactorVectorEnv.of``: vector environments that step many rows by themselves, joined to one, on all cores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import (
    check_actions,
    check_travel,
    checked_executor,
    checked_mask,
    checked_workers,
    encode_makers,
    make_probe,
)
from reactor_gymnasium.environments.infos import stack_infos
from reactor_gymnasium.environments.saving import recover_for
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.placement import choose_executor, env_costs, late_helpers
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.vector.env_program import EnvBatch, Inputs
from reactor_gymnasium.vector.sharded import CallingVectorEnv
from reactor_gymnasium.vector.sub_envs import (
    SubVectorExtras,
    SubVectorShard,
    VectorEnvFn,
    call,
    seeds_of,
    set_attribute,
    sliced,
    sub_env_cost,
    sub_env_specs,
)
from reactor_rl import Instance, Program
from reactor_rl.plugin import ExecutorName, encode

__all__ = ["JoinedVectorEnv"]


class JoinedVectorEnv(CallingVectorEnv):
    """Steps the rows of several vector environments, each of which steps its own: what ``ReactorVectorEnv.of`` returns.

    Row = first row of the shard + row there. Everything is as the members alone would give it, for any number of workers.

    Args:
        vector_env_fns: Functions that make the members, as of :meth:`ReactorVectorEnv.of`, which describes the others, too.
        workers: Number of workers at most.
        executor: Name of the executor.
        copy: Whether observations are copies.
        context: How helper processes start.
        caller_works: Whether the calling thread steps shards itself.
        restarts: How often worker processes that die are replaced.
        step_timeout: Seconds that a step may take on a worker process at most.

    Attributes:
        bounds: The first row of each shard, and the row after the last one.
    """

    _unit = "shard"
    _title = "ReactorVectorEnv.of"
    _call_one = staticmethod(call)
    _set_one = staticmethod(set_attribute)

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
        step_timeout: float | None = None,
    ) -> None:
        super().__init__()
        makers = tuple(vector_env_fns)
        self.copy = copy
        checked_executor(executor)
        workers = self._workers_of(executor, nodes, workers)
        most = checked_workers(makers, None, None, workers, self._title, "vector_env_fns")
        self._expect_helpers(executor, most, caller_works, context)
        members = encode_makers(makers)  # before any of them is called, which may change it

        dummy = make_probe(makers[0], "shard 0")
        try:
            facts = sub_env_specs(dummy, members)
            self.metadata = {**getattr(dummy, "metadata", {})}
            self.render_mode = getattr(dummy, "render_mode", None)
            costs = partial(env_costs, dummy, members, most, sub_env_cost)
            helper_cost = late_helpers(context)
            choice = choose_executor(costs, len(makers), most, executor, caller_works, helper_cost, restarts)
        finally:
            dummy.close()
        self.bounds = [0, *accumulate(one.rows for one in facts)]
        self.num_envs = self.bounds[-1]
        self.single_observation_space, self.single_action_space = facts[0].observation_space, facts[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._set_actions(self.single_action_space, self.num_envs)
        self._layout = ObservationLayout(self.single_observation_space)
        self._was_reset = False
        self._reward_dtypes: dict[int, str] = {}
        if context != "fork" or choice.executor != "processes" or choice.workers == 1:
            check_travel(makers, members, self._title, "context", "vector_env_fns")
        self._replace(recover_for(restarts, choice.executor, members, self._unit), len(makers))
        self._step_timeout = step_timeout
        program = Program(f"{self._title} {len(makers)} shards")
        program.worker_setup(repeat_registrations())

        def add(name: str, lo: int, hi: int, worker: int, row: int) -> Instance:
            return program.add(
                SubVectorShard,
                name=name,
                makers=members[lo:hi],
                facts=facts[lo:hi],
                first=lo,
                row=row,
                watched=step_timeout is not None,
                strategies=self._strategies(members[lo:hi]),
            )

        self._open(
            program, add, choice, context, caller_works,
            num_envs=len(makers), batch_size=len(makers), bounds=self.bounds, label="shards",
        )  # fmt: skip
        if not self.copy:
            self._make_views()

    # ------------------------------------------------------------------ reset

    def reset(
        self, *, seed: int | Sequence[int | None] | npt.NDArray[Any] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all rows, or those that ``options["reset_mask"]`` (shape ``(num_envs,)``, bool) selects.

        Args:
            seed: ``None``; an int ``s``, and each shard is reset with ``s`` plus its first row, so that rows with generators of
                their own have ``s``, ``s + 1``, ...; one int for each shard; or a sequence of one for each row, of which each
                shard is given its part, if it takes that.
            options: Given to the ``reset`` of every shard. Of ``reset_mask`` each has its part; a shard of which no row is
                selected is left alone, and one that does not know masks can be reset as a whole only.

        Returns:
            Batched observations of all rows, and infos of the shards that were reset.

        Raises:
            ValueError: If there are not as many seeds as shards or rows, the mask does not fit, or a shard ignores its part.
            gymnasium.error.ResetNeeded: If the first reset leaves rows out.
            Exception: What a shard raised.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | npt.NDArray[Any] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin a reset; :meth:`reset_wait` ends it. Arguments as for :meth:`reset`."""
        self._assert_may_reset(options)
        seeds = seeds_of(seed, self.bounds)
        others = dict(options or {})
        mask = np.ones(self.num_envs, np.bool_)
        if "reset_mask" in others:
            mask = checked_mask(others.pop("reset_mask"), self.num_envs)
        if not self._was_reset and not mask.all():
            raise ResetNeeded("the first reset must be of all rows; `options['reset_mask']` leaves some out")
        arguments: dict[int, dict[str, Any]] = {}
        for index, (lo, hi) in enumerate(pairwise(self.bounds)):
            part = mask[lo:hi]
            if part.any():
                arguments[index] = {} if seed is None else {"seed": seeds[index]}
                if others or not part.all():
                    arguments[index]["options"] = others if part.all() else {**others, "reset_mask": part}
        self._begin_resets(arguments)
        self._was_reset = True

    # ------------------------------------------------------------------ step

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        if not self._was_reset:
            raise ResetNeeded("call reset() before the first step")
        if self._plain_actions and isinstance(actions, np.ndarray):
            if actions.dtype == self._action_dtype and actions.shape == self._action_shape:
                return actions
            check_actions(actions, self.single_action_space, self.num_envs)
        # Another dtype travels as it is, for the member is to see what it would see alone.
        parts = [sliced(self.single_action_space, actions, lo, hi) for lo, hi in pairwise(self.bounds)]
        return {f"items_{number}": encode(parts[lo:hi]) for number, lo, hi in batch.shards}

    def _batch_infos(self, batch: EnvBatch, parts: list[SubVectorExtras]) -> dict[str, Any]:
        if news := [one for dtypes, _ in parts for one in dtypes]:
            self._reward_dtypes.update(news)
            dtype = np.result_type(*(self._reward_dtypes[index] for index in sorted(self._reward_dtypes)))
            batch.copy_rewards = partial(batch.rewards.astype, dtype)
        return stack_infos([block for _, blocks in parts for block in blocks], self.num_envs)

    # ------------------------------------------------------------------ shards

    @property
    def _called(self) -> int:
        return len(self.bounds) - 1

    def render(self) -> tuple[Any, ...] | None:
        """The frames of all rows, or ``None`` where the shards have no ``render_mode``."""
        frames = super().call("render")
        return None if all(of_one is None for of_one in frames) else tuple(chain.from_iterable(frames))

    def _name(self) -> str:
        return f"{super()._name()} {self._called} shards".strip()
