"""Save and load what a worker holds: as its part of a snapshot, or as a checkpoint for its successor in the same run.

A snapshot fits into any run of the same program, so nothing in it depends on the schedule or on what the run did before. It
uses the indices of the program, and stamps are counted back from the coming pass. What follows from the program or from the
slots (timers, initial values, arrivals of delayed values) is not saved but computed when it is loaded, by the worker that holds
the reactors then. The pass numbers of a run only ever go up, so that nothing stamped before can seem present after.

A checkpoint is what a worker needs, besides the bytes of the arena, to go on from the end of a tick in another process of the
same run. It belongs to one run and one schedule, so nothing is renumbered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reactor_rl.errors import RunError
from reactor_rl.pickling import dumps, loads
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.worker.clock import Agenda
from reactor_rl.runtime.worker.loop import Kernel
from reactor_rl.runtime.worker.ports import ArrayOutput, ObjectOutput

__all__ = ["WorkerCheckpoint", "checkpoint", "go_back", "WorkerState", "pickled_reactors", "put_back", "set_state", "take"]


@dataclass
class WorkerCheckpoint:
    """The state of a worker between two ticks, for its successor in the same run.

    Attributes:
        clock: Its time, microstep, and the numbers of the last pass and of the first one of its tick.
        reactors: The pickled state of each reactor, by index.
        agenda: Reactions, timers and events that are due.
        kept: The values of its object outputs, by index.
    """

    clock: tuple[int, int, int, int]
    reactors: dict[int, bytes]
    agenda: Agenda
    kept: dict[int, list[Any]]


def checkpoint(kernel: Kernel) -> WorkerCheckpoint:
    """Copy everything that a worker holds in its own memory.

    Raises:
        RunError, TypeError: If the state of a reactor cannot be saved; see :func:`reactor_rl.runtime.worker.state.take`.
    """
    clock = kernel.time, kernel.microstep, kernel.number, kernel.tick_number
    kept = {index: port._cells.kept() for index, port in kernel.outputs.items() if isinstance(port, ObjectOutput)}
    return WorkerCheckpoint(clock, pickled_reactors(kernel), kernel.agenda, kept)


def go_back(kernel: Kernel, saved: WorkerCheckpoint) -> None:
    """Load a checkpoint into a worker. The arena holds its part already."""
    for index, reactor in kernel.reactors.items():
        set_state(kernel, index, reactor, loads(saved.reactors[index]))
    kernel.time, kernel.microstep, kernel.number, kernel.tick_number = saved.clock
    kernel.agenda, kernel.pending, kernel.soon, kernel.again = saved.agenda, 0, 0, []
    for action in kernel.actions.values():
        action.clear()
    for index, kept in saved.kept.items():
        port = kernel.outputs[index]
        assert isinstance(port, ObjectOutput)
        port._cells.keep_all(kept)


@dataclass
class WorkerState:
    """The part of a snapshot that one worker holds, or all of them together.

    Attributes:
        clock: Number of ticks done, and number of further microsteps of the last one.
        stop: Whether the program has requested a stop. A startup reaction may do so; then tick 0 is the last one.
        fed: Whether the caller has set a boundary input for the coming tick.
        reactors: The pickled state of each reactor.
        outputs: For each output its stamps and the content of its slots. A stamp is how many passes before the coming one it was
            written, or -1 if that was before the last tick; the stamps of slots that are read with a delay are times.
        events: Actions and their values by the time at which they are due.
        waiting: Values due at microsteps of tick 0, by action. Startup reactions schedule them; later ticks leave nothing behind.
    """

    clock: tuple[int, int]
    stop: bool = False
    fed: bool = False
    reactors: dict[int, bytes] = field(default_factory=dict)
    outputs: dict[int, tuple[list[int], list[Any]]] = field(default_factory=dict)
    events: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)
    waiting: dict[int, list[Any]] = field(default_factory=dict)

    def merge(self, other: WorkerState) -> None:
        """Add another worker's part."""
        self.reactors.update(other.reactors)
        self.outputs.update(other.outputs)
        self.waiting.update(other.waiting)
        for time, events in other.events.items():
            self.events[time] = _by_action(self.events.get(time, []) + events)


def take(kernel: Kernel, moment: tuple[int, int]) -> WorkerState:
    """Copy everything that the coming tick and those after it depend on.

    Args:
        kernel: The worker.
        moment: The number of ticks done, and of the last pass, in which this worker need not have taken part.

    Raises:
        RunError: If a reactor refuses: its ``__getstate__`` raises one, with the reason.
        TypeError: If the state of a reactor cannot be pickled.
    """
    ticks, number = moment
    microstep = number - kernel.tick_number if kernel.time == ticks - 1 else 0
    part = WorkerState((ticks, microstep), reactors=pickled_reactors(kernel))
    coming = number + (ticks > 0)  # startup and tick 0 are one pass
    # Values written before the last tick are not present any more. If the last tick was skipped, no value is.
    oldest = kernel.tick_number if kernel.time == ticks - 1 else coming
    for index, port in kernel.outputs.items():
        stamps = port._stamps.save(kernel.words, coming, oldest)
        slots = _slots(port, ticks, port._stamps.is_present(stamps)) if isinstance(port, ArrayOutput) else _cells(port).kept()
        part.outputs[index] = stamps, slots
    part.events = {time: _by_action(events) for time, events in kernel.agenda.events.items()}
    part.waiting = {index: list(action.waiting) for index, action in kernel.actions.items() if action.waiting}
    return part


