"""Composing programs: names, banks, connections, and the mistakes that are found before anything starts."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from reactor_rl import Input, Output, Program, ProgramError, Reactor, Timer, reaction


class Source(Reactor):
    each = Timer(period=1)
    vector = Output((4,), np.float32)
    scalar = Output((), np.int64)
    thing = Output()
    things = Output(rows=3)

    def __init__(self, bank_index: int = 0) -> None:
        self.index = bank_index

    @reaction(each, effects=(vector, scalar, thing, things))
    def write(self) -> None:
        self.vector.set(np.arange(4) + 10 * self.index)
        self.scalar.set(self.index)
        self.thing.set({"index": self.index})
        self.things.set(["x", "y", "z"])


class Sink(Reactor):
    inp = Input()
    seen = Output()

    @reaction(inp, effects=seen)
    def read(self) -> None:
        value = self.inp.value
        self.seen.set(value.tolist() if hasattr(value, "tolist") else value)


class Floats(Reactor):
    inp = Input((4,), np.float32)

    @reaction(inp)
    def read(self) -> None: ...


def seen_by(program: Program, *sinks: Any) -> list[Any]:
    for number, sink in enumerate(sinks):
        program.connect(
            sink.seen, program.output(f"s{number}") if not hasattr(sink, "members") else program.output(f"s{number}").rows
        )
    with program.start(executor="inline", debug=True) as run:
        run.tick()
        return [getattr(run, f"s{number}") for number in range(len(sinks))]


def test_names() -> None:
    program = Program("names")
    first, second = program.add(Source), program.add(Source)
    assert (first.name, second.name, program.add(Source, name="mine").name) == ("source", "source_2", "mine")
    assert [member.name for member in program.bank(Sink, 2)] == ["sink[0]", "sink[1]"]
    with pytest.raises(ProgramError, match="already has a reactor named 'mine'"):
        program.add(Sink, name="mine")
    with pytest.raises(AttributeError, match="has no port 'nothing'; its ports: scalar, thing, things, vector"):
        _ = first.nothing


@pytest.mark.parametrize("name", ["_x", "1x", "tick", "close", "time", "a b"])
def test_boundary_names(name: str) -> None:
    with pytest.raises(ProgramError):
        Program().output(name)
    with pytest.raises(ProgramError):
        Program().input(name)


def test_scatter_gather_broadcast_blocks() -> None:
    program = Program()
    source, sources = program.add(Source), program.bank(Source, 3, name="many")
    scattered, broadcast, one_to_one = program.bank(Sink, 4), program.bank(Sink, 2), program.bank(Sink, 3)
    gathered, block, row, blocks, objects, row_objects, some = (program.add(Sink) for _ in range(7))
    program.connect(source.vector.rows, scattered.inp)
    program.connect(source.scalar, broadcast.inp)
    program.connect(sources.scalar, one_to_one.inp)
    program.connect(sources.vector, gathered.inp.rows)
    program.connect(source.vector.rows[1:3], block.inp)
    program.connect(source.vector.rows[3], row.inp)
    program.connect(sources[1].vector, blocks.inp.rows[0:4])
    program.connect(sources[2].vector, blocks.inp.rows[4:8])
    program.connect(sources.thing, objects.inp.rows)
    program.connect(source.things, row_objects.inp)
    program.connect(source.things.rows[1:3], some.inp)
    seen = seen_by(program, scattered, broadcast, one_to_one, gathered, block, row, blocks, objects, row_objects, some)
    ten, twenty = [10, 11, 12, 13], [20, 21, 22, 23]
    assert seen == [
        [0, 1, 2, 3], [0, 0], [0, 1, 2], [[0, 1, 2, 3], ten, twenty], [1, 2], 3, ten + twenty,
        [{"index": 0}, {"index": 1}, {"index": 2}], ["x", "y", "z"], ["y", "z"],
    ]  # fmt: skip


def test_objects_with_rows_are_gathered_as_one_row_each() -> None:
    program = Program()
    sources, sink = program.bank(Source, 2), program.add(Sink)
    program.connect(sources.things, sink.inp.rows)
    assert seen_by(program, sink) == [[["x", "y", "z"]] * 2]


def test_delays_and_initial_values() -> None:
    program = Program()
    source = program.add(Source)
    program.connect(source.scalar, program.output("plain"), after=2)
    program.connect(source.scalar, program.output("begun"), after=2, initial=7)
    program.connect(source.thing, program.output("thing"), after=1, initial={"new": []})
    with program.start(executor="inline") as run:
        seen = []
        for _ in range(3):
            run.tick()
            seen.append((run.plain, run.begun, run.thing))
    assert seen == [(None, 7, {"new": []}), (None, 7, {"index": 0}), (0, 0, {"index": 0})]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda p, s, b, k: p.connect(s.scalar, k.inp, after=0), "after must be an integer >= 1"),
        (lambda p, s, b, k: p.connect(s.scalar, k.inp, after=True), "after must be an integer >= 1"),
        (lambda p, s, b, k: p.connect(s.scalar, k.inp, after=1.5), "after must be an integer >= 1"),
        (lambda p, s, b, k: p.connect(s.scalar, k.inp, initial=1), "`initial` is for delayed connections"),
        (lambda p, s, b, k: p.connect(k.inp, s.scalar), "is an input"),
        (lambda p, s, b, k: p.connect(s.scalar, s.vector), "is an output"),
        (lambda p, s, b, k: p.connect(s, k), "takes two ports"),
        (
            lambda p, s, b, k: p.connect(b.scalar, k.inp),
            r"3 sources for 1 inputs; to gather in index order connect it to sink.inp.rows",
        ),
        (lambda p, s, b, k: p.connect(s.scalar.rows[0], k.inp), "has no rows"),
        (lambda p, s, b, k: p.connect(s.thing.rows[0], k.inp), "rows=n for an object port"),
        (lambda p, s, b, k: p.connect(s.vector.rows[4], k.inp), "has 4 rows"),
        (lambda p, s, b, k: p.connect(s.vector.rows[3:5], k.inp), "has 4 rows"),
        (lambda p, s, b, k: s.vector.rows[2:1], "written rows"),
        (lambda p, s, b, k: s.vector.rows[-1], "counted from 0"),
        (lambda p, s, b, k: s.vector.rows[0].rows, "already selects rows"),
        (lambda p, s, b, k: p.connect(Program().add(Source).scalar, k.inp), "belongs to another program"),
        (lambda p, s, b, k: p.bank(Sink, 0), "at least one member"),
        (lambda p, s, b, k: p.add(object), "expected a subclass of Reactor"),
    ],
)
def test_mistakes(wrong: Any, says: str) -> None:
    program = Program()
    with pytest.raises(ProgramError, match=says):
        wrong(program, program.add(Source), program.bank(Source, 3), program.add(Sink))


def test_an_input_has_one_source() -> None:
    program = Program()
    source, sink = program.bank(Source, 2), program.add(Sink)
    program.connect(source[0].scalar, sink.inp)
    with pytest.raises(ProgramError, match="already has a source; an input has one"):
        program.connect(source[1].scalar, sink.inp)
    other = program.add(Sink)
    program.connect(source[0].scalar, other.inp.rows[0])
    with pytest.raises(ProgramError, match="that row already has a source"):
        program.connect(source[1].scalar, other.inp.rows[0])
    with pytest.raises(ProgramError, match="all rows of one input have the same delay"):
        program.connect(source[1].scalar, other.inp.rows[1], after=1)
    late = program.add(Sink)
    program.connect(source[0].scalar, late.inp.rows[0], after=1, initial=1)
    for initial in ({"initial": 5}, {}):
        with pytest.raises(ProgramError, match="all rows of one input have the same initial value, or none has one"):
            program.connect(source[1].scalar, late.inp.rows[1], after=1, **initial)
    program.connect(source[1].scalar, late.inp.rows[1], after=1, initial=1)


@pytest.mark.parametrize(
    ("join", "says"),
    [
        (lambda p, b, k, f: p.connect(b[0].scalar, k.inp.rows[1]), "row 0 has no source"),
        (lambda p, b, k, f: p.connect(b[0].scalar, f.inp), r"declared as float32\(4,\), but its source provides int64\(\)"),
        (lambda p, b, k, f: p.connect(b[0].thing, f.inp), "provides objects"),
        (lambda p, b, k, f: (p.connect(b[0].scalar, k.inp.rows[0]), p.connect(b[1].vector, k.inp.rows[1])), "different dtypes"),
        (lambda p, b, k, f: p.connect(b[0].vector, k.inp.rows[0:3]), "cannot take 3 rows from an output of shape"),
        (lambda p, b, k, f: p.connect(b[0].things, k.inp.rows[0:2]), "cannot take 2 rows from an output of 3 rows"),
        (lambda p, b, k, f: p.connect(b[0].scalar, k.inp, after=1, initial="text"), "initial value does not fit"),
        (lambda p, b, k, f: p.connect(b[0].vector, k.inp, after=1, initial=np.zeros(3)), "initial value does not fit"),
    ],
)
def test_mistakes_that_the_whole_program_shows(join: Any, says: str) -> None:
    program = Program()
    join(program, program.bank(Source, 2), program.add(Sink), program.add(Floats))
    with pytest.raises(ProgramError, match=says):
        program.topology()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"executor": "gpu"}, "executor must be 'auto', 'inline', 'threads', 'processes', 'federated' or 'ray'"),
        ({"workers": 0}, "workers must be an integer >= 1"),
        ({"workers": 1.5}, "workers must be an integer >= 1"),
        ({"fingerprint": "some"}, "fingerprint must be 'boundary', 'all' or 'off'"),
        ({"costs": {"zebra": 1.0}, "executor": "inline"}, "zebra"),
        ({"placement": {"source[0]": 0, "source[1]": 1}}, "name the executor"),
        ({"placement": {"source[0]": 0, "source[1]": 2}, "executor": "threads", "workers": 2}, "must be a worker from 0 to 1"),
        ({"placement": {"source[0]": 0}, "executor": "threads"}, r"missing: source\[1\]"),
        ({"placement": {"zebra": 0}, "executor": "inline"}, "zebra"),
    ],
)
def test_mistakes_in_start(how: Any, says: str) -> None:
    program = Program()
    program.bank(Source, 2)
    with pytest.raises(ProgramError, match=says):
        program.start(**how)


class Where(Reactor):
    each = Timer(period=1)
    thread = Output((), np.int64)

    @reaction(each, effects=thread)
    def say(self) -> None:
        self.thread.set(threading.get_ident())


@pytest.mark.parametrize("caller_works", [True, False])
@pytest.mark.parametrize("executor", ["threads", "inline"])
def test_reactors_live_where_they_are_placed(executor: Any, caller_works: bool) -> None:
    program = Program()
    program.connect(program.bank(Where, 5).thread, program.output("threads").rows)
    placement = {f"where[{i}]": worker for i, worker in enumerate((2, 0, 2, 1, 0))}
    with program.start(executor=executor, workers=3, caller_works=caller_works, placement=placement) as run:
        run.tick()
        a, b, c, d, e = run.threads.tolist()
        assert a == c and b == e
        assert len({a, b, d}) == run.workers - (not caller_works and executor == "threads") == (1 if executor == "inline" else 3)
        assert (threading.get_ident() == b) is (caller_works or executor == "inline")


def test_unconnected_inputs_are_absent() -> None:
    program = Program()
    program.add(Sink)
    program.output("x")
    with program.start(executor="inline") as run:
        run.tick()
        assert run.x is None
