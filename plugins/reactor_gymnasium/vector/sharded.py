"""Steps and resets of every vector environment on a reactor program: begun and ended, in batches that take turns.

The environments are divided into shards, each a reactor, and the shards into batches: one batch of all, or, with ``batch_size``,
equal parts that take turns. A step is a tick in which one batch's actions are present; while the caller has the results of one
batch, the next batch's tick goes on. The order is fixed, so nothing depends on who is faster.
"""

from __future__ import annotations

import multiprocessing
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector.async_vector_env import AsyncState

from reactor_gymnasium.arguments import Bools
from reactor_gymnasium.vector.env_program import EnvBatch, Inputs
from reactor_gymnasium.vector.program_env import ProgramVectorEnv
from reactor_rl.plugin import POISONED, Failure, encode, loads

if TYPE_CHECKING:
    from reactor_rl.plugin import Tracing

__all__ = ["ShardedVectorEnv", "CallingVectorEnv"]


class ShardedVectorEnv(ProgramVectorEnv):
    """The part of a vector environment that does not depend on what its shards hold."""

    def __init__(self) -> None:
        super().__init__()
        self._ticking: EnvBatch | None = None
        self._queue: deque[tuple[EnvBatch, Inputs]] = deque()

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        """Check the actions for a batch before anything is stepped."""

    @abstractmethod
    def _batch_infos(self, batch: EnvBatch, parts: list[Any]) -> dict[str, Any]:
        """The infos of a batch's tick that has just ended, from what its shards have sent, if any of them sent something."""

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
        if self.closed or self._state is not AsyncState.DEFAULT or self._guard.unusable:
            self._assert_is_running()
            self._assert_nothing_pending("step_async")
        if not self._alone:
            self.step_async(actions)
            return self.step_wait()
        batch = self._batch
        inputs = self._encode_actions(batch, actions)
        guard = self._guard
        guard.unusable = POISONED  # `with guard:` by hand, for it is called at every step
        try:
            self._put(batch, inputs)
            try:
                self._run.tick()
            except Exception as error:
                self._broke(error)
                raise
            infos = self._harvest(batch)
            observations = self._layout.batched(batch.rows, batch.objects, self.copy)
            rewards, terminations, truncations = batch.copy_rewards(), batch.terminations.copy(), batch.truncations.copy()
        except Exception:
            guard.survive()
            raise
        guard.unusable = ""
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
        inputs = self._encode_actions(batch, actions)
        with self._guard:
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
        with self._guard:
            if not batch.ready:
                self._finish(AsyncState.WAITING_STEP, timeout)
            self._state, self._batch = AsyncState.DEFAULT, batch
            batch.ready = False
            observations = self._layout.batched(batch.rows, batch.objects, self.copy)
            rewards, terminations, truncations = batch.copy_rewards(), batch.terminations.copy(), batch.truncations.copy()
            if batch.fresh:
                batch.fresh = False
                for flags in (rewards, terminations, truncations):
                    flags.fill(0)
        return observations, rewards, terminations, truncations, batch.infos

    def send(self, actions: Any, env_id: npt.ArrayLike | None = None) -> None:
        """What ALE's and EnvPool's vector environments call :meth:`step_async`.

        Args:
            actions: As for :meth:`step`.
            env_id: The environments that they are for: ``infos["env_id"]`` of the results that came last, or ``None`` for those.

        Raises:
            ValueError: If it is not the turn of just these environments, in this order.
        """
        batch = self._batch
        if env_id is not None and not np.array_equal(env_id, np.arange(batch.lo, batch.hi)):
            raise ValueError(
                f"env_id={np.asarray(env_id).tolist()}: it is the turn of environments {batch.lo} to {batch.hi - 1}, whose results "
                "came last. Batches take turns in a fixed order, so that nothing depends on who is faster: send the actions for "
                "infos['env_id'] after each recv()"
            )
        self.step_async(actions)

    def recv(self) -> tuple[Any, npt.NDArray[Any], Bools, Bools, dict[str, Any]]:
        """What ALE's and EnvPool's vector environments call :meth:`step_wait`. The order is always that of the environments.

        After :meth:`async_reset` it gives the first batch's results of the reset, with rewards of 0 and flags of ``False``.
        """
        if self._state is AsyncState.WAITING_RESET:
            self.reset_wait()
            first = self._batches[0]
            first.ready = first.fresh = True
            self._batch, self._state = self._batches[-1], AsyncState.WAITING_STEP  # so the first one's turn comes next
        return self.step_wait()

    # ------------------------------------------------------------------ reset

    @abstractmethod
    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """Begin a reset of all environments; :meth:`reset_wait` ends it."""

    def async_reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """What EnvPool calls a reset whose results :meth:`recv` gives, batch by batch. Arguments as for ``reset``."""
        self.reset_async(seed=seed, options=options)

    def _begin_reset(self, of_shard: Mapping[int, Any]) -> None:
        """Begin a reset of what each shard is told."""
        with self._guard:
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
        with self._guard:
            self._wait(AsyncState.WAITING_RESET, timeout)
            self._state = AsyncState.DEFAULT
            for batch in self._batches:
                batch.infos, batch.ready, batch.fresh = self._harvest(batch), True, True
            self._batch = first = self._batches[0]
            first.ready = first.fresh = False
            observations = self._layout.batched(first.rows, first.objects, self.copy)
        return observations, first.infos

    @contextmanager
    def trace(self, path: str) -> Iterator[Tracing]:
        """Record what each worker does: ``with envs.trace("trace.json"): ...`` writes a file that Perfetto opens."""
        self._assert_is_running()
        self._drain()
        with self._run.trace(path) as tracing:
            yield tracing
            self._drain()  # workers hand over what they have recorded between ticks only

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

    def _harvest(self, batch: EnvBatch) -> dict[str, Any]:
        """What a tick that has just ended brought besides arrays: its infos; raises what its environments raised."""
        if self._layout.objects:
            batch.objects = [leaves for of_shard in self._run.values(f"objects{batch.suffix}") for leaves in of_shard]
        parts = batch.read_extras()
        if parts and type(parts[0]) is not dict:  # else they are the infos of the only shard
            self._raise_failures([failure for _, failures in parts for failure in failures])
            parts = [part for part, _ in parts]
        return self._batch_infos(batch, parts)

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
        self._guard.unusable = f"{type(error).__name__} was raised"

    def _raise_failures(self, failures: list[tuple[int, Failure]]) -> None:
        """Raise what environments raised, if any did: that of the last one, after which only closing is left."""
        if not failures:
            return
        failures.sort(key=lambda failure: failure[0])
        last, failure = failures[-1]
        self._guard.unusable = f"{self._unit} {last} raised {type(failure.error).__name__}"
        alike: dict[tuple[str, str], list[int]] = {}  # one bug is one line, however many it has struck
        texts = {}
        for number, of_one in failures:
            kind = type(of_one.error).__name__, str(of_one.error)
            alike.setdefault(kind, []).append(number)
            texts[kind] = of_one.text
        raised = type(failure.error).__name__, str(failure.error)
        for (name, said), numbers in alike.items():
            whose = f"{self._unit}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            rest = "" if (name, said) == raised else f", but that of {self._unit} {last} is raised:\n{texts[name, said]}"
            logger.error(f"{whose} raised {name}: {said}{rest}")
        failure.error.add_note(f"raised in {self._unit} {last} of {self!r}")
        raise failure.error

    # ------------------------------------------------------------------ what is allowed now

    def begin_anew(self) -> bool:
        """Have a reset of everything follow a call that was interrupted; where nothing was lost by that, for there are no helpers.

        Returns:
            Whether there was one, and it can.
        """
        if self._guard.unusable is not POISONED or self.closed or not self._run.go_on():
            return False
        self._ticking, self._timed_out, self._state = None, False, AsyncState.DEFAULT
        self._queue.clear()
        self._guard.unusable = ""
        return True

    def _assert_may_reset(self, options: dict[str, Any] | None = None) -> None:
        """Refuse a reset while something goes on, or after what only closing is left of."""
        if "reset_mask" not in (options or {}):
            self.begin_anew()
        self._assert_is_running()
        self._assert_nothing_pending("reset_async", end="")

    def _assert_whole(self) -> None:
        """Refuse to reset some environments while others step whose results would be lost."""
        if not self._alone:
            raise ValueError(
                "`options['reset_mask']` needs all environments in one batch; leave out `batch_size`, or reset all of them"
            )

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


