"""A vector environment that is a running program: how its program is wired and started, looked at, and ended."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from gymnasium import Space, logger, spaces
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from reactor_gymnasium.environments.saving import save_strategy
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.placement import ExecutorChoice
from reactor_gymnasium.vector.env_program import EnvBatch, wire
from reactor_rl import Instance, Program, Recover, RunError
from reactor_rl.plugin import (
    FORKED,
    POISONED,
    ExecutorName,
    InterruptGuard,
    NodeTransport,
    begin,
    check_timeout,
    context_named,
    html_figure,
    spread_workers,
    transport_for,
    when_forked,
)

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["ProgramVectorEnv"]

_log = logging.getLogger(__name__)


def _whereabouts(unit: str, shards: dict[str, tuple[Any, int, int]], names: tuple[str, ...]) -> str:
    """Which environments are being stepped, of shards that do not return."""
    numbers = [(name, int(marks[part]), lo) for name, (marks, part, lo) in shards.items() if name in names]
    return ", ".join(f"{unit} {lo + number - 1}" if number else name for name, number, lo in numbers)


class ProgramVectorEnv(VectorEnv[Any, Any, Any]):
    """The part of a vector environment that is about its program: what it is made of, whether it runs, and its end."""

    _unit = "environment"
    """What each of those that shards hold is called in messages."""
    copy: bool
    _run: Run
    _layout: ObservationLayout
    _action_shape: tuple[int, ...]
    _action_dtype: np.dtype[Any]
    _plain_actions = True
    """Whether actions go in as one array, of that shape and dtype."""
    _spin: float | None = None
    """Seconds that helpers wait awake for the next step; see :meth:`reactor_rl.Program.start`."""
    _recover: Recover | None = None
    """Whether workers that die are replaced."""
    _step_timeout: float | None = None
    """Seconds that a step may take on a helper."""
    _why = ""
    _transport: NodeTransport | None = None
    """Carries the run over several machines, where that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = True  # until everything is up: a constructor that fails leaves nothing to close
        self._state = AsyncState.DEFAULT
        self._timed_out = False
        self._guard = InterruptGuard()
        self._batches: list[EnvBatch] = []
        self._unseeded: set[int] = set()  # environments that must be given a seed, and have none yet

    # ------------------------------------------------------------------ the beginning

    def _workers_of(self, executor: ExecutorName, nodes: Any, workers: int | None) -> int | None:
        """How many workers are asked for in all, on however many machines; ``None`` for the cores that this process may use.

        Raises:
            ProgramError: If the machines that are asked for cannot be had.
        """
        self._transport = transport_for(executor, nodes, workers)
        return workers if self._transport is None else sum(self._transport.workers)

    def _expect_helpers(self, executor: ExecutorName, workers: int, caller_works: bool, context: str | None) -> None:
        """Begin what helpers need, which takes its time, before a throw-away environment is made: most likely they are wanted."""
        processes = context_named(context)
        if executor in ("auto", "processes") and (workers > 1 or not caller_works):
            begin(processes)

    def _set_actions(self, space: Space[Any], count: int) -> None:
        """``count`` actions of a space go in together: as one array where that is what an environment would be given rows of."""
        self._plain_actions = isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        if self._plain_actions:
            assert space.shape is not None
            self._action_shape, self._action_dtype = (count, *space.shape), np.dtype(space.dtype)

    def _open(
        self,
        program: Program,
        add: Callable[[str, int, int, int, int], Instance],
        choice: ExecutorChoice,
        context: str | None,
        caller_works: bool,
        parts: tuple[str, ...] = ("objects", "extras", "replies"),
        **ports: Any,
    ) -> None:
        """Wire the program and start it, the last thing that a constructor does.

        Args:
            program: The program.
            add: Adds a shard; see :func:`~reactor_gymnasium.vector.env_program.wire`.
            choice: What it runs on.
            context: How helper processes start.
            caller_works: Whether the calling thread takes its share.
            parts: Outputs of which every shard has one, besides ``at``.
            **ports: Further arguments of ``wire``: how many environments there are, and what their shards' ports are.
        """
        check_timeout("step_timeout", self._step_timeout)
        self._why, observations = choice.why, bool(self._layout.arrays)
        actions = (self._action_shape, self._action_dtype) if self._plain_actions else None
        parts = parts if self._step_timeout is None else (*parts, "at")
        self._batches, placement = wire(
            program, add, choice.seconds, choice.workers, actions, observations, parts=parts, **ports
        )  # fmt: skip
        transport, on = self._transport, None
        if transport is not None:
            nodes = spread_workers(transport.workers, choice.workers)
            on = {name: nodes[share] for name, share in placement.items()}
        self._run = program.start(
            executor=choice.executor if transport is None else transport, workers=choice.workers if transport is None else None,
            context=context, caller_works=caller_works, fingerprint="off", placement=placement if transport is None else None,
            on=on, spin=self._spin, recover=self._recover, tick_timeout=self._step_timeout,
        )  # fmt: skip
        for batch in self._batches:
            batch.bind(self._run, self._plain_actions, observations)
        self._batch = self._batches[0]  # the one whose actions are expected
        if self._step_timeout is not None:
            marks = {batch.suffix: self._run.view(f"at{batch.suffix}") for batch in self._batches}
            shards = {
                name: (marks[batch.suffix], part, lo)
                for name, (batch, part, lo) in zip(
                    placement,
                    ((batch, part, lo) for batch in self._batches for part, (_, lo, _) in enumerate(batch.shards)),
                    strict=True,
                )
            }
            self._run.tell_whereabouts(partial(_whereabouts, self._unit, shards))
        self._alone = len(self._batches) == 1
        when_forked(self)
        self.closed = False
        _log.info("made %r", self)

    def _replace(self, recover: Recover | None, count: int) -> None:
        """Have workers replaced that die, where that is asked for."""
        self._recover = recover
        self._unseeded = set(range(count if recover is not None else 0))

    def _strategies(self, makes: Sequence[Any]) -> tuple[str | None, ...]:
        """How environments can be saved, where workers may have to be replaced: not to be found out in the middle of a run."""
        return () if self._recover is None else tuple(map(save_strategy, makes))

    def _seed(self, index: int, seed: int | None) -> int | None:
        """The seed for a reset: one that is drawn here, where an environment that is to be brought back would draw its own."""
        if index in self._unseeded:
            self._unseeded.remove(index)
            return secrets.randbits(31) if seed is None else seed
        return seed

    # ------------------------------------------------------------------ looking at it

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        self._assert_is_running()
        return self._run.draw(path, format=format)

    def _repr_html_(self) -> str | None:
        """The picture, in a notebook, as long as it is open."""
        return None if self.closed else html_figure(repr(self), self._run.draw(format="svg"))

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
        notes = [note for note in (self._why, self._stepped_by()) if note] if how else []
        why = f" [{', '.join(notes)}]" if notes else ""
        return f"{self._title}({name}num_envs={self.num_envs}{batches}{how}{why})"

    def _stepped_by(self) -> str:
        """What steps the environments, if there is something to say."""
        return ""

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
        if self._state is not AsyncState.DEFAULT and not self._timed_out and not self._guard.unusable:
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
            if self._guard.unusable is POISONED and self._run.workers == 1:
                left = "reset() will do, for all environments are in this process"
            raise RunError(f"cannot go on with {self._title} because {self._guard.unusable}; {left}")
