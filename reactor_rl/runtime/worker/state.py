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
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.ports import ArrayOutput, ObjectOutput

__all__ = [
    "WorkerCheckpoint",
    "checkpoint",
    "load_checkpoint",
    "WorkerState",
    "pickled_reactors",
    "load_state",
    "set_state",
    "save_state",
]  # fmt: skip


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


def checkpoint(loop: WorkerLoop) -> WorkerCheckpoint:
    """Copy everything that a worker holds in its own memory.

    Raises:
        RunError, TypeError: If the state of a reactor cannot be saved; see :func:`reactor_rl.runtime.worker.state.save_state`.
    """
    clock = loop.time, loop.microstep, loop.pass_number, loop.tick_number
    kept = {index: port._cells.kept() for index, port in loop.outputs.items() if isinstance(port, ObjectOutput)}
    return WorkerCheckpoint(clock, pickled_reactors(loop), loop.agenda, kept)


def load_checkpoint(loop: WorkerLoop, saved: WorkerCheckpoint) -> None:
    """Load a checkpoint into a worker. The arena holds its part already."""
    for index, reactor in loop.reactors.items():
        set_state(loop, index, reactor, loads(saved.reactors[index]))
    loop.time, loop.microstep, loop.pass_number, loop.tick_number = saved.clock
    loop.agenda, loop.pending, loop.soon, loop.again = saved.agenda, 0, 0, []
    for action in loop.actions.values():
        action.clear()
    for index, kept in saved.kept.items():
        port: Any = loop.outputs[index]
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


def save_state(loop: WorkerLoop, ended: tuple[int, int]) -> WorkerState:
    """Copy everything that the coming tick and those after it depend on.

    Args:
        loop: The worker.
        ended: The number of ticks done, and of the last pass, in which this worker need not have taken part.

    Raises:
        RunError: If a reactor refuses: its ``__getstate__`` raises one, with the reason.
        TypeError: If the state of a reactor cannot be pickled.
    """
    ticks, number = ended
    microstep = number - loop.tick_number if loop.time == ticks - 1 else 0
    state = WorkerState((ticks, microstep), reactors=pickled_reactors(loop))
    coming = number + (ticks > 0)  # startup and tick 0 are one pass
    # Values written before the last tick are not present any more. If the last tick was skipped, no value is.
    oldest = loop.tick_number if loop.time == ticks - 1 else coming
    outputs: dict[int, Any] = loop.outputs
    for index, port in outputs.items():
        stamps = port._stamps.save(loop.words, coming, oldest)
        slots = _slots(port, ticks, port._stamps.is_present(stamps)) if isinstance(port, ArrayOutput) else port._cells.kept()
        state.outputs[index] = stamps, slots
    state.events = {time: _by_action(events) for time, events in loop.agenda.events.items()}
    state.waiting = {index: list(action.waiting) for index, action in loop.actions.items() if action.waiting}
    return state


def pickled_reactors(loop: WorkerLoop) -> dict[int, bytes]:
    """Pickle the state of each reactor of a worker, by index.

    Raises:
        RunError, TypeError: See :func:`save_state`.
    """
    states = {}
    for index, reactor in loop.reactors.items():
        name = loop.reactor_names[index]
        try:
            states[index] = _pickled(loop, index, reactor)
        except RunError as error:
            raise RunError(f"cannot take a snapshot of reactor {name!r}: {error}") from error
        except Exception as error:
            raise TypeError(
                f"the state of reactor {name!r} cannot be pickled ({error}); give "
                f"{type(reactor).__name__} the methods __getstate__ and __setstate__"
            ) from error
    return states


def load_state(loop: WorkerLoop, state: WorkerState, coming: int) -> None:
    """Load a snapshot into a worker, whatever its state is now.

    Args:
        loop: The worker.
        state: The state of all workers, because reactors may have moved between workers since.
        coming: The number of the coming pass, high enough for the last tick's passes to have numbers that were never used.
    """
    states = {index: loads(state.reactors[index]) for index in loop.reactors}
    for index, reactor in loop.reactors.items():
        set_state(loop, index, reactor, states[index])
    ticks, microstep = state.clock
    loop.time, loop.microstep = max(0, ticks - 1), microstep
    loop.pass_number = coming - (ticks > 0)
    loop.tick_number = loop.pass_number - microstep
    for index, port in loop.outputs.items():
        _load_output(loop, port, *state.outputs[index], coming, ticks)
    loop.enter(ticks)
    for time, events in state.events.items():
        for index, kept in events:
            if index in loop.actions:
                loop.schedule_at(time, index, kept)
    loop.again = []
    for index, action in loop.actions.items():
        action.clear()
        action.waiting.extend(state.waiting.get(index, ()))
        if action.waiting:
            loop.again.append(action)
    loop.pending = 0
    for port in loop.outputs.values():
        port.trigger_again(coming)


def _by_action(events: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Sort the events of one time by action; those of one action stay in the order in which they were scheduled."""
    return sorted(events, key=lambda event: event[0])


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


def _load_output(loop: WorkerLoop, port: Any, saved: list[int], slots: list[Any], coming: int, ticks: int) -> None:
    present = port._stamps.restore(loop.words, saved, coming)
    if not isinstance(port, ArrayOutput):
        for cell, kept in enumerate(slots):
            port._cells.keep(cell, kept)
        return
    for time in _times(port, ticks, present):
        for place in (port._views, *port._copies):
            place[time % len(place)][...] = slots[time % len(slots)]


def _pickled(loop: WorkerLoop, index: int, reactor: Reactor) -> bytes:
    """Pickle the state of a reactor. Its handles are removed meanwhile, because a ``__getstate__`` may return everything."""
    own = vars(reactor)
    handles = {name: own.pop(name) for name in loop.handles[index]}
    try:
        return dumps(own if type(reactor).__getstate__ is object.__getstate__ else reactor.__getstate__())
    finally:
        own.update(handles)


def set_state(loop: WorkerLoop, index: int, reactor: Reactor, state: Any) -> None:
    """Set the state of a reactor; its handles stay."""
    handles = {name: vars(reactor)[name] for name in loop.handles[index]}
    if hasattr(reactor, "__setstate__"):
        reactor.__setstate__(state)
    else:
        vars(reactor).clear()
        vars(reactor).update(state)
    vars(reactor).update(handles)
