"""The dependency graph: its edges, its levels, its cycles."""

from __future__ import annotations

import pytest

from reactor_rl import CausalityLoopError, Input, Output, Program, Reactor, Timer, reaction
from reactor_rl.graph import build


class Node(Reactor):
    each = Timer(period=1)
    inp = Input()
    also = Input()
    out = Output((), "f4")

    @reaction(each, effects=out)
    def write(self) -> None: ...

    @reaction(inp, uses=also)
    def read(self) -> None: ...


class Pass(Reactor):
    inp = Input()
    out = Output((), "f4")

    @reaction(inp, effects=out)
    def forward(self) -> None: ...


def test_edges_and_levels() -> None:
    program = Program()
    a, b = program.add(Node, name="a"), program.add(Node, name="b")
    program.connect(a.out, b.inp)
    program.connect(b.out, a.also)  # `uses` is a dependency too
    graph = build(program.topology())
    assert graph.before == ((), (0, 2), (), (0, 2))
    assert graph.after == ((1, 3), (), (1, 3), ())
    assert graph.level == (0, 1, 0, 1)


def test_delays_add_no_edge() -> None:
    program = Program()
    a, b = program.add(Pass, name="a"), program.add(Pass, name="b")
    program.connect(a.out, b.inp)
    program.connect(b.out, a.inp, after=1)
    assert build(program.topology()).before == ((), (0,))


def test_a_cycle_is_walked_by_name() -> None:
    program = Program()
    a, b, c = (program.add(Pass, name=name) for name in "abc")
    program.connect(a.out, b.inp)
    program.connect(b.out, c.inp)
    program.connect(c.out, a.inp)
    with pytest.raises(CausalityLoopError) as caught:
        build(program.topology())
    lines = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["a.forward", "b.forward", "c.forward", "a.forward"]
    assert "writes a.out, which is b.inp, read by" in lines[1]
    assert "connect(..., after=1)" in lines[-1]


def test_a_cycle_through_the_order_of_declaration() -> None:
    class Later(Reactor):
        each = Timer(period=1)
        inp = Input()
        out = Output((), "f4")

        @reaction(inp)
        def first(self) -> None: ...

        @reaction(each, effects=out)
        def second(self) -> None: ...

    program = Program()
    one, other = program.add(Later, name="one"), program.add(Pass, name="other")
    program.connect(one.out, other.inp)
    program.connect(other.out, one.inp)
    with pytest.raises(CausalityLoopError, match=r"one.first comes, in the order of declaration, before") as caught:
        program.start(executor="inline")
    assert "one.second writes one.out" in str(caught.value)
