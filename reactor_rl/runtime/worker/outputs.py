"""Handles of outputs: what a reaction writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl.runtime.worker.cells import Cells
from reactor_rl.runtime.worker.handle import Handle
from reactor_rl.runtime.worker.moment import Moment
from reactor_rl.runtime.worker.presence import Stamps
from reactor_rl.serialise import KEPT, encode

__all__ = ["ArrayOutput", "LocalObjectOutput", "ObjectOutput", "OutputHandle"]


class OutputHandle(Handle):
    """The common part of array and object outputs: presence, and who is woken.

    ``mask`` has the bits of the reactions on this worker that a value triggers at the same tag, ``soon`` of those that it
    triggers at the next tick; ``late`` lists ``(delay, mask)`` for the others. ``row_masks`` and ``row_late`` are for single rows.
    """

    __slots__ = ("_late", "_mask", "_ring", "_row_late", "_row_masks", "_soon", "_stamps", "_times", "_whole")

    def __init__(self, kernel: Moment, name: str, allowed: int, stamps: Stamps) -> None:
        super().__init__(kernel, name, allowed)
        self._stamps, self._whole, self._times, self._ring = stamps, stamps.whole, stamps.times, stamps.ring
        self._mask = self._soon = 0
        self._late: list[tuple[int, int]] = []
        self._row_masks: list[int] = [0] * (stamps.rows or 0)
        self._row_late: list[list[tuple[int, int]]] = [[] for _ in self._row_masks]

    def _publish(self) -> None:
        kernel = self._kernel
        kernel.words[self._whole] = kernel.number
        kernel.pending |= self._mask
        if self._times:
            time = kernel.time
            kernel.words[self._times[time % self._ring]] = time
            kernel.soon |= self._soon
            for delay, mask in self._late:
                kernel.wake_at(time + delay, mask)

    def wakes(self, delay: int, mask: int, rows: Iterable[int], soon: bool) -> None:
        """Have a value, or one of some rows, trigger reactions of this worker ``delay`` ticks later.

        A mask of 0 still makes the time known, for a reader on another worker. ``soon``: whether ``kernel.soon`` will do for a
        delay of one tick: nobody else has to know that something is coming, and it is only written while a tick is going on.
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
        kernel = self._kernel
        self._stamps.stamp_row(kernel.words, row, kernel.number, kernel.time)
        kernel.pending |= self._row_masks[row]
        for delay, mask in self._row_late[row]:
            kernel.wake_at(kernel.time + delay, mask)

    def wake_again(self, time: int) -> None:
        """Enter the arrivals, at ``time`` or later, of the values that lie in the slots: what publishing them entered."""
        late = [*self._late, (1, self._soon)] if self._soon else self._late
        for row, written in self._stamps.in_slots(self._kernel.words):
            for delay, mask in late if row is None else self._row_late[row]:
                if written + delay >= time:
                    self._kernel.wake_at(written + delay, mask)

    def trigger_again(self, number: int) -> None:
        """Trigger what is triggered, on this worker, by what was written in pass ``number``, which is the coming one."""
        rows = self._stamps.written(self._kernel.words, number)
        if rows is not None:
            for mask in [self._row_masks[row] for row in rows] or [self._mask]:
                self._kernel.pending |= mask

    @property
    def rows(self) -> _RowsOfOutput:
        """The rows, to be set one by one: ``port.rows[i].set(value)``. Only where rows are connected."""
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
            raise IndexError(f"{self._port.name} has {len(self)} rows, not a row {row}")
        return _RowOfOutput(self._port, row)


class _RowOfOutput:
    __slots__ = ("_port", "_row")

    def __init__(self, port: OutputHandle, row: int) -> None:
        self._port, self._row = port, row

    def set(self, value: Any) -> None:
        """Write this row alone."""
        port = self._port
        if not port._kernel.current & port._allowed:
            raise port._undeclared("effects")
        port._set_row(self._row, value)
        port._publish_row(self._row)


