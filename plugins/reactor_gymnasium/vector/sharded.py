"""What every vector environment on a reactor program has in common: steps begun and ended, batches that take turns, its end.

The environments are divided into shards, each a reactor, and the shards into batches: one batch of all, or, with ``batch_size``,
equal parts that take turns. A step is a tick in which one batch's actions are present; while the caller has the results of one
batch, the next batch's tick goes on. The order is fixed, so nothing depends on who is faster.
"""

from __future__ import annotations

import multiprocessing
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from reactor_gymnasium.vector.arguments import Bools
from reactor_gymnasium.vector.env_batch import EnvBatch, Inputs
from reactor_gymnasium.vector.life import INTERRUPTED, Life
from reactor_rl import RunError
from reactor_rl.plugin import FORKED, Failure, encode, when_forked

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import Tracing

__all__ = ["ShardedVectorEnv"]


class ShardedVectorEnv(VectorEnv[Any, Any, Any]):
    """The part of a vector environment that does not depend on what its shards hold."""

    _run: Run
    _why = ""

    def __init__(self) -> None:
        super().__init__()
        self.closed = True  # until everything is up: a constructor that fails leaves nothing to close
        self._state = AsyncState.DEFAULT
        self._timed_out = False
        self._life = Life()
        self._batches: list[EnvBatch] = []
        self._ticking: EnvBatch | None = None
        self._queue: deque[tuple[EnvBatch, Inputs]] = deque()

    def _open(self, run: Run, actions: bool, observations: bool) -> None:
        """The last thing that a constructor does."""
        self._run = run
        for batch in self._batches:
            batch.bind(run, actions, observations)
        self._batch = self._batches[0]  # the one whose actions are expected
        self._alone = len(self._batches) == 1
        when_forked(self)
        self.closed = False

    def _make_views(self) -> None:
        """What is handed out where no copies are made; as with AsyncVectorEnv, who asks for none may write into it."""
        for batch in self._batches:
            if batch.rows is not None:
                batch.rows = batch.rows.view()
                batch.rows.flags.writeable = True

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def _prepare(self, batch: EnvBatch, actions: Any) -> Inputs:
        """Check the actions for a batch before anything is stepped."""

    @abstractmethod
    def _harvest(self, batch: EnvBatch) -> dict[str, Any]:
        """The infos of a batch's tick that has just ended, and its other objects; raises what its environments raised."""

    @abstractmethod
    def _observe(self, batch: EnvBatch) -> Any:
        """A batch's batched observations, yours to keep if ``copy=True``."""

    # ------------------------------------------------------------------ step

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[Any], Bools, Bools, dict[str, Any]]:
        """Step every environment or, with ``batch_size``, those of the last results; returns the next batch's results then.

        Args:
            actions: One action for each environment, batched as :attr:`action_space` says, or a sequence of single actions.

        Returns:
            Observations; rewards, shape ``(batch_size,)``; terminations and truncations, shape ``(batch_size,)``, bool; infos.

        Raises:
            ValueError, TypeError: If the actions do not fit, before anything is stepped.
            Exception: What an environment raised; of several, the last one's, with its index as a note.
        """
        if self.closed or self._state is not AsyncState.DEFAULT or self._life.over:
            self._assert_is_running()
            self._assert_nothing_pending("step_async")
        if not self._alone:
            self.step_async(actions)
            return self.step_wait()
        batch = self._batch
        inputs = self._prepare(batch, actions)
        life = self._life
        life.over = INTERRUPTED  # `with life:` by hand, for it is called at every step
        try:
            self._put(batch, inputs)
            try:
                self._run.tick()
            except Exception as error:
                self._broke(error)
                raise
            infos = self._harvest(batch)
            observations = self._observe(batch)
            rewards, terminations, truncations = batch.rewards.copy(), batch.terminations.copy(), batch.truncations.copy()
        except Exception:
            life.survive()
            raise
        life.over = ""
        return observations, rewards, terminations, truncations, infos

    def step_async(self, actions: Any) -> None:
        """Begin a step: helpers start on their shards at once. :meth:`step_wait` steps the caller's shard and ends it.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            AlreadyPendingCallError: If another call was begun and not ended.
        """
        self._assert_is_running()
        self._assert_nothing_pending("step_async")
        batch = self._batch
        inputs = self._prepare(batch, actions)
        with self._life:
            if self._ticking is None:
                self._begin(batch, inputs)
            else:
                self._queue.append((batch, inputs.copy()))
            self._state = AsyncState.WAITING_STEP

    def step_wait(self, timeout: float | None = None) -> tuple[Any, npt.NDArray[Any], Bools, Bools, dict[str, Any]]:
        """End the step that :meth:`step_async` began; with ``batch_size``, the oldest one that was begun.

        Args:
            timeout: Seconds from this call, the caller's own share of the work included; ``None`` to wait as long as it takes.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            NoAsyncCallError: Without :meth:`step_async`.
            TimeoutError: If it takes longer (``multiprocessing.TimeoutError``). Nothing is lost: call it again to go on waiting.
        """
        self._assert_pending(AsyncState.WAITING_STEP)
        batch = self._batches[(self._batches.index(self._batch) + 1) % len(self._batches)]
        with self._life:
            if not batch.ready:
                self._finish(AsyncState.WAITING_STEP, timeout)
            self._state, self._batch = AsyncState.DEFAULT, batch
            batch.ready = False
            observations = self._observe(batch)
            rewards, terminations, truncations = batch.rewards.copy(), batch.terminations.copy(), batch.truncations.copy()
            if batch.fresh:
                batch.fresh = False
                for flags in (rewards, terminations, truncations):
                    flags.fill(0)
        return observations, rewards, terminations, truncations, batch.infos

    def send(self, actions: Any) -> None:
        """What ALE's and EnvPool's vector environments call :meth:`step_async`."""
        self.step_async(actions)

    def recv(self) -> tuple[Any, npt.NDArray[Any], Bools, Bools, dict[str, Any]]:
        """What ALE's and EnvPool's vector environments call :meth:`step_wait`. The order is always that of the environments."""
        return self.step_wait()

    # ------------------------------------------------------------------ reset

    def _begin_reset(self, of_shard: Mapping[int, Any]) -> None:
        """Begin a reset of what each shard is told."""
        with self._life:
            self._drain()
            self._request(of_shard)
            self._state = AsyncState.WAITING_RESET

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """End the reset that ``reset_async`` began.

        Args:
            timeout: Seconds; see :meth:`step_wait`.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            NoAsyncCallError: Without ``reset_async``.
            TimeoutError: If it takes longer.
        """
        self._assert_pending(AsyncState.WAITING_RESET)
        with self._life:
            self._wait(AsyncState.WAITING_RESET, timeout)
            self._state = AsyncState.DEFAULT
            for batch in self._batches:
                batch.infos, batch.ready, batch.fresh = self._harvest(batch), True, True
            self._batch = first = self._batches[0]
            first.ready = first.fresh = False
            observations = self._observe(first)
        return observations, first.infos

    # ------------------------------------------------------------------ looking at it

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        self._assert_is_running()
        return self._run.draw(path, format=format)

    @contextmanager
    def trace(self, path: str) -> Iterator[Tracing]:
        """Record what each worker does: ``with envs.trace("trace.json"): ...`` writes a file that Perfetto opens."""
        self._assert_is_running()
        self._drain()
        with self._run.trace(path) as tracing:
            yield tracing
            self._drain()  # workers hand over what they have recorded between ticks only

    @property
    def workers(self) -> int:
        """Number of workers, the calling thread included."""
        return self._run.workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._run.executor

    def __repr__(self) -> str:
        name = f"{self._name()}, " if self._name() else ""
        batches = f", batch_size={self.num_envs // len(self._batches)}" if len(self._batches) > 1 else ""
        how = f", executor={self.executor!r}, workers={self.workers}" if hasattr(self, "_run") else ""
        why = f" [{self._why}]" if how and self._why else ""
        return f"{self._title}({name}num_envs={self.num_envs}{batches}{how}{why})"

    @property
    def _title(self) -> str:
        """Name of the class that the user has made."""
        return type(self).__name__

    def _name(self) -> str:
        return "" if self.spec is None else self.spec.id

    # ------------------------------------------------------------------ the end

    def close_extras(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close the environments and end the workers.

        Args:
            timeout: Seconds to wait for a pending call and for the environments to close, after which workers are terminated.
            terminate: Do not wait; terminate.
            **kwargs: Ignored, as ``VectorEnv.close`` passes on whatever it is given.
        """
        if self._state is not AsyncState.DEFAULT and not self._timed_out and not self._life.over:
            logger.warn(f"Calling `close` while waiting for a pending call to `{self._state.value}` to complete.")
        self._run.close(timeout=timeout, terminate=terminate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses ``copy.copy``, ``copy.deepcopy`` and pickling: two could not share the workers and their memory.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{self._title} cannot be copied or pickled: it stands for live environments and worker processes. Make another one "
            "with the same arguments, or pass the functions that make the environments"
        )

    def __del__(self) -> None:
        run: Run | None = self.__dict__.get("_run")  # not there if the constructor did not get so far
        if run is not None and not self.closed and not run.foreign:
            self.close(terminate=True)

    # ------------------------------------------------------------------ ticks

    def _put(self, batch: EnvBatch, inputs: Inputs) -> None:
        if isinstance(inputs, np.ndarray):
            assert batch.write_actions is not None
            batch.write_actions(inputs)
        else:
            self._run.set(**inputs)

    def _begin(self, batch: EnvBatch, inputs: Inputs) -> None:
        self._put(batch, inputs)
        self._run.tick_async()
        self._ticking = batch

    def _finish(self, state: AsyncState, timeout: float | None = None) -> None:
        """End the tick that goes on, and begin that of the batch that comes next, if its actions are there."""
        batch = self._ticking
        assert batch is not None
        self._wait(state, timeout)
        self._ticking, self._state = None, AsyncState.DEFAULT
        batch.infos = self._harvest(batch)
        batch.ready = True
        if self._queue:
            self._begin(*self._queue.popleft())

    def _drain(self) -> None:
        """End every tick that was begun. What it brought is still handed out later, unless it is reset before."""
        while self._ticking is not None:
            self._finish(AsyncState.WAITING_STEP)

    def _request(self, of_shard: Mapping[int, Any]) -> None:
        # All of them are set or, if one cannot be pickled, none.
        self._run.set(**{f"request_{number}": encode(request) for number, request in of_shard.items()})
        self._run.tick_async()

    def _wait(self, state: AsyncState, timeout: float | None) -> None:
        try:
            self._run.tick_wait(timeout)
        except TimeoutError:
            self._timed_out = True
            raise multiprocessing.TimeoutError(
                f"The call to `{state.value}_wait` has timed out after {timeout} second(s)."
            ) from None
        except Exception as error:
            self._state = AsyncState.DEFAULT
            self._broke(error)
            raise
        self._timed_out = False

    def _broke(self, error: Exception) -> None:
        self._life.over = f"{type(error).__name__} was raised"

    def _forked(self) -> None:
        if not self.closed:
            self._life.over = FORKED

    def _raise_failures(self, failures: list[tuple[int, Failure]]) -> None:
        """Raise what environments raised, if any did: that of the last one, after which only closing is left."""
        if not failures:
            return
        failures.sort(key=lambda failure: failure[0])
        last, failure = failures[-1]
        self._life.over = f"environment {last} raised {type(failure.error).__name__}"
        for number, of_one in failures:
            logger.error(f"Received the following error from Worker-{number} - Shutting it down")
            logger.error(of_one.text)
        logger.error("Raising the last exception back to the main process.")
        failure.error.add_note(f"raised in environment {last} of {self!r}")
        raise failure.error

    # ------------------------------------------------------------------ what is allowed now

    def _assert_whole(self) -> None:
        """Refuse to reset some environments while others step whose results would be lost."""
        if not self._alone:
            raise ValueError(
                "`options['reset_mask']` needs all environments in one batch; leave out `batch_size`, or reset all of them"
            )

    def _assert_is_running(self) -> None:
        if self._life.over == FORKED:
            raise RunError(f"cannot use {self._title} because {FORKED}")
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{self._title}`, after a call to `close()`.")
        if self._life.over:
            raise RunError(f"cannot go on with {self._title} because {self._life.over}; close() it and make a new one")

    def _assert_pending(self, state: AsyncState) -> None:
        self._assert_is_running()
        if self._state is not state:
            name = state.value
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)

    def _assert_nothing_pending(self, what: str, end: str = ".") -> None:
        if self._state is not AsyncState.DEFAULT:
            raise AlreadyPendingCallError(
                f"Calling `{what}` while waiting for a pending call to `{self._state.value}` to complete{end}",
                str(self._state.value),
            )
