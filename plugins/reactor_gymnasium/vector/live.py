"""``LiveVectorEnv``: a vector environment whose environments live in a run: calls to them, what is allowed now, and its end."""

from __future__ import annotations

import multiprocessing
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakMethod

import gymnasium
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from reactor_gymnasium.arguments import kind_of
from reactor_gymnasium.vector.env_program import EnvProgram, HostStyle
from reactor_rl import RunError
from reactor_rl.plugin import FORKED, POISONED, Failure, InterruptGuard, RunOwner, encode

if TYPE_CHECKING:
    from reactor_rl import Run
    from reactor_rl.plugin import Tracing

__all__ = ["LiveVectorEnv"]


def _call(env: gymnasium.Env[Any, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    attribute = env.get_wrapper_attr(name)
    return attribute(*args, **kwargs) if callable(attribute) else attribute


def _set_attr(env: gymnasium.Env[Any, Any], name: str, value: Any) -> None:
    env.set_wrapper_attr(name, value)


class _BothHalves:
    """Put around a call of two halves: an interrupt between them must not leave one that nobody can end."""

    def __init__(self, owner: LiveVectorEnv) -> None:
        self.tear = WeakMethod(owner.tear)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, Exception) and (tear := self.tear()) is not None:
            tear()


_NOT_THROUGH_CALL = ("reset", "step", "close", "_setattr", "_check_spaces")


class LiveVectorEnv(VectorEnv[Any, Any, Any], RunOwner):
    """The part of a vector environment that is there between its steps.

    Its environments (or games, copies of several agents, vector environments: *units*) are in the shards of a program that runs.
    """

    batch_size: int
    _run: Run  # from the end of the constructor on
    _program: EnvProgram
    _units: int
    _alone: bool
    _encoded: list[Any]
    _why: str
    _forecast = ""  # the same before the first step

    _style: ClassVar[HostStyle] = HostStyle()
    _call_one: Callable[..., Any] = staticmethod(_call)
    """Calls a method of one unit, or gets an attribute: ``(env, name, args, kwargs)``."""
    _set_one: Callable[..., Any] = staticmethod(_set_attr)
    """Sets an attribute of one unit: ``(env, name, value)``."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = True  # until everything is up: a constructor that fails leaves nothing to close
        self._state = AsyncState.DEFAULT
        self._timed_out = self._was_reset = False
        self._guard = InterruptGuard()
        self._both_halves = _BothHalves(self)
        self._torn = False  # whether a call was interrupted between its halves

    @abstractmethod
    def _drain(self) -> None:
        """End every tick that was begun. What it brought is still handed out later, unless it is reset before."""

    def _stepped_by(self) -> str:
        """The kernel that steps the environments, or why none does, for ``repr``; empty if there is nothing to say."""
        if told := self._program.steppers.values():
            return " and ".join(sorted(set(told), reverse=True))
        kinds = {*map(kind_of, self._encoded)}
        return self._forecast + (" if all are alike" if len(kinds) > 1 and self._forecast.startswith("stepped") else "")

    # ------------------------------------------------------------------ calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or get an attribute of it. Returns a tuple of one result for each."""
        with self._both_halves:
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
        self._begin_calls(self._call_one, [(name, args, kwargs)] * self._units)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """End the call that :meth:`call_async` began.

        Raises:
            NoAsyncCallError: Without :meth:`call_async`.
            TimeoutError: If it takes longer than ``timeout`` seconds; see :meth:`step_wait`.
            Exception: What an environment raised, a missing attribute for instance. The environments live on.
        """
        self._assert_pending(AsyncState.WAITING_CALL)
        return tuple(self._end_calls(timeout))

    def call_units(self, function: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """For classes on top of this one: call ``function(env, *args)`` with some of the units.

        Args:
            function: Travels by pickle.
            arguments: Of each unit that is called its own, by index.

        Returns:
            What was returned, by index.
        """
        self._assert_is_running()
        self._assert_nothing_pending("call_async")
        with self._both_halves:
            self._begin_calls(function, [arguments.get(index) for index in range(self._units)])
            return dict(zip(sorted(arguments), self._end_calls(), strict=True))

    def _begin_calls(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...] | None]) -> None:
        """Begin to call ``function(env, *args)`` with every unit for which there are arguments."""
        # By identity: where all units get the same arguments, they are pickled once and not once per unit.
        pickled: dict[int, Any] = {id(args): args if args is None else encode(args) for args in arguments}
        of_units = [pickled[id(args)] for args in arguments]
        with self._guard:
            self._drain()
            self._program.request({number: (function, of_units[lo:hi]) for number, lo, hi in self._program.shards})
            self._state = AsyncState.WAITING_CALL

    def _end_calls(self, timeout: float | None = None) -> list[Any]:
        with self._guard:
            self._wait(AsyncState.WAITING_CALL, timeout)
            self._state = AsyncState.DEFAULT
            results, failures = self._program.replies()
        if failures:  # the environments live on
            last, failure = max(failures, key=lambda failure: failure[0])
            failure.error.add_note(f"raised in {self._style.unit} {last} of {self!r}")
            raise failure.error
        return results

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
        values = list(values) if isinstance(values, (list, tuple)) else [values] * self._units
        if len(values) != self._units:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self._units} environments."
            )
        self._assert_nothing_pending("set_attr")
        with self._both_halves:
            self._begin_calls(self._set_one, [(name, value) for value in values])
            self._end_calls()

    def render(self) -> tuple[Any, ...] | None:
        """The results of every environment's ``render``."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """Copies of the environments' random generators, a tuple."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The seeds of the environments' random generators, a tuple."""
        return self.get_attr("np_random_seed")

    # ------------------------------------------------------------------ waiting, and what goes wrong

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

    def _raise_failures(self, failures: Sequence[tuple[int, Failure]]) -> None:
        """Raise what the last of the units raised, after which only closing is left."""
        failures = sorted(failures, key=lambda failure: failure[0])
        last, failure = failures[-1]
        self._guard.unusable = f"{self._style.unit} {last} raised {type(failure.error).__name__}"
        alike: dict[tuple[str, str], list[int]] = {}  # one bug is one line, however many it has struck
        texts = {}
        for number, of_one in failures:
            kind = type(of_one.error).__name__, str(of_one.error)
            alike.setdefault(kind, []).append(number)
            texts[kind] = of_one.text
        raised = type(failure.error).__name__, str(failure.error)
        for (name, said), numbers in alike.items():
            whose = f"{self._style.unit}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
            rest = "" if (name, said) == raised else f", but that of {self._style.unit} {last} is raised:\n{texts[name, said]}"
            logger.error(f"{whose} raised {name}: {said}{rest}")
        failure.error.add_note(f"raised in {self._style.unit} {last} of {self!r}")
        raise failure.error

    # ------------------------------------------------------------------ what is allowed now

    @property
    def encoded_makers(self) -> list[Any]:
        """For classes on top of this one: what makes the units, pickled before it was called, where that can be pickled."""
        return self._encoded

    def abandon(self) -> None:
        """For classes on top of this one: nobody waits any more for what goes on."""
        self._state = AsyncState.DEFAULT

    def begin_anew(self) -> bool:
        """Have a reset of everything follow a call that was interrupted, where nothing was lost by that: there are no helpers, or
        it was interrupted between its halves.

        Returns:
            Whether there was one, and it can.
        """
        if self._guard.unusable is not POISONED or self.closed:
            return False
        torn, self._torn = self._torn, False
        if torn and self._run.workers > 1:
            with self._guard:
                self._run.tick_wait()
        elif not self._run.go_on():
            return False
        self._program.ticking, self._timed_out, self._state = None, False, AsyncState.DEFAULT
        self._program.queue.clear()
        self._guard.unusable = ""
        return True

    def tear(self) -> None:
        """An interrupt has left a call of two halves; see :meth:`begin_anew`."""
        if self._state is not AsyncState.DEFAULT and not self._guard.unusable:
            self._torn, self._guard.unusable = True, POISONED

    def _assert_all_first(self, everything: bool, units: str) -> None:
        """Refuse a first reset that leaves something out, where all must begin together."""
        if not self._was_reset and not everything:
            raise ResetNeeded(f"the first reset must be of all {units}; `options['reset_mask']` leaves some out")

    def _assert_was_reset(self) -> None:
        if not self._was_reset:
            raise ResetNeeded("call reset() before the first step")

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

    # ------------------------------------------------------------------ looking at it

    def _running(self) -> Run:
        self._assert_is_running()
        return self._run

    @contextmanager
    def trace(self, path: str) -> Iterator[Tracing]:  # type: ignore[override]
        """Record what each worker does: ``with envs.trace("trace.json"): ...`` writes a file that Perfetto opens."""
        self._assert_is_running()
        self._drain()
        with self._run.trace(path) as tracing:
            yield tracing
            self._drain()  # workers hand over what they have recorded between ticks only

    def _repr_html_(self) -> str | None:
        """The picture, in a notebook, as long as it is open."""
        return None if self.closed else super()._repr_html_()

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
        batches = how = why = ""
        if self._run is not None:
            batches = f", batch_size={self.batch_size}" if len(self._program.batches) > 1 else ""
            how = f", executor={self.executor!r}, workers={self.workers}"
            notes = [note for note in (self._why, self._stepped_by()) if note]
            why = f" [{', '.join(notes)}]" if notes else ""
        return f"{self._title}({name}num_envs={self.num_envs}{batches}{how}{why})"

    @property
    def _title(self) -> str:
        """Name of the class that the user has made."""
        return self._style.title or type(self).__name__

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
        if self._state is not AsyncState.DEFAULT and not self._timed_out and not self._guard.unusable:
            logger.warn(f"Calling `close` while waiting for a pending call to `{self._state.value}` to complete.")
        self._run.close(timeout=timeout, terminate=terminate)

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
        run = self.__dict__.get("_run")  # not there if the constructor did not get so far
        if run is not None and not self.closed and not run.foreign:
            self.close(terminate=True)

    def _forked(self) -> None:
        if not self.closed:
            self._guard.unusable = FORKED

    def _assert_is_running(self) -> None:
        if self._guard.unusable == FORKED:
            raise RunError(f"cannot use {self._title} because {FORKED}")
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{self._title}`, after a call to `close()`.")
        if self._guard.unusable:
            left = "close() it and make a new one"
            if self._guard.unusable is POISONED and (self._torn or self._run.workers == 1):
                left = "reset() will do, of all environments"
            raise RunError(f"cannot go on with {self._title} because {self._guard.unusable}; {left}")
