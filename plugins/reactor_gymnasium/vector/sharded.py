"""``ShardedVectorEnv``: Gymnasium's interface on the shards of a reactor program; what every vector environment here is made of.

A step is a tick in which one batch's actions are present; while the caller has the results of one batch, the next batch's tick goes
on. The order is fixed, so nothing depends on who is faster.
"""

from __future__ import annotations

import logging
import secrets
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import iterate

from reactor_gymnasium.arguments import (
    Bools,
    MakerTrial,
    check_actions,
    check_travel,
    checked_batch_size,
    checked_mask,
    encode_makers,
    make_probe,
    refuse_wrapper,
    without_mask,
)
from reactor_gymnasium.environments.infos import by_row, decode_infos, info_adder, merge_infos
from reactor_gymnasium.environments.saving import recover_for, save_strategy
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.placement import StepCosts, choose_executor, late_helpers
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.traces import looked_at, without_films
from reactor_gymnasium.vector.env_program import EnvBatch, EnvProgram, Inputs
from reactor_gymnasium.vector.live import LiveVectorEnv
from reactor_gymnasium.vector.shard import VectorShard
from reactor_rl import Instance, Program
from reactor_rl.plugin import (
    POISONED,
    Execution,
    begin,
    context_named,
    encode,
    settled,
    transport_for,
    usable_cores,
    when_forked,
)

__all__ = ["ShardedVectorEnv"]

_log = logging.getLogger(__name__)


