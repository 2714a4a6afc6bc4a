"""The work of wrappers for all rows at once: what a step brings goes outwards through one form for each level.

A :class:`RowForm` takes the state of the wrappers of one level, one wrapper a row, and gives it back before anybody looks at them.
:class:`Around` is all of them, around a kernel or around what Python steps. A row that is not as a form expects it (another dtype,
a number that is not finite) goes on by itself: its wrapper's own method is called, with the result of the level inside in the place
of the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.owning import own, same_bits
from reactor_gymnasium.native.kernel import StandsFor
from reactor_rl.plugin import code_of

__all__ = ["ALL", "Around", "Failures", "InPlaceOf", "InRows", "RowForm", "RowResults", "Selection", "numbers_of"]

Array = npt.NDArray[Any]
Failures = list[tuple[int, Exception]]
"""Rows, and what a wrapper has raised there."""
Selection = slice | Array
"""Which rows: an index of arrays."""

ALL = slice(None)
WHOLE = frozenset({int, bool, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64})
KINDS = WHOLE | {float, np.float64, np.float32, np.float16}
"""The types that rewards may have where those of all rows are an array of float64, from which they can be made again."""
EXACT = 2.0**53
"""The largest whole number of which this is true."""


def numbers_of(rows: Selection | None, n: int) -> Sequence[int]:
    """The numbers of the rows of a selection, in ascending order."""
    if rows is None:
        return ()
    return range(n) if isinstance(rows, slice) else rows.tolist()


@dataclass(slots=True, eq=False)
class RowResults:
    """The results of a step, or of resets, on their way outwards.

    Attributes:
        n: How many rows there are.
        observations: ``(n, ...)``, never written into; or a list of one for each row.
        moved: The rows that took a step.
        begun: Those that were reset.
        rewards: ``(n,)`` float64, never written into; ``None`` of resets.
        kind: The type of rewards in Python.
        terminated: ``(n,)`` bool, likewise ``truncated``.
        ended: The rows whose episode has ended.
        make_infos: Makes the infos by row, which are added to.
        own: Makes of a row of the array an observation of the environment's own type; ``None`` where those are arrays.
        again: Whether rows whose episode ends are reset in the same step, or were, without arguments.
        kwargs: By row the arguments of ``reset()``, where there are some.
        kept: By row the very observation, where the environment keeps it and ``observations`` has a copy: a wrapper that writes
            into it is to change the environment, as it does in Python.
        rows: Both kinds of rows. Those that a wrapper has failed in are in none of the three.
        alone: By row the results of those that go on by themselves: five of a step, or two of a reset.
        late: Likewise what comes out of the current form and goes on by itself from there.
        failures: Rows, and what a wrapper has raised.
    """

    n: int
    observations: Array | list[Any]
    moved: Selection | None
    begun: Selection | None
    rewards: Any = None
    kind: type = float
    terminated: Any = None
    truncated: Any = None
    ended: Sequence[int] = ()
    make_infos: Callable[[], dict[int, dict[str, Any]]] = dict
    own: Callable[[Any], Any] | None = None
    again: bool = False
    kwargs: Mapping[int, Mapping[str, Any]] | None = None
    kept: Mapping[int, Any] | None = None
    rows: Selection | None = None
    alone: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    late: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    failures: Failures = field(default_factory=list)
    made: dict[int, dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        n, moved, begun = self.n, self.moved, self.begun
        self.rows = moved if begun is None else begun if moved is None else ALL
        if moved is not None and begun is not None and len(numbers_of(moved, n)) + len(numbers_of(begun, n)) < n:
            self.rows = np.sort(np.concatenate([np.arange(n)[moved], np.arange(n)[begun]]))

    @property
    def infos(self) -> dict[int, dict[str, Any]]:
        """The infos by row, which may be added to."""
        if self.made is None:
            self.made = self.make_infos()
        return self.made

    def reset_arguments(self, row: int) -> Mapping[str, Any]:
        """The arguments of a row's ``reset()``."""
        return {} if self.kwargs is None else self.kwargs.get(row, {})

    def leave(self, rows: Iterable[int]) -> None:
        """Leave rows out of all three kinds."""
        kept = np.ones(self.n, np.bool_)
        kept[[*rows]] = False
        self.moved, self.begun, self.rows = (_left(selection, kept) for selection in (self.moved, self.begun, self.rows))

    def fail(self, row: int, error: Exception) -> None:
        """A wrapper has raised an error in a row: those around it have nothing to do there."""
        self.failures.append((row, error))
        self.leave([row])

    def go_alone(self, rows: Sequence[int], rewards: Mapping[int, Any] | None = None) -> None:
        """From here on the wrappers of some rows are called one by one.

        Args:
            rows: The rows.
            rewards: Theirs, if the current form has given them these and is done with them.
        """
        if not rows:
            return
        begun, to = set(numbers_of(self.begun, self.n)), self.alone if rewards is None else self.late
        for row, observation in zip(rows, self.objects(rows), strict=True):
            info = self.infos.get(row, {})
            if row in begun:
                to[row] = observation, info
            else:
                reward = self.kind(self.rewards[row]) if rewards is None else rewards[row]
                to[row] = observation, reward, bool(self.terminated[row]), bool(self.truncated[row]), info
        self.leave(rows)

    # ------------------------------------------------------------------ rewards

    def pay(self, given: Mapping[int, Any]) -> None:
        """Rows get these rewards from here on; the rows that took a step and have none here have failed.

        Args:
            given: Of any types; those that are not of the type that most have go on by themselves.
        """
        values: list[Any] = [*given.values()]
        kinds = [*map(type, values)]
        if not kinds:
            return
        # Of two types that are as frequent it may be either: rows of the other one go on by themselves, to the same results.
        kind = kinds[0] if kinds.count(kinds[0]) == len(kinds) else max({*kinds}, key=kinds.count)
        if kind not in KINDS:
            self.go_alone([*given], given)
            return
        other = [row for row, one in zip(given, kinds, strict=True) if one is not kind]
        paid = np.zeros(self.n)
        try:
            if len(values) == self.n and not other:
                paid[:] = values
            else:
                paid[[row for row in given if row not in other]] = np.array(
                    [one for one in values if type(one) is kind], np.float64
                )
        except OverflowError:  # an int that no float can hold
            self.go_alone([*given], given)
            return
        if kind in WHOLE and (np.abs(paid) > EXACT).any():
            other = [row for row in given if row in {*other} or abs(paid[row]) > EXACT]
        self.go_alone(other, given)
        self.rewards, self.kind = paid, kind

    def paid(self) -> list[Any]:
        """The rewards of all rows, of their own types."""
        numbers: list[Any] = self.rewards.tolist()
        return numbers if self.kind is float else [*map(self.kind, numbers)]

    # ------------------------------------------------------------------ observations

    def objects(self, rows: Sequence[int]) -> list[Any]:
        """The observations of some rows, each of its own type, and nobody else's."""
        shown = self.observations
        if isinstance(shown, list):
            kept = self.kept
            if kept is None:
                return [shown[row] for row in rows]
            return [kept[row] if row in kept and same_bits(kept[row], shown[row]) else shown[row] for row in rows]
        if self.kept:
            kept = self.kept
            return [kept[row] if row in kept and same_bits(kept[row], shown[row]) else shown[row, ...].copy() for row in rows]
        if self.own is not None:
            return [self.own(shown[row]) if shown.ndim > 1 else self.own(shown[row : row + 1].reshape(())) for row in rows]
        return [shown[row, ...].copy() for row in rows]

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return what rows show as one array ``(n, *shape)``; those that show something else go on by themselves."""
        shown = self.observations
        numbers = numbers_of(self.rows, self.n)
        if isinstance(shown, np.ndarray):
            if self.own is None and shown.dtype == dtype and shown.shape[1:] == shape:
                return shown
            self.go_alone(numbers)
            return np.zeros((self.n, *shape), dtype)
        self.go_alone([row for row in numbers if not _is(shown[row], dtype, shape)])
        return self._gathered(dtype, shape)

    def _gathered(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Put what is listed for rows into one array."""
        numbers, shown = numbers_of(self.rows, self.n), self.observations
        if len(numbers) == self.n:
            self.observations = np.array(shown)
        else:
            self.observations = np.zeros((self.n, *shape), dtype)
            for row in numbers:
                self.observations[row] = shown[row]
        return self.observations

    def alike(self) -> Array | None:
        """Return what rows show as one array ``(n, ...)``; ``None`` where they are not arrays of one dtype and shape."""
        shown = self.observations
        if isinstance(shown, np.ndarray):
            return shown if self.own is None else None
        seen = [shown[row] for row in numbers_of(self.rows, self.n)]
        if not seen or [*map(type, seen)].count(np.ndarray) < len(seen) or seen[0].dtype.hasobject:
            return None
        dtype, shape = seen[0].dtype, seen[0].shape
        alike = all(one.dtype == dtype and one.shape == shape for one in seen)
        return self._gathered(dtype, shape) if alike else None

    def show(self, values: Array) -> None:
        """Rows show this from here on: ``(n, ...)``."""
        self.observations, self.own, self.kept = values, None, None

    def show_each(self, found: dict[int, Any], kept: dict[int, Any]) -> None:
        """Rows show this from here on.

        Args:
            found: By row.
            kept: Those of them that a wrapper may have a reference to.
        """
        self.own, self.kept = None, kept
        first: Any = next(iter(found.values()), None)
        numbers = type(first) is np.ndarray and first.ndim and not first.dtype.hasobject
        if not numbers or not all(_is(value, first.dtype, first.shape) for value in found.values()):
            self.observations = [own(found[row]) if row in found else None for row in range(self.n)]
        elif len(found) == self.n:
            self.observations = np.array([*found.values()])
        else:
            self.observations = np.zeros((self.n, *first.shape), first.dtype)
            for row, value in found.items():
                self.observations[row] = value


