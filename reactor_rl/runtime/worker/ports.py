"""Handles of inputs and outputs, which stand in place of the declarations while a reaction runs.

A handle belongs to one reactor on one worker. A mask of bits, one for each reaction of the worker, says which reactions may
touch it; the worker keeps the bit of the reaction that is running, so that the check is one ``&``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.errors import AbsentError, UndeclaredPortError
from reactor_rl.pickling import KEPT, decode, encode
from reactor_rl.runtime.worker.clock import WorkerClock
from reactor_rl.runtime.worker.presence import StampReader, Stamps
from reactor_rl.runtime.worker.values import ObjectCells, Read, Reading
from reactor_rl.topology import BOUNDARY, MISSING, InputSpec

__all__ = ["Handle", "InputHandle", "input_handle", "ArrayOutput", "LocalObjectOutput", "ObjectOutput", "OutputHandle"]


class Handle:
    __slots__ = ("_allowed", "_clock", "name")

    def __init__(self, clock: WorkerClock, name: str, allowed: int) -> None:
        self._clock, self.name, self._allowed = clock, name, allowed

    def _undeclared(self, what: str) -> UndeclaredPortError:
        return UndeclaredPortError(
            f"reaction {self._clock.running()} touches {self.name}, which it does not declare; add it to the reaction's {what}"
        )


class InputHandle(Handle):
    """An input port: one source, or the rows that it gathers.

    ``read(time)`` returns the value that was written at a time, ``spans`` are the rows of the input that each source fills.
    """

    __slots__ = (
        "_decides", "_delay", "_initial", "_quick", "_read", "_row_readers", "_rows", "_single_rows", "_slot", "_sources", "_spans",
    )  # fmt: skip

    def __init__(
        self, clock: WorkerClock, name: str, allowed: int, node: InputSpec, sources: Sequence[StampReader], reading: Reading
    ) -> None:
        super().__init__(clock, name, allowed)
        self._read, self._slot, self._row_readers, self._single_rows = reading
        self._sources, self._rows, self._delay = tuple(sources), node.rows, node.delay
        self._spans = tuple((piece.at, piece.at + piece.width) for piece in node.sources if piece.at is not None)
        self._initial = _unchanging(node.initial)
        # One undelayed source: its stamp alone decides presence, unless single rows may be written by themselves. -1: more
        # than one source, or a delay.
        self._quick = sources[0].whole if _single(node) and not node.delay else -1
        self._decides = self._quick >= 0 and sources[0].undivided

    @property
    def present(self) -> Any:
        """Whether there is a value at this tag; for an input that gathers, a mask of shape ``(rows,)``, bool."""
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if self._quick >= 0:
            if clock.words[self._quick] == clock.pass_number:
                return True
            if self._decides:
                return False
        mask = self.mask(clock.pass_number)
        return mask if self._spans else bool(np.any(mask))

    def mask(self, since: int) -> npt.NDArray[np.bool_] | bool:
        """Return presence by row (an input that gathers) or by source."""
        if self._initial is not MISSING and self._clock.time < self._delay:
            now = since <= self._clock.tick_number
            return np.full(self._rows or 0, now) if self._spans else now
        if not self._spans:
            return self._sources[0].rows(since) if self._sources else False
        mask = np.zeros(self._rows or 0, np.bool_)
        for source, (lo, hi) in zip(self._sources, self._spans, strict=True):
            piece = source.rows(since)
            mask[lo:hi] = piece if isinstance(piece, bool) or hi - lo > 1 else piece.all()
        return mask

    @property
    def value(self) -> Any:
        """The value at this tag: a read-only view (array ports), or this reactor's own copy (object ports).

        Raises:
            AbsentError: If it, or any row of it, is absent.
        """
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if self._quick >= 0 and clock.words[self._quick] == clock.pass_number:
            return self._read(clock.time) if self._slot is None else self._slot
        return self.get(clock.pass_number)

    def get(self, since: int) -> Any:
        """Return the value, if it was written in pass ``since`` or later."""
        if not self._whole(since):
            raise self._absent()
        time = self._clock.time - self._delay
        return self._initial_value() if time < 0 else self._read(time)

    def written_rows(self, since: int) -> Any:
        """Return the content of the rows of a boundary output that were written in pass ``since`` or later, where others were not.

        Returns:
            An array of these rows, or a list: of each source that was written as a whole its value, else the value of each row.
        """
        time = self._clock.time - self._delay
        if not self._row_readers:
            return self._read(time)[self.mask(since)]
        found = []
        for source, read, read_row in zip(self._sources, self._row_readers, self._single_rows, strict=True):
            piece = source.rows(since)
            if piece is True:
                found.append(read(time))
            elif piece is not False:
                found += [read_row(time, row) for row in np.flatnonzero(piece).tolist()]
        return found

    def _whole(self, since: int) -> bool:
        """Whether every row of every source is present."""
        if self._initial is not MISSING and self._clock.time < self._delay:
            return since <= self._clock.tick_number
        for source in self._sources:
            piece = source.rows(since)
            if piece is not True and (piece is False or not piece.all()):
                return False
        return bool(self._sources)

    def stamped_readers(self) -> list[tuple[int, Read]] | None:
        """Return the reader of each source and the word of its stamp, if that alone decides presence; else ``None``."""
        if not all(source.undivided for source in self._sources):
            return None
        return [(source.whole, read) for source, read in zip(self._sources, self._row_readers, strict=True)]

    def present_values(self, since: int) -> list[Any]:
        """Return the values of the rows that were written in pass ``since`` or later (undelayed inputs of objects)."""
        time = self._clock.time
        return [read(time) for source, read in zip(self._sources, self._row_readers, strict=True) if source.any_since(since)]

    def only_slot(self) -> npt.NDArray[Any] | None:
        """Return the view that is the value at every tick, if the input is an array with one slot; else ``None``."""
        return self._slot

    def _initial_value(self) -> Any:
        initial = self._initial
        if isinstance(initial, np.ndarray):
            return initial
        copy = decode(initial)
        return [decode(initial) for _ in range(self._rows)] if self._rows is not None else copy

    def _absent(self) -> AbsentError:
        return AbsentError(
            f"{self.name} is absent at tag {self._clock.time, self._clock.microstep}; ask .present before reading .value"
        )


class PlainInput(InputHandle):
    """An undelayed input with one source whose rows are never written one by one, so that one stamp decides presence."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """See :attr:`InputHandle.value`."""
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        if clock.words[self._quick] != clock.pass_number:
            raise self._absent()
        return self._read(clock.time) if self._slot is None else self._slot


class DelayedInput(InputHandle):
    """A delayed input with one source whose rows are never written one by one."""

    __slots__ = ("_ring", "_times")

    def __init__(
        self, clock: WorkerClock, name: str, allowed: int, node: InputSpec, sources: Sequence[StampReader], reading: Reading
    ) -> None:
        super().__init__(clock, name, allowed, node, sources, reading)
        self._times, self._ring = sources[0].times, len(sources[0].times)

    @property
    def value(self) -> Any:
        """See :attr:`InputHandle.value`."""
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("triggers or uses")
        time = clock.time - self._delay
        if time >= 0 and clock.microstep == 0 and clock.words[self._times[time % self._ring]] == time:
            return self._read(time)
        return self.get(clock.pass_number)


def input_handle(
    clock: WorkerClock, name: str, allowed: int, node: InputSpec, sources: Sequence[StampReader], reading: Reading
) -> InputHandle:
    """Make the handle of an input, of the fastest class that can read it.

    Args:
        clock: The worker that reads it.
        name: Its name, for messages.
        allowed: Bits of the reactions that may read it.
        node: The input.
        sources: The presence of each of its sources.
        reading: How its value is read.
    """
    kind = InputHandle
    if _single(node) and sources[0].undivided:
        kind = DelayedInput if node.delay else PlainInput
    return kind(clock, name, allowed, node, sources, reading)


def _single(node: InputSpec) -> bool:
    """Whether a reaction reads the input, and all of it comes from one source."""
    return len(node.sources) == 1 and node.sources[0].at is None and node.reactor != BOUNDARY


def _unchanging(initial: Any) -> Any:
    """Make an initial value that no reader can change."""
    if isinstance(initial, np.ndarray):
        initial = initial.copy()
        initial.flags.writeable = False
        return initial
    return initial if initial is MISSING else encode(initial)


class OutputHandle(Handle):
    """Base of array and object outputs: presence, and the reactions that are woken.

    ``mask`` has the bits of the reactions on this worker that a value triggers at the same tag, ``soon`` of those that it
    triggers at the next tick; ``late`` lists ``(delay, mask)`` for the others. ``row_masks`` and ``row_late`` are for single rows.
    """

    __slots__ = ("_late", "_mask", "_ring", "_row_late", "_row_masks", "_soon", "_stamps", "_times", "_whole")

    def __init__(self, clock: WorkerClock, name: str, allowed: int, stamps: Stamps) -> None:
        super().__init__(clock, name, allowed)
        self._stamps, self._whole, self._times, self._ring = stamps, stamps.whole, stamps.times, stamps.ring
        self._mask = self._soon = 0
        self._late: list[tuple[int, int]] = []
        self._row_masks: list[int] = [0] * (stamps.rows or 0)
        self._row_late: list[list[tuple[int, int]]] = [[] for _ in self._row_masks]

    def _publish(self) -> None:
        clock = self._clock
        clock.words[self._whole] = clock.pass_number
        clock.pending |= self._mask
        if self._times:
            time = clock.time
            clock.words[self._times[time % self._ring]] = time
            clock.soon |= self._soon
            for delay, mask in self._late:
                clock.wake_at(time + delay, mask)

    def forget(self, number: int) -> None:
        """Make what was written for pass ``number`` absent there."""
        self._stamps.forget(self._clock.words, number)

    def wakes(self, delay: int, mask: int, rows: Iterable[int], soon: bool) -> None:
        """Let a value, or one of some rows, trigger reactions of this worker ``delay`` ticks later.

        A mask of 0 still makes the time known, for a reader on another worker. ``soon``: whether a delay of one tick may use
        ``clock.soon``. It may if no other worker has to know that something is coming, and the output is only written
        during a tick.
        """
        rows = list(rows)
        if delay == 0:
            self._mask |= mask
            for row in rows:
                self._row_masks[row] |= mask
            return
        if delay == 1 and mask and not rows and soon:
            self._soon |= mask
        else:
            self._late.append((delay, mask))
        for row in rows:
            self._row_late[row].append((delay, mask))

    def _publish_row(self, row: int) -> None:
        clock = self._clock
        self._stamps.stamp_row(clock.words, row, clock.pass_number, clock.time)
        clock.pending |= self._row_masks[row]
        for delay, mask in self._row_late[row]:
            clock.wake_at(clock.time + delay, mask)

    def wake_again(self, time: int) -> None:
        """Enter the arrivals at ``time`` or later of the values in the slots again, as publishing them did."""
        late = [*self._late, (1, self._soon)] if self._soon else self._late
        for row, written in self._stamps.in_slots(self._clock.words):
            for delay, mask in late if row is None else self._row_late[row]:
                if written + delay >= time:
                    self._clock.wake_at(written + delay, mask)

    def trigger_again(self, number: int) -> None:
        """Trigger this worker's reactions for values written in pass ``number``, which is the coming one."""
        rows = self._stamps.written(self._clock.words, number)
        if rows is not None:
            for mask in [self._row_masks[row] for row in rows] or [self._mask]:
                self._clock.pending |= mask

    @property
    def rows(self) -> _RowsOfOutput:
        """The rows, to set them one by one: ``port.rows[i].set(value)``. Only for ports whose rows are connected."""
        if not self._row_masks:
            raise AttributeError(f"no connection addresses rows of {self.name}; set the whole port")
        return _RowsOfOutput(self)

    def _set_row(self, row: int, value: Any) -> None:
        raise NotImplementedError


