"""Random programs, saved at any tick and restored elsewhere: they go on as the interpreter says, wherever they go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings
from machines import ProgramSpec, build
from random_programs import QUIET, advance, ended, federations, placements, programs, told

from reactor_rl import (
    Input,
    LogicalAction,
    Output,
    Program,
    Reactor,
    RunClosedError,
    RunError,
    Timer,
    reaction,
    shutdown,
    startup,
)  # fmt: skip
from reactor_rl.federation.in_process import InProcess
from reactor_rl.fingerprint import canonical, combine, new_hash
from reactor_rl.interpret import ProgramRecord
from reactor_rl.pickling import Pickled, decode, dumps
from reactor_rl.runtime.run import Run, Snapshot

Way = Mapping[str, Any]


@st.composite
def ways(draw: Any, spec: ProgramSpec, executors: tuple[str, ...]) -> Way:
    executor, workers = draw(st.sampled_from(executors)), draw(st.integers(1, 4))
    if executor == "inline":
        return {"executor": "inline"}
    if executor == "federated":
        return draw(federations(spec))  # type: ignore[no-any-return]
    return {"executor": executor, "workers": workers, "caller_works": draw(st.booleans()), **draw(placements(spec, workers))}


def since(spec: ProgramSpec, record: ProgramRecord, time: int) -> str:
    """The fingerprint of all ports from a time on, of what the interpreter recorded."""
    topology = build(spec).topology()
    digests = {}
    for node in topology.outputs:
        name, into = topology.port_name(node), new_hash()
        for tag, rows, content in record.ports[name]:
            if tag[0] >= time:
                canonical((*tag, rows or []), into)
                for part in [content] if rows is None and (node.dtype is not None or node.rows is None) else content:
                    canonical(part, into)
        digests[name] = into.digest()
    return combine(digests)


def started(spec: ProgramSpec, way: Way, debug: bool = False) -> Run:
    return build(spec).start(fingerprint="all", debug=debug, **way)


def plain(value: Any) -> Any:
    """A part of a snapshot with every pickle in it loaded: equal values may have different pickles."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return decode(Pickled(value) if isinstance(value, bytes) and value.startswith(b"\x80") else value)


def content(snapshot: Snapshot) -> str:
    into = new_hash()
    canonical(plain(vars(snapshot.part)), into)
    return str(into.hexdigest())


def check(data: Any, spec: ProgramSpec, executors: tuple[str, ...], restores: int) -> None:
    record = told(spec)
    assume(record.boundary)
    total = len(record.boundary)
    at, fed = data.draw(st.integers(0, total - 1)), data.draw(st.booleans())
    skipping, debug = data.draw(st.booleans()), data.draw(st.booleans())

    def saved(way: Way, debug: bool) -> Snapshot:
        run = started(spec, way, debug)
        try:
            advance(run, spec, record, range(at), skipping)
            if fed:
                run.set(**spec.inputs().get(at, {}))
            snapshot = run.snapshot()
            advance(run, spec, record, range(at, total), skipping, fed)  # taking it has changed nothing
            assert run.fingerprint() == record.fingerprint
        finally:
            ended(run)
        return snapshot

    snapshot = saved(data.draw(ways(spec, executors)), debug)
    if not debug:  # which poisons slots
        assert content(saved(data.draw(ways(spec, ("inline", "threads"))), False)) == content(snapshot)
    for _ in range(restores):
        run = started(spec, data.draw(ways(spec, executors)), data.draw(st.booleans()))
        try:
            advance(run, spec, record, range(data.draw(st.integers(0, total - 1))), data.draw(st.booleans()))
            run.set(**spec.inputs().get(data.draw(st.integers(0, total - 1)), {}))  # and it is for nothing
            run.restore(snapshot)
            assert run.time == at
            advance(run, spec, record, range(at, total), data.draw(st.booleans()), fed)
            assert run.fingerprint() == since(spec, record, at)
        finally:
            ended(run)


@pytest.mark.slow
@settings(QUIET, max_examples=40)
@given(st.data(), programs())
def test_a_restored_program_goes_on_as_it_would_have(data: Any, spec: ProgramSpec) -> None:
    check(data, spec, ("inline", "threads", "federated"), restores=2)


@settings(QUIET, max_examples=2)
@given(st.data(), programs())
def test_in_processes_too(data: Any, spec: ProgramSpec) -> None:
    check(data, spec, ("processes",), restores=1)


# ---------------------------------------------------------------------- cases by hand


class Starter(Reactor):
    """Schedules an event at startup, and requests a stop there if it is told to."""

    act, beat = LogicalAction(), Timer(period=100)
    seen = Output()

    def __init__(self, stops: bool = False) -> None:
        self.count, self.stops = 0, stops

    @reaction(startup, effects=act)
    def begin(self) -> None:
        self.act.schedule(0, "started")
        if self.stops:
            self.request_stop()

    @reaction(act, effects=seen)
    def on(self) -> None:
        self.count += 1
        self.seen.set((self.count, self.act.value, self.tag))


