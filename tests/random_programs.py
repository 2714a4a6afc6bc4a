"""Strategies: random programs, and where their reactors land."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, settings
from machines import Boom, MachinePort, MachineReaction, MachineSpec, ProgramSpec, WireSpec, build

from reactor_rl import ProgramError, Run
from reactor_rl.federation.in_process import InProcess
from reactor_rl.interpret import ProgramRecord, interpret
from reactor_rl.settings import NamedExecutor

TICKS = 6

PORTS = st.one_of(
    st.builds(MachinePort, dtype=st.none(), rows=st.sampled_from([None, None, 2, 3])),
    st.builds(
        MachinePort,
        dtype=st.sampled_from(["float32", "float64", "int64", "uint8", "bool", "complex64"]),
        shape=st.sampled_from([(), (2,), (3,), (2, 3), (3, 0)]),
    ),
)


@st.composite
def machines(draw: Any) -> MachineSpec:
    inputs, actions = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    outputs = tuple(draw(st.lists(PORTS, max_size=2)))
    timers = tuple(
        draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, 1, 1, 2, 3])), min_size=0 if inputs else 1, max_size=2))
    )
    reads = [f"i{n}" for n in range(inputs)] + [f"t{n}" for n in range(len(timers))] + [f"a{n}" for n in range(actions)]
    writes = [f"o{n}" for n in range(len(outputs))] + [f"a{n}" for n in range(actions)]
    reactions = []
    for _ in range(draw(st.integers(1, 3))):
        triggers = draw(st.lists(st.sampled_from([*reads, *reads, "startup", "shutdown"]), min_size=1, max_size=3, unique=True))
        uses = draw(st.lists(st.sampled_from(reads), max_size=2, unique=True)) if reads else []
        effects = draw(st.lists(st.sampled_from(writes), max_size=3, unique=True)) if writes else []
        reactions.append(MachineReaction(tuple(triggers), tuple(u for u in uses if u not in triggers), tuple(effects)))
    return MachineSpec(
        size=draw(st.sampled_from([None, None, 2, 3])),
        inputs=inputs,
        outputs=outputs,
        timers=timers,
        actions=actions,
        reactions=tuple(reactions),
        seed=draw(st.integers(0, 50)),
        stop_at=draw(st.sampled_from([None] * 8 + [1, 3])),
        fail_at=draw(st.sampled_from([None] * 12 + [0, 2])),
    )


@st.composite
def programs(draw: Any) -> ProgramSpec:
    found = draw(st.lists(machines(), min_size=1, max_size=5))
    boundary = tuple(draw(st.lists(PORTS, max_size=2)))
    wires = []
    for target, machine in enumerate(found):
        for index in range(machine.inputs):
            for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
                source = draw(st.integers(-1, len(found) - 1))
                # Forward only, so that there is never a loop without delay.
                delay = draw(st.integers(0 if source < target else 1, 3))
                wires.append(
                    WireSpec(source, draw(st.integers(0, 1)), target, index, delay, draw(st.booleans()), draw(st.integers(0, 30)))
                )
    anywhere = st.builds(
        WireSpec,
        source=st.integers(-1, len(found) - 1),
        output=st.integers(0, 1),
        target=st.just(-1),
        input=st.just(0),
        delay=st.sampled_from([0, 0, 1, 2]),
        initial=st.booleans(),
        way=st.integers(0, 30),
    )
    wires += draw(st.lists(anywhere, max_size=3))
    sets = draw(st.lists(st.tuples(st.integers(0, TICKS - 1), st.integers(0, 1)), max_size=4)) if boundary else []
    return ProgramSpec(tuple(found), tuple(wires), boundary, tuple(sets))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(type(one) is type(other) and one == other)


@st.composite
def placements(draw: Any, spec: ProgramSpec, workers: int) -> dict[str, Any]:
    """What makes reactors land on any worker: nothing, costs at random, or a placement at random."""
    names = [node.name for node in build(spec).topology().reactors]
    match draw(st.sampled_from(["as it comes", "costs", "placement"])):
        case "costs":
            return {"costs": {name: draw(st.sampled_from([0.0, 1e-6, 1e-5, 1e-3])) for name in names}}
        case "placement":
            return {"placement": {name: draw(st.integers(0, workers - 1)) for name in names}}
    return {}


@st.composite
def federations(draw: Any, spec: ProgramSpec, inside: NamedExecutor = "threads") -> dict[str, Any]:
    """How to start a program on several nodes in this process, with reactors on any of them, and there on any worker."""
    names = [node.name for node in build(spec).topology().reactors]
    nodes, workers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    how: dict[str, Any] = {"executor": InProcess(nodes, workers, inside), "caller_works": draw(st.booleans())}
    if draw(st.booleans()) or draw(st.booleans()):
        how["on"] = {name: draw(st.integers(0, nodes - 1)) for name in names}
    if draw(st.booleans()):
        how["placement"] = {name: draw(st.integers(0, workers - 1)) for name in names}
    return how


def told(spec: ProgramSpec) -> ProgramRecord:
    try:
        program = build(spec)
        program.topology()
    except ProgramError:
        assume(False)
    return interpret(program, TICKS, spec.inputs())


def advance(
    run: Run, spec: ProgramSpec, record: ProgramRecord, ticks: range | None = None, skipping: bool = False, fed: bool = False
) -> None:
    """Run a program and compare what is seen with what the interpreter has recorded.

    Args:
        run: The run, before the first of the ticks.
        spec: What it is a run of.
        record: What the interpreter has seen.
        ticks: Which ticks of the record; ``None``: all.
        skipping: Whether times at which nothing happens may be skipped.
        fed: Whether the inputs of the first one are set already.
    """
    ticks, inputs = range(len(record.boundary)) if ticks is None else ticks, spec.inputs()
    for tick in ticks:
        if not (fed and tick == ticks.start):
            run.set(**inputs.get(tick, {}))
        step = partial(run.run, 1) if skipping else run.tick
        if record.error is not None and tick == len(record.boundary) - 1:
            where, tag, original = record.error
            with pytest.raises(Boom) as caught:
                step()
            assert str(caught.value) == str(original)
            assert any(f"{where} at tag {tag}" in note for note in caught.value.__notes__), (caught.value.__notes__, where, tag)
            assert run.stopped
            return
        step()
        expected = record.boundary[tick]
        seen = {name: getattr(run, name) for name in expected}
        assert same(seen, expected), (tick, seen, expected)
    over = ticks.stop == len(record.boundary)
    assert not (over and record.error is not None)
    assert run.stopped == (over and record.stopped)


def ended(run: Run) -> None:
    with contextlib.suppress(Boom):  # a shutdown reaction may raise too
        run.close()


def check(spec: ProgramSpec, record: ProgramRecord, trace: Path | None = None, skipping: bool = False, **how: Any) -> None:
    """Run a program to its end, and compare the fingerprint of all its ports too."""
    run = build(spec).start(fingerprint="all", **how)
    try:
        with contextlib.nullcontext() if trace is None else run.trace(str(trace)):
            advance(run, spec, record, skipping=skipping)
            assert run.fingerprint() == record.fingerprint
    finally:
        ended(run)


QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=False)
