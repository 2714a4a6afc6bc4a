"""``ParallelVectorEnv``: many copies of a PettingZoo ``ParallelEnv`` as a Gymnasium ``VectorEnv`` whose rows are agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

from reactor_gymnasium.plugin import (
    Bools,
    EnvBatch,
    HostStyle,
    Inputs,
    ShardedVectorEnv,
    StepCosts,
    UnitRows,
    checked_mask,
    checked_number,
    checked_seeds,
    encode_makers,
    median_step,
    one_seed,
    random_actions,
    without_mask,
)
from reactor_pettingzoo.agents import agents_of, as_parallel, shared_space
from reactor_pettingzoo.rows import PRESENT, AgentsProbe, PaddedUnits
from reactor_rl.plugin import Execution, ExecutorName

__all__ = ["ParallelVectorEnv"]

_MASK = "(terminations | truncations).reshape(envs.num_copies, -1).all(1)"
"""The copies whose episodes a step has ended, as errors tell it."""


def _call(env: ParallelEnv, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of an environment, or get an attribute of it.

    Raises:
        AttributeError: If neither it nor what it wraps has one of that name.
    """
    attribute = getattr(_holder(env, name), name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def _set_attribute(env: ParallelEnv, name: str, value: Any) -> None:
    """Set an attribute where it is, or of the outermost wrapper if nothing has it."""
    setattr(_holder(env, name), name, value)


def _holder(env: Any, name: str) -> Any:
    """The outermost of an environment and those that it wraps that has an attribute itself; the environment if none has.

    Wrappers' ``__getattr__`` is not asked: PettingZoo's pass on reading and not writing, and its conversions neither.
    """
    layer = env
    while layer is not None:
        if name in vars(layer) or hasattr(type(layer), name):
            return layer
        layer = vars(layer).get("env") or vars(layer).get("aec_env")
    return env


class ParallelVectorEnv(ShardedVectorEnv):
    """Steps copies of a ``ParallelEnv`` on all cores; every agent of every copy is a row, so that all share one policy.

    Row = copy * number of agents + index of the agent in :attr:`agents`. It does the work of SuperSuit's
    ``pettingzoo_env_to_vec_env_v1`` and ``concat_vec_envs_v1``. Results never depend on the number of workers.

    **Ends.** The rows of a copy are reset together, when its episode is over: no agent is left. An agent whose episode ends
    before that reports ``terminated`` or ``truncated`` at that step, with its last observation.

    **Padding.** From the step after, and until an agent joins that is not there from the start, its row is *padded*:
    the observation is zeros (action masks, too), the reward 0, both flags ``False``, the action is ignored, and
    ``infos["padded"]`` is ``True`` for it (the key is there only in steps that have such rows: take
    ``infos.get("padded", False)``). When the episode is over, padded rows report ``terminated``, as a boundary before the next one.

    A learner that knows nothing of padding learns from these rows, too: Stable-Baselines3's do, and its ``VecNormalize`` averages
    them into its statistics. Leave them out by ``infos["padded"]`` where a learner takes a mask. Who counts episodes by flags
    alone, as Gymnasium's ``RecordEpisodeStatistics``, counts one of return 0 for each agent that died early, when the copy's
    episode is over: leave out those whose ``infos["final_info"]["padded"]`` is ``True``.

    **What an environment says** is read as :class:`MultiAgentRunner` does. Masks are handed on as they are.

    **Autoreset** is Gymnasium's. ``SAME_STEP``: the copy is reset within the step, and every row that reports an end has
    ``final_obs`` and ``final_info``; of a padded row these are zeros and ``{"padded": True}``. ``NEXT_STEP``: it is reset by the
    step after, whose actions are ignored. ``DISABLED``: by ``reset(options={"reset_mask": mask})`` only; the flags of a copy's rows
    are all set when its episode is over, so ``mask = (terminations | truncations).reshape(envs.num_copies, -1).all(1)``.

    Args:
        env_fn: Makes one ``ParallelEnv``, or an ``AECEnv`` whose metadata has ``"is_parallelizable"``; a lambda will do.
        num_envs: How many copies.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use. Never
            changes a result, nor does ``executor``.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which steps a throw-away copy for some milliseconds
            and chooses. Name one if that must not happen.
        nodes: Machines, with ``executor="ray"``; as for :class:`reactor_gymnasium.ReactorVectorEnv`.
        copy: Whether :meth:`reset` and :meth:`step` return copies of the observations, which are yours to keep, or views, which
            the next call overwrites.
        autoreset_mode: When a copy whose episode is over is reset.
        context: How helper processes start: ``"forkserver"`` (default where there is one), ``"spawn"`` or ``"fork"``. Scripts
            need no ``__main__`` guard with any of them.
        caller_works: Whether the calling thread steps copies itself. If not, ``workers`` helpers do everything, and the caller
            may do something else between :meth:`step_async` and :meth:`step_wait`.
        restarts: How often worker processes that die are replaced, with the same results; see :class:`reactor_rl.Recover`. The
            copies must do the same after the same seed and actions, which is tried with two that are thrown away.
        timeout: Seconds that a step, a reset or a call may take on a worker process at most. After that it is a
            :class:`reactor_rl.WorkerHungError` that names the copy, or, with ``restarts``, the worker is replaced.

    **Resets.** ``seed`` is ``None``, one seed for each copy, or an int ``s`` for ``s, s + 1, ...``: no two copies have the same.
    ``options["reset_mask"]`` is bool, ``(num_copies,)``, or ``(num_envs,)`` with the same for all rows of a copy.

    Attributes:
        agents: The agents of a copy, in the order of their rows.
        num_copies: How many copies.
        num_envs: How many rows: ``num_copies * len(agents)``.
        copies: The copy of each row, ``(num_envs,)`` int64.

    Raises:
        ValueError: If agents have different spaces, a number makes no sense, or there are ``restarts`` and copies that could not
            be brought back.
        ProgramError: If ``env_fn`` cannot be pickled; see :class:`reactor_gymnasium.ReactorVectorEnv`.
        TypeError: If ``env_fn`` cannot be called, or makes something else.

    Example:
        >>> from mpe2 import simple_spread_v3
        >>> from reactor_pettingzoo import ParallelVectorEnv
        >>> envs = ParallelVectorEnv(lambda: simple_spread_v3.parallel_env(N=3), num_envs=2, workers=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape, envs.agents
        ((6, 18), ('agent_0', 'agent_1', 'agent_2'))
        >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> envs.close()
    """

    _style = HostStyle(makers_option="env_fn")
    _call_one = staticmethod(_call)
    _set_one = staticmethod(_set_attribute)

    def __init__(
        self,
        env_fn: Callable[[], ParallelEnv],
        num_envs: int = 1,
        *,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        copy: bool = True,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        context: str | None = None,
        caller_works: bool = True,
        restarts: int = 0,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        if not callable(env_fn):
            raise TypeError(f"env_fn is not callable but {env_fn!r}: pass a function that makes a new environment")
        checked_number("num_envs", num_envs, 1)
        self.num_copies, self.autoreset_mode = int(num_envs), AutoresetMode(autoreset_mode)
        self._chosen: Bools | None = None  # the copies that the reset that goes on is of
        self._over = np.zeros(self.num_copies, np.bool_)
        makers = [env_fn] * self.num_copies
        execution = Execution(
            workers=workers, executor=executor, nodes=nodes, start_method=context, caller_works=caller_works, restarts=restarts,
            timeout=timeout, method_option=self._style.context_option,
        )  # fmt: skip
        self._construct(makers, execution, copy=copy)

    # ------------------------------------------------------------------ hooks

    def _make_probe(self, maker: Any) -> ParallelEnv:
        return as_parallel(super()._make_probe(maker))

    def _describe(self, probe: ParallelEnv) -> Sequence[int]:
        self.agents = agents_of(probe)
        self._items_per_unit = agents = len(self.agents)
        self.num_envs = self.batch_size = self.num_copies * agents
        self.copies = np.repeat(np.arange(self.num_copies), agents)
        self.metadata = {**getattr(probe, "metadata", {}), "autoreset_mode": self.autoreset_mode}
        self.render_mode = getattr(probe, "render_mode", None)
        self.single_observation_space = shared_space(probe, self.agents, "observation")
        self.single_action_space = shared_space(probe, self.agents, "action")
        told = not self._style.columns  # else there is a column of who is there
        self._make_unit = PaddedUnits(self.agents, self.single_observation_space, self.single_action_space, told)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        return range(0, self.num_envs + 1, agents)

    def _time(self, probe: ParallelEnv, workers: int) -> StepCosts:
        unit = self._make_unit(probe, 0)
        actions = random_actions(spaces.Tuple([self.single_action_space] * unit.rows))

        def step(action: Any) -> bool:
            unit.step(action)
            return unit.over

        return StepCosts.alike(median_step(lambda seed: unit.reset(seed=seed), actions.__next__, step), self.num_copies)

    def _tried_makers(self) -> Sequence[Any]:
        return encode_makers((partial(AgentsProbe.padded, self._encoded[0], self._make_unit),)) * self.num_copies

    def _shard_settings(self, lo: int, hi: int, worker: int) -> dict[str, Any]:
        columns = PRESENT if self._style.columns else None
        make_rows = partial(UnitRows, autoreset=self.autoreset_mode, make=self._make_unit, layout=self._layout, columns=columns)
        return {"make_rows": make_rows}

    def _reset_kwargs(self, seed: Any, options: dict[str, Any] | None) -> Mapping[int, dict[str, Any]]:
        if seed is not None and not one_seed(seed) and len(seed) != self.num_copies:
            raise ValueError(
                f"{len(seed)} seeds were given for {self.num_copies} copies; the {len(self.agents)} agents of a copy share its seed"
            )
        seeds = checked_seeds(seed, self.num_copies)
        chosen = np.ones(self.num_copies, np.bool_)
        if options is not None and "reset_mask" in options:
            chosen, options = self._mask(options["reset_mask"]), without_mask(options)
        self._assert_all_first(bool(chosen.all()), "copies")
        self._chosen = chosen
        return {index: {"seed": seeds[index], "options": options} for index in np.flatnonzero(chosen).tolist()}

    # ------------------------------------------------------------------ rows

    def rows_of(self, copy: int) -> slice:
        """The rows of one copy's agents.

        Raises:
            IndexError: If there is no such copy.
        """
        index = range(self.num_copies)[copy]
        return slice(index * len(self.agents), (index + 1) * len(self.agents))

    def _mask(self, mask: Any) -> Bools:
        """The copies that a mask of copies, or of rows, selects."""
        if np.shape(mask) == (self.num_copies,):
            return checked_mask(mask, self.num_copies)
        of_rows = checked_mask(mask, self.num_envs).reshape(self.num_copies, -1)
        chosen = np.asarray(of_rows.all(1))
        torn = np.flatnonzero(of_rows.any(1) & ~chosen)
        if len(torn):
            raise ValueError(
                f"`options['reset_mask']` selects some rows of copy {torn[0]} and not others, and its agents are reset together: "
                f"take {_MASK}"
            )
        return chosen

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        self._assert_was_reset()
        if self._over.any():
            raise ResetNeeded(
                f"the episodes of copies {np.flatnonzero(self._over).tolist()} are over, and with autoreset DISABLED they wait for "
                f"reset(options={{'reset_mask': {_MASK}}})"
            )
        return super()._encode_actions(batch, actions)

    def _rows_in_words(self) -> str:
        return f"{self.num_envs} rows: {self.num_copies} copies of {len(self.agents)} agents"

    def _batch_infos(self, batch: EnvBatch, parts: Sequence[Any]) -> dict[str, Any]:
        infos = self._merged(batch, parts) if parts else {}
        if self._chosen is not None:
            self._over[self._chosen], self._chosen = False, None
        elif self.autoreset_mode is AutoresetMode.DISABLED:
            self._over = (batch.terminations | batch.truncations).reshape(self.num_copies, -1).all(1)
        return infos

    def _name(self) -> str:
        return f"{self.metadata.get('name', 'ParallelEnv')}, {self.num_copies} x {len(self.agents)} agents"
