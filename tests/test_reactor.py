"""What a user declares, and the mistakes that are found while declaring."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any

import cloudpickle
import numpy as np
import pytest

from reactor_rl import Input, LogicalAction, Output, Program, ProgramError, Reactor, Timer, reaction, shutdown, startup


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: Output((2,)), "needs a dtype too"),
        (lambda: Input((2,)), "needs a dtype too"),
        (lambda: Output((-1,), "f4"), "negative shape"),
        (lambda: Output((2,), object), "cannot have dtype object"),
        (lambda: Output((2,), "f4", rows=2), "leading axis"),
        (lambda: Output(rows=0), "rows must be >= 1"),
        (lambda: Timer(offset=-1), "offset must be a number of ticks >= 0"),
        (lambda: Timer(period=0), "period must be a number of ticks >= 1"),
        (lambda: reaction(), "at least one trigger"),
        (lambda: reaction(lambda self: None), "at least one trigger"),
        (lambda: reaction(Output()), "cannot trigger"),
        (lambda: reaction("name"), "declared in the class body"),  # type: ignore[arg-type]
        (lambda: reaction(startup, uses=Output()), "uses= takes inputs"),
        (lambda: reaction(startup, effects=Input()), "effects= takes outputs"),
        (lambda: reaction(startup, effects=Timer()), "effects= takes outputs"),
        (lambda: reaction(startup, uses=shutdown), "uses= takes inputs"),
    ],
)
def test_mistakes(declare: Any, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        declare()


def test_shapes() -> None:
    assert Output(3, "f4").shape == (3,)
    assert Output(np.int64(3), "f4").shape == (3,)  # type: ignore[arg-type]
    assert Output([2, 3], "f4").shape == (2, 3)
    assert Output(dtype="f4").shape == ()
    assert Output((), np.float32).dtype == np.float32
    assert (Output().shape, Output().dtype) == (None, None)


class Base(Reactor):
    each = Timer(period=1)
    out = Output()

    @reaction(each, effects=out)
    def first(self) -> None:
        self.out.set("base")

    @reaction(each, effects=out)
    def second(self) -> None: ...


class Derived(Base):
    act = LogicalAction()

    def first(self) -> None:  # keeps what the inherited one declared, and its place
        self.out.set("derived")

    @reaction(startup)
    def third(self) -> None: ...


def test_inheritance() -> None:
    assert [r.name for r in Base.reactions] == ["first", "second"]
    assert [r.name for r in Derived.reactions] == ["first", "second", "third"]
    assert Derived.reactions[0].triggers == (Base.each,)
    program = Program()
    program.connect(program.add(Derived).out, program.output("x"))
    with program.start(executor="inline") as run:
        run.tick()
        assert run.x == "derived"


class Sized(Reactor):
    each = Timer(period=1)
    out = Output()

    def __init__(self, n: int, period: int) -> None:
        self.out = Output((n,), np.int32)
        self.each = Timer(period=period)

    @reaction(each, effects=out)
    def go(self) -> None:
        self.out.buffer[:] = self.tag[0]


@pytest.mark.parametrize("executor", ["inline", "processes"])
def test_a_subclass_fills_in_an_abstract_reaction(executor: Any) -> None:
    class Base(Reactor, ABC):
        size = Output((), np.int64)

        @reaction(startup, effects=size)
        @abstractmethod
        def build(self) -> None:
            """Set the size."""

    class Six(Base):
        def build(self) -> None:
            self.size.set(6)

    program = Program("sizes")
    with pytest.raises(TypeError, match="abstract class Base"):
        program.add(Base)
    program.connect(program.add(Six).size, program.output("size"))
    with program.start(executor=executor, workers=1 if executor == "inline" else 2) as run:
        run.tick()
        assert run.size == 6


def test_an_instance_fixes_shapes_and_periods() -> None:
    program = Program()
    two, three = program.add(Sized, 2, 2), program.add(Sized, 3, 3)
    program.connect(two.out, program.output("two"))
    program.connect(three.out, program.output("three"))
    with program.start(executor="inline") as run:
        seen = []
        for _ in range(4):
            run.tick()
            seen.append((None if run.two is None else run.two.tolist(), None if run.three is None else run.three.tolist()))
    assert seen == [([0, 0], [0, 0, 0]), (None, None), ([2, 2], None), (None, [3, 3, 3])]


class Clash(Reactor):
    each = Timer(period=None)
    act = LogicalAction()
    out = Output()

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @reaction(startup, effects=act)
    def begin(self) -> None:
        self.act.schedule(0, "startup")

    @reaction(each, effects=act)
    def ring(self) -> None:
        for value in "abc":
            self.act.schedule(0, value)
            self.act.schedule(1, value.upper())

    @reaction(act, effects=(act, out))
    def see(self) -> None:
        self.seen.append((self.tag, self.act.value))
        if self.act.value == "A":
            self.act.schedule(0, "last")
        self.out.set(list(self.seen))


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_events_of_one_action_never_share_a_tag(executor: Any) -> None:
    program = Program()
    program.connect(program.add(Clash).out, program.output("x"))
    program.bank(Base, 2)
    with program.start(executor=executor, workers=2) as run:
        run.run(2)
        assert run.x == [
            ((0, 1), "startup"), ((0, 2), "a"), ((0, 3), "b"), ((0, 4), "c"),
            ((1, 0), "A"), ((1, 1), "B"), ((1, 2), "C"), ((1, 3), "last"),
        ]  # fmt: skip


def test_actions_look_forward_only() -> None:
    class Back(Reactor):
        act = LogicalAction()

        @reaction(startup, effects=act)
        def go(self) -> None:
            self.act.schedule(-1)

    program = Program()
    program.add(Back)
    with pytest.raises(ValueError, match="delay must be >= 0, got -1"):
        program.start(executor="inline")


def test_moments_keep_their_identity_when_a_reactor_class_travels_by_value() -> None:
    assert pickle.loads(pickle.dumps((startup, shutdown))) == (startup, shutdown)
    assert pickle.loads(cloudpickle.dumps(startup)) is startup
