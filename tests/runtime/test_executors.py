"""One contract, every executor: the same tests for the caller's thread, threads and processes."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import (
    AbsentError,
    Input,
    LogicalAction,
    Output,
    Program,
    ProgramError,
    Reactor,
    RunClosedError,
    RunError,
    Timer,
    UndeclaredPortError,
    reaction,
    shutdown,
    startup,
)

WAYS = [("inline", 1), ("threads", 2), ("threads", 4), ("processes", 2), ("processes", 3)]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{way[1]}")
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"executor": request.param[0], "workers": request.param[1], "debug": True}


class Source(Reactor):
    """Counts; writes only at even ticks if told so."""

    each = Timer(period=1)
    out = Output((), np.int64)

    def __init__(self, even: bool = False) -> None:
        self.even = even

    @reaction(each, effects=out)
    def count(self) -> None:
        if not self.even or self.tag[0] % 2 == 0:
            self.out.set(self.tag[0])


class Call(Reactor):
    """Calls a function of two numbers with what arrives; the result goes out as an object."""

    each = Timer(period=1)
    inp = Input()
    stranger = Input()
    out = Output()

    def __init__(self, function: Any = None, bank_index: int = 0) -> None:
        self.function = function

    @reaction(each, uses=inp, effects=out)
    def call(self) -> None:
        result = self.function(self) if self.function else self.inp.value
        if result is not None:
            self.out.set(result)


def through(function: Any, source: type[Reactor] = Source, n: int = 1, **params: Any) -> Program:
    """A source, a bank of calls on other workers, and what they return."""
    program = Program("through")
    one = program.add(source, **params)
    calls = program.bank(Call, n, function, name="call")
    program.connect(one.out, calls.inp)
    program.connect(calls.out, program.output("result").rows)
    return program


def test_presence(way: dict[str, Any]) -> None:
    with through(lambda self: (self.inp.present, self.inp.value if self.inp.present else None), even=True).start(**way) as run:
        seen = []
        for _ in range(4):
            run.tick()
            ((present, value),) = run.result
            seen.append((bool(present), value if value is None else int(value)))
    assert seen == [(True, 0), (False, None), (True, 2), (False, None)]


def test_absent_values_raise(way: dict[str, Any]) -> None:
    with through(None, even=True).start(**way) as run:
        run.tick()
        with pytest.raises(AbsentError, match=r"call\[0\].inp is absent at tag \(1, 0\)"):
            run.tick()
        with pytest.raises(RunClosedError):
            run.tick()


@pytest.mark.parametrize(
    "touch",
    [
        lambda self: self.stranger.value,
        lambda self: self.stranger.present,
        lambda self: self.other.set(1),
        lambda self: self.other.buffer,
        lambda self: self.act.schedule(1),
        lambda self: self.act.value,
    ],
)
def test_undeclared_ports_raise(touch: Any) -> None:
    class Nosy(Reactor):
        each = Timer(period=1)
        late = Timer(offset=100)
        stranger = Input()
        other = Output((), np.float32)
        act = LogicalAction()

        @reaction(each)
        def look(self) -> None:
            touch(self)

        @reaction(late, act, uses=stranger, effects=(other, act))
        def declares(self) -> None: ...

    program = Program()
    program.add(Nosy)
    with program.start(executor="inline") as run:
        with pytest.raises(UndeclaredPortError, match=r"nosy.look touches nosy\.\w+, which it does not declare"):
            run.tick()


@pytest.mark.parametrize("role", ["trigger", "effect"])
def test_actions_are_declared_by_role(role: str) -> None:
    class Echo(Reactor):
        each = Timer(period=1)
        act = LogicalAction()

        @reaction(each, effects=act)
        def send(self) -> None:
            self.act.schedule(0, 1)
            if role == "effect":
                _ = self.act.value

        @reaction(act)
        def receive(self) -> None:
            if role == "trigger":
                self.act.schedule(1, 1)

    program = Program()
    program.add(Echo)
    with program.start(executor="inline") as run:
        with pytest.raises(UndeclaredPortError):
            run.tick()


class Twice(Reactor):
    each = Timer(period=1)
    out = Output((2,), np.int64)

    @reaction(each, effects=out)
    def first(self) -> None:
        self.out.set(np.array([1, 1]))

    @reaction(each, effects=out)
    def second(self) -> None:
        if self.tag[0]:
            self.out.buffer[...] = 2


def test_the_later_writer_wins(way: dict[str, Any]) -> None:
    with through(lambda self: self.inp.value.tolist(), Twice).start(**way) as run:
        run.tick()
        assert run.result == [[1, 1]]
        run.tick()
        assert run.result == [[2, 2]]


class Objects(Reactor):
    each = Timer(period=1)
    out = Output()

    def __init__(self, length: int = 0) -> None:
        self.kept: list[Any] = []
        self.length = length

    @reaction(each, effects=out)
    def send(self) -> None:
        self.kept.append(self.tag[0])
        self.out.set(self.kept)
        self.kept.append("after")


def test_objects_never_alias(way: dict[str, Any]) -> None:
    def spoil(self: Any) -> Any:
        first, second = self.inp.value, self.inp.value
        first.append("mine")
        return second

    with through(spoil, Objects, n=3).start(**way) as run:
        run.tick()
        run.tick()
        assert run.result == [[0, "after", 1]] * 3
        run.result[0].append("callers")
        assert run.result == [[0, "after", 1]] * 3


class Sizes(Reactor):
    each = Timer(period=1)
    out = Output()

    @reaction(each, effects=out)
    def send(self) -> None:
        self.out.set(os.urandom(0) + bytes([self.tag[0]]) * [10, 100_000, 3, 5_000_000, 1000, 1010, 1][self.tag[0]])


def test_values_of_any_size(way: dict[str, Any]) -> None:
    with through(lambda self: (len(self.inp.value), self.inp.value[-1]), Sizes, n=2).start(**way) as run:
        for tick, size in enumerate([10, 100_000, 3, 5_000_000, 1000, 1010, 1]):
            run.tick()
            assert run.result == [(size, tick)] * 2


class Writes(Reactor):
    each = Timer(period=1)
    out = Output((2, 3), np.float32)
    scalar = Output((), np.float32)

    def __init__(self, value: Any, port: str = "out") -> None:
        self.value, self.port = value, port

    @reaction(each, effects=(out, scalar))
    def write(self) -> None:
        getattr(self, self.port).set(self.value)


@pytest.mark.parametrize(
    ("value", "port", "error"),
    [
        (np.zeros((3, 2), np.float32), "out", ValueError),
        (np.zeros(3, np.float32), "out", ValueError),
        (1.0, "out", ValueError),
        ([1.0], "scalar", ValueError),
        (np.zeros((2, 3), np.complex64), "out", TypeError),
        (np.complex64(1), "scalar", TypeError),
        ("text", "scalar", (TypeError, ValueError)),
    ],
)
def test_what_does_not_fit_raises(value: Any, port: str, error: Any) -> None:
    program = Program()
    program.add(Writes, value, port)
    with program.start(executor="inline") as run:
        with pytest.raises(error):
            run.tick()


@pytest.mark.parametrize("value", [3, 3.0, np.float64(3), np.array(3), np.int64(3), True])
def test_scalars(value: Any) -> None:
    program = Program()
    writes = program.add(Writes, value, "scalar")
    program.connect(writes.scalar, program.output("x"))
    with program.start(executor="inline") as run:
        run.tick()
        assert run.x.shape == ()
        assert run.x.dtype == np.float32
        assert run.x == np.float32(value)


def boundary_program() -> Program:
    class Double(Reactor):
        inp = Input()
        out = Output((2,), np.float64)

        @reaction(inp, effects=out)
        def double(self) -> None:
            self.out.set(self.inp.value * 2)

    program = Program("boundary")
    doubles = program.bank(Double, 3)
    program.connect(program.input("x", (3, 2), np.float64).rows, doubles.inp)
    program.connect(doubles.out, program.output("y").rows)
    return program


def seen(program: Program, way: dict[str, Any], output: str) -> list[Any]:
    """An output after each of three ticks."""
    with program.start(**way) as run:
        return [run.tick() or getattr(run, output) for _ in range(3)]


def test_an_array_wakes_who_reads_it_a_tick_later(way: dict[str, Any]) -> None:
    class Once(Reactor):
        begin = Timer()
        out = Output((2,), np.float64)

        @reaction(begin, effects=out)
        def write(self) -> None:
            self.out.set(np.ones(2))

    class Adds(Reactor):
        inp = Input()
        out = Output((), np.float64)

        @reaction(inp, effects=out)
        def add(self) -> None:
            self.out.set(self.inp.value.sum())

    program = Program("later")
    once, adds = program.add(Once), program.add(Adds)
    program.connect(once.out, adds.inp, after=1)
    program.connect(adds.out, program.output("y"))
    assert seen(program, way, "y") == [None, 2.0, None]


def test_what_is_written_at_startup_wakes_who_reads_it_a_tick_later(way: dict[str, Any]) -> None:
    class Begins(Reactor):
        out = Output()

        @reaction(startup, effects=out)
        def write(self) -> None:
            self.out.set("begun")

    class Tells(Reactor):
        inp = Input()
        out = Output()

        @reaction(inp, effects=out)
        def tell(self) -> None:
            self.out.set((self.tag, self.inp.value))

    program = Program("begun")
    begins, tells = program.add(Begins), program.add(Tells)
    program.connect(begins.out, tells.inp, after=1)
    program.connect(tells.out, program.output("told"))
    assert seen(program, way, "told") == [None, ((1, 0), "begun"), None]


def test_what_is_set_before_the_first_tick_is_there_in_it(way: dict[str, Any]) -> None:
    """Startup and tick 0 are one pass, so it is stamped with another number than what is set before any other tick."""
    x = np.arange(6.0).reshape(3, 2)
    with boundary_program().start(**way) as run:
        for factor in (1, 2):
            run.set(x=factor * x)
            run.tick()
            np.testing.assert_array_equal(run.y, 2 * factor * x)


def test_the_boundary(way: dict[str, Any]) -> None:
    x = np.arange(6.0).reshape(3, 2)
    with boundary_program().start(**way) as run:
        assert run.y is None
        run.tick()
        assert run.y is None
        run.set(x=x)
        run.tick()
        mine = run.y
        np.testing.assert_array_equal(mine, x * 2)
        run.tick()  # what was set holds for one tick
        assert run.y is None
        run.set(x=x + 1)
        assert run.run(1) == 1
        np.testing.assert_array_equal(run.y, x * 2 + 2)
        np.testing.assert_array_equal(mine, x * 2)
        with pytest.raises(ProgramError, match="no boundary input 'z'"):
            run.set(z=1)
        with pytest.raises(AttributeError, match="its boundary outputs: y"):
            _ = run.z


class Sparse(Reactor):
    rare = Timer(offset=3, period=5)
    act = LogicalAction()
    out = Output()

    @reaction(rare, effects=act)
    def ring(self) -> None:
        self.act.schedule(1, "later")
        self.act.schedule(1, "last")

    @reaction(act, effects=out)
    def echo(self) -> None:
        self.out.set((*self.tag, self.act.value))


def test_run_skips_times_at_which_nothing_happens(way: dict[str, Any]) -> None:
    program = Program("sparse")
    sparse = program.bank(Sparse, 3)
    program.connect(sparse[2].out, program.output("x"))
    program.connect(sparse[2].out, program.output("late"), after=3)
    with program.start(**way) as run:
        assert run.run(5) == 5
        assert run.x == (4, 1, "last")
        assert run.run(2) == 2
        assert run.x is None
        assert run.run(1) == 1
        assert run.late == (4, 1, "last")
        assert run.time == 8
        assert run.run(1000) == 1000
        assert run.time == 1008


class Memory(Reactor):
    each = Timer(period=1)
    inp = Input()
    act = LogicalAction()
    out = Output((3,), np.int64)
    obj = Output()

    def __init__(self, bank_index: int) -> None:
        self.sum = bank_index

    @reaction(each, act, uses=inp, effects=(out, act, obj))
    def go(self) -> None:
        if self.inp.present:
            self.sum += int(self.inp.value["sum"])
        if self.tag[1] == 0 and self.tag[0] % 3 == 0:
            self.act.schedule(2, self.sum)
        if self.act.present:
            self.sum += self.act.value % 5
        self.out.set(np.full(3, self.sum))
        self.obj.set({"sum": self.sum % 7})


def memory_program() -> Program:
    program = Program("memory")
    one = program.bank(Memory, 4)
    for index in range(4):
        program.connect(one[index].obj, one[(index + 1) % 4].inp, after=1 + index % 2)
    program.connect(one.out, program.output("x").rows)
    program.connect(one.out, program.output("late").rows, after=2)
    return program


def test_snapshots_restore_here_and_elsewhere(way: dict[str, Any]) -> None:
    def go_on(run: Any) -> list[Any]:
        seen = []
        for _ in range(5):
            run.tick()
            seen.append((run.time, run.x.tolist(), None if run.late is None else run.late.tolist()))
        return seen

    with memory_program().start(**way) as run:
        at_zero = run.snapshot()
        run.run(5)
        snapshot = run.snapshot()
        expected = go_on(run)
        run.restore(snapshot)
        assert run.time == 5
        assert go_on(run) == expected
        run.restore(at_zero)
        run.run(5)
        assert go_on(run) == expected
    for executor, workers in [("inline", 1), ("threads", 3), ("processes", 4)]:
        with memory_program().start(executor=executor, workers=workers) as other:
            other.run(2)
            other.restore(snapshot)
            assert go_on(other) == expected


class Stops(Reactor):
    each = Timer(period=1)
    out = Output()

    def __init__(self, bank_index: int = 0) -> None:
        pass

    @reaction(each, effects=out)
    def stop(self) -> None:
        self.out.set(self.tag)
        if self.tag[0] == 2:
            self.request_stop()


class Last(Reactor):
    inp = Input()
    said = Output()
    final = Output()

    def __init__(self, bank_index: int = 0) -> None:
        self.seen: list[Any] = []

    @reaction(inp, effects=said)
    def see(self) -> None:
        self.seen.append(self.inp.value)
        self.said.set(list(self.seen))

    @reaction(shutdown, effects=final)
    def end(self) -> None:
        self.final.set((self.tag, self.seen))


class Echoes(Reactor):
    inp = Input()
    out = Output()

    @reaction(inp, effects=out)
    def echo(self) -> None:
        self.out.set(("echo", self.inp.value))


def test_request_stop_makes_the_current_tick_the_last(way: dict[str, Any]) -> None:
    program = Program("stops")
    stops, last, echo = program.add(Stops), program.add(Last), program.add(Echoes)
    program.connect(stops.out, last.inp)
    program.connect(last.said, program.output("said"))
    program.connect(last.final, program.output("final"))
    program.connect(last.final, echo.inp)
    program.connect(echo.out, program.output("echoed"))
    with program.start(**way) as run:
        assert run.run(10) == 3
        assert run.stopped
        assert run.said == [(0, 0), (1, 0), (2, 0)]
        assert run.final == ((2, 1), run.said)
        assert run.echoed == ("echo", run.final)
        with pytest.raises(RunClosedError, match="requested a stop"):
            run.tick()


class Builds(Reactor):
    def __init__(self, path: str, fail: bool, bank_index: int) -> None:
        self.path, self.fail, self.index = path, fail, bank_index

    @reaction(startup)
    def build(self) -> None:
        if self.fail and self.index in (1, 2):
            raise OSError(f"no environment {self.index}")

    @reaction(shutdown)
    def end(self) -> None:
        with open(f"{self.path}/{self.index}", "w") as file:
            file.write("closed")


@pytest.mark.parametrize("fail", [False, True])
def test_startup_errors_and_shutdown_on_close(way: dict[str, Any], tmp_path: Any, fail: bool) -> None:
    program = Program("builds")
    program.bank(Builds, 3, str(tmp_path), fail)
    if fail:
        with pytest.raises(OSError, match="no environment 1") as caught:
            program.start(**way)
        assert any("builds[1].build" in note for note in caught.value.__notes__)
    else:
        run = program.start(**way)
        run.tick()
        assert not list(tmp_path.iterdir())
        run.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


class Stepped(Reactor):
    """Steps for a while, and notes at its end whether it was in the middle of that."""

    each = Timer(period=1)

    def __init__(self, path: str, bank_index: int) -> None:
        self.path, self.stepping = f"{path}/{bank_index}", False

    @reaction(each)
    def step(self) -> None:
        self.stepping = True
        Path(f"{self.path}.stepping").touch()
        time.sleep(0.1)
        self.stepping = False

    @reaction(shutdown)
    def end(self) -> None:
        Path(f"{self.path}.closed").write_text("while it stepped" if self.stepping else "")


def test_nobody_is_closed_in_the_middle_of_a_reaction_of_another_thread(way: dict[str, Any], tmp_path: Path) -> None:
    program = Program("stepped")
    program.bank(Stepped, 4, str(tmp_path))
    run = program.start(**way)
    with ThreadPoolExecutor(1) as other:
        ticks = other.submit(run.run, 1_000_000)
        while not Path(f"{tmp_path}/0.stepping").exists():
            assert not ticks.done()
            time.sleep(0.001)
        run.close()
        with pytest.raises(RunClosedError, match="closed by another thread"):
            ticks.result(10)
    assert [Path(f"{tmp_path}/{index}.closed").read_text() for index in range(4)] == [""] * 4
    with pytest.raises(RunClosedError):
        run.tick()


class Lingers(Reactor):
    """Takes its time to end."""

    def __init__(self, path: str, bank_index: int) -> None:
        self.path = f"{path}/{bank_index}"

    @reaction(shutdown)
    def end(self) -> None:
        Path(f"{self.path}.ending").touch()
        time.sleep(0.7)  # longer than a run that is over waits for its helpers
        Path(f"{self.path}.ended").touch()


def test_of_two_threads_that_close_the_second_one_waits(way: dict[str, Any], tmp_path: Path) -> None:
    program = Program("lingers")
    program.bank(Lingers, 2, path=str(tmp_path))
    run = program.start(**way)
    with ThreadPoolExecutor(1) as other:
        first = other.submit(run.close)
        while not list(tmp_path.glob("*.ending")):
            time.sleep(0.001)
        run.close()
        assert len(list(tmp_path.glob("*.ended"))) == 2
        first.result(10)


class Fails(Reactor):
    each = Timer(period=1)

    def __init__(self, bank_index: int) -> None:
        self.index = bank_index

    @reaction(each)
    def fail(self) -> None:
        if self.tag[0] == 1 and self.index >= 2:
            time.sleep(0.05 * (5 - self.index))  # the first in program order is the last in time
            raise KeyError(f"number {self.index}")


def test_errors_are_deterministic(way: dict[str, Any]) -> None:
    program = Program("fails")
    program.bank(Fails, 5)
    run = program.start(**way)
    run.tick()
    with pytest.raises(KeyError, match="number 2") as caught:
        run.tick()
    assert caught.value.__notes__ == ["in reaction fails[2].fail at tag (1, 0)"]
    if way["executor"] == "processes" and run._plan.schedule.placement[2]:
        assert "in fail" in str(caught.value.__cause__)
        assert 'raise KeyError(f"number' in str(caught.value.__cause__)
    with pytest.raises(RunClosedError, match="raised KeyError"):
        run.tick()
    run.close()
    run.close()
    with pytest.raises(RunClosedError):
        run.tick()


def test_calls_out_of_order(way: dict[str, Any]) -> None:
    with boundary_program().start(**way) as run:
        with pytest.raises(RunError, match="tick_async"):
            run.tick_wait()
        run.tick_async()
        for wrong in (run.tick_async, lambda: run.set(x=np.zeros((3, 2))), lambda: run.y, run.snapshot):
            with pytest.raises(RunError):
                wrong()
        run.tick_wait()
        run.tick()


class Slow(Reactor):
    each = Timer(period=1)
    out = Output((), np.int64)

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(each, effects=out)
    def wait(self) -> None:
        time.sleep(0.3)
        self.out.set(self.tag[0] + 1)


@pytest.mark.parametrize("caller_works", [True, False])
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_timeout_can_be_waited_out(executor: str, caller_works: bool) -> None:
    program = Program("slow")
    slow = program.bank(Slow, 2)
    program.connect(slow.out, program.output("x").rows)
    with program.start(executor=executor, workers=2, caller_works=caller_works) as run:
        for tick in (1, 2):
            run.tick_async()
            with pytest.raises(TimeoutError):
                run.tick_wait(0.02)
            with pytest.raises((TimeoutError, RunError)):
                run.tick_async()
            run.tick_wait()
            assert run.x.tolist() == [tick, tick]


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_a_tick_that_was_done_too_late_is_found_done_by_the_next_wait(executor: str) -> None:
    program = Program("slow")
    program.connect(program.add(Slow, 0).out, program.output("x"))
    with program.start(executor=executor, workers=1) as run:
        for tick in (1, 2):
            run.tick_async()
            with pytest.raises(TimeoutError):
                run.tick_wait(0)
            run.tick_wait(0)
            assert run.x == tick


class Passing(Reactor):
    given, out = Input(), Output()

    @reaction(given, effects=out)
    def go(self) -> None:
        self.out.set(self.given.value)


def test_fingerprints_tell_when_it_was_written() -> None:
    program = Program("passing")
    passing = program.add(Passing)
    program.connect(program.input("given"), passing.given)
    program.connect(passing.out, program.output("x"))
    found = set()
    for at in range(2):
        with program.start(executor="inline") as run:
            for tick in range(2):
                if tick == at:
                    run.set(given=7)
                run.tick()
            found.add(run.fingerprint())
    assert len(found) == 2


class Filling(Reactor):
    """Fills the slot that it was handed, which lies in what one reactor gathers and is copied into what another one does."""

    beat = Timer(period=1)
    out = Output((2,), np.int64)

    def __init__(self, bank_index: int) -> None:
        self.number = bank_index

    @reaction(beat, effects=out)
    def fill(self) -> None:
        self.out.buffer[...] = (self.number, self.tag[0])


def test_a_slot_that_is_filled_is_copied_when_it_is_full() -> None:
    program = Program("filling")
    bank = program.bank(Filling, 2)
    other = program.output("other")
    program.connect(bank.out, program.output("one").rows)
    for index in range(2):
        program.connect(bank[1 - index].out, other.rows[index])
    with program.start(executor="threads", workers=2) as run:
        for tick in range(3):
            run.tick()
            assert run.one.tolist() == run.other.tolist()[::-1] == [[0, tick], [1, tick]]


class Heavy(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    def __init__(self) -> None:
        self.weight = np.zeros(300_000)

    @reaction(beat, effects=out)
    def grow(self) -> None:
        self.weight += 1
        self.out.set(int(self.weight.sum()))


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
def test_a_snapshot_may_be_larger_than_what_a_pipe_holds(executor: str) -> None:
    program = Program("heavy")
    for name in ("a", "b", "c"):
        program.connect(program.add(Heavy, name=name).out, program.output(f"of_{name}"))
    with program.start(executor=executor, workers=3) as run:  # type: ignore[arg-type]
        run.tick()
        snapshot = run.snapshot()
        run.tick()
        run.restore(snapshot)
        run.tick()
        assert (run.of_a, run.of_b, run.of_c) == (600_000, 600_000, 600_000)


def test_how_long_workers_stay_awake_never_matters_but_must_make_sense(way: dict[str, Any]) -> None:
    with memory_program().start(**way) as run:
        run.run(5)
        expected = run.fingerprint()
    for spin in (0.0, 2e-3):
        with memory_program().start(**way, spin=spin) as run:
            run.run(5)
            assert run.fingerprint() == expected
    for wrong in (-1.0, 1.0):
        with pytest.raises(ProgramError, match="spin must be between"):
            memory_program().start(**way, spin=wrong)


class Asks(Reactor):
    """Wants the run to end again, when it is over."""

    inp = Input()
    seen = Output()

    def __init__(self) -> None:
        self.ends = 0

    @reaction(inp)
    def see(self) -> None:
        self.request_stop()

    @reaction(shutdown, effects=seen)
    def end(self) -> None:
        self.ends += 1
        self.seen.set(self.ends)


class Flushes(Reactor):
    each = Timer(period=1)
    out = Output()
    count = Output()

    def __init__(self) -> None:
        self.ends = 0

    @reaction(each, effects=out)
    def go(self) -> None:
        if self.tag[0] == 1:
            self.out.set(1)

    @reaction(shutdown, effects=(out, count))
    def end(self) -> None:
        self.ends += 1
        self.out.set(2)
        self.count.set(self.ends)


def test_shutdown_reactions_run_once_whatever_they_ask_for(way: dict[str, Any]) -> None:
    program = Program("asks")
    flushes, asks = program.add(Flushes), program.add(Asks)
    program.connect(flushes.out, asks.inp)
    program.connect(flushes.count, program.output("flushed"))
    program.connect(asks.seen, program.output("asked"))
    run = program.start(**way)
    assert run.run(10) == 2 and run.stopped
    run.close()
    assert (run.flushed, run.asked) == (1, 1)


class Ticks(Reactor):
    each = Timer(period=1)

    def __init__(self, path: str) -> None:
        self.path, self.count = path, 0

    @reaction(each)
    def go(self) -> None:
        self.count += 1

    @reaction(shutdown)
    def end(self) -> None:
        with open(self.path, "a") as file:
            file.write(f"{self.count}\n")


@pytest.mark.timeout(60)
def test_closing_ends_ticks_of_another_thread(tmp_path: Path) -> None:
    """Which nobody has to hear of: there are no outputs, and no other workers."""
    program = Program("ticks")
    program.add(Ticks, str(tmp_path / "ended"))
    run = program.start(executor="inline", fingerprint="off")
    said: list[BaseException] = []

    def go() -> None:
        try:
            run.run(10**12)
        except BaseException as error:
            said.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    time.sleep(0.2)
    run.close()
    thread.join(10)
    assert not thread.is_alive() and isinstance(said[0], RunClosedError)
    assert len((tmp_path / "ended").read_text().split()) == 1


class Struck(Reactor):
    each = Timer(period=1)
    out = Output()

    @reaction(each, effects=out)
    def go(self) -> None:
        if self.tag[0] == 2:
            time.sleep(0.3)  # meanwhile the other worker waits
            raise KeyboardInterrupt
        self.out.set(1)


class Ends(Reactor):
    """Has the last word in a pass, for which it waits until somebody tells it something."""

    inp = Input()
    back = Output()

    def __init__(self, path: str) -> None:
        self.path = path

    @reaction(inp, effects=back)
    def see(self) -> None:
        self.back.set(self.inp.value)

    @reaction(shutdown)
    def end(self) -> None:
        Path(self.path).touch()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("between", [0, 1], ids=["for the caller", "for another helper"])
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_helpers_that_wait_within_a_pass_end_with_it(executor: Any, between: int, tmp_path: Path) -> None:
    """Not by force: their shutdown reactions run."""
    program = Program("struck")
    struck, ends = program.add(Struck), program.add(Ends, str(tmp_path / "ended"))
    placement = {"struck": 0, "ends": 1 + between}
    if between:
        passing, placement["passing"] = program.add(Passing), 1
        program.connect(struck.out, passing.given)
    program.connect(passing.out if between else struck.out, ends.inp)
    program.connect(ends.back, program.output("back"))
    run = program.start(executor=executor, workers=2 + between, placement=placement)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run.run(5)
    run.close()
    assert (tmp_path / "ended").exists()
    assert threading.active_count() == before - (1 + between) * (executor == "threads")


class Long(Reactor):
    each = Timer(period=1)
    report = Output()

    def __init__(self, bank_index: int) -> None:
        pass

    @reaction(each, effects=report)
    def tell(self) -> None:
        self.report.set({"tick": self.tag[0], "text": "x" * 5000})


def test_long_objects_can_be_read_when_all_is_over(way: dict[str, Any]) -> None:
    program = Program("long")
    tellers = program.bank(Long, 3, name="tell")
    for number, one in enumerate(tellers):
        program.connect(one.report, program.output(f"report_{number}"))
    run = program.start(**way)
    run.run(3)
    run.close()
    assert [run.report_0["tick"], run.report_1["tick"], len(run.report_2["text"])] == [2, 2, 5000]


class Prepared(Reactor):
    """Tells how its process was prepared when it was made."""

    each = Timer(period=1)
    found = Output()

    def __init__(self, bank_index: int) -> None:
        pass

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.prepared = os.environ["REACTOR_RL_TEST_PREPARED"]

    @reaction(each, effects=found)
    def tell(self) -> None:
        self.found.set(self.prepared)


def prepare() -> None:
    os.environ["REACTOR_RL_TEST_PREPARED"] = "prepared"


def test_helpers_are_prepared_before_their_reactors_are_made(way: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACTOR_RL_TEST_PREPARED", "not prepared")
    program = Program("prepared")
    program.connect(program.bank(Prepared, 2).found, program.output("found").rows)
    program.worker_setup(prepare)
    with program.start(**way) as run:
        run.tick()
        assert run.found[1] == ("not prepared" if way["executor"] == "inline" else "prepared")
