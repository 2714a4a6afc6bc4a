"""A program as plain data, read by the graph, the schedule, the drawing and the interpreter.

Everything is identified by its index in the order in which the program was composed; that order breaks every tie.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "BOUNDARY",
    "MISSING",
    "ActionSpec",
    "InputSpec",
    "OutputSpec",
    "PortRows",
    "ReactionSpec",
    "ReactorSpec",
    "TimerSpec",
    "Topology",
]

BOUNDARY = -1
"""Stands for the caller where a reactor's index is expected."""


class _Absent:
    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Absent()


@dataclass(frozen=True)
class ReactorSpec:
    """One reactor instance; ``kind`` is its class's name, ``bank`` is ``(name, index, size)`` for members of a bank."""

    index: int
    name: str
    kind: str
    bank: tuple[str, int, int] | None
    reactions: tuple[int, ...]


@dataclass(frozen=True)
class ReactionSpec:
    """One reaction of one reactor. Ports, actions and timers are indices into the topology's lists."""

    index: int
    reactor: int
    name: str
    cost: float | None
    startup: bool
    shutdown: bool
    triggers: tuple[int, ...]  # inputs
    uses: tuple[int, ...]  # inputs
    effects: tuple[int, ...]  # outputs
    trigger_timers: tuple[int, ...]
    use_timers: tuple[int, ...]
    trigger_actions: tuple[int, ...]
    use_actions: tuple[int, ...]
    effect_actions: tuple[int, ...]


@dataclass(frozen=True)
class PortSpec:
    """A port of a reactor or, with ``reactor == BOUNDARY``, of the caller. ``shape`` and ``dtype`` are ``None`` for objects."""

    index: int
    reactor: int
    name: str
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None
    rows: int | None


@dataclass(frozen=True)
class OutputSpec(PortSpec):
    """An output port, or a boundary input, which the caller writes.

    ``rows`` is the number of rows with a presence of their own, ``None`` if rows are not addressed.
    ``delays`` lists the distinct delays of its readers; ``ring`` is the number of slots that they need.
    """

    delays: tuple[int, ...]

    @property
    def ring(self) -> int:
        return max(self.delays, default=0) + 1


@dataclass(frozen=True)
class PortRows:
    """One source of an input: rows ``lo..hi`` of an output (``None``: all of it), arriving at rows ``at..`` of the input.

    ``single``: one row of the source, without its axis. ``block``: several rows of the input, with theirs.
    """

    output: int
    lo: int | None = None
    hi: int | None = None
    single: bool = False
    at: int | None = None
    width: int = 1
    block: bool = False


@dataclass(frozen=True)
class InputSpec(PortSpec):
    """An input port, or a boundary output, which the caller reads.

    ``rows`` is the number of rows gathered, ``None`` if the input has one plain source. An input without sources is never present.
    """

    sources: tuple[PortRows, ...]
    delay: int
    initial: Any = MISSING


@dataclass(frozen=True)
class TimerSpec:
    index: int
    reactor: int
    name: str
    offset: int
    period: int | None


@dataclass(frozen=True)
class ActionSpec:
    index: int
    reactor: int
    name: str


@dataclass(frozen=True)
class Topology:
    """The whole program."""

    name: str
    reactors: tuple[ReactorSpec, ...]
    reactions: tuple[ReactionSpec, ...]
    outputs: tuple[OutputSpec, ...]
    inputs: tuple[InputSpec, ...]
    timers: tuple[TimerSpec, ...]
    actions: tuple[ActionSpec, ...]
    writers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # output -> reactions, in program order
    readers: dict[int, tuple[int, ...]] = field(default_factory=dict)  # input -> reactions, in program order

    @property
    def boundary_inputs(self) -> tuple[OutputSpec, ...]:
        return tuple(o for o in self.outputs if o.reactor == BOUNDARY)

    @property
    def boundary_outputs(self) -> tuple[InputSpec, ...]:
        return tuple(i for i in self.inputs if i.reactor == BOUNDARY)

    def port_name(self, port: OutputSpec | InputSpec) -> str:
        """``reactor.port``, or the bare name of a boundary port."""
        return port.name if port.reactor == BOUNDARY else f"{self.reactors[port.reactor].name}.{port.name}"

    def reaction_name(self, index: int) -> str:
        """``reactor.reaction``."""
        node = self.reactions[index]
        return f"{self.reactors[node.reactor].name}.{node.name}"