def _is(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    return type(value) is np.ndarray and value.dtype == dtype and value.shape == shape


def _left(rows: Selection | None, kept: Array) -> Selection | None:
    if rows is None:
        return None
    left = np.flatnonzero(kept) if isinstance(rows, slice) else rows[kept[rows]]
    return left if len(left) else None


class RowForm(StandsFor):
    """The wrappers of one level, of all rows.

    Args:
        wrappers: They are all of one class, and none is a :meth:`misfit`; nobody else refers to one.
    """

    saves: ClassVar[float] = 0.3
    """How many microseconds less a row takes than its wrapper does, about."""
    asks_ends: ClassVar[bool] = False
    """Whether it asks which episodes are truncated."""
    observes: ClassVar[bool] = False
    """Whether it changes observations."""
    counts: ClassVar[bool] = False
    """Whether all that it does in a step which ends no episode is to :meth:`count_step` it."""
    function: ClassVar[str | None] = None
    """The wrapper's method that makes an observation of another one, if all that there is to do is to call it."""
    helpers: ClassVar[tuple[tuple[type, tuple[str, ...], tuple[str, ...]], ...]] = ()
    """Other classes whose methods do its work: each with these methods, and fingerprints of all that they come to."""

    def __init__(self, wrappers: Sequence[Any]) -> None:
        self.wrappers = wrappers
        self.apart: set[int] = set()  # rows whose wrapper has a state by now that is not for this form

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        """Why a wrapper is not for this form, ``None`` if it is.

        Args:
            wrapper: It is of the very class.
            over: Whether the next step resets it.
        """
        return None

    @classmethod
    def constants(cls, wrapper: Any) -> Any:
        """All that the wrappers of a level must have in common."""
        return None

    def refuses(self) -> bool:
        """Whether a wrapper would refuse a step, for an episode is over."""
        return False

    def inward(self, actions: Any, rows: Sequence[int]) -> Any:
        """Change actions, ``(n, ...)`` or a list, on their way to the environments.

        Args:
            actions: The actions, the caller's own.
            rows: The rows that take a step.
        """
        return actions

    def outward(self, results: RowResults) -> None:
        """Do to results what the wrappers do."""

    def count_step(self, rewards: Array, kind: type) -> None:
        """All rows have taken a step, with rewards of a kind."""

    def give(self, row: int) -> None:
        """Let a row's wrapper have its state."""

    def take(self, row: int) -> bool:
        """Take the state of a row's wrapper again; ``False`` if it is not for this form any more."""
        return True

    def give_back(self) -> None:
        """Let all wrappers have their states."""
        for row in range(len(self.wrappers)):
            if row not in self.apart:
                self.give(row)

    def one(self, row: int, returned: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Let a row's wrapper do its work itself.

        Args:
            row: The row.
            returned: By a step of the environment inside, or by a reset.
            kwargs: The arguments of the reset.

        Raises:
            Exception: What the wrapper raises.
        """
        if row not in self.apart:
            self.give(row)
        wrapper = self.wrappers[row]
        env, wrapper.env = wrapper.env, InPlaceOf(wrapper.env, returned)
        try:
            results: tuple[Any, ...] = wrapper.step(None) if len(returned) == 5 else wrapper.reset(**kwargs)
            return results
        finally:
            wrapper.env = env
            if self.take(row):
                self.apart.discard(row)
            else:
                self.apart.add(row)


class InPlaceOf:
    """Takes the place of an environment inside of a wrapper, for a step or a reset whose results are known.

    Args:
        env: The environment.
        returned: By ``step`` and ``reset``.
    """

    def __init__(self, env: Any, returned: tuple[Any, ...]) -> None:
        self._env, self._returned = env, returned

    def step(self, action: Any) -> tuple[Any, ...]:
        return self._returned

    def reset(self, **kwargs: Any) -> tuple[Any, ...]:
        return self._returned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Around:
    """All forms around what is stepped, the outermost one first.

    Args:
        forms: The forms.

    Attributes:
        observes: Whether one of them changes observations.
        counts: Whether all that they do in a step which ends no episode is to count it.
        acts: Whether one of them changes actions, or counts steps before they are taken.
        functions: Where all that there is to do is to call a function of each observation: those of each row, the innermost first.
    """

    def __init__(self, forms: Sequence[RowForm]) -> None:
        self.forms = forms
        self._inward = [form for form in forms if type(form).inward is not RowForm.inward]
        self._outward = [form for form in reversed(forms) if type(form).outward is not RowForm.outward]
        self.counts = all(form.counts for form in forms)
        self.observes, self.acts = any(form.observes for form in forms), bool(self._inward)
        self.functions: list[list[Any]] | None = None
        if forms and all(form.function is not None for form in forms):
            methods = [(str(form.function), form.wrappers) for form in reversed(forms)]
            self.functions = [[getattr(wrappers[row], name) for name, wrappers in methods] for row in range(len(forms[0].wrappers))]
        codes = [[form.comes_to(), *[code_of(kind, roots) for kind, roots, _ in form.helpers]] for form in forms]
        self.codes = tuple(chain.from_iterable(codes))

    def refuses(self) -> bool:
        """Whether a wrapper would refuse a step, for an episode is over."""
        return any(form.refuses() for form in self.forms)

    def inward(self, actions: Any, rows: Sequence[int]) -> tuple[Any, Failures]:
        """Change actions on their way to the environments.

        Args:
            actions: ``(n, ...)`` or a list; it stays as it is.
            rows: The rows that take a step.

        Returns:
            Others, and what wrappers have raised.
        """
        failures: Failures = []
        for form in self._inward:
            try:
                actions = form.inward(actions, rows)
            except InRows as several:
                failures += several.failures
                failed = {row for row, _ in failures}
                actions, rows = several.actions, [row for row in rows if row not in failed]
        return actions, failures

    def outward(self, results: RowResults) -> None:
        """Let all levels do to results what they do, from the inside."""
        if results.late:
            results.alone, results.late = results.late, {}
        for form in self._outward:
            if form.apart:
                results.go_alone([row for row in numbers_of(results.rows, results.n) if row in form.apart])
            if results.rows is not None:
                form.outward(results)
            if results.alone:
                self._one_by_one(form, results)
            if results.late:
                results.alone |= results.late
                results.late = {}

    def _one_by_one(self, form: RowForm, results: RowResults) -> None:
        for row, returned in [*results.alone.items()]:
            try:
                results.alone[row] = form.one(row, returned, results.reset_arguments(row))
            except Exception as error:
                results.failures.append((row, error))
                del results.alone[row]

    def give_back(self) -> None:
        """Let all wrappers have their states."""
        for form in self.forms:
            form.give_back()


class InRows(Exception):
    """Wrappers of some rows have raised something.

    Args:
        failures: Rows and errors.
        actions: Those of the others.
    """

    def __init__(self, failures: Failures, actions: Any) -> None:
        super().__init__()
        self.failures, self.actions = failures, actions