class ArrayOutput(OutputHandle):
    """An array port that this reactor writes."""

    __slots__ = ("_copies", "_direct", "_only", "_views", "dtype", "shape")

    def bind(self, views: Sequence[npt.NDArray[Any]], copies: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
        """``views[k]`` is slot k of the ring; ``copies`` are the places that the value is copied to besides."""
        self._views, self._copies = tuple(views), tuple(tuple(copy) for copy in copies)
        self._only = self._views[0] if len(self._views) == 1 else None
        # The slot, if all that is to be done besides filling it is to stamp it.
        self._direct = None if self._copies or self._times else self._only
        self.shape, self.dtype = views[0].shape, views[0].dtype

    def set(self, value: npt.ArrayLike) -> None:
        """Copy ``value`` in, of this port's shape and a dtype that casts to its dtype without changing kind.

        Raises:
            ValueError: If the shape differs.
            TypeError: If the dtype is of another kind.
        """
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("effects")
        view = self._only
        if view is None:
            view = self.slot(kernel.time)
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            view[...] = value
        else:
            np.copyto(view, self._fitting(value, self.shape))
        if self._copies:
            self._copy()
        self._publish()

    @property
    def buffer(self) -> npt.NDArray[Any]:
        """The writable slot, to be filled completely before the reaction returns. Taking it makes the port present."""
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("effects")
        view = self._direct
        if view is not None:
            kernel.words[self._whole] = kernel.number
            kernel.pending |= self._mask
            return view
        self._publish()
        view = self.slot(kernel.time)
        if self._copies:
            kernel.after_reaction(self._copy)
        return view

    def _copy(self) -> None:
        time = self._kernel.time
        source = self._views[time % len(self._views)]
        for copy in self._copies:
            np.copyto(copy[time % len(copy)], source)

    def _set_row(self, row: int, value: Any) -> None:
        fitting, time = self._fitting(value, self.shape[1:]), self._kernel.time
        for views in (self._views, *self._copies):
            np.copyto(views[time % len(views)][row, ...], fitting)

    def _fitting(self, value: Any, shape: tuple[int, ...]) -> Any:
        array = np.asarray(value)
        if array.shape != shape:
            raise ValueError(f"{self.name} takes values of shape {shape}, not {array.shape}")
        # Plain Python numbers cast as numbers do, arrays by the kind of their dtype.
        return array if hasattr(value, "dtype") or array.ndim else value

    def simple(self) -> tuple[npt.NDArray[Any] | None, int, int]:
        """The one slot, its stamp and the mask of what it triggers, if writing it takes no more than that; else no slot."""
        return self._direct, self._whole, self._mask

    def slot(self, time: int) -> npt.NDArray[Any]:
        """The slot that is written at ``time``."""
        return self._views[time % len(self._views)]


class ObjectOutput(OutputHandle):
    """An object port that this reactor writes."""

    __slots__ = ("_cells", "_rows")

    def bind(self, cells: Cells, rows: int | None) -> None:
        self._cells, self._rows = cells, rows

    def set(self, value: Any) -> None:
        """Serialise ``value``. A port whose rows are connected takes a sequence of one value per row.

        Raises:
            ValueError: If the number of rows differs.
        """
        kernel = self._kernel
        if not kernel.current & self._allowed:
            raise self._undeclared("effects")
        if self._rows is None:
            self._cells.write(0 if self._ring == 1 else kernel.time % self._ring, value)
        else:
            values = list(value)
            if len(values) != self._rows:
                raise ValueError(f"{self.name} has {self._rows} rows and was set to {len(values)} values")
            for row, item in enumerate(values):
                self._set_row(row, item)
        self._publish()

    def simple(self) -> tuple[None, int, int]:
        """As of an array output."""
        return None, self._whole, self._mask

    def _set_row(self, row: int, value: Any) -> None:
        self._cells.write(self._kernel.time % self._ring * (self._rows or 1) + row, value)


class LocalObjectOutput(ObjectOutput):
    """An object port that nobody outside this worker reads, and whose rows nobody addresses.

    What small programs do most is setting such ports, so ``set`` is bound once, to what it needs and nothing else.
    """

    __slots__ = ("set",)

    set: Callable[[Any], None]  # type: ignore[assignment]

    def finish(self) -> None:
        """Bind ``set``, once it is known whom the port wakes."""
        kernel, words, cells, whole, mask = self._kernel, self._kernel.words, self._cells.local(), self._whole, self._mask
        allowed, times, ring, soon, late = self._allowed, self._times, self._ring, self._soon, self._late

        def put(value: Any) -> None:
            if not kernel.current & allowed:
                raise self._undeclared("effects")
            cells[0] = value if type(value) in KEPT else encode(value)
            words[whole] = kernel.number
            kernel.pending |= mask

        def put_late(value: Any) -> None:
            if not kernel.current & allowed:
                raise self._undeclared("effects")
            time = kernel.time
            slot = time % ring
            cells[slot] = value if type(value) in KEPT else encode(value)
            words[whole], words[times[slot]] = kernel.number, time
            kernel.pending |= mask
            kernel.soon |= soon
            for delay, woken in late:
                kernel.wake_at(time + delay, woken)

        self.set = put_late if self._times else put
