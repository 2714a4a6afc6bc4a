"""Reactors whose behaviour is data: what they declare and how they are joined is a description that shrinks and travels."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from reactor_rl import AbsentError, Input, LogicalAction, Output, Program, ProgramError, Reactor, Timer, reaction, shutdown, startup


class Boom(Exception):
    """What a machine raises when its description says so."""


@dataclass(frozen=True)
class MachinePort:
    """An array port (``dtype``), or an object port with or without rows."""

    dtype: str | None = None
    shape: tuple[int, ...] = ()
    rows: int | None = None

    def declare(self) -> Output:
        return Output(rows=self.rows) if self.dtype is None else Output(self.shape, self.dtype)

    def value(self, state: int) -> Any:
        """Some value that fits, made of a number."""
        if self.dtype is not None:
            count = int(np.prod(self.shape, dtype=int))
            return ((np.arange(count) + state) % 7).astype(self.dtype).reshape(self.shape)
        if self.rows is not None:
            return [thing(state + row) for row in range(self.rows)]
        return thing(state)


def thing(state: int) -> Any:
    """Some picklable value; now and then one that is too long for a cell."""
    return [
        None,
        state,
        {"state": state, "list": [state % 3], "long": bytes(state % 5 * 700)},
        ("t", float(state)),
        np.arange(state % 4),
    ][state % 5]


@dataclass(frozen=True)
class MachineReaction:
    triggers: tuple[str, ...]
    uses: tuple[str, ...]
    effects: tuple[str, ...]


@dataclass(frozen=True)
class MachineSpec:
    """One reactor (``size is None``) or a bank."""

    size: int | None
    inputs: int
    outputs: tuple[MachinePort, ...]
    timers: tuple[tuple[int, int | None], ...]
    actions: int
    reactions: tuple[MachineReaction, ...]
    seed: int
    stop_at: int | None = None
    fail_at: int | None = None


@dataclass(frozen=True)
class WireSpec:
    """``source`` and ``target`` are machines, -1 stands for the boundary; ``ways`` is the order in which to try to connect."""

    source: int
    output: int
    target: int
    input: int
    delay: int
    initial: bool
    way: int


@dataclass(frozen=True)
class ProgramSpec:
    machines: tuple[MachineSpec, ...]
    wires: tuple[WireSpec, ...]
    boundary: tuple[MachinePort, ...]
    set_at: tuple[tuple[int, int], ...]  # (tick, boundary input)

    def inputs(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for tick, index in self.set_at:
            if self.boundary:
                found.setdefault(tick, {})[f"b{index % len(self.boundary)}"] = self.boundary[index % len(self.boundary)].value(
                    tick * 5 + index
                )
        return found


def _plain(value: Any) -> bytes:
    """A value as bytes that say everything about it."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + value.tobytes()
    if isinstance(value, list):
        return b"[" + b",".join(_plain(item) for item in value) + b"]"
    return repr(value).encode()


