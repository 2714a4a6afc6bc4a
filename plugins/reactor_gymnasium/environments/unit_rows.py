"""``UnitRows``: environments that fill several rows at once, or end by a rule of their own: agents, simulators, emulators.

What such an environment shows is written at once into memory of these rows, for it and the others may use their arrays again; from
there it goes to the caller's buffers in one copy. Units that keep what they show themselves write into these buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.returned import explain_returned
from reactor_gymnasium.environments.rows import IDLE, ColumnSpec, EnvRows, MakeSeeds, RowLayout, SavedEnv, StepBuffers, marked
from reactor_gymnasium.environments.saving import load_env, save_env
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_rl.plugin import Pickled, aligned_zeros

__all__ = ["Unit", "UnitLayout", "UnitRows", "only"]

Array = npt.NDArray[Any]


class UnitLayout(RowLayout, Protocol):
    """How units show their observations, as an :class:`~reactor_gymnasium.environments.storage.ObservationLayout` does.

    Attributes:
        whole: Whether there is one row of observations for each environment, and not one for each of its rows.
        arrays: Empty if no part of them is an array.
        objects: Empty if all parts of them are arrays.
    """

    whole: bool
    arrays: Any
    objects: Any

    def storage(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of one row of observations."""


class Unit(Protocol):
    """An environment of one row or more: all that a new kind of environment has to say.

    Attributes:
        env: What is called, looked at and closed.
        rows: How many rows it has.
        keeps: Whether it can show at any time what it showed after its last step.
        takes_batch: Whether actions that come one by one are one for all its rows, and not one for each.
        over: Whether its episode is over, or none has begun; ``False`` if it resets its rows itself.
        rewards: Of its last step, a number for each row.
        ended: Its rows whose episodes the last step has ended, with ``terminated`` and ``truncated``; few.
        flags: Instead of these: ``terminated`` and ``truncated`` of all its rows, as arrays.
        infos: By row those infos of the last step or reset that are not empty.
        batched: Instead of these: what is told of all its rows at once, if there is something. It is copied.
    """

    env: Any
    rows: int
    keeps: bool
    takes_batch: bool
    over: bool
    rewards: Any
    ended: Sequence[tuple[int, bool, bool]]
    flags: Any
    infos: Mapping[int, Any]
    batched: Any

    @property
    def state(self) -> Any:
        """The object that has its state, for :func:`~reactor_gymnasium.environments.saving.save_env`: its ``env``, or itself."""

    def reset(self, **kwargs: Any) -> None:
        """Begin an episode; see ``Env.reset``."""

    def step(self, actions: Any) -> None:
        """Take a step. The actions of its rows are its own, to keep and to change."""

    def show(self, out: StepBuffers, lo: int) -> None:
        """Write what its rows show now, and its columns, into rows ``lo`` and following. These arrays are the same each time."""

    def leaves(self, layout: Any) -> list[tuple[Any, ...] | None]:
        """Copies of the parts of what its rows show that are not arrays."""

    def last(self, row: int) -> Any:
        """The last observation of a row, as the environment gave it."""


