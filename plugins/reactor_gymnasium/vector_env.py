"""``ReactorVectorEnv``: Gymnasium's ``AsyncVectorEnv`` as a reactor program."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import Space, logger, spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_differing_spaces, batch_space, iterate

from reactor_gymnasium.arguments import Bools, EnvFn, check_actions, checked_mask, checked_seeds, checked_workers, encoded, made
from reactor_gymnasium.leaves import Leaves, check_shared_memory
from reactor_gymnasium.measure import choose
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.shard import EnvShard, Extras
from reactor_rl import Program, RunError
from reactor_rl.runtime.launch import begin, context_named
from reactor_rl.serialise import encode, loads

if TYPE_CHECKING:
    from reactor_rl.runtime.run import Run
    from reactor_rl.trace import Tracing

__all__ = ["ReactorVectorEnv"]

_EXECUTORS = ("auto", "inline", "threads", "processes")
_NOT_THROUGH_CALL = ("reset", "step", "close", "_setattr", "_check_spaces")


class ReactorVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps many environments on all cores: ``AsyncVectorEnv``'s interface, bit-identical results for any number of workers.

    The environments are divided into one contiguous shard for each worker. The calling thread is a worker itself: it steps
    its own shard within :meth:`step` while helper processes step theirs, and observations, rewards and flags come back through
    shared memory.

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
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which times a throw-away environment and chooses.
        caller_works: Whether the calling thread steps a shard itself. If not, helpers do everything, and the caller may do
            something else between :meth:`step_async` and :meth:`step_wait`.

    Raises:
        ValueError: If there are no environments, ``worker`` is given, or a number makes no sense.
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
        executor: Literal["auto", "inline", "threads", "processes"] = "auto",
        caller_works: bool = True,
    ) -> None:
        super().__init__()
        self.closed = True  # until everything is up: a constructor that fails leaves nothing to close
        self.env_fns = env_fns = tuple(env_fns)
        self.shared_memory, self.copy, self.context, self.daemon = shared_memory, copy, context, daemon
        self.worker, self.observation_mode, self.max_concurrency = worker, observation_mode, max_concurrency
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.num_envs = len(env_fns)
        self._state = AsyncState.DEFAULT
        self._timed_out = False
        self._failed = ""
        workers = checked_workers(env_fns, worker, max_concurrency, workers)
        if executor not in _EXECUTORS:
            raise ValueError(f"executor={executor!r}: choose 'auto', 'inline', 'threads' or 'processes'")
        processes = context_named(context)
        if executor in ("auto", "processes") and (workers > 1 or not caller_works):
            begin(processes)  # helpers will most likely be wanted, and this takes its time while the dummy is made
        self._encoded = encoded(env_fns)  # before any of them is called, which may change it

        dummy = made(env_fns, 0)
        try:
            # A copy: Gymnasium's own environments share one dict between all instances of a class.
            self.metadata = {**dummy.metadata, "autoreset_mode": self.autoreset_mode}
            self.render_mode = dummy.render_mode
            self.single_action_space = dummy.action_space
            self.action_space = batch_space(self.single_action_space, self.num_envs)
            self._set_observation_spaces(observation_mode, dummy)
            if shared_memory:
                check_shared_memory(self.single_observation_space)
            choice = choose(dummy, self.num_envs, workers, executor, caller_works)
        finally:
            dummy.close()
        self._leaves = Leaves(self.single_observation_space)
        program, shards = self._program(choice.workers)
        self._shards = shards
        self._why = choice.why
        self._run: Run = program.start(
            executor=choice.executor, workers=choice.workers, context=context, caller_works=caller_works, fingerprint="off",
        )  # fmt: skip
        self._bind_ports()
        self.closed = False

    # ------------------------------------------------------------------ construction

    def _set_observation_spaces(self, mode: Any, dummy: gymnasium.Env[Any, Any]) -> None:
        if isinstance(mode, tuple) and len(mode) == 2:
            if not isinstance(mode[0], Space) or not isinstance(mode[1], Space):
                raise TypeError(f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}")
            self.observation_space, self.single_observation_space = mode
        elif mode == "same":
            self.single_observation_space = dummy.observation_space
            self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        elif mode == "different":
            found = [dummy.observation_space]
            while len(found) < self.num_envs:
                env = made(self.env_fns, len(found))
                found.append(env.observation_space)
                env.close()
            self.single_observation_space = found[0]
            self.observation_space = batch_differing_spaces(found)
        else:
            raise ValueError(
                "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
                f"actual got {mode}"
            )

    def _program(self, workers: int) -> tuple[Program, list[tuple[int, int]]]:
        """The program: a shard for each worker between the boundary's inputs and outputs."""
        n = self.num_envs
        program = Program(f"ReactorVectorEnv of {n}")
        program.worker_setup(repeat_registrations())
        space = self.single_action_space
        self._plain_actions = isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        actions = None
        if self._plain_actions:
            assert space.shape is not None
            self._action_shape, self._action_dtype = (n, *space.shape), np.dtype(space.dtype)
            actions = program.input("actions", self._action_shape, self._action_dtype)
        outputs = {
            name: program.output(name)
            for name in ("observations", "objects", "rewards", "terminations", "truncations", "extras", "replies")
        }
        shards = [(n * w // workers, n * (w + 1) // workers) for w in range(workers)]
        for number, (lo, hi) in enumerate(shards):
            shard = program.add(
                EnvShard,
                name=f"environments[{lo}:{hi}]",
                env_fns=self._encoded[lo:hi],
                first=lo,
                single_observation_space=self.single_observation_space,
                single_action_space=self.single_action_space,
                same_observations=self.observation_mode == "same",
                autoreset_mode=self.autoreset_mode,
            )
            if actions is not None:
                program.connect(actions.rows[lo:hi], shard.actions)
            program.connect(program.input(f"items_{number}"), shard.items)
            program.connect(program.input(f"request_{number}"), shard.request)
            arrays = ("observations",) if self._leaves.arrays else ()
            for name in (*arrays, "rewards", "terminations", "truncations"):
                program.connect(getattr(shard, name), outputs[name].rows[lo:hi])
            for name in ("objects", "extras", "replies"):
                program.connect(getattr(shard, name), outputs[name].rows[number])
        return program, shards

    def _bind_ports(self) -> None:
        """What :meth:`step` uses at every call, looked up once."""
        run = self._run
        self._write_actions = run.writer("actions") if self._plain_actions else None
        self._rows = run.view("observations") if self._leaves.arrays else None
        self._rewards, self._terminations = run.view("rewards"), run.view("terminations")
        self._truncations = run.view("truncations")
        self._any_extras = run.watcher("extras")
        if not self.copy:
            if self._rows is not None:  # as with AsyncVectorEnv, who asks for no copy may write into what he is given
                self._rows = self._rows.view()
                self._rows.flags.writeable = True
            self._observations = None if self._leaves.objects else self._leaves.assemble(self._rows, None, copy=False)

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
        self._assert_is_running()
        seeds = checked_seeds(seed, self.num_envs)
        self._assert_nothing_pending("reset_async", end="")
        mask = None
        if options is not None and "reset_mask" in options:
            mask = checked_mask(options.pop("reset_mask"), self.num_envs)
        kept = encode(options)
        self._request({
            number: ("reset", (seeds[lo:hi], kept, None if mask is None else mask[lo:hi].tolist()))
            for number, (lo, hi) in enumerate(self._shards)
        })  # fmt: skip
        self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """End the reset that :meth:`reset_async` began.

        Args:
            timeout: Seconds; see :meth:`step_wait`.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            NoAsyncCallError: Without :meth:`reset_async`.
            TimeoutError: If it takes longer.
        """
        self._finish_tick(AsyncState.WAITING_RESET, timeout)
        infos = self._extras()
        return self._observe(), infos

    # ------------------------------------------------------------------ step

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        """Step every environment.

        Args:
            actions: One action for each environment, batched as :attr:`action_space` says, or a sequence of single actions.

        Returns:
            Observations; rewards, shape ``(num_envs,)``, float64; terminations and truncations, shape ``(num_envs,)``, bool; infos.

        Raises:
            ValueError, TypeError: If the actions do not fit, before anything is stepped.
            Exception: What an environment raised; of several, the last one's, with its index as a note.
        """
        if self.closed or self._state is not AsyncState.DEFAULT or self._failed:
            self._assert_is_running()
            self._assert_nothing_pending("step_async")
        self._send(actions)
        try:
            self._run.tick()
        except BaseException as error:
            self._broke(error)
            raise
        return self._results()

    def step_async(self, actions: Any) -> None:
        """Begin a step: helpers start on their shards at once. :meth:`step_wait` steps the caller's shard and ends it.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            AlreadyPendingCallError: If another call was begun and not ended.
        """
        self._assert_is_running()
        self._assert_nothing_pending("step_async")
        self._send(actions)
        self._run.tick_async()
        self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> tuple[Any, npt.NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        """End the step that :meth:`step_async` began.

        Args:
            timeout: Seconds from this call, the caller's own share of the work included; ``None`` to wait as long as it takes.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            NoAsyncCallError: Without :meth:`step_async`.
            TimeoutError: If it takes longer (``multiprocessing.TimeoutError``). Nothing is lost: call it again to go on waiting.
        """
        self._finish_tick(AsyncState.WAITING_STEP, timeout)
        return self._results()

    def _send(self, actions: Any) -> None:
        if (
            self._write_actions is not None
            and type(actions) is np.ndarray
            and actions.dtype == self._action_dtype
            and actions.shape == self._action_shape
        ):
            self._write_actions(actions)
            return
        if self._plain_actions and isinstance(actions, np.ndarray) and actions.ndim:
            check_actions(actions, self.single_action_space, self.num_envs)
        # Another dtype travels as it is, for the environment is to see what it would see in a SyncVectorEnv.
        items = list(iterate(self.action_space, actions))
        if len(items) != self.num_envs:
            raise ValueError(f"{len(items)} actions were given for {self.num_envs} environments")
        self._set({f"items_{number}": items[lo:hi] for number, (lo, hi) in enumerate(self._shards)})

    def _results(self) -> tuple[Any, npt.NDArray[np.float64], Bools, Bools, dict[str, Any]]:
        infos = self._extras()
        return self._observe(), self._rewards.copy(), self._terminations.copy(), self._truncations.copy(), infos

    def _observe(self) -> Any:
        if self._leaves.objects:
            objects = [item for part in self._run.objects for item in part]
            return self._leaves.assemble(self._rows, objects, self.copy)
        return self._leaves.assemble(self._rows, None, copy=True) if self.copy else self._observations

    def _extras(self, harmless: bool = False) -> dict[str, Any]:
        """The infos of this tick; raises what environments raised, after which, unless it was harmless, only closing is left."""
        infos: dict[str, Any] = {}
        if not self._any_extras():
            return infos
        failures = []
        found: Extras
        for found in self._run.values("extras"):
            for number, info in found[0]:
                infos = self._add_info(infos, info, number)
            failures += found[1]
        if not failures:
            return infos
        failures.sort(key=lambda found: found[0])
        last, failure = failures[-1]
        if harmless:
            failure.error.add_note(f"raised in environment {last} of {self!r}")
            raise failure.error
        self._failed = f"environment {last} raised {type(failure.error).__name__}"
        for number, failure in failures:
            logger.error(f"Received the following error from Worker-{number} - Shutting it down")
            logger.error(failure.text)
        logger.error("Raising the last exception back to the main process.")
        failure.error.add_note(f"raised in environment {last} of {self!r}")
        raise failure.error

    # ------------------------------------------------------------------ calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or get an attribute of it. Returns a tuple of one result for each."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call; :meth:`call_wait` ends it.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            AlreadyPendingCallError: If another call was begun and not ended.
            ValueError: For ``reset``, ``step`` and ``close``, which have methods of their own.
        """
        self._assert_is_running()
        self._assert_nothing_pending("call_async")
        if name in _NOT_THROUGH_CALL:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._request(dict.fromkeys(range(len(self._shards)), ("call", (name, encode((args, kwargs))))))
        self._state = AsyncState.WAITING_CALL

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End the call that :meth:`call_async` began.

        Raises:
            NoAsyncCallError: Without :meth:`call_async`.
            TimeoutError: If it takes longer than ``timeout`` seconds; see :meth:`step_wait`.
            Exception: What an environment raised, a missing attribute for instance. The environments live on.
        """
        self._finish_tick(AsyncState.WAITING_CALL, timeout)
        self._extras(harmless=True)
        return tuple(loads(result) for part in self._run.replies for result in part)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment, or of the wrapper around it that has one."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Args:
            name: Its name.
            values: A list or tuple of one value for each environment, or one value for all.

        Raises:
            ValueError: If there are not as many values as environments.
        """
        self._assert_is_running()
        values = list(map(encode, values)) if isinstance(values, (list, tuple)) else [encode(values)] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._assert_nothing_pending("set_attr")
        self._request({number: ("set_attr", (name, values[lo:hi])) for number, (lo, hi) in enumerate(self._shards)})
        self._state = AsyncState.WAITING_CALL
        self._finish_tick(AsyncState.WAITING_CALL, None)
        self._extras(harmless=True)

    def render(self) -> tuple[Any, ...]:
        """What every environment's ``render`` returns."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """Copies of the environments' random generators, a tuple."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The seeds of the environments' random generators, a tuple."""
        return self.get_attr("np_random_seed")

    # ------------------------------------------------------------------ looking at it

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        self._assert_is_running()
        return self._run.draw(path, format=format)

    def trace(self, path: str) -> Tracing:
        """Record what each worker does: ``with envs.trace("trace.json"): ...`` writes a file that Perfetto opens."""
        self._assert_is_running()
        return self._run.trace(path)

    @property
    def workers(self) -> int:
        """Number of workers, the calling thread included."""
        return self._run.workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._run.executor

    def __repr__(self) -> str:
        name = "" if self.spec is None else f"{self.spec.id}, "
        how = f", executor={self.executor!r}, workers={self.workers}" if hasattr(self, "_run") else ""
        why = f" [{self._why}]" if how and self._why else ""
        return f"{type(self).__name__}({name}num_envs={self.num_envs}{how}{why})"

    # ------------------------------------------------------------------ the end

    def close_extras(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close the environments and end the workers.

        Args:
            timeout: Seconds to wait for a pending call and for the environments to close, after which workers are terminated.
            terminate: Do not wait; terminate.
            **kwargs: Ignored, as ``VectorEnv.close`` passes on whatever it is given.
        """
        if self._state is not AsyncState.DEFAULT and not self._timed_out:
            logger.warn(f"Calling `close` while waiting for a pending call to `{self._state.value}` to complete.")
        self._run.close(timeout=timeout, terminate=terminate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and not self._run.foreign:
            self.close(terminate=True)

    # ------------------------------------------------------------------ inside

    def _request(self, of_shard: dict[int, tuple[str, Any]]) -> None:
        self._set({f"request_{number}": request for number, request in of_shard.items()})
        self._run.tick_async()

    def _set(self, inputs: dict[str, Any]) -> None:
        """Set inputs of the coming tick, all of them or, if something cannot be pickled, none."""
        self._run.set(**{name: encode(value) for name, value in inputs.items()})

    def _finish_tick(self, state: AsyncState, timeout: float | None) -> None:
        self._assert_is_running()
        name = state.value
        if self._state is not state:
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)
        try:
            self._run.tick_wait(timeout)
        except TimeoutError:
            self._timed_out = True
            raise multiprocessing.TimeoutError(f"The call to `{name}_wait` has timed out after {timeout} second(s).") from None
        except BaseException as error:
            self._state = AsyncState.DEFAULT
            self._broke(error)
            raise
        self._timed_out = False
        self._state = AsyncState.DEFAULT

    def _broke(self, error: BaseException) -> None:
        self._failed = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__} was raised"

    def _assert_is_running(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")
        if self._failed:
            raise RunError(f"cannot go on with {type(self).__name__} because {self._failed}; close() it and make a new one")

    def _assert_nothing_pending(self, what: str, end: str = ".") -> None:
        if self._state is not AsyncState.DEFAULT:
            raise AlreadyPendingCallError(
                f"Calling `{what}` while waiting for a pending call to `{self._state.value}` to complete{end}",
                str(self._state.value),
            )
