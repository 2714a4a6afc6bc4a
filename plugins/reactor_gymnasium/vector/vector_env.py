"""``ReactorVectorEnv``: Gymnasium's ``AsyncVectorEnv`` as a reactor program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

from reactor_gymnasium.arguments import (
    EnvFn,
    check_actions,
    check_travel,
    checked_batch_size,
    checked_executor,
    checked_mask,
    checked_seeds,
    checked_workers,
    encode_makers,
    make_probe,
    observation_spaces,
    refuse_wrapper,
)
from reactor_gymnasium.environments.infos import merge_infos
from reactor_gymnasium.environments.saving import recover_for
from reactor_gymnasium.environments.storage import Casting, ObservationLayout, check_shared_memory
from reactor_gymnasium.native.takeover import forecast, within
from reactor_gymnasium.placement import choose_executor, env_costs, info_cost, late_helpers, step_cost
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.vector.env_program import EnvBatch, Inputs
from reactor_gymnasium.vector.joined import JoinedVectorEnv
from reactor_gymnasium.vector.shard import EnvShard
from reactor_gymnasium.vector.sharded import CallingVectorEnv
from reactor_gymnasium.vector.sub_envs import VectorEnvFn
from reactor_rl import Instance, Program
from reactor_rl.plugin import ExecutorName, encode

__all__ = ["ReactorVectorEnv"]


class ReactorVectorEnv(CallingVectorEnv):
    """Steps many environments on all cores: ``AsyncVectorEnv``'s interface, bit-identical results for any number of workers.

    The environments are divided into contiguous shards, one for each worker or, where some take longer than others, more. The
    calling thread is a worker itself: it steps its own shards within :meth:`step` while helper processes step theirs, and
    observations, rewards, flags and infos come back through shared memory.

    With ``batch_size`` the environments are divided into equal batches that take turns, so that they step while the caller's
    network runs (double buffering). :meth:`reset` resets all and returns the first batch's observations; :meth:`step` takes the
    actions of the environments whose results came last, and returns the next batch's results: those of its reset at first,
    then of its last step. The batches come in order, always; ``infos["env_id"]`` says which environments they are.

    Args:
        env_fns: Functions that create the environments.
        shared_memory: As for ``AsyncVectorEnv``, ``True`` refuses observation spaces without a fixed layout. With ``False`` those
            travel as pickles; what has a fixed layout is in shared memory either way.
        copy: Whether :meth:`reset` and :meth:`step` return copies of the observations, which are yours to keep, or views, which
            the next call overwrites.
        context: How helper processes start: ``"forkserver"`` (default where there is one), ``"spawn"`` or ``"fork"``. Scripts
            need no ``__main__`` guard with any of them.
        daemon: Accepted. Helpers always end with this process, and may always have children of their own.
        worker: Not supported: there is no worker function to replace.
        observation_mode: ``"same"``, ``"different"``, or ``(observation_space, single_observation_space)``.
        autoreset_mode: When an environment whose episode has ended is reset.
        max_concurrency: The most environments that are stepped or reset at the same time: at most so many workers are used.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use. Never
            changes a result, nor does ``executor``.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which steps a throw-away environment of each kind for
            some milliseconds, chooses, and places environments by what they cost. Name one if that must not happen. ``"ray"`` is
            for several machines.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them. ``workers`` is then the number of workers on each.
        caller_works: Whether the calling thread steps shards itself. If not, ``workers`` helpers do everything, and the caller
            may do something else between :meth:`step_async` and :meth:`step_wait`. ``None``: unless there are several batches.
        batch_size: How many environments step together; a divisor of their number, ``None`` for all.
        restarts: How often worker processes that die are replaced, with the same results; see :class:`reactor_rl.Recover`. The
            environments must do the same after the same seed and actions, which is tried with two that are thrown away.
        step_timeout: Seconds that a step, or a reset or a call, may take on a worker process at most. After that it is a
            :class:`reactor_rl.WorkerHungError` that names the environment, or, with ``restarts``, the worker is replaced. The
            calling thread's own environments are not timed: ``caller_works=False`` leaves it none.
        kernels: Whether Gymnasium's own environments may be stepped by kernels, many rows in one call, with the same results to the
            last bit; ``REACTOR_RL_KERNELS=0`` in the environment says no for all. ``repr()`` says which kernel it is.

    Raises:
        ValueError: If there are no environments, ``worker`` is given, a number makes no sense, or there are ``restarts`` and
            environments that could not be brought back.
        TypeError: If an element of ``env_fns`` is not callable, or with ``shared_memory=True`` a space has no fixed layout.
        RuntimeError: If the environments' spaces do not fit together.

    Example:
        >>> import gymnasium as gym
        >>> from reactor_gymnasium import ReactorVectorEnv
        >>> envs = ReactorVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(4)], workers=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (4, 4)
        >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> rewards
        array([1., 1., 1., 1.])
        >>> envs.close()
    """

    @staticmethod
    def of(
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
    ) -> JoinedVectorEnv:
        """Join vector environments that step many rows by themselves, and step them on all cores.

        Each is a shard: a class that is a ``vector_entry_point`` of Gymnasium's, an EnvPool, ``ale_py``'s ``AtariVectorEnv``, or
        a simulator of your own in numpy or numba. It lives on one worker, and how many rows it has is yours to say, so no result
        depends on the number of workers: rows, dtypes and infos are those that each shard gives alone. Infos have a mask ``_key``
        for each key, as Gymnasium's have; ``env_id`` counts the rows of all.

        ``call``, ``get_attr`` and ``set_attr`` are of shards, ``render`` is of rows. The autoreset mode is that of the shards.

        Args:
            vector_env_fns: Functions that make them, called again for one of each kind, which is looked at and thrown away. They
                may have different numbers of rows; spaces and autoreset modes must agree.
            workers: As for the constructor. A shard has one worker, so shards beyond the number of cores are of use only if some
                take longer than others.
            executor: As for the constructor. ``"threads"`` is for shards that release the GIL, such as EnvPool and ``ale_py``.
            nodes: As for the constructor.
            copy: As for the constructor.
            context: As for the constructor.
            caller_works: Whether the calling thread steps shards itself.
            restarts: As for the constructor. It is tried with two shards of each kind that are thrown away.
            step_timeout: As for the constructor; the error names the shard.

        Raises:
            TypeError: If one is no vector environment.
            ValueError: If there are none, one steps a part of its rows at a time, or there are ``restarts`` and shards that could
                not be brought back.
            RuntimeError: If their spaces or autoreset modes differ. Names the shard.

        Example:
            >>> from functools import partial
            >>> from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
            >>> from reactor_gymnasium import ReactorVectorEnv
            >>> envs = ReactorVectorEnv.of([partial(CartPoleVectorEnv, 512)] * 2)
            >>> observations, infos = envs.reset(seed=0)
            >>> observations.shape
            (1024, 4)
            >>> envs.close()
        """
        return JoinedVectorEnv(
            vector_env_fns, workers=workers, executor=executor, nodes=nodes, copy=copy, context=context, caller_works=caller_works,
            restarts=restarts, step_timeout=step_timeout,
        )  # fmt: skip

    _split_finals = True
    """Whether infos of ended episodes are taken apart; see :func:`~reactor_gymnasium.environments.infos.pack_infos`."""
    _context_option = "context"
    """Name of the parameter that says how processes start."""
    _casting: Casting = "same_kind"
    """See :class:`~reactor_gymnasium.environments.storage.ObservationLayout`."""

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: str | tuple[Space[Any], Space[Any]] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        caller_works: bool | None = None,
        batch_size: int | None = None,
        restarts: int = 0,
        step_timeout: float | None = None,
        kernels: bool = True,
    ) -> None:
        super().__init__()
        self.env_fns = env_fns = tuple(env_fns)
        self.shared_memory, self.copy, self.context, self.daemon = shared_memory, copy, context, daemon
        self.worker, self.observation_mode, self.max_concurrency = worker, observation_mode, max_concurrency
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.num_envs = len(env_fns)
        checked_executor(executor)
        workers = self._workers_of(executor, nodes, workers)
        workers = checked_workers(env_fns, worker, max_concurrency, workers, self._title)
        self.batch_size = checked_batch_size(batch_size, self.num_envs)
        batches, workers = self.num_envs // self.batch_size, min(workers, self.batch_size)
        if batches > 1 and observation_mode == "different":
            raise ValueError("batch_size needs one observation space for all batches; observation_mode='different' has several")
        if caller_works is None:
            caller_works = batches == 1
        self._expect_helpers(executor, workers, caller_works, context)
        self._encoded = encode_makers(env_fns)  # before any of them is called, which may change it

        dummy = make_probe(env_fns[0])
        try:
            # A copy: Gymnasium's own environments share one dict between all instances of a class.
            self.metadata = {**dummy.metadata, "autoreset_mode": self.autoreset_mode}
            self.render_mode = dummy.render_mode
            self.single_action_space = dummy.action_space
            self.action_space = batch_space(self.single_action_space, self.batch_size)
            self._set_actions(self.single_action_space, self.batch_size)
            self.observation_space, self.single_observation_space = observation_spaces(
                observation_mode, dummy, env_fns, self.batch_size
            )
            if shared_memory:
                check_shared_memory(self.single_observation_space)
            self._inner = type(within(dummy)) if kernels else None
            cost = partial(step_cost, kernels=kernels)
            costs = partial(env_costs, dummy, self._encoded, workers, cost, info_cost if self._split_finals else None)
            helper_cost = late_helpers(context, self._spin)
            choice = choose_executor(costs, self.batch_size, workers, executor, caller_works, helper_cost, restarts)
        finally:
            dummy.close()
        self._layout = ObservationLayout(self.single_observation_space, self._casting)
        if context != "fork" or choice.executor != "processes" or choice.workers == 1:
            check_travel(env_fns, self._encoded, self._title, self._context_option)
        self._replace(recover_for(restarts, choice.executor, self._encoded), self.num_envs)
        self._step_timeout = step_timeout
        program = Program(f"ReactorVectorEnv of {self.num_envs}")
        program.worker_setup(repeat_registrations())

        def add(name: str, lo: int, hi: int, worker: int, row: int) -> Instance:
            return program.add(
                EnvShard,
                name=name,
                env_fns=self._encoded[lo:hi],
                first=lo,
                row=row,
                single_observation_space=self.single_observation_space,
                single_action_space=self.single_action_space,
                same_observations=self.observation_mode == "same",
                autoreset_mode=self.autoreset_mode,
                split_finals=self._split_finals,
                casting=self._casting,
                owner=self._title,
                watched=step_timeout is not None,
                strategies=self._strategies(self._encoded[lo:hi]),
                whole=self._split_finals and choice.executor == "inline" and hi - lo == self.batch_size,
                kernels=kernels,
            )

        self._open(program, add, choice, context, caller_works, num_envs=self.num_envs, batch_size=self.batch_size)
        if not self.copy:
            self._make_views()

    def _stepped_by(self) -> str:
        return forecast(self._inner) if self._inner else "no kernel: kernels=False"

    # ------------------------------------------------------------------ reset

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those that ``options["reset_mask"]`` (shape ``(num_envs,)``, bool) selects.

        Args:
            seed: ``None``, one seed per environment, or an int ``s`` for ``s, s + 1, ...``.
            options: Given to every environment's ``reset``, but for ``reset_mask``.

        Returns:
            Batched observations, and infos of the environments that were reset.

        Raises:
            ValueError: If there are not as many seeds as environments.
            Exception: What an environment raised.
        """
        if not self._alone:
            refuse_wrapper(sys._getframe(1))
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a reset; :meth:`reset_wait` ends it. Arguments as for :meth:`reset`.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            AlreadyPendingCallError: If another call was begun and not ended.
            ValueError: If there are not as many seeds as environments.
            TypeError: If a seed is no integer.
        """
        self._assert_may_reset(options)
        seeds = checked_seeds(seed, self.num_envs)
        mask = None
        if options is not None and "reset_mask" in options:
            mask = checked_mask(options.pop("reset_mask"), self.num_envs)
            self._assert_whole()
        which = range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist()
        self._begin_resets({index: {"seed": seeds[index], "options": options} for index in which})

    # ------------------------------------------------------------------ step

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        if self._plain_actions:
            if type(actions) in (list, tuple):
                actions = self._joined(actions)
            if isinstance(actions, np.ndarray):
                if actions.shape == self._action_shape and actions.dtype == self._action_dtype:
                    return actions
                if actions.ndim:
                    check_actions(actions, self.single_action_space, self.batch_size)
        # Another dtype travels as it is, for the environment is to see what it would see in a SyncVectorEnv.
        items = self._single(actions)
        if len(items) != self.batch_size:
            raise ValueError(f"{len(items)} actions were given for {self.batch_size} environments")
        first = batch.lo
        return {f"items_{number}": encode(items[lo - first : hi - first]) for number, lo, hi in batch.shards}

    def _joined(self, actions: Any) -> Any:
        """A list of single actions as one array, if what an environment is given of that is just what it would be given of this."""
        shape, dtype = self._action_shape[1:], self._action_dtype
        if shape:
            alike = all(type(one) is np.ndarray and one.dtype == dtype and one.shape == shape for one in actions)
        else:
            alike = set(map(type, actions)) == {dtype.type}
        return np.array(actions, dtype) if alike and len(actions) == self.batch_size else actions

    def _single(self, actions: Any) -> list[Any]:
        return list(iterate(self.action_space, actions))

    def _batch_infos(self, batch: EnvBatch, parts: list[Any]) -> dict[str, Any]:
        if not parts:
            infos: dict[str, Any] = {}
        elif type(parts[0]) is dict:
            infos = parts[0]  # the only shard has put them together
        else:
            infos = merge_infos(parts, self if self._alone else batch.info_adder)
        if not self._alone:
            infos["env_id"], infos["_env_id"] = np.arange(batch.lo, batch.hi), np.ones(self.batch_size, np.bool_)
        return infos
