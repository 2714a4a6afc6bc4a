"""A worker's part of a snapshot: state of its reactors, slots in flight, events to come. Independent of the schedule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from reactor_rl.reactor import Reactor
from reactor_rl.runtime.kernel import Agenda, Kernel
from reactor_rl.runtime.outputs import ArrayOutput, ObjectOutput
from reactor_rl.serialise import dumps, loads

__all__ = ["Part", "put_back", "take"]


@dataclass
class Part:
    """What one worker holds, by the indices of the program, so that another schedule can take it up."""

    reactors: dict[int, bytes] = field(default_factory=dict)
    outputs: dict[int, tuple[list[int], list[Any]]] = field(default_factory=dict)  # stamps, slots
    timers: dict[int, list[int]] = field(default_factory=dict)  # time -> indices of timers
    every_tick: list[int] = field(default_factory=list)  # timers that fire at every tick already
    events: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)
    clock: tuple[int, int, int] = (0, 1, 1)  # time, number, tick_number
    late: dict[int, list[int]] = field(default_factory=dict)  # time -> reactions to trigger
    pending: list[int] = field(default_factory=list)

    def merge(self, other: Part) -> None:
        """Add another worker's part."""
        self.reactors.update(other.reactors)
        self.outputs.update(other.outputs)
        self.every_tick += other.every_tick
        self.pending += other.pending
        coming: tuple[tuple[dict[int, list[Any]], dict[int, list[Any]]], ...] = (
            (self.timers, other.timers), (self.events, other.events), (self.late, other.late),
        )  # fmt: skip
        for mine, theirs in coming:
            for time, found in theirs.items():
                mine.setdefault(time, []).extend(found)


def take(kernel: Kernel) -> Part:
    """Copy everything that the coming ticks depend on.

    Raises:
        TypeError: If the state of a reactor cannot be pickled.
    """
    part = Part(clock=(kernel.time, kernel.number, kernel.tick_number))
    for index, reactor in kernel.reactors.items():
        try:
            part.reactors[index] = dumps(_state(kernel, index, reactor))
        except Exception as error:
            raise TypeError(
                f"the state of reactor {kernel.reactor_names[index]!r} cannot be pickled ({error}); give "
                f"{type(reactor).__name__} the methods __getstate__ and __setstate__"
            ) from error
    for index, port in kernel.outputs.items():
        span = port._stride * (1 if port._times < 0 else 1 + port._ring)
        stamps = kernel.words[port._stamp : port._stamp + span].tolist()
        if isinstance(port, ArrayOutput):
            slots: list[Any] = [view.copy() for view in port._views]
        else:
            assert isinstance(port, ObjectOutput)
            slots = port._cells.kept()
        part.outputs[index] = stamps, slots
    agenda = kernel.agenda
    part.timers = {time: [kernel.timers[p].index for p in found] for time, found in agenda.timers.items()}
    part.every_tick = [t.index for t in kernel.timers if t.mask and t.period == 1 and t.mask & agenda.always == t.mask]
    part.events = {time: list(found) for time, found in agenda.events.items()}
    part.late = {time: _reactions(kernel, mask) for time, mask in agenda.masks.items()}
    if kernel.soon:
        part.late.setdefault(kernel.time + 1, []).extend(_reactions(kernel, kernel.soon))
    part.pending = _reactions(kernel, kernel.pending)
    return part


def put_back(kernel: Kernel, part: Part) -> None:
    """Make a worker what it was (or what others were, if reactors have moved since)."""
    kernel.time, kernel.number, kernel.tick_number = part.clock
    kernel.microstep = 0
    bits = {reaction: bit for bit, reaction in kernel.reactions.items()}
    positions = {timer.index: position for position, timer in enumerate(kernel.timers)}
    for index, reactor in kernel.reactors.items():
        state = loads(part.reactors[index])
        handles = {name: value for name, value in vars(reactor).items() if name in kernel.handles[index]}
        if hasattr(reactor, "__setstate__"):
            reactor.__setstate__(state)
        else:
            vars(reactor).clear()
            vars(reactor).update(state)
        vars(reactor).update(handles)
    for index, port in kernel.outputs.items():
        stamps, slots = part.outputs[index]
        for offset, stamp in enumerate(stamps):
            kernel.words[port._stamp + offset] = stamp
        if isinstance(port, ArrayOutput):
            for targets in (port._views, *port._copies):
                for target, slot in zip(targets, _ring(slots, len(targets), kernel.time), strict=True):
                    target[...] = slot
        else:
            assert isinstance(port, ObjectOutput)
            for cell, kept in enumerate(slots):
                port._cells.keep(cell, kept)
    agenda = Agenda()
    for index in part.every_tick:
        if index in positions:
            agenda.always |= kernel.timers[positions[index]].mask
    for time, timers in part.timers.items():
        agenda.timers[time] = [positions[i] for i in timers if i in positions]
    for time, events in part.events.items():
        agenda.events[time] = [event for event in events if event[0] in kernel.actions]
    for time, reactions in part.late.items():
        agenda.masks[time] = sum(bits[r] for r in set(reactions) if r in bits)
    kernel.agenda = replace(agenda, times=[])
    for time in sorted({*agenda.timers, *agenda.events, *agenda.masks}):
        kernel._push(time)
    kernel.soon = 0
    kernel.pending = sum(bits[r] for r in set(part.pending) if r in bits)


def _ring(slots: list[Any], size: int, time: int) -> list[Any]:
    """The slots of a ring for a ring of another size (a buffer may have more slots than one of its outputs needs)."""
    if len(slots) == size:
        return slots
    found: list[Any] = [slots[0]] * size
    for back in range(min(size, len(slots))):
        found[(time - back) % size] = slots[(time - back) % len(slots)]
    return found


def _state(kernel: Kernel, index: int, reactor: Reactor) -> Any:
    own = {name: value for name, value in vars(reactor).items() if name not in kernel.handles[index]}
    if type(reactor).__getstate__ is not object.__getstate__:
        handles = {name: value for name, value in vars(reactor).items() if name in kernel.handles[index]}
        for name in handles:
            del vars(reactor)[name]
        try:
            return reactor.__getstate__()
        finally:
            vars(reactor).update(handles)
    return own


def _reactions(kernel: Kernel, mask: int) -> list[int]:
    return [reaction for bit, reaction in kernel.reactions.items() if mask & bit]