def starter(stops: bool = False) -> Program:
    program = Program("starter")
    program.connect(program.add(Starter, stops).seen, program.output("seen"))
    return program


def ticks(run: Run, count: int) -> list[Any]:
    seen = []
    for _ in range(count):
        run.tick()
        seen.append(run.seen)
    return seen


def test_events_of_the_start_are_there_before_tick_0_and_gone_after_it() -> None:
    with starter().start(executor="inline") as run:
        before, first = run.snapshot(), ticks(run, 1)
        after = run.snapshot()
    assert first == [(1, "started", (0, 1))]
    with starter().start(executor="inline") as run:
        run.restore(after)  # its own startup event was still to come
        assert ticks(run, 2) == [None, None]
        run.restore(before)
        assert ticks(run, 2) == [*first, None]


def test_a_stop_that_was_requested_at_the_start_is_forgotten_where_nobody_requested_it() -> None:
    with starter().start(executor="inline") as run:
        snapshot = run.snapshot()
    with starter(stops=True).start(executor="inline") as run:
        run.restore(snapshot)
        assert run.run(3) == 3 and not run.stopped


def test_a_stop_that_was_requested_at_the_start_is_saved() -> None:
    with starter(stops=True).start(executor="inline") as run:
        snapshot = run.snapshot()
    with starter().start(executor="inline") as run:
        run.restore(snapshot)
        run.tick()
        assert run.stopped
        with pytest.raises(RunClosedError, match="cannot take a snapshot: the run is over because the program requested a stop"):
            run.snapshot()
        with pytest.raises(RunClosedError, match="cannot restore"):
            run.restore(snapshot)


class Ends(Reactor):
    """Writes down the tag at which it ends."""

    beat, act = Timer(period=4), LogicalAction()

    def __init__(self, path: str, bank_index: int) -> None:
        self.path = f"{path}/{bank_index}"

    @reaction(beat, effects=act)
    def again(self) -> None:
        self.act.schedule(0)

    @reaction(act)
    def nothing(self) -> None:
        pass

    @reaction(shutdown)
    def end(self) -> None:
        Path(self.path).write_text(repr(self.tag))


@pytest.mark.parametrize(
    "way", [{"executor": "inline"}, {"executor": "threads", "workers": 2}, {"executor": "federated", "workers": 1}], ids=str
)
@pytest.mark.parametrize(("count", "tag"), [(0, (0, 1)), (3, (2, 1)), (5, (4, 2))])
@pytest.mark.parametrize("how", ["run", "tick", "restored"])
def test_shutdown_is_one_microstep_after_the_last_tick(tmp_path: Path, way: Any, count: int, tag: Any, how: str) -> None:
    def program() -> Program:
        made = Program("ends")
        made.bank(Ends, 2, str(tmp_path))
        return made

    with program().start(**way) as run:
        if how == "run":
            run.run(count)
        else:
            for _ in range(count):
                run.tick()
        snapshot = run.snapshot()
    if how == "restored":
        with program().start(**way) as run:
            run.run(7)
            run.restore(snapshot)
    assert [(tmp_path / str(index)).read_text() for index in range(2)] == [repr(tag)] * 2


class Beats(Reactor):
    """Says something at every fourth tick."""

    beat, said = Timer(period=4), Output()

    @reaction(beat, effects=said)
    def say(self) -> None:
        self.said.set(self.tag)


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "threads", "workers": 2}], ids=str)
def test_it_does_not_show_which_ticks_were_left_out(way: Any) -> None:
    program = Program("beats")
    program.bank(Beats, 2)
    with program.start(**way) as run:
        run.run(3)
        left_out = content(run.snapshot())
    with program.start(**way) as run:
        for _ in range(3):
            run.tick()
        assert content(run.snapshot()) == left_out


class Repeats(Reactor):
    """Reads its own output some ticks later."""

    beat, past, said = Timer(period=1), Input(), Output((2,), np.float32)

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(beat, uses=past, effects=said)
    def say(self) -> None:
        self.said.set(self.past.value + self.bank_index + 1 if self.past.present else np.full(2, self.bank_index, np.float32))


class Gathers(Reactor):
    together, total = Input(), Output()

    @reaction(together, effects=total)
    def add(self) -> None:
        self.total.set(self.together.value.tolist())


