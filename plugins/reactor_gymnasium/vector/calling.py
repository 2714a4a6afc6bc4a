"""Calling methods of the environments behind a vector environment, and reading and setting their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.vector.async_vector_env import AsyncState

from reactor_gymnasium.vector.sharded import ShardedVectorEnv
from reactor_rl.plugin import encode, loads

__all__ = ["CallingVectorEnv"]

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
        with self._life:
            self._drain()
            self._request({number: (function, of_envs[lo:hi]) for number, lo, hi in self._shards()})
            self._state = AsyncState.WAITING_CALL

    def _end_calls(self, timeout: float | None = None) -> list[Any]:
        with self._life:
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
