"""From a plan to a kernel: handles over the arena, bits for reactions, steps for the list. Runs once, on the worker itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl import topology as topo
from reactor_rl.by_value import inside
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.worker.cells import Cells, Side
from reactor_rl.runtime.worker.events import ActionHandle, TimerHandle
from reactor_rl.runtime.worker.inputs import InputHandle, LateInput, PlainInput
from reactor_rl.runtime.worker.kernel import Kernel, Mark
from reactor_rl.runtime.worker.outputs import ArrayOutput, LocalObjectOutput, ObjectOutput, OutputHandle
from reactor_rl.runtime.worker.poison import Poison
from reactor_rl.runtime.worker.port_hashes import AllPorts
from reactor_rl.runtime.worker.presence import Source
from reactor_rl.schedule import Exec, Signal, Wait
from reactor_rl.serialise import encode, loads

__all__ = ["bind"]

View = npt.NDArray[Any]


def bind(
    plan: Plan,
    worker: int,
    memory: memoryview,
    sides: Sequence[Side | None],
    reactors: Mapping[int, bytes | Reactor],
    wait: Callable[[int], None],
    signal: Callable[[int], None],
) -> tuple[Kernel, dict[str, InputHandle], dict[str, OutputHandle]]:
    """Build the kernel of one worker.

    Args:
        plan: The compiled program.
        worker: Which worker.
        memory: The arena.
        sides: The side block of each worker.
        reactors: The reactors of this worker by index, pickled (or not, where the worker is a fork of the caller).
        wait: Waits for a token from a worker.
        signal: Sends a token to a worker.

    Returns:
        The kernel, and the handles of the boundary's outputs and inputs (empty but for worker 0).
    """
    return _Binder(plan, worker, memory, sides).bind(reactors, wait, signal)


class _Binder:
    def __init__(self, plan: Plan, worker: int, memory: memoryview, sides: Sequence[Side | None]) -> None:
        self.plan, self.worker, self.memory, self.sides = plan, worker, memory, sides
        self.topology, self.layout = plan.topology, plan.layout
        self.kernel = Kernel(worker, memory[: plan.layout.words * 8].cast("q"), id(memory))
        order = [op.reaction for op in plan.schedule.lists[worker] if isinstance(op, Exec)]
        self.bit = {reaction: 1 << position for position, reaction in enumerate(order)}
        self.cells: dict[int, Cells] = {}

    def bind(
        self, reactors: Mapping[int, bytes | Reactor], wait: Callable[[int], None], signal: Callable[[int], None]
    ) -> tuple[Kernel, dict[str, InputHandle], dict[str, OutputHandle]]:
        kernel, topology = self.kernel, self.topology
        kernel.reactor_names = tuple(node.name for node in topology.reactors)
        for index, given in reactors.items():
            with inside(kernel.copies):
                kernel.reactors[index] = loads(given) if isinstance(given, bytes) else given
        for reaction, bit in self.bit.items():
            node = topology.reactions[reaction]
            kernel.reactions[bit] = reaction
            kernel.names[bit] = topology.reaction_name(reaction)
            kernel.calls[bit] = getattr(kernel.reactors[node.reactor], node.name)
            if node.startup:
                kernel.startup_mask |= bit
            if node.shutdown:
                kernel.shutdown_mask |= bit
        outputs = self._outputs()
        inputs = self._inputs()
        self._connect()
        for output in outputs.values():
            if isinstance(output, LocalObjectOutput):
                output.finish()
        timers, actions = self._timers(), self._actions()
        boundary_in: dict[str, OutputHandle] = {}
        boundary_out: dict[str, InputHandle] = {}
        handles: dict[int, dict[str, Any]] = {index: {} for index in kernel.reactors}
        groups: tuple[tuple[Sequence[Any], dict[int, Any]], ...] = (
            (topology.outputs, outputs), (topology.inputs, inputs), (topology.timers, timers), (topology.actions, actions),
        )  # fmt: skip
        for nodes, by_index in groups:
            for node in nodes:
                if node.index not in by_index:
                    continue
                if node.reactor == topo.BOUNDARY:
                    (boundary_in if isinstance(node, topo.OutputNode) else boundary_out)[node.name] = by_index[node.index]
                else:
                    handles[node.reactor][node.name] = by_index[node.index]
        for index, reactor in kernel.reactors.items():
            vars(reactor).update(handles[index], _kernel=kernel)
            kernel.handles[index] = frozenset((*handles[index], "_kernel"))
        kernel.enter(0)
        self._steps(wait, signal)
        if self.plan.options.debug:
            kernel.observers.append(Poison(kernel, topology))
        if self.plan.options.fingerprint == "all":
            kernel.observers.append(AllPorts(kernel))
        return kernel, boundary_out, boundary_in

    def _here(self, reactor: int) -> bool:
        return self.plan.home(reactor) == self.worker

    def _allowed(self, reactor: int, declare: Callable[[topo.ReactionNode], bool]) -> int:
        """Bits of the reactions that declare something; all bits where every reaction of the reactor does, or for the boundary."""
        if reactor == topo.BOUNDARY:
            return -1
        bits = 0
        every = True
        for index in self.topology.reactors[reactor].reactions:
            if declare(self.topology.reactions[index]):
                bits |= self.bit[index]
            else:
                every = False
        # The sign bit stands for the caller, who may look at a reactor's ports between ticks.
        return -1 if every else bits | ~((1 << len(self.bit)) - 1)

    # ------------------------------------------------------------------ outputs

    def _views(self, output: int) -> list[list[View]]:
        """Writable views of every place of an array output, by slot of its ring; its own place first."""
        views = []
        for place in self.layout.places[output]:
            slots = self._buffer(place.buffer)
            if place.lo is None:
                views.append(slots)
            elif place.hi is None:
                views.append([slot[place.lo, ...] for slot in slots])
            else:
                views.append([slot[place.lo : place.hi] for slot in slots])
        return views

    def _buffer(self, index: int) -> list[View]:
        """The slots of a buffer, as fresh views."""
        buffer = self.layout.buffers[index]
        count = buffer.nbytes // buffer.dtype.itemsize if buffer.dtype.itemsize else 0
        flat = np.frombuffer(self.memory, buffer.dtype, count, buffer.offset)
        ring = flat.reshape(buffer.ring, *buffer.shape)
        return [ring[slot, ...] for slot in range(buffer.ring)]

    def _outputs(self) -> dict[int, OutputHandle]:
        for node in self.topology.outputs:
            if node.dtype is None:
                offset = self.layout.cells[node.index]
                writer = self.layout.owner[node.index]
                self.cells[node.index] = Cells(
                    node.ring * (node.rows or 1),
                    None if offset < 0 else self.memory,
                    offset,
                    self.sides[writer],
                    writer == self.worker,
                )
        for node in self.topology.outputs:
            if not self._here(node.reactor):
                continue
            index = node.index
            allowed = self._allowed(node.reactor, lambda r, i=index: i in r.effects)  # type: ignore[misc]
            stamps = self.layout.stamps[index]
            name = self.topology.port_name(node)
            handle: OutputHandle
            if node.dtype is None:
                local = self.layout.cells[index] < 0 and node.rows is None
                handle = (LocalObjectOutput if local else ObjectOutput)(self.kernel, name, allowed, stamps)
                handle.bind(self.cells[index], node.rows)
            else:
                views = self._views(index)
                handle = ArrayOutput(self.kernel, name, allowed, stamps)
                handle.bind(views[0], views[1:])
            stamps.clear(self.kernel.words)
            self.kernel.outputs[index] = handle
        return self.kernel.outputs

    # ------------------------------------------------------------------ inputs

    def _inputs(self) -> dict[int, InputHandle]:
        inputs = {}
        for node in self.topology.inputs:
            if not self._here(node.reactor):
                continue
            index = node.index
            allowed = self._allowed(node.reactor, lambda r, i=index: i in r.triggers or i in r.uses)  # type: ignore[misc]
            sources = [self._source(node, part) for part in node.parts]
            spans = [(part.at, part.at + part.width) for part in node.parts if part.at is not None]
            read: Callable[[int], Any] = _nothing
            slot: View | None = None
            parts: list[Callable[[int], Any]] = []
            if node.parts and node.dtype is None:
                read = self._object_reader(node)
                parts = [self._part_reader(part) for part in node.parts]
            elif node.parts:
                slots = self._input_views(node)
                read = _reader_of(slots)
                slot = slots[0] if len(slots) == 1 and not node.delay else None
            initial = node.initial
            if isinstance(initial, np.ndarray):
                initial = initial.copy()
                initial.flags.writeable = False
            elif initial is not topo.MISSING:
                initial = encode(initial)
            one = len(node.parts) == 1 and not spans and node.reactor != topo.BOUNDARY
            quick = sources[0].whole if one and not node.delay else -1
            kind = InputHandle
            if one and sources[0].undivided:
                kind = LateInput if node.delay else PlainInput
            inputs[index] = handle = kind(
                self.kernel, self.topology.port_name(node), allowed, sources, spans, node.rows, node.delay, initial, read, quick,
                slot, parts,
            )  # fmt: skip
            if isinstance(handle, LateInput):
                handle.bind(self.layout.stamps[node.parts[0].output])
        return inputs

    def _source(self, node: topo.InputNode, part: topo.Part) -> Source:
        return Source(self.kernel, self.layout.stamps[part.output], node.delay, part.lo, part.hi)

    def _input_views(self, node: topo.InputNode) -> list[View]:
        if node.index in self.layout.gathers:
            slots = self._buffer(self.layout.gathers[node.index])
        else:
            (part,) = node.parts
            slots = self._views(part.output)[0]
            if part.lo is not None:
                slots = [slot[part.lo, ...] if part.single else slot[part.lo : part.hi] for slot in slots]
        for slot in slots:
            slot.flags.writeable = False
        return slots

    def _object_reader(self, node: topo.InputNode) -> Callable[[int], Any]:
        """What reads all of an input: the value of its one source, or a list with one value for each row that it gathers."""
        if node.parts[0].at is None:
            return self._part_reader(node.parts[0])
        if any(part.block or self.topology.outputs[part.output].rows is not None for part in node.parts):
            readers = [(self._part_reader(part), part.block) for part in node.parts]
            return lambda time: [one for read, block in readers for one in (read(time) if block else (read(time),))]
        wanted = [(self.cells[part.output], self.topology.outputs[part.output].ring) for part in node.parts]
        return lambda time: [cells.read(time % ring) for cells, ring in wanted]

    def _part_reader(self, part: topo.Part) -> Callable[[int], Any]:
        """What reads one part of an input: one value, or the list of the rows that it selects of a port with rows."""
        output, cells = self.topology.outputs[part.output], self.cells[part.output]
        ring, rows = output.ring, output.rows
        if rows is None:
            return (lambda time: cells.read(0)) if ring == 1 else (lambda time: cells.read(time % ring))
        if part.single:
            row = part.lo or 0
            return lambda time: cells.read(time % ring * rows + row)
        span = range(part.lo or 0, rows if part.hi is None else part.hi)
        return lambda time: [cells.read(time % ring * rows + row) for row in span]

    # ------------------------------------------------------------------ who triggers whom

    def _triggered(self, node: topo.InputNode) -> int:
        bits = 0
        for reaction in self.topology.readers[node.index] if self._here(node.reactor) else ():
            if node.index in self.topology.reactions[reaction].triggers:
                bits |= self.bit[reaction]
        return bits

    def _connect(self) -> None:
        """Tell each output of this worker whom it wakes, and find out what others' outputs wake here."""
        kernel = self.kernel
        for node in self.topology.inputs:
            mask = self._triggered(node) if node.reactor != topo.BOUNDARY else 0
            if node.initial is not topo.MISSING and self._here(node.reactor):
                kernel.initials.append((node.delay, mask))  # a mask of 0 makes the times known, for the caller reads it then
            for part in node.parts:
                handle = kernel.outputs.get(part.output)
                if handle is not None:
                    rows = range(len(handle._row_masks)) if part.lo is None or part.hi is None else range(part.lo, part.hi)
                    alone = self.plan.schedule.workers == 1 and self.topology.outputs[part.output].reactor != topo.BOUNDARY
                    handle.wakes(node.delay, mask, rows, soon=alone)
                elif mask and node.delay:
                    kernel.late_marks.append(self._late_mark(self._source(node, part), mask))
                elif mask and self.topology.outputs[part.output].reactor == topo.BOUNDARY:
                    kernel.boundary_marks.append(_mark(self._source(node, part), mask))

    def _late_mark(self, source: Source, mask: int) -> Callable[[], None]:
        kernel = self.kernel

        def check() -> None:
            present = source.rows(kernel.number)
            if present is True or (present is not False and present.any()):
                kernel.pending |= mask

        return check

    def _timers(self) -> dict[int, TimerHandle]:
        timers = {}
        for node in self.topology.timers:
            if self._here(node.reactor):
                index = node.index
                allowed = self._allowed(node.reactor, lambda r, i=index: i in r.trigger_timers or i in r.use_timers)  # type: ignore[misc]
                name = f"{self.topology.reactors[node.reactor].name}.{node.name}"
                timers[index] = timer = TimerHandle(self.kernel, name, allowed, index, node.offset, node.period)
                for reaction in self.topology.reactors[node.reactor].reactions:
                    if index in self.topology.reactions[reaction].trigger_timers:
                        timer.mask |= self.bit[reaction]
                self.kernel.timers.append(timer)
        return timers

    def _actions(self) -> dict[int, ActionHandle]:
        for node in self.topology.actions:
            if self._here(node.reactor):
                index = node.index
                readers = self._allowed(node.reactor, lambda r, i=index: i in r.trigger_actions or i in r.use_actions)  # type: ignore[misc]
                writers = self._allowed(node.reactor, lambda r, i=index: i in r.effect_actions)  # type: ignore[misc]
                name = f"{self.topology.reactors[node.reactor].name}.{node.name}"
                self.kernel.actions[index] = action = ActionHandle(self.kernel, name, readers, writers, index)
                for reaction in self.topology.reactors[node.reactor].reactions:
                    if index in self.topology.reactions[reaction].trigger_actions:
                        action.mask |= self.bit[reaction]
        return self.kernel.actions

    # ------------------------------------------------------------------ the list

    def _steps(self, wait: Callable[[int], None], signal: Callable[[int], None]) -> None:
        """Turn the list into steps; consecutive EXECs become one step that runs whatever is triggered so far."""
        ops = list(self.plan.schedule.lists[self.worker])
        if self.worker == 0:
            while ops and isinstance(ops[0], Signal):
                ops.pop(0)  # the caller sends these when it begins a pass
        else:
            ops.pop(0)  # and the helper has taken its token when it comes here
        steps, kernel = self.kernel.steps, self.kernel
        seen: set[int] = set()
        mask = 0
        for op in ops:
            if isinstance(op, Exec):
                marks = self._remote_marks(op.reaction, seen)
                if marks:
                    if mask:
                        steps.append((kernel.run, mask))
                    steps.append((kernel.mark, marks))
                mask |= self.bit[op.reaction]
                continue
            if mask:
                steps.append((kernel.run, mask))
            steps.append((wait, op.worker) if isinstance(op, Wait) else (signal, op.worker))
        if mask and not (steps and steps[-1] == (kernel.run, mask)):
            steps.append((kernel.run, mask))
        self.kernel.steps = _without_repeats(steps, kernel)

    def _remote_marks(self, reaction: int, seen: set[int]) -> list[Mark]:
        """What other workers wrote that triggers this reaction, and with it every later reader of the same input."""
        marks: list[Mark] = []
        for index in self.topology.reactions[reaction].triggers:
            node = self.topology.inputs[index]
            if index in seen or node.delay:
                continue
            seen.add(index)
            mask = self._triggered(node)
            for part in node.parts:
                source = self.topology.outputs[part.output]
                if not self._here(source.reactor) and source.reactor != topo.BOUNDARY:
                    marks.append(_mark(self._source(node, part), mask))
        return marks


def _mark(source: Source, mask: int) -> Mark:
    """Where to look for an undelayed part that another worker writes."""
    return source.whole, mask, None if source.undivided else source


def _without_repeats(steps: list[tuple[Callable[[Any], None], Any]], kernel: Kernel) -> list[tuple[Callable[[Any], None], Any]]:
    """Drop runs that nothing new can have been triggered for since the one before them."""
    kept: list[tuple[Callable[[Any], None], Any]] = []
    last = None
    for step in steps:
        if step[0] == kernel.run:
            if step[1] == last:
                continue
            last = step[1]
        elif step[0] == kernel.mark:
            last = None
        kept.append(step)
    return kept


def _reader_of(slots: Sequence[View]) -> Callable[[int], Any]:
    if len(slots) == 1:
        (only,) = slots
        return lambda time: only
    return lambda time: slots[time % len(slots)]


def _nothing(time: int) -> Any:
    raise AssertionError("an input without a source is never present")