class _RowsOfOutput:
    __slots__ = ("_port",)

    def __init__(self, port: OutputHandle) -> None:
        self._port = port

    def __len__(self) -> int:
        return len(self._port._row_masks)

    def __getitem__(self, row: int) -> _RowOfOutput:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is out of range: {self._port.name} has {len(self)} rows")
        return _RowOfOutput(self._port, row)


class _RowOfOutput:
    __slots__ = ("_port", "_row")

    def __init__(self, port: OutputHandle, row: int) -> None:
        self._port, self._row = port, row

    def set(self, value: Any) -> None:
        """Write this row only."""
        port = self._port
        if not port._clock.current & port._allowed:
            raise port._undeclared("effects")
        port._set_row(self._row, value)
        port._publish_row(self._row)


class ArrayOutput(OutputHandle):
    """An array port that this reactor writes."""

    __slots__ = ("_copies", "_direct", "_only", "_views", "dtype", "shape")

    def bind(self, views: Sequence[npt.NDArray[Any]], copies: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
        """Set the slots: ``views[k]`` is slot k of the ring; ``copies`` are further places that the value is copied to."""
        self._views, self._copies = tuple(views), tuple(tuple(copy) for copy in copies)
        self._only = self._views[0] if len(self._views) == 1 else None
        # The slot, if writing needs nothing but to fill and stamp it.
        self._direct = None if self._copies or self._times else self._only
        self.shape, self.dtype = views[0].shape, views[0].dtype

    def set(self, value: npt.ArrayLike) -> None:
        """Copy ``value`` in, of this port's shape and a dtype that casts to its dtype without changing kind.

        Raises:
            ValueError: If the shape differs.
            TypeError: If the dtype is of another kind.
        """
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("effects")
        view = self._only
        if view is None:
            view = self.slot(clock.time)
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            view[...] = value
        else:
            # copyto() refuses casts to another kind. An assignment takes any cast, and is faster where nothing is cast.
            np.copyto(view, self._fitting(value, self.shape))
        if self._copies:
            self._copy()
        self._publish()

    @property
    def buffer(self) -> npt.NDArray[Any]:
        """The writable slot, to be filled completely before the reaction returns. Taking it makes the port present."""
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("effects")
        view = self._direct
        if view is not None:
            clock.words[self._whole] = clock.pass_number
            clock.pending |= self._mask
            return view
        self._publish()
        view = self.slot(clock.time)
        if self._copies:
            # Not now: the reaction has yet to fill it.
            clock.after_reaction(self._copy)
        return view

    def _copy(self) -> None:
        time = self._clock.time
        source = self._views[time % len(self._views)]
        for copy in self._copies:
            np.copyto(copy[time % len(copy)], source)

    def _set_row(self, row: int, value: Any) -> None:
        fitting, time = self._fitting(value, self.shape[1:]), self._clock.time
        for views in (self._views, *self._copies):
            np.copyto(views[time % len(views)][row, ...], fitting)

    def _fitting(self, value: Any, shape: tuple[int, ...]) -> Any:
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f"{self.name} takes values of shape {shape}, not {array.shape}")
        # A plain Python number has no dtype, so numpy casts it by value; arrays must match in kind.
        return array if hasattr(value, "dtype") or array.ndim else value

    def plain_slot(self) -> tuple[npt.NDArray[Any] | None, int, int]:
        """Return the one slot (None if writing needs more than to fill and stamp it), its stamp, and the mask that it triggers."""
        return self._direct, self._whole, self._mask

    def slot(self, time: int) -> npt.NDArray[Any]:
        """Return the slot that is written at ``time``."""
        return self._views[time % len(self._views)]


