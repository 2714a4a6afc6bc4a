"""The oracle: interpret a program one reaction at a time, in topological order, sharing nothing and optimising nothing.

It reads the same topology as the compiler and otherwise shares no code with it: no schedule, no arena, no stamps, no bit masks.
Values are copied wherever they cross from one reactor to another, presence is a set of rows, and time is a loop. It is right by
inspection, and every executor must agree with it.
"""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reactor_rl import topology as topo
from reactor_rl.errors import AbsentError, UndeclaredPortError
from reactor_rl.fingerprint import canonical, combine, new_hash
from reactor_rl.program import Program

__all__ = ["ProgramRecord", "interpret"]

Tag = tuple[int, int]


@dataclass
class ProgramRecord:
    """The record of an interpreted program.

    Attributes:
        ports: By name of output port: ``(tag, rows, content)`` for each tag at which it was present. ``rows`` lists the rows that
            were written one by one and ``content`` has one value for each; ``rows is None``: all of it was written.
        boundary: For each tick, the boundary's outputs as the caller sees them after it.
        fingerprint: The value of ``Run.fingerprint()`` for a run started with ``fingerprint="all"``.
        stopped: Whether the program requested a stop; its shutdown reactions are then part of the record.
        error: The exception that the last tick raises, with the name of its reaction and the tag; None if it succeeded.
    """

    ports: dict[str, list[tuple[Tag, list[int] | None, Any]]] = field(default_factory=dict)
    boundary: list[dict[str, Any]] = field(default_factory=list)
    fingerprint: str = ""
    stopped: bool = False
    error: tuple[str, Tag, Exception] | None = None


@dataclass
class _PortContent:
    """Presence and value of an output (one for each row if it has rows), at one tag or as written in one tick."""

    whole: bool = False
    rows: set[int] = field(default_factory=set)
    value: Any = None

    def has(self, row: int | None) -> bool:
        return self.whole or row in self.rows


def interpret(program: Program, ticks: int, inputs: Mapping[int, Mapping[str, Any]] | None = None) -> ProgramRecord:
    """Interpret a program for some ticks.

    Args:
        program: The program; it is not changed.
        ticks: Number of ticks, unless the program stops or fails before.
        inputs: Values that the caller sets before a tick: ``{tick: {name: value}}``.

    Returns:
        The record of every port.
    """
    return _Interpreter(program).run(ticks, inputs or {})