_NOT_THROUGH_CALL = ("reset", "step", "close", "_setattr", "_check_spaces")


def _call(env: gymnasium.Env[Any, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attribute = env.get_wrapper_attr(name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def _set_attr(env: gymnasium.Env[Any, Any], name: str, value: Any) -> None:
    env.set_wrapper_attr(name, value)


class CallingVectorEnv(ShardedVectorEnv):
    """A vector environment whose shards serve ``(function, args)`` by calling ``function(env, *args)``, and send ``replies``."""

    _call_one: Callable[..., Any] = staticmethod(_call)
    """Calls a method of one environment, or gets an attribute: ``(env, name, args, kwargs)``."""
    _set_one: Callable[..., Any] = staticmethod(_set_attr)
    """Sets an attribute of one environment: ``(env, name, value)``."""

    def _make_views(self) -> None:
        """What is handed out where no copies are made; as with AsyncVectorEnv, who asks for none may write into it."""
        for batch in self._batches:
            if batch.rows is not None:
                batch.rows = batch.rows.view()
                batch.rows.flags.writeable = True

    @property
    def _called(self) -> int:
        """How many environments there are to call."""
        return self.num_envs

    def _shards(self) -> list[tuple[int, int, int]]:
        return [shard for batch in self._batches for shard in batch.shards]

    def _begin_resets(self, arguments: Mapping[int, dict[str, Any]]) -> None:
        """Begin to reset some of the environments, each with its own arguments, by index."""
        resets: list[Any] = [None] * self._called
        for index, kwargs in arguments.items():
            resets[index] = encode(kwargs | {"seed": self._seed(index, kwargs.get("seed"))} if self._unseeded else kwargs)
        self._begin_reset({number: ("reset", resets[lo:hi]) for number, lo, hi in self._shards()})

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
        self._begin_calls(self._call_one, [(name, args, kwargs)] * self._called)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End the call that :meth:`call_async` began.

        Raises:
            NoAsyncCallError: Without :meth:`call_async`.
            TimeoutError: If it takes longer than ``timeout`` seconds; see :meth:`step_wait`.
            Exception: What an environment raised, a missing attribute for instance. The environments live on.
        """
        self._assert_pending(AsyncState.WAITING_CALL)
        return tuple(self._end_calls(timeout))

    def _begin_calls(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...] | None]) -> None:
        """Begin to call ``function(env, *args)`` with every environment for which there are arguments."""
        pickled: dict[int, Any] = {id(args): args if args is None else encode(args) for args in arguments}
        of_envs = [pickled[id(args)] for args in arguments]
        with self._guard:
            self._drain()
            self._request({number: (function, of_envs[lo:hi]) for number, lo, hi in self._shards()})
            self._state = AsyncState.WAITING_CALL

    def _end_calls(self, timeout: float | None = None) -> list[Any]:
        with self._guard:
            self._wait(AsyncState.WAITING_CALL, timeout)
            self._state = AsyncState.DEFAULT
            extras = [of_shard for batch in self._batches for of_shard in self._run.values(f"extras{batch.suffix}")]
        failures = [failure for _, of_shard in extras for failure in of_shard]
        if failures:  # the environments live on
            last, failure = max(failures, key=lambda failure: failure[0])
            failure.error.add_note(f"raised in {self._unit} {last} of {self!r}")
            raise failure.error
        parts = [part for batch in self._batches for part in self._run.values(f"replies{batch.suffix}")]
        return [loads(result) for part in parts for result in part]

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
        values = list(values) if isinstance(values, (list, tuple)) else [values] * self._called
        if len(values) != self._called:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self._called} environments."
            )
        self._assert_nothing_pending("set_attr")
        self._begin_calls(self._set_one, [(name, value) for value in values])
        self._end_calls()

    def render(self) -> tuple[Any, ...] | None:
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