class ObjectOutput(OutputHandle):
    """An object port that this reactor writes."""

    __slots__ = ("_cells", "_rows")

    def bind(self, cells: ObjectCells, rows: int | None) -> None:
        self._cells, self._rows = cells, rows

    def set(self, value: Any) -> None:
        """Serialise ``value``. A port whose rows are connected takes a sequence of one value per row.

        Raises:
            ValueError: If the number of rows differs.
        """
        clock = self._clock
        if not clock.current & self._allowed:
            raise self._undeclared("effects")
        if self._rows is None:
            self._cells.write(0 if self._ring == 1 else clock.time % self._ring, value)
        else:
            values = list(value)
            if len(values) != self._rows:
                raise ValueError(f"{self.name} takes {self._rows} values, one for each row, not {len(values)}")
            for row, item in enumerate(values):
                self._set_row(row, item)
        self._publish()

    def plain_slot(self) -> tuple[None, int, int]:
        """See :meth:`ArrayOutput.simple`; an object port does not have a plain slot."""
        return None, self._whole, self._mask

    def _set_row(self, row: int, value: Any) -> None:
        self._cells.write(self._clock.time % self._ring * (self._rows or 1) + row, value)


class LocalObjectOutput(ObjectOutput):
    """An object port that is read on this worker only and whose rows are not addressed.

    Small programs spend most of their time setting such ports, so ``set`` is a closure over exactly what it needs.
    """

    __slots__ = ("set",)

    set: Callable[[Any], None]  # type: ignore[assignment]

    def finish(self) -> None:
        """Bind ``set``, once it is known which reactions the port wakes."""
        clock, words, cells, whole, mask = self._clock, self._clock.words, self._cells.local(), self._whole, self._mask
        allowed, times, ring, soon, late = self._allowed, self._times, self._ring, self._soon, self._late

        def put(value: Any) -> None:
            if not clock.current & allowed:
                raise self._undeclared("effects")
            cells[0] = value if type(value) in KEPT else encode(value)
            words[whole] = clock.pass_number
            clock.pending |= mask

        def put_late(value: Any) -> None:
            if not clock.current & allowed:
                raise self._undeclared("effects")
            time = clock.time
            slot = time % ring
            cells[slot] = value if type(value) in KEPT else encode(value)
            words[whole], words[times[slot]] = clock.pass_number, time
            clock.pending |= mask
            clock.soon |= soon
            for delay, woken in late:
                clock.wake_at(time + delay, woken)

        self.set = put_late if self._times else put
