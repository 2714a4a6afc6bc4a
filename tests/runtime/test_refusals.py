"""What a run and its ports refuse, and how a run goes on after Ctrl-C: statements that no other fast test runs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import (
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
)
from reactor_rl.runtime.run import Run

# ---------------------------------------------------------------------- ports


class Source(Reactor):
    thing = Output()
    numbers = Output((2,), np.float32)
    wide = Output(rows=2)
    each = Timer(period=1)

    @reaction(each, effects=(thing, numbers, wide))
    def write(self) -> None:
        self.thing.set("thing")
        self.numbers.set([1, 2])
        self.wide.set("ab")


class Nosy(Reactor):
    each = Timer(period=1)
    later = Timer(offset=100)
    act = LogicalAction()
    thing, numbers, late, begun, row = Input(), Input(), Input(), Input(), Input()
    plain, delayed = Output(), Output()
    far = Output((), np.int64)
    wide = Output(rows=2)

    def __init__(self, touch: Callable[[Any], Any]) -> None:
        self.touch = touch

    @reaction(each)
    def look(self) -> None:
        self.touch(self)

    @reaction(later, act, uses=(thing, numbers, late, begun, row), effects=(act, plain, delayed, far, wide))
    def declares(self) -> None: ...

    @reaction(each, effects=wide)
    def write(self) -> None:
        self.touch_wide()

    def touch_wide(self) -> None: ...


class Sink(Reactor):
    plain, delayed, one = Input(), Input(), Input()
    got: list[Any] = []

    @reaction(plain, delayed, one)
    def take(self) -> None:
        self.got.append([port.value for port in (self.plain, self.delayed, self.one) if port.present])


def nosy(touch: Callable[[Any], Any]) -> Program:
    program = Program("nosy")
    source, one, sink = program.add(Source), program.add(Nosy, touch, name="nosy"), program.add(Sink)
    program.connect(source.thing, one.thing)
    program.connect(source.numbers, one.numbers)
    program.connect(source.thing, one.late, after=1)
    program.connect(source.thing, one.begun, after=1, initial="first")
    program.connect(source.wide.rows[1], one.row)
    program.connect(one.plain, sink.plain)
    program.connect(one.delayed, sink.delayed, after=1)
    program.connect(one.wide.rows[0], sink.one)
    program.connect(one.far, program.output("far"))
    return program


TOUCHES: dict[str, Callable[[Any], Any]] = {
    "thing": lambda self: self.thing.value,
    "numbers": lambda self: self.numbers.value,
    "late": lambda self: self.late.value,
    "begun": lambda self: self.begun.value,
    "row": lambda self: self.row.value,
    "later": lambda self: self.later.present,
    "act": lambda self: self.act.present,
    "plain": lambda self: self.plain.set(1),
    "delayed": lambda self: self.delayed.set(1),
    "far": lambda self: self.far.set(1),
    "wide": lambda self: self.wide.set("ab"),
    "wide, a row": lambda self: self.wide.rows[0].set(1),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_every_kind_of_port_is_for_who_declares_it(touch: str) -> None:
    with nosy(TOUCHES[touch]).start(executor="inline") as run:
        with pytest.raises(UndeclaredPortError, match=rf"nosy.look touches nosy\.{touch.partition(',')[0]}, which"):
            run.run(2)


@pytest.mark.parametrize(
    ("touch", "error", "says"),
    [
        (lambda self: self.wide.set("abc"), ValueError, "nosy.wide takes 2 values, one for each row, not 3"),
        (lambda self: self.wide.rows[2], IndexError, "row 2 is out of range: nosy.wide has 2 rows"),
        (lambda self: self.wide.rows[-1], IndexError, "row -1 is out of range"),
    ],
)
def test_rows_are_counted(touch: Callable[[Any], Any], error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nosy, "touch_wide", touch)
    with nosy(lambda self: None).start(executor="inline") as run:
        with pytest.raises(error, match=says):
            run.tick()


# ---------------------------------------------------------------------- the boundary and the run


class Echo(Reactor):
    given = Input()
    said = Output()
    again = Output()

    def __init__(self, does: Callable[[Any], Any] = lambda value: value) -> None:
        self.does, self.closed = does, 0

    @reaction(given, effects=said)
    def say(self) -> None:
        self.said.set(self.does(self.given.value))

    @reaction(given, effects=again)
    def repeat(self) -> None:
        self.again.set(self.given.value)


def echo(does: Callable[[Any], Any] = lambda value: value) -> Program:
    program = Program("echo")
    one = program.add(Echo, does)
    program.connect(program.input("given"), one.given)
    program.connect(one.said, program.output("said"))
    program.connect(one.again, program.output("again"))
    return program


def test_a_run_is_not_copied() -> None:
    with echo().start(executor="inline") as run:
        for made in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="a run cannot be copied or pickled"):
                made(run)
        assert run.executor == "inline" and not run.stopped


USES: dict[str, Callable[[Run], Any]] = {
    "begin a tick": lambda run: run.tick_async(),
    "end a tick": lambda run: run.tick_wait(),
    "run ticks": lambda run: run.run(1),
    "read said": lambda run: run.said,
    "read said as a view": lambda run: run.view("said"),
    "read said by rows": lambda run: run.values("said"),
    "tell a fingerprint": lambda run: run.fingerprint(),
    "set given": lambda run: run.set(given=1),
}


@pytest.mark.parametrize("use", USES)
def test_a_forked_child_may_not_use_the_run(use: str) -> None:
    run = echo().start(executor="inline")
    setter, state = run._boundary, run._state
    run._forked()
    try:
        assert run.foreign
        with pytest.raises(RunError, match=r"cannot .*because it belongs to the process that made it"):
            USES[use](run)
    finally:
        run._state, setter.open = state, True
        run.close()


RUNS: list[Run] = []
"""What reactions find their run in."""


def use_all(value: Any) -> Any:
    for use in ("begin a tick", "end a tick", "run ticks"):
        with pytest.raises(RunError, match=f"cannot {use} while another operation is in progress"):
            USES[use](RUNS[-1])
    return value


def test_a_reaction_may_not_use_the_run_that_runs_it() -> None:
    with echo(use_all).start(executor="inline") as run:
        RUNS[:] = [run]
        run.set(given=1)
        run.tick()
        assert run.said == 1
        with pytest.raises(ProgramError, match="'said' is not a boundary output with one array slot"):
            run.view("said")
    with pytest.raises(RunClosedError, match="cannot run ticks"):
        run.run(1)


class Uses(Reactor):
    each = Timer(period=1)
    used = Output()

    @reaction(each, effects=used)
    def go(self) -> None:
        self.used.set(use_all(self.tag[0]))


def test_nor_in_ticks_without_a_look_in_between() -> None:
    program = Program("uses")
    program.connect(program.add(Uses).used, program.output("used"))
    with program.start(executor="inline", fingerprint="off") as run:
        RUNS[:] = [run]
        assert run.run(4) == 4
        assert run.used == 3


def test_without_a_fingerprint_there_is_none_to_tell() -> None:
    with echo().start(executor="inline", fingerprint="off") as run:
        with pytest.raises(RunError, match='fingerprint="boundary" or "all"'):
            run.fingerprint()


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("executor", "fibers", "executor must be 'auto', 'inline'.*got 'fibers'"),
        ("fingerprint", "some", "fingerprint must be 'boundary', 'all' or 'off', got 'some'"),
        ("workers", 0, "workers must be an integer >= 1.*got 0"),
        ("workers", True, "workers must be an integer >= 1.*got True"),
        ("timeout", 0, "timeout must be a positive number of seconds, or None"),
        ("timeout", True, "timeout must be a positive number of seconds, or None"),
        ("placement", {"echo": 0}, "placement cannot be combined with executor='auto'"),
    ],
)
def test_a_setting_of_no_meaning_is_refused(setting: str, value: Any, says: str) -> None:
    executor = "auto" if setting == "placement" else "inline"
    with pytest.raises(ProgramError, match=says):
        echo().start(**{"executor": executor, setting: value}).close()


def test_a_start_method_that_this_system_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"start_method must be one of .*'spawn' on this system, got 'fibers'"):
        nosy(lambda self: None).start(executor="processes", workers=2, start_method="fibers")


def test_nothing_else_is_asked_while_a_tick_is_going_on(tmp_path: Path) -> None:
    with echo().start(executor="inline") as run:
        run.tick_async()
        with pytest.raises(RunError, match=r"cannot answer 'trace' while a tick is going on; call tick_wait\(\) first"):
            run.trace(str(tmp_path / "trace.json")).__enter__()
        run.tick_wait()


def test_an_error_in_one_of_many_ticks_is_raised() -> None:
    with nosy(lambda self: 1 // (2 - self.tag[0])).start(executor="inline", fingerprint="off") as run:
        with pytest.raises(ZeroDivisionError):
            run.run(9)
        assert run.time == 3
        with pytest.raises(RunClosedError, match="look raised ZeroDivisionError"):
            run.run(1)


def test_a_program_without_reactors_has_a_boundary_all_the_same() -> None:
    program = Program("empty")
    program.input("given")
    program.output("said")
    with program.start(executor="inline") as run:
        run.set(given=1)
        run.tick()
        assert run.said is None and run.time == 1


def test_what_was_set_is_for_one_tick_alone() -> None:
    ticks: list[int] = []

    class Counts(Run):
        def tick(self) -> None:
            ticks.append(self.time)
            super().tick()

    with echo().start(executor="inline") as run:
        run.__class__ = Counts
        run.set(given=1)
        for time in (5, 10):
            assert run.run(5) == 5 and run.time == time
    assert ticks == [0]


def test_only_what_is_an_array_of_that_kind_goes_the_short_way_in() -> None:
    program = Program("arrays")
    one = program.add(Doubles)
    program.connect(program.input("given", (2,), np.float32), one.given)
    program.connect(one.twice, program.output("twice"))
    with program.start(executor="inline") as run:
        for given in (np.float32([1, 2]), [1, 2], np.int64([1, 2]), np.float64([1, 2])):
            run.set(given=given)
            run.tick()
            assert run.twice.tolist() == [2, 4] and run.view("twice").tolist() == [2, 4]
        run.tick()
        assert run.twice is None


class Doubles(Reactor):
    given = Input((2,), np.float32)
    twice = Output((2,), np.float32)

    @reaction(given, effects=twice)
    def double(self) -> None:
        self.twice.set(self.given.value * 2)


# ---------------------------------------------------------------------- interrupted


def interrupt(value: Any) -> Any:
    if value == "stop":
        raise KeyboardInterrupt
    return value


def test_a_run_of_the_caller_alone_goes_on_after_ctrl_c() -> None:
    """The interrupted tick is done, as far as it came; what had not run does not run in the next one."""
    with echo(interrupt).start(executor="inline") as run:
        run.set(given="a")
        run.tick()
        assert (run.said, run.again, run.time) == ("a", "a", 1)
        run.set(given="stop")
        with pytest.raises(KeyboardInterrupt):
            run.tick()
        with pytest.raises(RunClosedError, match="it was interrupted"):
            run.tick()
        assert run.go_on() and run.time == 2
        run.tick()
        assert (run.said, run.again, run.time) == (None, None, 3)
        run.set(given="b")
        run.tick()
        assert (run.said, run.again, run.time) == ("b", "b", 4)
    assert not run.go_on()


def test_a_tick_that_was_interrupted_while_it_was_waited_for_is_done_too() -> None:
    with echo(interrupt).start(executor="inline") as run:
        run.set(given="stop")
        run.tick_async()
        with pytest.raises(KeyboardInterrupt):
            run.tick_wait(10.0)
        assert run.go_on() and run.time == 1
        run.set(given="b")
        run.tick_async()
        run.tick_wait(10.0)
        assert (run.said, run.again, run.time) == ("b", "b", 2)


@pytest.mark.parametrize("begin", [Run.tick, Run.tick_async])
def test_an_interrupt_as_a_tick_begins_ends_the_run(begin: Callable[[Run], None]) -> None:
    class Struck(Run):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_number":
                raise KeyboardInterrupt
            super().__setattr__(name, value)

    with echo().start(executor="inline") as run:
        run.__class__ = Struck
        with pytest.raises(KeyboardInterrupt):
            begin(run)
        with pytest.raises(RunClosedError, match="it was interrupted"):
            begin(run)


def refuse_to_stop(value: Any) -> Any:
    if value == "stop":
        raise ValueError(value)
    return value


def test_what_was_raised_in_an_interrupted_tick_is_forgotten() -> None:
    program = Program("two")
    for name, does in (("raises", refuse_to_stop), ("interrupts", interrupt)):
        one = program.add(Echo, does, name=name)
        program.connect(program.input(name), one.given)
        program.connect(one.said, program.output(f"{name}_said"))
    with program.start(executor="inline") as run:
        run.set(raises="stop", interrupts="stop")
        with pytest.raises(KeyboardInterrupt):
            run.tick()
        assert run.go_on()
        run.set(raises=1, interrupts=2)
        run.tick()
        assert (run.raises_said, run.interrupts_said) == (1, 2)


def test_an_error_of_an_interrupted_tick_is_not_taken_for_one_of_a_later_tick() -> None:
    def interrupt_or_fail(value: Any) -> Any:
        return {}[value] if value == "fail" else interrupt(value)

    program = Program("two")
    for name, does in (("raises", refuse_to_stop), ("interrupts", interrupt_or_fail)):
        program.connect(program.input(name), program.add(Echo, does, name=name).given)
    with program.start(executor="inline") as run:
        run.set(raises="stop", interrupts="stop")
        with pytest.raises(KeyboardInterrupt):
            run.tick()
        assert run.go_on()
        run.set(interrupts="fail")
        with pytest.raises(KeyError, match="fail"):
            run.tick()


def go_on(value: Any) -> bool:
    return RUNS[-1].go_on()


def test_where_others_have_done_something_no_run_goes_on() -> None:
    with echo(go_on).start(executor="inline") as run:
        RUNS[:] = [run]
        run.set(given="a")
        run.tick()
        assert run.said is False  # a thread is in the middle of the tick
    with nosy(lambda self: None).start(executor="inline") as run:
        assert not run.go_on()  # its timers are due
    with nosy(lambda self: None).start(executor="threads", workers=2) as run:
        assert not run.go_on()


class Leaves(Reactor):
    """Ends as a helper's reaction must not: with what is no Exception."""

    each = Timer(period=1)
    closed: list[int] = []

    def __init__(self, error: type[BaseException], bank_index: int) -> None:
        self.error, self.index = error, bank_index

    @reaction(each)
    def go(self) -> None:
        if self.index:
            raise self.error

    @reaction(shutdown)
    def close(self) -> None:
        self.closed.append(self.index)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_helper_outlives_what_its_reaction_raises(error: type[BaseException], debug: bool) -> None:
    Leaves.closed.clear()
    program = Program("leaves")
    program.bank(Leaves, 2, error)
    with program.start(executor="threads", workers=2, placement={"leaves[0]": 0, "leaves[1]": 1}, debug=debug) as run:
        with pytest.raises(Exception, match=error.__name__):
            run.tick()
    assert sorted(Leaves.closed) == [0, 1]


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_errors_of_a_tick_that_nobody_waited_for_are_dropped(executor: Any) -> None:
    Leaves.closed.clear()
    program = Program("leaves")
    program.bank(Leaves, 2, ValueError)
    run = program.start(executor=executor, workers=2)
    run.tick_async()
    run.close()
    assert sorted(Leaves.closed) == [0, 1]


class Last(Reactor):
    each = Timer(period=1)
    out = Output()
    tags: list[tuple[int, int]] = []

    @reaction(each, effects=out)
    def go(self) -> None:
        self.out.set(self.tag[0])

    @reaction(shutdown)
    def close(self) -> None:
        self.tags.append(self.tag)


def test_a_tick_that_nobody_waited_for_is_done_when_the_run_is_closed() -> None:
    Last.tags.clear()
    program = Program("last")
    program.connect(program.add(Last).out, program.output("out"))
    run = program.start(executor="inline")
    for _ in range(3):
        run.tick()
    run.tick_async()
    run.close()
    assert (run.time, run.out, Last.tags) == (4, 3, [(3, 1)])
