"""From a plan to a worker's loop: handles over the arena, bits for reactions, steps for the list.

Binding runs once, on the worker itself, so that views and handles are made in the process that uses them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from reactor_rl import topology as topo
from reactor_rl.pickling import inside, loads
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.plan import Plan, control_words
from reactor_rl.runtime.worker.events import ActionHandle, TimerHandle
from reactor_rl.runtime.worker.loop import RemoteCheck, WorkerLoop
from reactor_rl.runtime.worker.observers import Poison, PortHashes
from reactor_rl.runtime.worker.ports import ArrayOutput, InputHandle, LocalObjectOutput, ObjectOutput, OutputHandle, input_handle
from reactor_rl.runtime.worker.presence import StampReader
from reactor_rl.runtime.worker.values import OutputReader, PortValues, SideBlock
from reactor_rl.schedule import Exec, Signal, Wait, WaitForNode

__all__ = ["RemotePorts", "bind"]


class RemotePorts(Reactor):
    """The reactor that stands for the other nodes: it reads outputs that leave this node, and writes those that arrive."""

    @abstractmethod
    def attach(self, loop: WorkerLoop, leaving: Mapping[int, OutputReader], arriving: Mapping[int, OutputHandle]) -> None:
        """Set the worker and, by index, the outputs that leave and those that arrive."""

    @abstractmethod
    def wait(self, link: int) -> None:
        """Do the WAIT before a link is taken in. An exception leaves the pass where it is, to be continued."""


def bind(
    plan: Plan,
    worker: int,
    memory: memoryview,
    sides: Sequence[SideBlock | None],
    reactors: Mapping[int, bytes | Reactor],
    wait: Callable[[int], None],
    signal: Callable[[int], None],
) -> tuple[WorkerLoop, dict[str, InputHandle], dict[str, OutputHandle]]:
    """Build the loop of one worker.

    Args:
        plan: The compiled program.
        worker: Number of the worker.
        memory: The arena.
        sides: The side block of each worker.
        reactors: The reactors of this worker by index, pickled (or not, where the worker is a fork of the caller).
        wait: Function that waits for a token from a worker.
        signal: Function that sends a token to a worker.

    Returns:
        The loop, and the handles of the boundary's outputs and inputs (empty but for worker 0).
    """
    return _Binder(plan, worker, memory, sides).bind(reactors, wait, signal)


class _Binder:
    def __init__(self, plan: Plan, worker: int, memory: memoryview, sides: Sequence[SideBlock | None]) -> None:
        self.plan, self.worker = plan, worker
        self.topology, self.layout = plan.topology, plan.layout
        self.loop = WorkerLoop(worker, control_words(memory, plan.layout), id(memory.obj))
        order = [op.reaction for op in plan.schedule.lists[worker] if isinstance(op, Exec)]
        # The lowest triggered bit is run first, so bits are in the order of the schedule.
        self.bit = {reaction: 1 << position for position, reaction in enumerate(order)}
        self.values = PortValues(plan.topology, plan.layout, worker, memory, sides)

    def bind(
        self, reactors: Mapping[int, bytes | Reactor], wait: Callable[[int], None], signal: Callable[[int], None]
    ) -> tuple[WorkerLoop, dict[str, InputHandle], dict[str, OutputHandle]]:
        loop, topology = self.loop, self.topology
        loop.reactor_names = tuple(node.name for node in topology.reactors)
        for index, reactor in reactors.items():
            with inside(loop.copies):
                loop.reactors[index] = loads(reactor) if isinstance(reactor, bytes) else reactor
        for reaction, bit in self.bit.items():
            node = topology.reactions[reaction]
            loop.reactions[bit] = reaction
            loop.names[bit] = topology.reaction_name(reaction)
            loop.reactions_by_bit[bit] = getattr(loop.reactors[node.reactor], node.name)
            if node.startup:
                loop.startup_mask |= bit
            if node.shutdown:
                loop.shutdown_mask |= bit
        outputs = self._outputs()
        inputs = self._inputs()
        self._connect()
        for output in outputs.values():
            if isinstance(output, LocalObjectOutput):
                output.finish()
        timers, actions = self._timers(), self._actions()
        boundary_in: dict[str, OutputHandle] = {}
        boundary_out: dict[str, InputHandle] = {}
        handles: dict[int, dict[str, Any]] = {index: {} for index in loop.reactors}
        groups: tuple[tuple[Sequence[Any], dict[int, Any]], ...] = (
            (topology.outputs, outputs), (topology.inputs, inputs), (topology.timers, timers), (topology.actions, actions),
        )  # fmt: skip
        for nodes, by_index in groups:
            for node in nodes:
                if node.index not in by_index:
                    continue
                if node.reactor == topo.BOUNDARY:
                    (boundary_in if isinstance(node, topo.OutputSpec) else boundary_out)[node.name] = by_index[node.index]
                else:
                    handles[node.reactor][node.name] = by_index[node.index]
        for index, reactor in loop.reactors.items():
            vars(reactor).update(handles[index], _worker_clock=loop)
            loop.handles[index] = frozenset((*handles[index], "_worker_clock"))
            if isinstance(reactor, RemotePorts):
                read = sorted({piece.output for node in topology.inputs if node.reactor == index for piece in node.sources})
                arriving = {node.index: outputs[node.index] for node in topology.outputs if node.reactor == index}
                reactor.attach(loop, {output: self._output_reader(output) for output in read}, arriving)
        loop.enter(0)
        self._steps(wait, signal)
        if self.plan.options.debug:
            loop.observers.append(Poison(loop, topology))
        if self.plan.options.fingerprint == "all":
            loop.observers.append(PortHashes(loop, {index: self._output_reader(index) for index in outputs}))
        return loop, boundary_out, boundary_in

    def _here(self, reactor: int) -> bool:
        return self.plan.worker_of(reactor) == self.worker

    def _allowed(self, reactor: int, declare: Callable[[topo.ReactionSpec], bool]) -> int:
        """Bits of the reactions that declare a port; all bits if every reaction of the reactor does, and for the boundary."""
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

    def _outputs(self) -> dict[int, OutputHandle]:
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
                handle = (LocalObjectOutput if local else ObjectOutput)(self.loop, name, allowed, stamps)
                handle.bind(self.values.cells[index], node.rows)
            else:
                views = self.values.views(index)
                handle = ArrayOutput(self.loop, name, allowed, stamps)
                handle.bind(views[0], views[1:])
            stamps.clear(self.loop.words)
            self.loop.outputs[index] = handle
        return self.loop.outputs

    def _output_reader(self, output: int) -> OutputReader:
        objects = self.topology.outputs[output].dtype is None
        return OutputReader(self.layout.stamps[output], self.values.cells[output] if objects else self.values.views(output)[0])

    # ------------------------------------------------------------------ inputs

    def _inputs(self) -> dict[int, InputHandle]:
        inputs = {}
        for node in self.topology.inputs:
            if not self._here(node.reactor):
                continue
            index = node.index
            allowed = self._allowed(node.reactor, lambda r, i=index: i in r.triggers or i in r.uses)  # type: ignore[misc]
            sources = [self._source(node, piece) for piece in node.sources]
            name = self.topology.port_name(node)
            inputs[index] = input_handle(self.loop, name, allowed, node, sources, self.values.reading(node))
        return inputs

    def _source(self, node: topo.InputSpec, piece: topo.PortRows) -> StampReader:
        return StampReader(self.loop, self.layout.stamps[piece.output], node.delay, piece.lo, piece.hi)

    # ------------------------------------------------------------------ who triggers whom

    def _triggered(self, node: topo.InputSpec) -> int:
        bits = 0
        for reaction in self.topology.readers[node.index] if self._here(node.reactor) else ():
            if node.index in self.topology.reactions[reaction].triggers:
                bits |= self.bit[reaction]
        return bits

    def _connect(self) -> None:
        """Tell each output of this worker which reactions it wakes, and collect checks for outputs of other workers."""
        loop = self.loop
        for node in self.topology.inputs:
            mask = self._triggered(node) if node.reactor != topo.BOUNDARY else 0
            if node.initial is not topo.MISSING and self._here(node.reactor):
                loop.initials.append((node.delay, mask))  # a mask of 0 still makes the times known: the caller reads it then
            for piece in node.sources:
                handle = loop.outputs.get(piece.output)
                if handle is not None:
                    rows = range(len(handle._row_masks)) if piece.lo is None or piece.hi is None else range(piece.lo, piece.hi)
                    writer = self.topology.outputs[piece.output].reactor
                    # The boundary and a gateway also write between two ticks.
                    alone = self.plan.schedule.workers == 1 and not isinstance(loop.reactors.get(writer), RemotePorts | None)
                    handle.wakes(node.delay, mask, rows, soon=alone)
                elif mask and node.delay:
                    loop.delayed_checks.append(self._delayed_check(self._source(node, piece), mask))
                elif mask and self.topology.outputs[piece.output].reactor == topo.BOUNDARY:
                    loop.boundary_checks.append(_remote_check(self._source(node, piece), mask))

    def _delayed_check(self, source: StampReader, mask: int) -> Callable[[], None]:
        loop = self.loop

        def check() -> None:
            present = source.rows(loop.pass_number)
            if present is True or (present is not False and present.any()):
                loop.pending |= mask

        return check

    def _timers(self) -> dict[int, TimerHandle]:
        timers = {}
        for node in self.topology.timers:
            if self._here(node.reactor):
                index = node.index
                allowed = self._allowed(node.reactor, lambda r, i=index: i in r.trigger_timers or i in r.use_timers)  # type: ignore[misc]
                name = f"{self.topology.reactors[node.reactor].name}.{node.name}"
                timers[index] = timer = TimerHandle(self.loop, name, allowed, index, node.offset, node.period)
                for reaction in self.topology.reactors[node.reactor].reactions:
                    if index in self.topology.reactions[reaction].trigger_timers:
                        timer.mask |= self.bit[reaction]
                self.loop.timers.append(timer)
        return timers

    def _actions(self) -> dict[int, ActionHandle]:
        for node in self.topology.actions:
            if self._here(node.reactor):
                index = node.index
                readers = self._allowed(node.reactor, lambda r, i=index: i in r.trigger_actions or i in r.use_actions)  # type: ignore[misc]
                writers = self._allowed(node.reactor, lambda r, i=index: i in r.effect_actions)  # type: ignore[misc]
                name = f"{self.topology.reactors[node.reactor].name}.{node.name}"
                self.loop.actions[index] = action = ActionHandle(self.loop, name, readers, writers, index)
                for reaction in self.topology.reactors[node.reactor].reactions:
                    if index in self.topology.reactions[reaction].trigger_actions:
                        action.mask |= self.bit[reaction]
        return self.loop.actions

    # ------------------------------------------------------------------ the list

    def _steps(self, wait: Callable[[int], None], signal: Callable[[int], None]) -> None:
        """Turn the list into steps; consecutive EXECs become one step that runs whatever is triggered so far."""
        ops = list(self.plan.schedule.lists[self.worker])
        if self.worker == 0:
            while ops and isinstance(ops[0], Signal):
                ops.pop(0)  # Run._begin_tick sends these, before it does anything else, so that helpers start at once
        else:
            ops.pop(0)  # the WAIT for that token: the helper takes it before it knows that there is a pass, see main._obey
        steps, loop = self.loop.steps, self.loop
        seen: set[int] = set()
        mask = 0
        for op in ops:
            if isinstance(op, Exec):
                checks = self._remote_checks(op.reaction, seen)
                if checks:  # behind the WAIT for their writer, before the first reaction that they may trigger
                    if mask:
                        steps.append((loop.dispatch, mask))
                    steps.append((loop.check_remote, checks))
                mask |= self.bit[op.reaction]
                continue
            if mask:
                steps.append((loop.dispatch, mask))
            if isinstance(op, WaitForNode):
                steps.append((cast(RemotePorts, loop.reactors[op.gateway]).wait, op.link))
            else:
                steps.append((wait, op.worker) if isinstance(op, Wait) else (signal, op.worker))
        if mask and not (steps and steps[-1] == (loop.dispatch, mask)):
            steps.append((loop.dispatch, mask))
        self.loop.steps = _without_repeats(steps, loop)

    def _remote_checks(self, reaction: int, seen: set[int]) -> list[RemoteCheck]:
        """Make the checks for outputs of other workers that trigger this reaction and every later reader of the same input."""
        checks: list[RemoteCheck] = []
        for index in self.topology.reactions[reaction].triggers:
            node = self.topology.inputs[index]
            if index in seen or node.delay:
                continue
            seen.add(index)
            mask = self._triggered(node)
            for piece in node.sources:
                source = self.topology.outputs[piece.output]
                if not self._here(source.reactor) and source.reactor != topo.BOUNDARY:
                    checks.append(_remote_check(self._source(node, piece), mask))
        return checks


def _remote_check(source: StampReader, mask: int) -> RemoteCheck:
    """Make the check of an undelayed source that another worker writes."""
    return source.whole, mask, None if source.undivided else source


def _without_repeats(steps: list[tuple[Callable[[Any], None], Any]], loop: WorkerLoop) -> list[tuple[Callable[[Any], None], Any]]:
    """Drop runs that cannot find anything new triggered since the run before them."""
    kept: list[tuple[Callable[[Any], None], Any]] = []
    last = None
    for step in steps:
        if step[0] == loop.dispatch:
            if step[1] == last:
                continue
            last = step[1]
        elif step[0] == loop.check_remote:
            last = None  # a check may trigger reactions of the same mask again
        kept.append(step)
    return kept