class Machine(Reactor):
    """Mixes all that it can read into its state, and does what the state says."""

    def __init__(self, spec: MachineSpec, bank_index: int = 0) -> None:
        self.spec = spec
        self.state = spec.seed * 1000 + bank_index
        self.budget = 10

    def perform(self, number: int) -> None:
        spec = self.spec.reactions[number]
        read = [repr((number, self.tag)).encode()]
        for name in spec.triggers + spec.uses:
            if name in ("startup", "shutdown"):
                continue
            handle = getattr(self, name)
            present = handle.present
            read.append(repr(np.asarray(present).tolist()).encode())
            if name.startswith("t"):
                continue
            try:
                value = handle.value
            except AbsentError:
                read.append(b"absent")
                continue
            read.append(_plain(value))
            if isinstance(value, dict):
                value["mine"] = value.pop("list", None)  # nobody else may see this
        self.state = zlib.crc32(b"|".join(read), self.state) & 0xFFFFFF
        if self.spec.fail_at is not None and self.tag[0] >= self.spec.fail_at and "startup" not in spec.triggers:
            raise Boom(f"{self.spec.seed}[{self.bank_index}]")
        for place, name in enumerate(spec.effects):
            self._effect(name, self.state // (7 ** (place + 1)))
        if self.spec.stop_at is not None and self.tag[0] >= self.spec.stop_at:
            self.request_stop()

    def _effect(self, name: str, dice: int) -> None:
        handle = getattr(self, name)
        if name.startswith("a"):
            for turn in range(dice % 3):
                delay = (dice // 3 + turn * 2) % 4
                if self.budget and (delay or self.tag[1] < 3):
                    self.budget -= 1
                    handle.schedule(delay, thing(dice + turn))
            return
        port = self.spec.outputs[int(name[1:])]
        value = port.value(self.state)
        what = dice % 6
        if what in (1, 4, 5):
            handle.set(value)
            if isinstance(value, dict):
                value["list"].append("too late")
        if what == 2:
            if port.dtype is None:
                handle.set(value)
            else:
                handle.buffer[...] = value
        if what in (3, 4):
            try:
                rows = handle.rows
            except AttributeError:
                return
            other = port.value(self.state + 1)
            for row in range(len(rows)):
                if (dice >> (3 + row)) & 1:
                    rows[row].set(other[row])


def _class_of(spec: MachineSpec, index: int) -> type[Machine]:
    space: dict[str, Any] = {"startup": startup, "shutdown": shutdown}
    space.update({f"i{n}": Input() for n in range(spec.inputs)})
    space.update({f"o{n}": port.declare() for n, port in enumerate(spec.outputs)})
    space.update({f"t{n}": Timer(*timer) for n, timer in enumerate(spec.timers)})
    space.update({f"a{n}": LogicalAction() for n in range(spec.actions)})

    def method(number: int) -> Any:
        def react(self: Machine) -> None:
            self.perform(number)

        react.__name__ = f"r{number}"
        return react

    body = {name: value for name, value in space.items() if name not in ("startup", "shutdown")}
    for name, value in body.items():
        value.name = name
    for number, r in enumerate(spec.reactions):
        declare = reaction(*(space[n] for n in r.triggers), uses=[space[n] for n in r.uses], effects=[space[n] for n in r.effects])
        body[f"r{number}"] = declare(method(number))
    return type(f"Machine{index}", (Machine,), body)


def build(spec: ProgramSpec) -> Program:
    """The program that a description stands for. Wires that do not fit are left out."""
    program = Program("random")
    boundary = [program.input(f"b{n}", *((p.shape, p.dtype) if p.dtype else ()), rows=p.rows) for n, p in enumerate(spec.boundary)]
    made: list[Any] = []
    for index, machine in enumerate(spec.machines):
        cls = _class_of(machine, index)
        made.append(
            program.add(cls, machine, name=f"m{index}")
            if machine.size is None
            else program.bank(cls, machine.size, machine, name=f"m{index}")
        )
    outputs = 0
    for wire in spec.wires:
        ports = spec.boundary if wire.source < 0 else spec.machines[wire.source].outputs
        if not ports:
            continue
        port = ports[wire.output % len(ports)]
        if wire.target < 0:
            targets = [program.output(f"x{outputs}")]
            outputs += 1
        elif spec.machines[wire.target].inputs:
            name = f"i{wire.input % spec.machines[wire.target].inputs}"
            targets = [getattr(made[wire.target], name), getattr(made[wire.target], name)]
            if spec.machines[wire.target].size is not None:
                targets[1] = getattr(made[wire.target][wire.way % len(made[wire.target])], name)
        else:
            continue
        sources = [boundary[wire.output % len(ports)]] if wire.source < 0 else []
        if not sources:
            name = f"o{wire.output % len(ports)}"
            sources = [getattr(made[wire.source], name)]
            if spec.machines[wire.source].size is not None:
                sources.append(getattr(made[wire.source][wire.way % len(made[wire.source])], name))
        width = port.shape[0] if port.dtype and port.shape else port.rows
        options: list[tuple[Any, Any]] = []
        for source in sources:
            for target in targets:
                options.append((source, target))
                options.append((source, target.rows))
                if width:
                    options.append((source.rows, target))
                    options.append((source.rows[wire.way % width], target))
                    lo = wire.way % width
                    options.append((source.rows[lo:width], target))
                    if port.dtype:
                        options.append((source, target.rows[0:width]))
        first = wire.way % len(options)
        how: dict[str, Any] = {}
        if wire.delay:
            how["after"] = wire.delay
            if wire.initial:
                how["initial"] = np.ones((), port.dtype) if port.dtype else {"initial": [1]}
        for one, other in options[first:] + options[:first]:
            try:
                program.connect(one, other, **how)
                break
            except ProgramError:
                continue
    return program