class _Interpreter:
    def __init__(self, program: Program) -> None:
        self.topology = program.topology()
        self.reactors = [pickle.loads(p) if isinstance(p, bytes) else copy.deepcopy(p) for p in program.pickled_reactors()]
        self.order = _topological(self.topology)
        self.time = self.microstep = 0
        self.current: topo.ReactionSpec | None = None
        self.stop = False
        self.errors: list[tuple[int, Tag, Exception]] = []
        self.record = ProgramRecord({self.topology.port_name(o): [] for o in self.topology.outputs})
        self.hashes = {self.topology.port_name(o): new_hash() for o in self.topology.outputs}
        self.now: dict[int, _PortContent] = {}  # by output: what is present at this tag
        self.past: dict[tuple[int, int], _PortContent] = {}  # by output and time: what was written in that tick
        self.future: dict[int, list[tuple[int, Any]]] = {}  # by time: events of actions
        self.waiting: dict[int, deque[Any]] = {a.index: deque() for a in self.topology.actions}  # for the next microsteps
        self.actions: dict[int, Any] = {}  # those present at this tag
        for node in self.topology.outputs:
            if node.reactor != topo.BOUNDARY:
                vars(self.reactors[node.reactor])[node.name] = _Output(self, node)
        for inp in self.topology.inputs:
            if inp.reactor != topo.BOUNDARY:
                vars(self.reactors[inp.reactor])[inp.name] = _Input(self, inp)
        for timer in self.topology.timers:
            vars(self.reactors[timer.reactor])[timer.name] = _Timer(self, timer)
        for action in self.topology.actions:
            vars(self.reactors[action.reactor])[action.name] = _Action(self, action)
        for reactor in self.reactors:
            reactor._worker_clock = self  # for `tag` and `request_stop()`

    def run(self, ticks: int, inputs: Mapping[int, Mapping[str, Any]]) -> ProgramRecord:
        by_name = {o.name: o for o in self.topology.boundary_inputs}
        self.execute(lambda node: node.startup)  # what is written now is present at tick 0
        for time in range(ticks if not self.errors else 0):
            self.time, self.microstep = time, 0
            for name, value in inputs.get(time, {}).items():
                self.write(by_name[name], value)
            for action, value in self.future.pop(time, []):
                self.waiting[action].append(value)
            if time > 0:  # at tick 0 only startup reactions have scheduled events, and those are for microstep 1
                self.take_actions()
            self.execute(self.triggered)
            self.end_tag()
            while any(self.waiting.values()):
                self.microstep += 1
                self.take_actions()
                self.execute(self.triggered)
                self.end_tag()
            self.record.boundary.append(self.seen())
            if self.errors or self.stop:
                break
        if self.stop and not self.errors:
            self.record.stopped = True
            self.microstep += 1
            self.actions = {}
            self.execute(lambda node: node.shutdown or self.triggered(node))
            self.end_tag()
            self.record.boundary[-1] = self.seen()
        if self.errors:
            # Several reactions may raise in one tick; which one is raised must not depend on the order of execution, which
            # executors choose.
            index, tag, error = min(self.errors, key=lambda raised: raised[:2])
            self.record.error = self.topology.reaction_name(index), tag, error
        self.record.fingerprint = combine({name: hasher.digest() for name, hasher in self.hashes.items()})
        return self.record

    def execute(self, wanted: Any) -> None:
        for index in self.order:
            node = self.topology.reactions[index]
            if wanted(node):
                self.current = node
                try:
                    getattr(self.reactors[node.reactor], node.name)()
                except Exception as error:
                    self.errors.append((index, (self.time, self.microstep), error))
                self.current = None

    def triggered(self, node: topo.ReactionSpec) -> bool:
        return (
            any(self.present(self.topology.inputs[i], any_row=True).any() for i in node.triggers)
            or any(self.fires(self.topology.timers[i]) for i in node.trigger_timers)
            or any(i in self.actions for i in node.trigger_actions)
        )

    def fires(self, timer: topo.TimerSpec) -> bool:
        since = self.time - timer.offset
        return self.microstep == 0 and (since == 0 or (since > 0 and timer.period is not None and since % timer.period == 0))

    def take_actions(self) -> None:
        self.actions = {index: queue.popleft() for index, queue in self.waiting.items() if queue}

    def end_tag(self) -> None:
        """Record the present values and clear them."""
        for node in self.topology.outputs:
            written = self.now.get(node.index)
            if written is None:
                continue
            rows = None if written.whole else sorted(written.rows)
            content = copy.deepcopy(written.value if rows is None else [written.value[row] for row in rows])
            name = self.topology.port_name(node)
            self.record.ports[name].append(((self.time, self.microstep), rows, content))
            canonical((self.time, self.microstep, rows or []), self.hashes[name])
            for piece in [content] if rows is None and (node.dtype is not None or node.rows is None) else content:
                canonical(piece, self.hashes[name])
            self.past[node.index, self.time] = _merged(self.past.get((node.index, self.time)), written)
        self.now = {}

    def seen(self) -> dict[str, Any]:
        """The boundary's outputs after a tick: the last value written in any of its microsteps."""
        tag, self.microstep = self.microstep, 0  # delayed values are there since microstep 0
        values = {}
        for inp in self.topology.boundary_outputs:
            mask = self.present(inp, self.past)
            values[inp.name] = self.value(inp, self.past) if mask.size and mask.all() else None
        self.microstep = tag
        return values

    # ------------------------------------------------------------------ ports

    def write(self, node: topo.OutputSpec, value: Any, row: int | None = None) -> None:
        """Put a copy of a value on an output, or on one row of it."""
        if node.shape is not None:
            shape = node.shape if row is None else node.shape[1:]
            if np.shape(value) != shape:
                raise ValueError(f"{self.topology.port_name(node)} takes values of shape {shape}, not {np.shape(value)}")
        elif node.rows is not None and row is None:
            value = list(value)
            if len(value) != node.rows:
                raise ValueError(f"{self.topology.port_name(node)} has {node.rows} rows")
        written = self.now.setdefault(node.index, _PortContent())
        if written.value is None and node.shape is not None:
            written.value = np.zeros(node.shape, node.dtype)
        elif written.value is None and node.rows is not None:
            written.value = [None] * node.rows
        if node.shape is not None:
            np.copyto(written.value if row is None else written.value[row, ...], value)
        elif row is None:
            written.value = copy.deepcopy(value)
        else:
            written.value[row] = copy.deepcopy(value)
        if row is None:
            written.whole = True
        else:
            written.rows.add(row)

    def written(self, inp: topo.InputSpec, piece: topo.PortRows, source: Any) -> _PortContent:
        if inp.delay:
            arrives = self.microstep == 0
            return self.past.get((piece.output, self.time - inp.delay), _PortContent()) if arrives else _PortContent()
        if source is not None:
            return source.get((piece.output, self.time), _PortContent())  # type: ignore[no-any-return]
        return self.now.get(piece.output, _PortContent())

    def present(self, inp: topo.InputSpec, source: Any = None, any_row: bool = False) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Presence: by row for an input that gathers, else by row of its source if that has rows.

        An output that is gathered as one row is present if all of it was written, but any row of it triggers.
        """
        if inp.initial is not topo.MISSING and self.time < inp.delay:
            return np.full(inp.rows or 1, self.microstep == 0)
        mask: list[bool] = []
        for piece in inp.sources:
            rows = self.topology.outputs[piece.output].rows
            written = self.written(inp, piece, source)
            if rows is None:
                here = [written.whole]
            else:
                here = [written.has(row) for row in range(piece.lo or 0, rows if piece.hi is None else piece.hi)]
            if piece.at is None or len(here) == piece.width:
                mask += here
            else:
                mask += [any(here) if any_row else all(here)] * piece.width
        return np.array(mask, bool)

    def value(self, inp: topo.InputSpec, source: Any = None) -> Any:
        """The reader's own copy."""
        if inp.initial is not topo.MISSING and self.time < inp.delay:
            if inp.dtype is None and inp.rows is not None:
                return [copy.deepcopy(inp.initial) for _ in range(inp.rows)]
            return copy.deepcopy(inp.initial)
        gathered: list[Any] = []
        for piece in inp.sources:
            value = copy.deepcopy(self.written(inp, piece, source).value)
            if piece.lo is not None:
                one = piece.lo if inp.dtype is None else (piece.lo, ...)
                value = value[one] if piece.single else value[piece.lo : piece.hi]
            if piece.at is None:
                return value
            gathered += list(value) if piece.block else [value]
        return gathered if inp.dtype is None else np.array(gathered, inp.dtype).reshape(inp.shape or ())

    def declared(self, index: int, groups: tuple[str, ...], name: str) -> None:
        if self.current is None or not any(index in getattr(self.current, group) for group in groups):
            raise UndeclaredPortError(f"a reaction touches {name}, which it does not declare")

    def request_stop(self) -> None:
        self.stop = True


