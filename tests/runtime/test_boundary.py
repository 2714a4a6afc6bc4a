"""What the caller sets before a tick, and reads after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reactor_rl import Input, Output, Program, ProgramError, Reactor, RunClosedError, RunError, Timer, reaction, shutdown


class Tells(Reactor):
    """Tells all of its rows at every third tick, and one of them at the tick after that."""

    each = Timer(period=1)
    wide, one = Output(rows=2), Output()

    @reaction(each, effects=(wide, one))
    def tell(self) -> None:
        time, index = self.tag[0], self.bank_index
        if time % 3 == 0:
            self.wide.set([(time, 0), (time, 1)])
        elif time % 3 == 1:
            self.wide.rows[1].set((time, 1))
        if (time + index) % 2:
            self.one.set((time, index))


class Reads(Reactor):
    row = Input()

    @reaction(row)
    def read(self) -> None: ...


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "threads", "workers": 2}], ids=str)
def test_objects_are_read_by_rows(way: Any) -> None:
    program = Program("tells")
    bank = program.bank(Tells, 3, name="tells")
    program.connect(bank[0].wide.rows[1], program.add(Reads).row)  # so that its rows may be written one by one
    program.connect(bank[0].wide, program.output("wide"))
    program.connect(bank.one, program.output("ones").rows)
    with program.start(**way) as run:
        wide, ones = run.reader("wide"), run.reader("ones")
        for time in range(6):
            run.tick()
            rows = {0: [[(time, 0), (time, 1)]], 1: [[(time - 1, 0), (time, 1)]], 2: []}[time % 3]
            assert wide() == run.values("wide") == rows
            assert ones() == run.values("ones") == [(time, index) for index in range(3) if (time + index) % 2]
            assert run.wide == (rows[0] if time % 3 == 0 else None)


class Doubles(Reactor):
    given = Input((2,), np.float32)
    twice = Output((2,), np.float32)

    @reaction(given, effects=twice)
    def double(self) -> None:
        self.twice.set(self.given.value * 2)


def test_what_is_not_there_is_named() -> None:
    program = Program("doubles")
    one, other = program.add(Doubles, name="one"), program.add(Doubles, name="other")
    given = program.input("given", (2,), np.float32)
    program.connect(given, one.given)
    program.connect(given, other.given)
    program.connect(one.twice, program.output("twice"))
    program.connect(other.twice, program.output("late"), after=1)
    with program.start(executor="inline") as run:
        with pytest.raises(ProgramError, match="the program 'doubles' has no boundary input 'taken'; it has: given"):
            run.set(taken=1)
        for name in ("late", "given"):
            with pytest.raises(ProgramError, match=f"'{name}' is not a boundary output with one array slot"):
                run.view(name)
        run.set(given=np.float32([1, 2]))
        run.tick()
        mine = run.twice
        run.set(given=[3, 4])
        run.tick()
        assert mine.tolist() == [2, 4] and run.twice.tolist() == [6, 8] and run.late.tolist() == [2, 4]
        with pytest.raises(ValueError, match="read-only"):
            run.view("twice")[0] = 0


class Leaves(Reactor):
    given = Input()
    seen = Output()

    @reaction(given)
    def take(self) -> None: ...

    @reaction(shutdown, uses=given, effects=seen)
    def end(self) -> None:
        self.seen.set([self.given.value] if self.given.present else "absent")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ticks", [1, 3])
@pytest.mark.parametrize(
    "way",
    [
        {"executor": "inline"}, {"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 3},
        {"executor": "federated", "workers": 1, "nodes": 2, "on": {"there": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_what_was_set_for_a_tick_that_never_began_is_absent_at_the_end(way: dict[str, Any], ticks: int) -> None:
    program = Program("leaves")
    for name in ("here", "there"):
        one = program.add(Leaves, name=name)
        program.connect(program.input(f"to_{name}"), one.given)
        program.connect(one.seen, program.output(name))
    run = program.start(**way)
    for tick in range(ticks):
        run.set(to_here=tick, to_there=tick)
        run.tick()
    run.set(to_here="late", to_there="late")
    run.close()
    assert (run.here, run.there) == ("absent", "absent")


class WritesSome(Reactor):
    """Writes what it is given in some rows only: in one of its own, or none if it is the last of its bank."""

    given = Input()
    objects, numbers = Output(), Output((2,), np.float32)
    own = Output(rows=3)

    @reaction(given, effects=(objects, numbers, own))
    def write(self) -> None:
        if self.bank_index == 0:
            self.objects.set(self.given.value)
            self.numbers.set(np.float32([self.given.value, 0]))
            self.own.rows[1].set(self.given.value)


@pytest.mark.parametrize("output", ["objects", "numbers", "own"])
@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "threads", "workers": 2}], ids=str)
def test_the_fingerprint_has_the_content_of_single_rows(way: dict[str, Any], output: str) -> None:
    found = []
    for value in (1, 2, 2):
        program = Program("some")
        bank = program.bank(WritesSome, 2)
        program.connect(program.input("given"), bank.given)
        if output == "own":
            program.connect(bank[0].own.rows[1], program.add(Reads).row)  # so that its rows may be written one by one
            program.connect(bank[0].own, program.output("own"))
        else:
            program.connect(getattr(bank, output), program.output(output).rows)
        with program.start(**way) as run:
            run.set(given=value)
            run.tick()
            found.append(run.fingerprint())
    assert found[0] != found[1] == found[2]


class Stops(Reactor):
    given = Input()

    @reaction(given)
    def stop(self) -> None:
        self.request_stop()


def test_an_output_that_is_an_input_is_there_after_the_last_tick() -> None:
    program = Program("stops")
    given = program.input("given")
    program.connect(given, program.add(Stops).given)
    program.connect(given, program.output("same"))
    with program.start(executor="inline") as run:
        run.set(given=3)
        run.tick()
        assert run.stopped and run.same == 3


@pytest.mark.parametrize("way", [{"executor": "inline"}, {"executor": "processes", "workers": 2}], ids=str)
@pytest.mark.parametrize("kind", [(), ((2,), np.float32)], ids=["object", "array"])
def test_nobody_writes_once_the_run_is_over(way: dict[str, Any], kind: tuple[Any, ...]) -> None:
    program = Program("reads")
    bank = program.bank(Doubles, 2).given if kind else program.bank(Reads, 2).row
    program.connect(program.input("given", *kind), bank)
    run = program.start(**way)
    write, value = run.writer("given"), np.ones(2, np.float32)
    write(value)
    run.tick()
    run.close()
    with pytest.raises(RunError, match=r"cannot set given .* after the run is over"):
        write(value)
    with pytest.raises(RunClosedError, match="the run is over"):
        run.set(given=value)
