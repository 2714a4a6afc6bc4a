"""Random programs for simulated runs, by number: the same ones with every version of hypothesis, and quickly made.

They are of the kinds that :mod:`random_programs` draws. Reactors land on any worker, because where the cheapest places are taken
first, few workers ever wait for each other in the middle of a tick.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from machines import Boom, MachinePort, MachineReaction, MachineSpec, ProgramSpec, WireSpec, build
from random_programs import TICKS

from reactor_rl import ProgramError
from reactor_rl import graph as graphs
from reactor_rl.interpret import ProgramRecord, interpret
from reactor_rl.runtime.plan import Plan, WorkerOptions, lay_out
from reactor_rl.schedule import compile_schedule

Fingerprint = Literal["boundary", "all", "off"]


def _port(dice: random.Random) -> MachinePort:
    if dice.random() < 0.5:
        return MachinePort(None, rows=dice.choice([None, None, 2, 3]))
    dtype = dice.choice(["float32", "float64", "int64", "uint8", "bool", "complex64"])
    return MachinePort(dtype, dice.choice([(), (2,), (3,), (2, 3), (3, 0)]))


def _some(dice: random.Random, of: list[str], least: int, most: int) -> list[str]:
    kinds = sorted(set(of))
    wanted = min(dice.randint(least, most), len(kinds))
    found: list[str] = []
    while len(found) < wanted:
        one = dice.choice(of)
        if one not in found:
            found.append(one)
    return found


def _machine(dice: random.Random) -> MachineSpec:
    inputs, actions = dice.randint(0, 3), dice.choice([0, 0, 1, 2])
    outputs = tuple(_port(dice) for _ in range(dice.randint(0, 2)))
    timers = tuple((dice.randint(0, 2), dice.choice([None, 1, 1, 2, 3])) for _ in range(dice.randint(0 if inputs else 1, 2)))
    reads = [f"i{n}" for n in range(inputs)] + [f"t{n}" for n in range(len(timers))] + [f"a{n}" for n in range(actions)]
    writes = [f"o{n}" for n in range(len(outputs))] + [f"a{n}" for n in range(actions)]
    reactions = []
    for _ in range(dice.randint(1, 3)):
        triggers = _some(dice, [*reads, *reads, "startup", "shutdown"], 1, 3)
        uses, effects = _some(dice, reads, 0, 2), _some(dice, writes, 0, 3)
        reactions.append(MachineReaction(tuple(triggers), tuple(one for one in uses if one not in triggers), tuple(effects)))
    return MachineSpec(
        size=dice.choice([None, None, 2, 3]), inputs=inputs, outputs=outputs, timers=timers, actions=actions,
        reactions=tuple(reactions), seed=dice.randint(0, 50), stop_at=dice.choice([None] * 12 + [1, 3]),
        fail_at=dice.choice([None] * 20 + [0, 2]),
    )  # fmt: skip


def _program(dice: random.Random) -> ProgramSpec:
    found = [_machine(dice) for _ in range(dice.randint(2, 5))]
    boundary = tuple(_port(dice) for _ in range(dice.randint(0, 2)))
    wires = []
    for target, machine in enumerate(found):
        for index in range(machine.inputs):
            for _ in range(dice.choice([1, 1, 1, 2])):
                source = dice.randint(-1, len(found) - 1)
                delay = dice.choice([0, 0, 0, 1, 2, 3] if source < target else [1, 1, 2, 3])  # never a loop without delay
                wires.append(
                    WireSpec(source, dice.randint(0, 1), target, index, delay, dice.random() < 0.5, dice.randint(0, 30))
                )  # fmt: skip
    wires += [
        WireSpec(dice.randint(-1, len(found) - 1), dice.randint(0, 1), -1, 0, dice.choice([0, 0, 1, 2]), dice.random() < 0.5,
                 dice.randint(0, 30))
        for _ in range(dice.randint(1, 3))
    ]  # fmt: skip
    sets = tuple((dice.randint(0, TICKS - 1), dice.randint(0, 1)) for _ in range(dice.randint(0, 4) if boundary else 0))
    return ProgramSpec(tuple(found), tuple(wires), boundary, sets)


@dataclass(frozen=True)
class Known:
    """A program, and what the interpreter and a run without helpers say of it."""

    spec: ProgramSpec
    topology: Any
    pickled: tuple[Any, ...]
    record: ProgramRecord
    fingerprint: str
    """Of its boundary, after all ticks."""


@lru_cache(256)
def known(number: int) -> Known:
    """Make the program of a number."""
    dice = random.Random(number)
    while True:
        spec = _program(dice)
        try:
            program = build(spec)
            topology = program.topology()
            record = interpret(program, TICKS, spec.inputs())
        except ProgramError:
            continue
        return Known(spec, topology, program.pickled_reactors(by_reference=False), record, _fingerprint(spec, record))


def _fingerprint(spec: ProgramSpec, record: ProgramRecord) -> str:
    if record.error is not None:
        return ""
    inputs, found = spec.inputs(), ""
    with contextlib.suppress(Boom), build(spec).start(executor="inline") as run:  # shutdown reactions may raise
        for tick in range(len(record.boundary)):
            run.set(**inputs.get(tick, {}))
            run.tick()
        found = run.fingerprint()
    return found


@lru_cache(1024)
def plan_of(number: int, workers: int, caller_works: bool, draw: int, options: tuple[bool, Fingerprint]) -> Plan:
    """Compile a program.

    Args:
        number: Which one.
        workers, caller_works: For whom.
        draw: Where its reactors land: 0: as it comes; any other number: at random.
        options: Whether to debug, and what is hashed.
    """
    topology = known(number).topology
    dice = random.Random(draw)
    placement = {reactor.name: dice.randrange(workers) for reactor in topology.reactors} if draw else None
    schedule = compile_schedule(topology, graphs.build(topology), workers, caller_works=caller_works, placement=placement)
    return Plan(topology, schedule, lay_out(topology, schedule), WorkerOptions(*options))