def _merged(before: _PortContent | None, after: _PortContent) -> _PortContent:
    """Merge two writes of one tick: the later one wins, row by row."""
    if before is None or after.whole:
        return after
    value = copy.deepcopy(before.value)
    for row in after.rows:
        value[row] = after.value[row]
    return _PortContent(before.whole, before.rows | after.rows, value)


def _topological(topology: topo.Topology) -> list[int]:
    """Sort reactions topologically (Kahn's algorithm); of those that are ready, the first in program order goes first."""
    before: dict[int, set[int]] = {r.index: set() for r in topology.reactions}
    for reactor in topology.reactors:
        for place, index in enumerate(reactor.reactions):
            before[index].update(reactor.reactions[:place])
    for reader in topology.reactions:
        for inp in (topology.inputs[i] for i in reader.triggers + reader.uses):
            for piece in inp.sources if inp.delay == 0 else ():
                before[reader.index].update(w.index for w in topology.reactions if piece.output in w.effects)
    order: list[int] = []
    while before:
        index = min(i for i, waiting_for in before.items() if not waiting_for)
        order.append(index)
        del before[index]
        for waiting_for in before.values():
            waiting_for.discard(index)
    return order


class _Output:
    """Handle of an output in reactions."""

    def __init__(self, interpreter: _Interpreter, node: topo.OutputSpec) -> None:
        self._interpreter, self._node = interpreter, node

    def _check(self) -> None:
        self._interpreter.declared(self._node.index, ("effects",), self._node.name)

    def set(self, value: Any) -> None:
        self._check()
        self._interpreter.write(self._node, value)

    @property
    def buffer(self) -> Any:
        self._check()
        now = self._interpreter.now.get(self._node.index)
        if now is None or not now.whole:
            self._interpreter.write(self._node, np.zeros(self._node.shape or (), self._node.dtype))
        return self._interpreter.now[self._node.index].value

    @property
    def rows(self) -> list[_Row]:
        if self._node.rows is None:
            raise AttributeError(f"no connection addresses rows of {self._node.name}")
        return [_Row(self, row) for row in range(self._node.rows)]


