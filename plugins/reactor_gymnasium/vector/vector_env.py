"""``ReactorVectorEnv``: Gymnasium's ``AsyncVectorEnv`` as a reactor program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Env, Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import (
    EnvFn,
    check_flags,
    checked_batch_size,
    checked_makers,
    checked_number,
    checked_seeds,
    observation_spaces,
)
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.storage import check_shared_memory
from reactor_gymnasium.native.kernels import forecast, in_words
from reactor_gymnasium.placement import StepCosts, StepTimes, env_costs, info_cost, may_be_slow, step_times
from reactor_gymnasium.vector.joined import JoinedVectorEnv, VectorEnvFn
from reactor_gymnasium.vector.sharded import ShardedVectorEnv
from reactor_rl.plugin import Execution, ExecutorName

__all__ = ["ReactorVectorEnv"]


class ReactorVectorEnv(ShardedVectorEnv):
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
        timeout: Seconds that a step, or a reset or a call, may take on a worker process at most. After that it is a
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
        timeout: float | None = None,
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
            timeout: As for the constructor; the error names the shard.

        Raises:
            TypeError: If one is not a vector environment.
            ValueError: If ``vector_env_fns`` is empty, one steps a part of its rows at a time, or there are ``restarts`` and
                shards that could not be brought back.
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
            restarts=restarts, timeout=timeout,
        )  # fmt: skip

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
        timeout: float | None = None,
        kernels: bool = True,
    ) -> None:
        super().__init__()
        check_flags(shared_memory=shared_memory, copy=copy, daemon=daemon, kernels=kernels)
        execution = Execution(
            workers=workers, executor=executor, nodes=nodes, start_method=context, caller_works=caller_works, restarts=restarts,
            timeout=timeout, method_option=self._style.context_option,
        )  # fmt: skip
        self.env_fns = env_fns = checked_makers(env_fns, self._title)
        self.shared_memory, self.context, self.daemon = shared_memory, context, daemon
        self.worker, self.observation_mode, self.max_concurrency = worker, observation_mode, max_concurrency
        self.autoreset_mode, self._kernels = AutoresetMode(autoreset_mode), kernels
        self._times: list[StepTimes] = []  # of kinds of environments, where the executor was not named
        if worker is not None:
            raise ValueError(
                f"{self._title} has no worker function that could be replaced; leave `worker` out, and wrap the environments"
            )
        if max_concurrency is not None:
            checked_number("max_concurrency", max_concurrency, 1)
        if observation_mode == "different" and checked_batch_size(batch_size, len(env_fns)) < len(env_fns):
            raise ValueError("batch_size needs one observation space for all batches; observation_mode='different' has several")
        self._construct(env_fns, execution, copy=copy, batch_size=batch_size, most=max_concurrency)

    # ------------------------------------------------------------------ hooks

    def _describe(self, probe: Any) -> Sequence[int]:
        self.num_envs = len(self.env_fns)
        # A copy: Gymnasium's own environments share one dict between all instances of a class.
        self.metadata = {**probe.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = probe.render_mode
        self._forecast = forecast(probe) if self._kernels else "no kernel: kernels=False"
        self.single_action_space = probe.action_space
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        self.observation_space, self.single_observation_space = observation_spaces(
            self.observation_mode, probe, self._encoded, self.batch_size
        )
        if self.shared_memory:
            check_shared_memory(self.single_observation_space)
        return range(self.num_envs + 1)

    def _time(self, probe: Any, workers: int) -> StepCosts:
        rows = -(-self.batch_size // workers)

        def cost(env: Any) -> float | None:
            self._times.append(step_times(env, self._kernels))
            return self._times[-1].of_row(rows)

        return env_costs(probe, self._encoded, workers, cost, info_cost if self._style.infos == "columns" else None)

    def _judge(self, probe: Any) -> None:
        if self._kernels and may_be_slow(probe):
            self._times.append(step_times(probe))

    def _shard_settings(self, lo: int, hi: int, worker: int) -> dict[str, Any]:
        spaces = self.single_observation_space, self.single_action_space
        unused = ""
        if not all(times.pays(hi - lo) for times in self._times):
            unused = f"it takes longer than Python for {hi - lo} {'rows' if hi - lo > 1 else 'row'}"
            self._forecast = in_words(unused)
        return {
            "make_rows": partial(_gym_rows, autoreset=self.autoreset_mode, kernels=self._kernels, unused=unused),
            "check": partial(_check_spaces, *spaces, self.observation_mode == "same", self._title),
        }

    def _reset_kwargs(self, seed: Any, options: dict[str, Any] | None) -> Mapping[int, dict[str, Any]]:
        seeds = checked_seeds(seed, self.num_envs)
        mask, options = self._masked(options)
        return {index: {"seed": seeds[index], "options": options} for index in np.flatnonzero(mask).tolist()}


def _gym_rows(first: int, autoreset: AutoresetMode, kernels: bool, unused: str) -> GymRows:
    rows = GymRows(first, autoreset, kernels=kernels)
    if unused:
        rows.keep_from_kernels(unused)
    return rows


def _check_spaces(
    observation_space: Space[Any], action_space: Space[Any], same: bool, owner: str, envs: Sequence[Env[Any, Any]], first: int
) -> None:
    """Refuse environments that have other spaces; with ``same``, observations of the same shape and dtype are not enough."""
    for index, env in enumerate(envs, first):
        if same:
            if env.observation_space != observation_space:
                raise RuntimeError(
                    f"{owner}(..., observation_mode='same') however the sub-environments observation spaces are not "
                    f"equivalent. Environment {index} has {env.observation_space}, environment 0 has "
                    f"{observation_space}. If this is intentional, use `observation_mode='different'` instead."
                )
        elif not is_space_dtype_shape_equiv(env.observation_space, observation_space):
            raise RuntimeError(
                f"{owner}(..., observation_mode='different' or custom space) however the sub-environments observation "
                f"spaces do not share a common shape and dtype: environment {index} has {env.observation_space}, expected is "
                f"{observation_space}"
            )
        if env.action_space != action_space:
            raise RuntimeError(
                f"Environment {index} has the action space {env.action_space}, different from {action_space} of "
                "environment 0. In order to batch actions, the action spaces from all environments must be equal."
            )