def pickled_reactors(kernel: Kernel) -> dict[int, bytes]:
    """Pickle the state of each reactor of a worker, by index.

    Raises:
        RunError, TypeError: See :func:`take`.
    """
    states = {}
    for index, reactor in kernel.reactors.items():
        name = kernel.reactor_names[index]
        try:
            states[index] = _pickled(kernel, index, reactor)
        except RunError as error:
            raise RunError(f"cannot take a snapshot of reactor {name!r}: {error}") from error
        except Exception as error:
            raise TypeError(
                f"the state of reactor {name!r} cannot be pickled ({error}); give "
                f"{type(reactor).__name__} the methods __getstate__ and __setstate__"
            ) from error
    return states


def put_back(kernel: Kernel, part: WorkerState, coming: int) -> None:
    """Load a snapshot into a worker, whatever its state is now.

    Args:
        kernel: The worker.
        part: The state of all workers, because reactors may have moved between workers since.
        coming: The number of the coming pass, high enough for the last tick's passes to have numbers that were never used.
    """
    states = {index: loads(part.reactors[index]) for index in kernel.reactors}
    for index, reactor in kernel.reactors.items():
        set_state(kernel, index, reactor, states[index])
    ticks, microstep = part.clock
    kernel.time, kernel.microstep = max(0, ticks - 1), microstep
    kernel.number = coming - (ticks > 0)
    kernel.tick_number = kernel.number - microstep
    for index, port in kernel.outputs.items():
        _put_back_output(kernel, port, *part.outputs[index], coming, ticks)
    kernel.enter(ticks)
    for time, events in part.events.items():
        for index, kept in events:
            if index in kernel.actions:
                kernel.schedule_at(time, index, kept)
    kernel.again = []
    for index, action in kernel.actions.items():
        action.clear()
        action.waiting.extend(part.waiting.get(index, ()))
        if action.waiting:
            kernel.again.append(action)
    kernel.pending = 0
    for port in kernel.outputs.values():
        port.trigger_again(coming)


def _by_action(events: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Sort the events of one time by action; those of one action stay in the order in which they were scheduled."""
    return sorted(events, key=lambda event: event[0])


def _cells(port: Any) -> Any:
    assert isinstance(port, ObjectOutput)
    return port._cells


def _times(port: Any, ticks: int, present: bool) -> range:
    """Return the times whose values an output's slots hold.

    Slots are saved by time, because their number depends on the node: a buffer that several outputs share may have more slots than
    this output needs, and its copies fewer.
    """
    newest = ticks if present else ticks - 1
    return range(newest - port._ring + 1, newest + 1)


def _slots(port: ArrayOutput, ticks: int, present: bool) -> list[Any]:
    """Copy the content of the slots; the slot of time ``t`` is at ``t`` modulo their number."""
    slots: list[Any] = [None] * port._ring
    for time in _times(port, ticks, present):
        slots[time % port._ring] = port._views[time % len(port._views)].copy()
    return slots


def _put_back_output(kernel: Kernel, port: Any, saved: list[int], slots: list[Any], coming: int, ticks: int) -> None:
    present = port._stamps.restore(kernel.words, saved, coming)
    if not isinstance(port, ArrayOutput):
        for cell, kept in enumerate(slots):
            _cells(port).keep(cell, kept)
        return
    for time in _times(port, ticks, present):
        for place in (port._views, *port._copies):
            place[time % len(place)][...] = slots[time % len(slots)]


def _pickled(kernel: Kernel, index: int, reactor: Reactor) -> bytes:
    """Pickle the state of a reactor. Its handles are removed meanwhile, because a ``__getstate__`` may return everything."""
    own = vars(reactor)
    handles = {name: own.pop(name) for name in kernel.handles[index]}
    try:
        return dumps(own if type(reactor).__getstate__ is object.__getstate__ else reactor.__getstate__())
    finally:
        own.update(handles)


def set_state(kernel: Kernel, index: int, reactor: Reactor, state: Any) -> None:
    """Set the state of a reactor; its handles stay."""
    handles = {name: vars(reactor)[name] for name in kernel.handles[index]}
    if hasattr(reactor, "__setstate__"):
        reactor.__setstate__(state)
    else:
        vars(reactor).clear()
        vars(reactor).update(state)
    vars(reactor).update(handles)