class _Row:
    def __init__(self, output: _Output, row: int) -> None:
        self._output, self._row = output, row

    def set(self, value: Any) -> None:
        self._output._check()
        self._output._interpreter.write(self._output._node, value, self._row)


class _Input:
    """Handle of an input in reactions."""

    def __init__(self, interpreter: _Interpreter, node: topo.InputSpec) -> None:
        self._interpreter, self._node = interpreter, node

    def _mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        self._interpreter.declared(self._node.index, ("triggers", "uses"), self._node.name)
        return self._interpreter.present(self._node)

    @property
    def present(self) -> Any:
        mask = self._mask()
        return mask if any(piece.at is not None for piece in self._node.sources) else bool(mask.any())

    @property
    def value(self) -> Any:
        mask = self._mask()
        if not (mask.size and mask.all()):
            raise AbsentError(f"{self._node.name} is absent")
        value = self._interpreter.value(self._node)
        if isinstance(value, np.ndarray) and self._node.dtype is not None:
            # A reaction that writes to its input must fail here too: elsewhere readers share the writer's memory.
            value.flags.writeable = False
        return value


class _Timer:
    def __init__(self, interpreter: _Interpreter, node: topo.TimerSpec) -> None:
        self._interpreter, self._node = interpreter, node

    @property
    def present(self) -> bool:
        self._interpreter.declared(self._node.index, ("trigger_timers", "use_timers"), self._node.name)
        return self._interpreter.fires(self._node)


class _Action:
    def __init__(self, interpreter: _Interpreter, node: topo.ActionSpec) -> None:
        self._interpreter, self._node = interpreter, node

    def schedule(self, delay: int = 0, value: Any = None) -> None:
        self._interpreter.declared(self._node.index, ("effect_actions",), self._node.name)
        if delay < 0:
            raise ValueError(f"{self._node.name}: delay must be >= 0, got {delay}")
        event = copy.deepcopy(value)
        if delay == 0:
            self._interpreter.waiting[self._node.index].append(event)
        else:
            self._interpreter.future.setdefault(self._interpreter.time + delay, []).append((self._node.index, event))

    @property
    def present(self) -> bool:
        self._interpreter.declared(self._node.index, ("trigger_actions", "use_actions"), self._node.name)
        return self._node.index in self._interpreter.actions

    @property
    def value(self) -> Any:
        if not self.present:
            raise AbsentError(f"{self._node.name} is absent")
        return copy.deepcopy(self._interpreter.actions[self._node.index])