@pytest.mark.parametrize("count", range(5))
def test_slots_are_saved_by_time_wherever_they_lie(count: int) -> None:
    """A buffer of what is gathered has slots for the longest delay; on a node without the reader each output has its own."""
    program = Program("repeats")
    repeats = program.bank(Repeats, 3)
    for index in range(3):
        program.connect(repeats[index].said, repeats[index].past, after=index + 1)
    sums = program.add(Gathers)
    program.connect(repeats.said, sums.together.rows)
    program.connect(sums.total, program.output("total"))
    apart = {"executor": InProcess(2, 1, "threads"), "on": {**{f"repeats[{index}]": 0 for index in range(3)}, "gathers": 1}}
    ways: tuple[Any, Any] = {"executor": "inline"}, apart
    snapshots, since = [], []
    for way in ways:
        with program.start(**way) as run:
            run.run(count)
            snapshots.append(run.snapshot())
            since.append(tell_totals(run))
    assert content(snapshots[0]) == content(snapshots[1])
    assert since[0] == since[1]
    for way in ways:
        for snapshot in snapshots:
            with program.start(**way) as run:
                run.run(7 - count)
                run.restore(snapshot)
                assert tell_totals(run) == since[0]


def tell_totals(run: Run) -> list[Any]:
    totals = []
    for _ in range(5):
        run.tick()
        totals.append(run.values("total"))
    return totals


class Refuses(Reactor):
    beat = Timer(period=1)

    def __init__(self, bank_index: int) -> None:
        self.started = False

    @reaction(startup)
    def begin(self) -> None:
        self.started = True

    @reaction(beat)
    def go(self) -> None:
        pass

    def __getstate__(self) -> Any:
        if self.started and self.bank_index == 1:
            raise RunError("its emulator cannot be copied")
        return vars(self)

    def __setstate__(self, state: Any) -> None:
        if state.get("broken"):
            raise ValueError("this is no state")
        vars(self).update(state)


@pytest.mark.parametrize(
    "way", [{"executor": "inline"}, {"executor": "processes", "workers": 2}, {"executor": "federated", "workers": 1}], ids=str
)
def test_a_reactor_may_refuse(way: Any) -> None:
    program = Program("refuses")
    program.bank(Refuses, 2, name="games")
    with program.start(**way) as run:
        run.tick()
        with pytest.raises(RunError, match=r"cannot take a snapshot of reactor 'games\[1\]': its emulator cannot be copied"):
            run.snapshot()
        run.tick()  # nothing else has come of it


@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        (threading.Lock, TypeError, r"the state of reactor 'holds' cannot be pickled \(.*lock.*\); give Holds the methods __get"),
        (lambda: interrupt, KeyboardInterrupt, "in the middle"),
    ],
)
def test_a_state_that_cannot_be_saved(state: Callable[[], Any], error: type[BaseException], says: str) -> None:
    program = Program("holds")
    program.add(Holds, state, name="holds")
    with program.start(executor="inline") as run:
        with pytest.raises(error, match=says):
            run.snapshot()


def interrupt() -> None:
    raise KeyboardInterrupt("in the middle")


class Holds(Reactor):
    """Holds something that is not to be pickled, or is interrupted while it is."""

    def __init__(self, state: Callable[[], Any]) -> None:
        self.make, self.state = state, None

    @reaction(startup)
    def begin(self) -> None:
        self.state = self.make()

    def __getstate__(self) -> Any:
        if self.state is interrupt:
            interrupt()
        return vars(self)


def test_what_was_set_before_a_snapshot_is_restored_is_gone() -> None:
    program = Program("echo")
    echo = program.add(Echoes)
    program.connect(program.input("given"), echo.given)
    program.connect(echo.said, program.output("said"))
    with program.start(executor="inline") as run:
        run.tick()
        snapshot = run.snapshot()
        run.set(given=1)
        run.restore(snapshot)
        run.tick()
        assert run.said is None
        run.set(given=2)
        snapshot = run.snapshot()  # what was set before it is part of it
        run.restore(snapshot)
        run.tick()
        assert run.said == 2


class Echoes(Reactor):
    given = Input()
    said = Output()

    @reaction(given, effects=said)
    def say(self) -> None:
        self.said.set(self.given.value)


def test_a_run_that_could_not_be_restored_is_over() -> None:
    program = Program("refuses")
    program.add(Refuses, 0, name="game")
    with program.start(executor="inline") as run:
        snapshot = run.snapshot()
        snapshot.part.reactors[0] = dumps({"broken": True})
        with pytest.raises(ValueError, match="this is no state"):
            run.restore(snapshot)
        with pytest.raises(RunClosedError, match="ValueError"):
            run.tick()


def test_of_another_program() -> None:
    with starter().start(executor="inline") as run:
        snapshot = run.snapshot()
    program = Program("starter")
    program.add(Refuses, 0)
    with program.start(executor="inline") as run, pytest.raises(RunError, match="does not fit program 'starter'"):
        run.restore(snapshot)