class UnitRows(EnvRows):
    """Units, one after the other.

    Args:
        first: Index of the first one.
        autoreset: When one whose episode is over is reset; ``None`` if they reset their rows themselves.
        make: Makes a unit of an environment and its index.
        layout: Of an observation.
        columns: What its units write for each row besides.
        unit: The word for one of them in messages.
        seeds: See :class:`~reactor_gymnasium.environments.rows.EnvRows`.

    Attributes:
        shown: The memory with what every row shows, and its columns, of units that do not keep it; others only read it.
        keep_finals: Whether :attr:`finals` are wanted.
        batched: Of the last step or reset what units told of all their rows at once: first row, number of rows, and that.
    """

    over: list[int] = []

    def __init__(
        self,
        first: int,
        autoreset: AutoresetMode | None,
        make: Callable[[Any, int], Unit],
        layout: UnitLayout,
        columns: Mapping[str, ColumnSpec] | None = None,
        unit: str = "environment",
        seeds: MakeSeeds | None = None,
    ) -> None:
        super().__init__(first, autoreset, make, seeds)
        self.layout, self.columns, self.unit = layout, columns or {}, unit
        self.units: list[Unit] = self._held
        self.keep_finals = True

    def _forget(self) -> None:
        super()._forget()
        self.over = []
        self.batched: list[tuple[int, int, Any]] = []

    def build(self, makers: Sequence[Pickled], construct: Callable[[Callable[[], Any]], Any] | None = None) -> None:
        super().build(makers, construct)
        self._keeping, self._has_objects = all(unit.keeps for unit in self.units), bool(self.layout.objects)
        self.bounds = list(accumulate((unit.rows for unit in self.units), initial=0))
        self._ends_at = self.bounds[1:]
        self._seen_at = range(len(makers) + 1) if self.layout.whole else self.bounds  # rows of observations, as `bounds`
        self.shown, self._ends = self._memory(), self._memory()
        self._leaves: list[tuple[Any, ...] | None] = [None] * self.num_rows
        self._apart: list[slice] = []  # observations of `_ends` that are what the last step led to

    def _memory(self) -> StepBuffers:
        observations = None
        if self.layout.arrays:
            shape, dtype = self.layout.storage()
            observations = aligned_zeros((self._seen_at[-1], *shape), dtype)
        columns = {name: np.zeros((self.num_rows, *shape), dtype) for name, (dtype, shape) in self.columns.items()}
        return StepBuffers(self.layout, observations, columns=columns)

    # ------------------------------------------------------------------ steps

    def step(self, actions: Array | Sequence[Any], out: StepBuffers | None) -> None:
        # As `_forget`, but without its calls.
        self.failures = failures = []
        self.ended, self.finals, self.infos, self.over, self.batched = [], {}, {}, [], []
        pending, bounds, units, numbers = self.pending, self.bounds, self.units, self._numbers
        shown = out if self._keeping else self.shown
        objects, keep_infos = self._has_objects, self.keep_infos
        rewards = None if out is None else out.rewards
        given = self.rewards = [0.0] * bounds[-1] if rewards is None else []
        if rewards is not None:
            rewards.fill(0)
        parts: Any = actions
        if type(actions) is not list or not units[0].takes_batch:
            own_actions = actions.copy() if isinstance(actions, np.ndarray) else actions
            parts = [own_actions[lo:hi] for lo, hi in pairwise(bounds)]
        # `strict=True` takes longer than the rest of this call.
        work = zip(numbers if self.mark is None else marked(numbers, self.mark), units, parts, bounds, self._ends_at, pending)  # noqa: B905
        flags: list[tuple[int, int, tuple[Array, Array]]] = []
        while True:
            number = 0
            try:
                for number, unit, of_unit, lo, hi, over in work:
                    if over:  # NEXT_STEP: no account is taken of the action
                        if over == IDLE:
                            continue
                        pending[number] = False
                        unit.reset(**({} if self.seeds is None else self.seeds(number) or {}))
                    else:
                        unit.step(of_unit)
                        if rewards is None:
                            given[lo:hi] = unit.rewards
                        elif hi - lo == 1:
                            rewards[lo] = unit.rewards[0]
                        else:
                            _write_numbers(rewards[lo:hi], unit.rewards)
                        if unit.flags is None:
                            if unit.ended or unit.over:
                                self._end(number, unit, lo, out)
                        elif rewards is None:
                            pairs = zip(range(lo, hi), *(part.tolist() for part in unit.flags), strict=True)
                            self.ended += [one for one in pairs if one[1] or one[2]]
                        else:
                            flags.append((lo, hi, unit.flags))
                    if shown is not None:  # before the next one takes its step: they may share arrays
                        unit.show(shown, lo)
                    if objects or (keep_infos and (unit.infos or unit.batched)):
                        self._keep(number, unit, lo, hi)
                break
            except Exception as error:  # the others still take their step
                explain_returned(error)
                failures.append((number, error))
        if out is not None:
            self._write(out, flags)

    def _write(self, out: StepBuffers, flags: list[tuple[int, int, tuple[Array, Array]]]) -> None:
        """Write what a step brought."""
        terminations, truncations = out.terminations, out.truncations
        if terminations is not None and truncations is not None:
            out.write_ends(self.ended)
            for lo, hi, (terminated, truncated) in flags:
                terminations[lo:hi], truncations[lo:hi] = terminated, truncated
        if not self._keeping or self.failures or IDLE in self.pending:
            self.show(out)
        if out.next_observations is not None:
            if self._keeping:
                self.show(self.shown)
            _copy(self.shown.observations, out.next_observations)
            for rows in self._apart:
                _copy(self._ends.observations, out.next_observations, rows)
        self._apart.clear()

    def _end(self, number: int, unit: Unit, lo: int, out: StepBuffers | None) -> None:
        """Note which of a unit's episodes have ended, and reset it if that is to be in the same step."""
        self.ended += [(lo + row, terminated, truncated) for row, terminated, truncated in unit.ended]
        if self.autoreset is AutoresetMode.SAME_STEP and self.keep_finals:
            for row in sorted(row for row, _, _ in unit.ended):
                self.finals[lo + row] = own(unit.last(row)), self.before_reset(lo + row, unit.infos.get(row, {}))
        if not unit.over:
            return
        self.over.append(number)
        if self.autoreset is AutoresetMode.NEXT_STEP:
            self.pending[number] = True
        elif self.autoreset is AutoresetMode.SAME_STEP:
            if out is not None and out.next_observations is not None:
                unit.show(self._ends, lo)
                self._apart.append(slice(*self._seen_at[number : number + 2]))
            kwargs = {} if self.seeds is None else self.seeds(number)
            if kwargs is None:
                self.pending[number] = IDLE
            else:
                unit.reset(**kwargs)

    def _keep(self, number: int, unit: Unit, lo: int, hi: int) -> None:
        """Keep the parts of what a unit shows that are not arrays, and its infos."""
        if self._has_objects:
            self._leaves[lo:hi] = unit.leaves(self.layout)
        if not self.keep_infos:
            return
        if unit.batched:
            self.batched.append((lo, unit.rows, own(unit.batched)))
        if unit.infos and self.pending[number] != IDLE:
            for row, info in unit.infos.items():
                self.infos[lo + row] = own(info)

    def _reset(self, number: int, env: Any, kwargs: Mapping[str, Any]) -> None:
        unit, (lo, hi) = self.units[number], self.bounds[number : number + 2]
        unit.reset(**kwargs)
        self._take(number, unit, lo, hi)

    def _take(self, number: int, unit: Unit, lo: int, hi: int) -> None:
        """Take over what a unit shows, between steps."""
        if not self._keeping:
            unit.show(self.shown, lo)
        self._keep(number, unit, lo, hi)

    def show(self, out: StepBuffers) -> None:
        if self._keeping:
            for unit, lo in zip(self.units, self.bounds, strict=False):
                unit.show(out, lo)
            return
        if out.observations is not None:
            _copy(self.shown.observations, out.observations)
        for name, column in out.columns.items():
            column[...] = self.shown.columns[name]

    def objects(self, layout: ObservationLayout) -> list[tuple[Any, ...] | None]:
        return list(self._leaves)

    # ------------------------------------------------------------------ between steps

    def observation(self, row: int) -> Any:
        """See :meth:`EnvRows.observation`; a record as a dict."""
        shown = self.shown.observations[row]
        return {name: shown[name].copy() for name in shown.dtype.names} if shown.dtype.names else shown.copy()

    def replay(self, number: int, kwargs: Mapping[str, Any], actions: Array) -> None:
        """See :meth:`EnvRows.replay`; of units of one row."""
        unit, (lo, hi) = self.units[number], self.bounds[number : number + 2]
        unit.reset(**kwargs)
        for action in actions.copy()[:, None]:
            unit.step(action)
            if unit.over:
                unit.reset()
        self.pending[number] = False
        self._take(number, unit, lo, hi)

    def save(self, number: int, saving: Callable[[Any], bytes] = save_env) -> SavedEnv:
        lo, hi = self.bounds[number : number + 2]
        shown, seen = self.shown, slice(*self._seen_at[number : number + 2])
        observations, columns = None, {}
        if not self._keeping:
            observations = None if shown.observations is None else shown.observations[seen].copy()
            columns = {name: column[lo:hi].copy() for name, column in shown.columns.items()}
        return SavedEnv(saving(self.units[number].state), (observations, columns, self._leaves[lo:hi]), self.pending[number])

    def load(self, number: int, saved: SavedEnv) -> None:
        lo, hi = self.bounds[number : number + 2]
        load_env(self.units[number].state, saved.state)
        observations, columns, self._leaves[lo:hi] = saved.shown
        if observations is not None:
            self.shown.observations[slice(*self._seen_at[number : number + 2])] = observations
        for name, column in columns.items():
            self.shown.columns[name][lo:hi] = column
        self.pending[number] = saved.pending


_ALL = slice(None)


def _write_numbers(out: Array, given: Any) -> None:
    try:
        out[:] = given
    except (TypeError, ValueError):  # an array of one element is a number, too
        out[:] = [np.asarray(one, np.float64).item() for one in given]


def _copy(shown: Array, into: Any, rows: slice = _ALL) -> None:
    """Copy rows to an array, or to arrays by name: parts of a record, or the only one."""
    if not isinstance(into, Mapping):
        into[rows] = shown[rows]
        return
    for name, part in into.items():
        part[rows] = (shown if part.dtype == shown.dtype else shown[name])[rows]


def only(rows: Any) -> Any:
    """The array of rows, where they are in arrays by name as a record has them."""
    if type(rows) is np.ndarray or not isinstance(rows, Mapping):
        return rows
    return next(iter(rows.values())) if len(rows) == 1 else rows