class ShardedVectorEnv(LiveVectorEnv):
    """Gymnasium's interface on shards of units: environments, games, copies of several agents, or vector environments.

    A concrete class says by its hooks what a unit is; its constructor checks its own arguments and calls :meth:`_construct`.
    """

    copy: bool
    _layout: ObservationLayout
    _action_shape: tuple[int, ...]
    _action_dtype: np.dtype[Any]
    _plain_actions: bool
    """Whether actions go in as one array, of that shape and dtype."""

    _items_per_unit = 1
    """How many actions a unit is given, where they are not one array."""

    # ------------------------------------------------------------------ the beginning

    def _construct(
        self,
        makers: Sequence[Any],
        execution: Execution,
        *,
        copy: bool,
        batch_size: int | None = None,
        most: int | None = None,
    ) -> None:
        """Do what every constructor does, once the class's own arguments are checked.

        Args:
            makers: What makes each unit.
            execution: Where they are stepped, as the user asked for.
            batch_size: How many units step together; ``None`` for all.
            most: The most workers that are of use.
        """
        executor, restarts, context = execution.executor, execution.restarts, execution.start_method
        transport = transport_for(executor, execution.nodes, execution.workers)
        self.copy, self._units = copy, len(makers)
        self.batch_size = batch_units = checked_batch_size(batch_size, self._units)
        wanted = (execution.workers or usable_cores()) if transport is None else sum(transport.workers)
        workers = min(wanted, batch_units, batch_units if most is None else most)
        caller_works = batch_units == self._units if execution.caller_works is None else execution.caller_works
        processes = context_named(context)
        if executor in ("auto", "processes") and (workers > 1 or not caller_works):
            begin(processes)  # which takes its time, and most likely helpers are wanted
        self._encoded = encode_makers(tuple(makers))  # before any of them is called, which may change it

        trial = MakerTrial(makers)
        named = settled(executor, workers, caller_works=caller_works, replaced=bool(restarts))

        def look(probe: Any) -> tuple[Sequence[int], StepCosts]:
            bounds = self._describe(probe)
            self._layout = ObservationLayout(self.single_observation_space, self._style.casting)
            self._set_actions(self.single_action_space, bounds[batch_units])
            if named and executor == "auto":
                self._judge(without_films(probe))
            return bounds, StepCosts(None, "") if named else self._time(without_films(probe), workers)

        bounds, costs = looked_at(partial(self._make_probe, trial.maker), look)
        choice = named or choose_executor(
            lambda: costs, batch_units, workers, executor, caller_works, late_helpers(context, self._style.spin), restarts
        )
        trial.warn(self._style.makers_option or "env_fns")
        if self._style.makers_option and (context != "fork" or choice.executor != "processes" or choice.workers == 1):
            check_travel(tuple(makers), self._encoded, self._title, self._style.context_option, self._style.makers_option)
        tried = self._tried_makers()
        recover = recover_for(restarts, choice.executor, tried, self._style.unit)
        # How units can be saved is not to be found out in the middle of a run.
        strategies = [] if recover is None else [save_strategy(maker) for maker in tried]
        self._unseeded = set(range(self._units if recover is not None else 0))  # units that must be given a seed, and have none yet
        inline, watched = choice.executor == "inline", execution.timeout is not None
        program = Program(f"{self._title.removesuffix('.of')} of {self._units}")
        program.worker_setup(repeat_registrations())

        def add(name: str, lo: int, hi: int, worker: int, row: int) -> Instance:
            rows = bounds[hi] - bounds[lo]
            return program.add(
                VectorShard, name=name, makers=self._encoded[lo:hi], count=rows, layout=self._layout, first=lo, row=row,
                owner=self._title, merging=self._style.infos if inline and rows == self.batch_size else "",
                watched=watched, tried=tried[lo:hi], strategies=strategies[lo:hi], **self._shard_settings(lo, hi, worker),
            )  # fmt: skip

        self._why = choice.why
        actions = (self._action_shape, self._action_dtype) if self._plain_actions else None
        self._program = EnvProgram(
            program, add, choice.costs, choice.workers, actions, self._layout,
            bounds=bounds, batch_size=batch_units, style=self._style, watched=watched,
        )  # fmt: skip
        self._run = self._program.start(
            choice.executor, transport, copy, start_method=context, caller_works=caller_works, spin=self._style.spin,
            recover=recover, timeout=execution.timeout,
        )  # fmt: skip
        self._batches = self._program.batches
        self._batch = self._batches[0]  # the one whose actions are expected
        self._alone = len(self._batches) == 1
        when_forked(self)
        self.closed = False
        _log.info("made %r", self)

    def _set_actions(self, space: Space[Any], count: int) -> None:
        """``count`` actions of a space go in together: as one array where that is what a unit would be given rows of."""
        self._plain_actions = isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        if self._plain_actions:
            assert space.shape is not None
            self._action_shape, self._action_dtype = (count, *space.shape), np.dtype(space.dtype)

    # ------------------------------------------------------------------ hooks

    def _make_probe(self, maker: Any) -> Any:
        """A unit that is looked at and thrown away; it can be closed."""
        return make_probe(maker, f"{self._style.unit} 0")

    @abstractmethod
    def _describe(self, probe: Any) -> Sequence[int]:
        """Set spaces, metadata and render mode, and how many rows there are.

        Returns:
            The first row of each unit, and the row after the last one.
        """

    @abstractmethod
    def _time(self, probe: Any, workers: int) -> StepCosts:
        """Time a step of each unit."""

    def _judge(self, probe: Any) -> None:
        """Find out what pays in any case, where nobody has named an executor and there is no choice."""

    @abstractmethod
    def _shard_settings(self, lo: int, hi: int, worker: int) -> dict[str, Any]:
        """Arguments of :class:`~reactor_gymnasium.vector.shard.VectorShard` that units ``lo`` to ``hi - 1`` have by their kind."""

    @abstractmethod
    def _reset_kwargs(self, seed: Any, options: dict[str, Any] | None) -> Mapping[int, dict[str, Any]]:
        """The arguments of a reset of each unit that is reset, by index; raises what is wrong with them."""

    def _batch_infos(self, batch: EnvBatch, parts: Sequence[Any]) -> dict[str, Any]:
        """The infos of a batch's tick that has just ended, from what its shards have sent, if any of them sent something."""
        infos = self._merged(batch, parts) if parts else {}
        if not self._alone:
            infos["env_id"], infos["_env_id"] = np.arange(batch.lo, batch.hi), np.ones(self.batch_size, np.bool_)
        return infos

    def _masked(
        self, options: dict[str, Any] | None, check: Callable[[Any, int], Bools] = checked_mask
    ) -> tuple[Bools, dict[str, Any] | None]:
        """The rows that ``options["reset_mask"]`` selects, all of them without one, and the other options."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_), options
        mask = check(options["reset_mask"], self.num_envs)
        if not self._alone:  # others step, whose results would be lost
            raise ValueError(
                "`options['reset_mask']` needs all environments in one batch; leave out `batch_size`, or reset all of them"
            )
        return mask, without_mask(options)

    def _tried_makers(self) -> Sequence[Any]:
        """Makers, encoded, of units to try whether they can be saved, how, and whether they can be restarted."""
        return self._encoded

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        """Check the actions for a batch before anything is stepped."""
        if self._plain_actions:
            if type(actions) in (list, tuple):
                actions = self._joined(actions)
            if isinstance(actions, np.ndarray):
                if actions.shape == self._action_shape and actions.dtype == self._action_dtype and type(actions) is np.ndarray:
                    return actions
                if actions.ndim:
                    check_actions(actions, self.single_action_space, self.batch_size)
        # Another dtype travels as it is, for the environment is to see what it would see in a SyncVectorEnv.
        try:
            items = list(actions if self._style.actions == "list" else iterate(self.action_space, actions))
        except TypeError as error:
            raise TypeError(f"step() takes an action for each of {self._rows_in_words()}, got {actions!r}") from error
        if len(items) != self.batch_size:
            raise ValueError(f"{len(items)} actions were given for {self._rows_in_words()}")
        return self._encode_items(batch, items)

    def _joined(self, actions: Any) -> Any:
        """A list of single actions as one array, if what a unit is given of that is just what it would be given of this."""
        shape, dtype = self._action_shape[1:], self._action_dtype
        if shape:
            alike = all(type(one) is np.ndarray and one.dtype == dtype and one.shape == shape for one in actions)
        else:
            alike = set(map(type, actions)) == {dtype.type}
        return np.array(actions, dtype) if alike and len(actions) == self.batch_size else actions

    def _encode_items(self, batch: EnvBatch, items: Sequence[Any]) -> Inputs:
        """Actions that are not one array, for each shard its own; what two of them share must not depend on where they are."""
        each, (_, first, _) = self._items_per_unit, batch.shards[0]
        kept = [encode(item) for item in items]
        return {f"items_{number}": encode(kept[(lo - first) * each : (hi - first) * each]) for number, lo, hi in batch.shards}

    def _rows_in_words(self) -> str:
        return f"{self.batch_size} environments"

    def _merged(self, batch: EnvBatch, parts: Sequence[Any]) -> dict[str, Any]:
        """The infos that shards have sent, in the style of the host."""
        if type(parts[0]) is dict:  # the only shard has put them together
            return parts[0]
        if self._style.infos == "columns":
            return merge_infos(map(decode_infos, parts), self if self._alone else info_adder(batch.hi - batch.lo))
        ended: dict[int, Any] = {}
        infos: dict[int, Any] = {}
        for finals, groups in map(decode_infos, parts):
            ended |= finals
            infos |= by_row(groups)
        return {"ended": ended, "infos": infos}

    @property
    def envs(self) -> NoReturn:
        """``SyncVectorEnv`` has its environments here; these may be in other processes.

        Raises:
            AttributeError: Naming what to use in its place.
        """
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute 'envs': each {self._style.unit} may be in another process. "
            "Use call(), get_attr() or set_attr()"
        )

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
            with self._both_halves:
                self.step_async(actions)
                return self.step_wait()
        batch = self._batch
        inputs = self._encode_actions(batch, actions)
        guard = self._guard
        guard.unusable = POISONED  # `with guard:` by hand, for it is called at every step
        try:
            self._program.put(batch, inputs)
            try:
                self._run.tick()
            except Exception as error:
                self._broke(error)
                raise
            parts, failures = self._program.collect(batch)
            if failures:
                self._raise_failures(failures)
            infos = self._batch_infos(batch, parts)
            if self.copy and batch.copy_rows:
                observations = batch.copy_rows()
            else:
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
            if self._program.ticking is None:
                self._program.begin(batch, inputs)
            else:
                self._program.queue.append((batch, inputs.copy()))
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
                self._finish(timeout)
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
        """:meth:`step_async`, by the name that it has in ALE's and EnvPool's vector environments.

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
        """:meth:`step_wait`, by the name that it has in ALE's and EnvPool's vector environments. The order is that of environments.

        After :meth:`async_reset` it gives the first batch's results of the reset, with rewards of 0 and flags of ``False``.
        """
        if self._state is AsyncState.WAITING_RESET:
            self.reset_wait()
            first = self._batches[0]
            first.ready = first.fresh = True
            self._batch, self._state = self._batches[-1], AsyncState.WAITING_STEP  # so the first one's turn comes next
        return self.step_wait()

    # ------------------------------------------------------------------ reset

    def reset(
        self, *, seed: int | Sequence[int | None] | npt.NDArray[Any] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those that ``options["reset_mask"]`` (shape ``(num_envs,)``, bool) selects.

        Args:
            seed: ``None``, one seed for each environment, or an int ``s`` for ``s, s + 1, ...``.
            options: Given to every environment's ``reset``, but for ``reset_mask``.

        Returns:
            Batched observations, and infos of the environments that were reset.

        Raises:
            ValueError: If there are not as many seeds as environments, or the mask does not fit.
            gymnasium.error.ResetNeeded: If rows must begin together, and the first reset leaves some out.
            Exception: What an environment raised.
        """
        if not self._alone:
            refuse_wrapper(sys._getframe(1))
        with self._both_halves:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | npt.NDArray[Any] | None = None, options: dict[str, Any] | None = None
    ) -> None:
        """Begin a reset; :meth:`reset_wait` ends it. Arguments as for :meth:`reset`.

        Raises:
            ClosedEnvironmentError: After :meth:`close`.
            AlreadyPendingCallError: If another call was begun and not ended.
            ValueError: If there are not as many seeds as environments, or the mask does not fit.
            TypeError: If a seed is not an integer, or the mask is not an array of bool.
            gymnasium.error.ResetNeeded: If rows must begin together, and the first reset leaves some out.
        """
        if "reset_mask" not in (options or {}):
            self.begin_anew()
        self._assert_is_running()
        self._assert_nothing_pending("reset_async", end="")
        self._begin_resets(self._reset_kwargs(seed, options))

    def async_reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """EnvPool's reset, whose results :meth:`recv` gives, batch by batch. Arguments as for :meth:`reset`."""
        self.reset_async(seed=seed, options=options)

    def reset_units(self, arguments: Mapping[int, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        """For classes on top of this one: reset some of the units, each with arguments of its own, by index.

        A step that was begun, and whose results nobody has asked for, is ended first, and forgotten.
        """
        self._assert_is_running()
        with self._both_halves:
            self._begin_resets(arguments)
            return self.reset_wait()

    def _begin_resets(self, arguments: Mapping[int, dict[str, Any]]) -> None:
        resets: list[Any] = [None] * self._units
        for index, kwargs in arguments.items():
            resets[index] = encode(kwargs | {"seed": self._seed(index, kwargs.get("seed"))} if self._unseeded else kwargs)
        with self._guard:
            self._drain()
            self._program.request({number: ("reset", resets[lo:hi]) for number, lo, hi in self._program.shards})
            self._state = AsyncState.WAITING_RESET
        self._was_reset = True

    def _seed(self, index: int, seed: int | None) -> int | None:
        """The seed for a reset: one that is drawn here, where a unit that is to be brought back would draw its own."""
        if index in self._unseeded:
            self._unseeded.remove(index)
            return secrets.randbits(31) if seed is None else seed
        return seed

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
                batch.infos, batch.ready, batch.fresh = self._collect(batch), True, True
            self._batch = first = self._batches[0]
            first.ready = first.fresh = False
            observations = self._layout.batched(first.rows, first.objects, self.copy)
        return observations, first.infos

    # ------------------------------------------------------------------ ticks

    def _finish(self, timeout: float | None = None) -> None:
        """End the tick that goes on, and begin that of the batch that comes next, if its actions are there."""
        program, batch = self._program, self._program.ticking
        assert batch is not None
        self._wait(AsyncState.WAITING_STEP, timeout)
        program.ticking, self._state = None, AsyncState.DEFAULT
        batch.infos = self._collect(batch)
        batch.ready = True
        if program.queue:
            program.begin(*program.queue.popleft())

    def _collect(self, batch: EnvBatch) -> dict[str, Any]:
        """The infos of a batch's tick that has just ended; raises what its units raised."""
        parts, failures = self._program.collect(batch)
        if failures:
            self._raise_failures(failures)
        return self._batch_infos(batch, parts)

    def _drain(self) -> None:
        """End every tick that was begun. What it brought is still handed out later, unless it is reset before."""
        while self._program.ticking is not None:
            self._finish()
