"""The reactors that hold environments: what all shards have, and the shard of single environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.infos import (
    masked,
    note_whose_info,
    pack_columns,
    pack_infos,
    together,
    together_columns,
    with_finals,
)
from reactor_gymnasium.environments.rows import EnvRows, StepBuffers, close_all, marked
from reactor_gymnasium.environments.saving import save_strategy, saved_exactly
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.native.kernel import BlockKernel
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_rl.plugin import Failure, Handed, Pickled, decode, dumps, loads

__all__ = ["Failures", "Infos", "Shard", "Told", "VectorShard"]

Infos = dict[int, dict[str, Any]]
"""Infos that are not empty, by row of the shard."""
Failures = list[tuple[int, Failure]]
"""Exceptions of environments, with their indices."""


class Told(NamedTuple):
    """The message that a shard sends in place of its extras when there is news of who steps its environments.

    Attributes:
        first: Index of its first environment.
        stepper: Who steps them, in words.
        extras: What else it sends, ``None`` if nothing.
    """

    first: int
    stepper: str
    extras: Any


class VectorShard(Reactor):
    """Environments that are stepped together, of whatever kind, between ports.

    Args:
        make_rows: From the index of the first environment to what holds them, without any yet.
        makers: What makes each, encoded by itself: what two of them share must not depend on where they are.
        count: How many rows they have.
        layout: The space that observations are batched by.
        first: Index of the first one.
        row: Row of the first one in its batch.
        owner: Name of the class that the user has made, for messages.
        construct: How to call what makes one, if not just so.
        check: Called once with the environments and the index of the first one; raises if they do not fit.
        reward_dtype: Of the port.
        split_finals: Whether infos of ended episodes are taken apart; see
            :func:`~reactor_gymnasium.environments.infos.pack_infos`.
        whole: Whether it has every environment, in the caller's process: then it puts infos together itself, and nothing is
            pickled.
        watched: Whether to tell at any time which environment is being stepped.
        tried: What makes each where it is tried how it can be saved, encoded; none if all states can be saved.
        strategies: The result of that, if it is known already; see
            :func:`~reactor_gymnasium.environments.saving.probe_save_strategy`.
    """

    actions = Input()
    """Actions as one array, ``(rows, *single_action_space.shape)``."""
    items = Input()
    """Actions as a list, where they are not such an array: one for each row, or for each vector environment."""
    request = Input()
    """Requests besides steps: ``("reset", kwargs)``, or ``(function, args)`` to call ``function(env, *args)``; of each
    environment its own, ``None`` for those that are left alone.
    """

    observations = Output((0,), np.uint8)
    objects = Output()
    rewards = Output((0,), np.float64)
    terminations = Output((0,), np.bool_)
    truncations = Output((0,), np.bool_)
    columns = Output((0,), np.uint8)
    """What :attr:`~reactor_gymnasium.environments.rows.EnvRows.columns` declares, each a field."""
    extras = Output()
    """Further results that only some steps have: packed infos, and failures by environment."""
    at = Output((), np.int64)
    """Which of its environments is being stepped, counted from 1, 0 for none; written only where somebody watches."""
    replies = Output()
    """The pickled result of each environment that was called."""

    def __init__(
        self,
        make_rows: Callable[[int], EnvRows],
        makers: Sequence[Pickled],
        count: int,
        layout: ObservationLayout,
        *,
        first: int,
        row: int,
        owner: str,
        construct: Callable[[Callable[[], Any]], Any] | None = None,
        check: Callable[[Sequence[Any], int], None] | None = None,
        reward_dtype: npt.DTypeLike = np.float64,
        split_finals: bool = True,
        whole: bool = False,
        watched: bool = False,
        tried: Sequence[Any] = (),
        strategies: Sequence[str | None] = (),
    ) -> None:
        self.makers, self.layout, self.first, self.row, self.owner = tuple(makers), layout, first, row, owner
        self.construct, self.check, self.split_finals, self.watched = construct, check, split_finals, watched
        self.whole, self.count = whole, count
        self.tried, self.strategies = tuple(tried), tuple(strategies)
        self.rows = make_rows(first)
        self.told = self.rows.stepper
        self.memory: tuple[Any, ...] = (None,) * 5
        self.buffers: StepBuffers | None = None  # that write to it
        if layout.arrays:
            shape, dtype = layout.storage()
            self.observations = Output((count, *shape), dtype)
        self.rewards = Output(count, reward_dtype)
        self.terminations, self.truncations = Output(count, np.bool_), Output(count, np.bool_)
        if self.rows.columns:
            self.columns = Output(count, np.dtype([(name, *spec) for name, spec in self.rows.columns.items()]))

    # ------------------------------------------------------------------ start and end

    @reaction(startup)
    def build(self) -> None:
        """Make the environments, here where they will live."""
        rows = self.rows
        rows.build(self.makers, self.construct)
        if self.check is not None:
            with rows.opened(changes=False) as envs:
                self.check(envs, self.first)

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        self.rows.close()

    # ------------------------------------------------------------------ steps

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, columns, extras, at))
    def step(self) -> None:
        """Step every environment once."""
        rows = self.rows
        if self.watched:
            rows.mark = self.at.buffer
        given = self.actions.value if self.actions.present else list(map(decode, self.items.value))
        rows.step(given, self._buffers())
        self._send()

    def _buffers(self) -> StepBuffers:
        """Where this tick's results go."""
        memory = (*self._shown(), self.rewards.buffer, self.terminations.buffer, self.truncations.buffer)
        if self.buffers is None or not all(map(is_, memory, self.memory)):
            self.memory = observations, columns, *flags = memory
            self.buffers = StepBuffers(self.layout, observations, None, *flags, _fields(columns))
        return self.buffers

    def _shown(self) -> tuple[Any, Any]:
        """The memory of this tick for what rows show: observations and columns, ``None`` for those that there are not."""
        return self.observations.buffer if self.layout.arrays else None, self.columns.buffer if self.rows.columns else None

    @reaction(request, effects=(observations, objects, columns, extras, replies))
    def answer_request(self) -> None:
        """Reset some environments, or call something with them. What each is given is pickled by itself: what two of them share
        must not depend on where they are.
        """
        rows, (function, of_envs) = self.rows, self.request.value
        asked = {number: arguments for number, arguments in enumerate(of_envs) if arguments is not None}
        if function == "reset":
            observations, columns = self._shown()
            resets: dict[int, Any] = {}
            failures: list[tuple[int, Exception]] = []
            for number, arguments in asked.items():
                try:
                    resets[number] = decode(arguments)
                except Exception as error:
                    failures.append((number, error))
            rows.reset(resets, StepBuffers(self.layout, observations, columns=_fields(columns)))
            rows.failures += failures
        else:
            results = rows.call(partial(_pickled_result, function), {number: (one,) for number, one in asked.items()})
            self.replies.set(list(results.values()))
        self._send()

    def _send(self) -> None:
        """Send what there is besides arrays."""
        rows, extras = self.rows, None
        if self.layout.objects:
            self.objects.set(rows.objects(self.layout))
        try:
            if rows.stepped is not None or rows.infos or rows.finals or rows.batched or rows.failures:
                extras = self._extras(rows.stepped)
            if rows.stepper is not self.told:
                self.told = rows.stepper
                handed = type(extras) is Handed
                told = Told(self.first, self.told, extras.value if handed else extras)
                extras = Handed(told) if handed else told
            if extras is not None:
                self.extras.set(extras)
        except Exception as error:
            of_envs = [(self.first + number, info) for given in (rows.finals, rows.infos) for number, info in given.items()]
            note_whose_info(error, of_envs, rows.unit)
            raise

    def _extras(self, kernel: BlockKernel | None) -> Any:
        """Infos, as they travel, and failures; ``None`` if there is neither.

        Args:
            kernel: What took the step and has the infos, unless wrappers around it gave others.
        """
        rows, count, failures = self.rows, self.count, []
        infos, finals = rows.infos, rows.finals
        if rows.failures:  # a comprehension over nothing costs a call
            failures = [
                (self.first + number, Failure.of(number, f"{rows.unit} {self.first + number}", self.tag, error))
                for number, error in rows.failures
            ]
        if rows.batched:
            return [(self.row + lo, of_unit, told) for lo, of_unit, told in rows.batched], failures
        if self.whole and not failures:
            if not self.split_finals:
                if kernel is not None:
                    infos = infos or kernel.infos_by_row()
                    return Handed({"ended": finals, "infos": infos}) if infos or finals else None
            elif (merged := self._merged(kernel)) is not None:
                return Handed(with_finals(merged, finals, count)) if merged or finals else None
        if finals and self.split_finals:
            finals = {row: {"final_obs": last, "final_info": info} for row, (last, info) in finals.items()}
        if kernel is None or infos:
            return pack_infos(self.row, finals, infos, split_finals=self.split_finals), failures
        columns = kernel.infos()
        if not (columns or finals or failures):
            return None
        return pack_columns(self.row, count, finals, columns, split_finals=self.split_finals), failures

    def _merged(self, kernel: BlockKernel | None) -> dict[str, Any] | None:
        """The infos of the step put together, where that is easy, without those of episodes that it has ended."""
        infos = self.rows.infos
        if kernel is None or infos:
            return None if self.rows.finals else together(infos, self.count)
        columns = kernel.together()
        if columns is None:
            return together_columns(kernel.infos(), self.count)
        return masked(columns, self.count) if columns else {}

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        rows = self.rows
        if not rows.num_envs:  # before they are made
            return self.__dict__.copy()
        strategies = self.strategies or list(map(save_strategy, self.tried)) or ["state"] * rows.num_envs
        kept = []
        for number, strategy in enumerate(strategies):
            name = f"{rows.unit} {self.first + number} of {self.owner}"
            # Each by itself: what two share must not depend on where they are.
            kept.append(dumps(rows.save(number, partial(saved_exactly, strategy=strategy, name=name))))
        return {"kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for number, saved in enumerate(state["kept"]):
            self.rows.load(number, loads(saved))


def _fields(columns: Any) -> dict[str, npt.NDArray[Any]]:
    """The columns of a port, by name."""
    return {} if columns is None else {name: columns[name] for name in columns.dtype.names}


def _pickled_result(function: Callable[..., Any], env: Any, arguments: Pickled) -> bytes:
    return dumps(function(env, *decode(arguments)))


class Shard(Reactor, ABC):
    """A contiguous block of environments, each with one row or more.

    Args:
        first: Index of the first environment.
        row: Row of the first one in its batch.
        rows: How many rows they have.
        layout: The space that observations are batched by.
        watched: Whether to tell at any time which environment is being stepped.
        strategies: How each environment can be saved, if that is known already; see
            :func:`~reactor_gymnasium.environments.saving.probe_save_strategy`.

    Attributes:
        envs: What holds the environments, each as its ``env`` unless the class says otherwise; none in a class that has an
            :class:`~reactor_gymnasium.environments.gym_rows.GymRows`.
        last: Each row's last observation, ``None`` before the first one.
    """

    actions = Input()
    """Actions as one array, ``(rows, *single_action_space.shape)``."""
    items = Input()
    """Actions as a list of ``rows`` objects, where they are not such an array."""
    request = Input()
    """Requests besides steps: ``("reset", kwargs)``, or ``(function, args)`` to call ``function(env, *args)``; of each
    environment its own, ``None`` for those that are left alone.
    """

    observations = Output((0,), np.uint8)
    objects = Output()
    rewards = Output((0,), np.float64)
    terminations = Output((0,), np.bool_)
    truncations = Output((0,), np.bool_)
    extras = Output()
    """Further results that only some steps have: packed infos, and failures by environment."""
    at = Output((), np.int64)
    """Which of its environments is being stepped, counted from 1, 0 for none; written only where somebody watches."""
    replies = Output()
    """The pickled result of each environment that was called."""

    unit = "environment"
    """The word for one of those that it holds, in messages."""
    split_finals = True
    """Whether infos of ended episodes are taken apart; see :func:`~reactor_gymnasium.environments.infos.pack_infos`."""

    whole = False
    """Whether it has every environment, in the caller's process: then it puts infos together itself, and nothing is pickled."""

    def __init__(
        self,
        first: int,
        row: int,
        rows: int,
        layout: ObservationLayout,
        watched: bool = False,
        strategies: Sequence[str | None] = (),
    ) -> None:
        self.first, self.row, self.layout, self.watched, self.strategies = first, row, layout, watched, tuple(strategies)
        self.envs: list[Any] = []
        self.last: list[Any] = [None] * rows
        self.rows: Any = None  # the buffer that `out` writes to
        self.out: StepBuffers | None = None
        if layout.arrays:
            shape, dtype = layout.storage()
            self.observations = Output((rows, *shape), dtype)
        self.rewards, self.terminations, self.truncations = Output(rows, np.float64), Output(rows, np.bool_), Output(rows, np.bool_)

    @reaction(startup)
    @abstractmethod
    def build(self) -> None:
        """Make the environments, here where they will live."""

    @reaction(shutdown)
    def close(self) -> None:
        """Close every environment, even if closing one fails; the first error is raised."""
        envs = list(map(self._env, self.envs))
        self.envs.clear()
        close_all(enumerate(envs, self.first), self.unit)

    @reaction(actions, items, effects=(observations, objects, rewards, terminations, truncations, extras, at))
    @abstractmethod
    def step(self) -> None:
        """Step every environment once."""

    @reaction(request, effects=(observations, objects, extras, replies))
    def answer_request(self) -> None:
        """Reset some environments, or call something with them. What each is given is pickled by itself: what two of them share
        must not depend on where they are.
        """
        self._answer(self.envs)

    def _answer(self, envs: Sequence[Any]) -> None:
        """Answer a request with what holds the environments."""
        function, of_envs = self.request.value
        resets = function == "reset"
        infos: Infos = {}
        results: list[bytes] = []
        failures: Failures = []
        for number, (held, arguments) in enumerate(zip(envs, of_envs, strict=True)):
            if arguments is not None:
                try:
                    if resets:
                        self._begin_episode(number, decode(arguments), infos)
                    else:
                        results.append(dumps(function(self._env(held), *decode(arguments))))
                except Exception as error:
                    failures.append(self._failure(number, error))
        if not resets:
            self.replies.set(results)
        elif self.layout.arrays:
            self._write_last(failures)
        self._send({}, infos, failures)

    def _env(self, held: Any) -> Any:
        """The object to be called and closed in an element of ``envs``."""
        return held.env

    @abstractmethod
    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        """Reset an environment of this shard; its observations go to ``last``."""

    def _begun(self, observation: Any) -> Any:
        """The observation of a reset, which must be one: in ``last``, ``None`` stands for a row that was never reset.

        Raises:
            TypeError: If ``reset()`` returned no observation.
        """
        if observation is None:
            raise TypeError(f"reset() returned None as the observation, its space is {self.layout.space}")
        return observation

    def _bound(self) -> StepBuffers | None:
        """The rows that this tick writes observations to, if any part of them is an array."""
        if self.layout.arrays:
            rows = self.observations.buffer
            if rows is not self.rows:
                self.rows, self.out = rows, StepBuffers(self.layout, rows)
        return self.out

    @abstractmethod
    def _write_last(self, failures: Failures) -> None:
        """Write the last observations of all rows."""

    def _send(self, finals: Infos, infos: Infos, failures: Failures) -> None:
        """Send what there is besides arrays."""
        if self.layout.objects:
            self.objects.set([None if last is None else self.layout.take_objects(last) for last in self.last])
        if not (infos or failures or finals):
            return
        if self.whole and not (finals or failures) and (merged := together(infos, len(self.last))) is not None:
            self._set_extras(Handed(merged))
            return
        try:
            self._set_extras((pack_infos(self.row, finals, infos, split_finals=self.split_finals), failures))
        except Exception as error:
            of_envs = [(self.first + number, info) for given in (finals, infos) for number, info in given.items()]
            note_whose_info(error, of_envs, self.unit)
            raise

    def _set_extras(self, extras: Any) -> None:
        """Send what only some steps have."""
        self.extras.set(extras)

    def _numbers(self) -> Iterable[int]:
        """The numbers of its environments, to step them in this order."""
        numbers = range(len(self.envs))
        return marked(numbers, self.at.buffer) if self.watched else numbers

    def _saved(self, number: int, env: Any, last: Any, make: Any, owner: str) -> tuple[bytes, bytes]:
        """The state of an environment, and its last observation; each by itself: what two share must not depend on where they are.

        Raises:
            RunError: If it cannot be restored exactly.
        """
        strategy = self.strategies[number] if self.strategies else save_strategy(make)
        return saved_exactly(env, strategy, f"{self.unit} {self.first + number} of {owner}"), dumps(last)

    def _failure(self, number: int, error: Exception) -> tuple[int, Failure]:
        index = self.first + number
        return index, Failure.of(number, f"{self.unit} {index}", self.tag, error)
