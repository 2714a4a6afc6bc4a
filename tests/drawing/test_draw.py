"""Pictures show every reactor, port and delay, and are well formed whatever the names are."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from reactor_rl import Input, LogicalAction, Output, Program, ProgramError, Reactor, Timer, reaction, startup
from reactor_rl.drawing.draw import draw
from reactor_rl.drawing.picture import picture
from reactor_rl.drawing.svg import SMALL, Layout, text_width
from reactor_rl.graph import build
from reactor_rl.schedule import compile_schedule

FORMATS = ("mermaid", "dot", "svg")


class Source(Reactor):
    beat = Timer(offset=1, period=2)
    out = Output((4,), np.float32)

    @reaction(beat, effects=out)
    def produce(self):
        self.out.set(1.0)


class Stage(Reactor):
    inp = Input()
    out = Output((4,), np.float32)
    again = LogicalAction()

    @reaction(startup)
    def build(self):
        pass

    @reaction(inp, effects=(out, again))
    def work(self):
        self.out.set(self.inp.value)

    @reaction(again, uses=inp)
    def settle(self):
        pass


class Member(Reactor):
    left = Input()
    right = Input()
    out = Output((), np.float64)

    @reaction(left, uses=right, effects=out)
    def go(self):
        self.out.set(0.0)


class Wild(Reactor):
    a, b, c, d = Input(), Input(), Input(), Input()
    x, y, z = Output((), np.float64), Output((), np.float64), Output((), np.float64)

    @reaction(a, b, c, d, effects=(x, y, z))
    def go(self):
        pass


class Hub(Reactor):
    results = Input()
    plans = Output((16,), np.float64)
    best = Output((), np.float64)

    @reaction(results, effects=(plans, best))
    def decide(self):
        pass


def one() -> Program:
    program = Program("one")
    program.add(Source)
    return program


def loop(n: int = 16) -> Program:
    program = Program("loop")
    members = program.bank(Member, n, name="rolls")
    hub = program.add(Hub)
    program.connect(hub.plans.rows, members.left, after=1, initial=np.zeros(16))
    program.connect(members.out, hub.results.rows)
    program.connect(hub.best, program.output("best"))
    return program


def pipeline(after: int | None = None) -> Program:
    program = Program("pipeline")
    source, middle, last = program.add(Source), program.add(Stage, name="middle"), program.add(Stage, name="last")
    program.connect(source.out, middle.inp, after=after)
    program.connect(middle.out, last.inp, after=after)
    program.connect(last.out, program.output("result"))
    return program


def shards() -> Program:
    program = Program("shards")
    actions = program.input("actions", (5,), np.float32)
    shard = [program.add(Stage, name=f"shard{k}") for k in range(2)]
    program.connect(actions.rows[0:4], shard[0].inp)
    program.connect(actions.rows[1:5], shard[1].inp)
    obs = program.output("obs")
    program.connect(shard[0].out, obs.rows[0:4])
    program.connect(shard[1].out, obs.rows[4:8])
    return program


def tangle() -> Program:
    """Long ways forward, ways back, a reactor that feeds itself, and two members that cross over."""
    program = Program("tangle")
    a, b, c, d = (program.add(Member, name=name) for name in "abcd")
    for source, target, after in (
        (a.out, b.left, None), (b.out, c.left, None), (c.out, d.left, None), (a.out, d.right, None),
        (d.out, a.left, 2), (c.out, a.right, 1), (b.out, b.right, 3),
    ):  # fmt: skip
        program.connect(source, target, after=after)
    return program


def wild(seed: int) -> Program:
    """Anything that can be connected, in any direction."""
    choose = random.Random(seed)
    program = Program(f"wild {seed}")
    members = [program.add(Wild, name=f"m{index}") for index in range(choose.randint(2, 12))]
    for index, member in enumerate(members):
        for name in ("a", "b", "c", "d"):
            source = choose.randrange(len(members))
            if choose.random() < 0.5:
                after = choose.randint(1, 2) if source >= index or choose.random() < 0.3 else None
                program.connect(getattr(members[source], choose.choice("xy")), getattr(member, name), after=after)
    return program


PROGRAMS = (one, loop, pipeline, shards, tangle)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("form", FORMATS)
def test_every_name_appears(make, form):
    program = make()
    text = draw(program.topology(), None, form)
    shown = "\n".join(texts(text)) if form == "svg" else text
    topology = program.topology()
    for reactor in topology.reactors:
        assert (reactor.bank[0] if reactor.bank else reactor.name) in shown
        assert reactor.kind in shown
    for port in (*topology.inputs, *topology.outputs):
        if form == "svg" or getattr(port, "sources", getattr(port, "delays", ())):
            assert port.name in shown
    for node in topology.reactions:
        assert f". {node.name}: " in shown
    for delay in {inp.delay for inp in topology.inputs if inp.delay}:
        assert f"after {delay}" in shown


def test_reactions_say_what_triggers_them_and_what_they_write():
    box = next(box for box in picture(pipeline().topology()).boxes if box.title == "middle")
    assert box.reactions == ("1. build: startup", "2. work: inp → out, again", "3. settle: again (+ inp)")
    assert "beat (every 2 ticks from 1)" in picture(one().topology()).boxes[0].reactions[0]


def test_a_bank_that_is_wired_alike_is_one_box():
    found = picture(loop().topology())
    assert [box.title for box in found.boxes] == ["rolls ×16", "hub", "best"]  # noqa: RUF001
    assert {arrow.ports for arrow in found.arrows} == {"plans.rows → left", "out → results.rows", "best → best"}
    assert {arrow.marks for arrow in found.arrows} == {("scatter", "after 1"), ("gather",), ()}


def test_a_bank_that_is_not_wired_alike_is_shown_member_by_member():
    program = loop(3)
    source = program.add(Source)
    program.connect(source.out, program.instances[1].right)
    titles = [box.title for box in picture(program.topology()).boxes]
    assert titles == ["rolls[0]", "rolls[1]", "rolls[2]", "hub", "source", "best"]
    labels = [arrow.ports for arrow in picture(program.topology()).arrows]
    assert "plans.rows[1] → left" in labels
    assert "out → results.rows[2]" in labels


def test_a_ring_is_one_box_that_hears_from_its_neighbour():
    program = Program("ring")
    members = program.bank(Member, 5)
    for index in range(5):
        program.connect(members[index].out, members[(index + 1) % 5].left, after=1, initial=0.0)
    (box,), (arrow,) = picture(program.topology()).boxes, picture(program.topology()).arrows
    assert box.shape == "bank"
    assert arrow.marks == ("from [i-1]", "after 1")


def test_a_bank_that_feeds_single_reactors_says_which_member():
    program = Program("one to one")
    one, other = program.bank(Member, 3, name="one"), program.bank(Member, 3, name="other")
    source = program.add(Source)
    program.connect(one.out, other.left)
    program.connect(source.out, other[2].right)
    assert {a.member for a in picture(program.topology()).arrows} == {"[0]", "[1]", "[2]", ""}


def test_blocks_of_rows_are_named():
    assert {arrow.ports for arrow in picture(shards().topology()).arrows} == {
        "actions.rows[0:4] → inp", "actions.rows[1:5] → inp", "out → obs.rows[0:4]", "out → obs.rows[4:8]",
    }  # fmt: skip


def test_delayed_connections_are_dashed():
    topology = pipeline(after=7).topology()
    assert draw(topology, None, "svg").count("stroke-dasharray") == 2
    assert draw(topology, None, "dot").count("style=dashed") == 2
    assert draw(topology, None, "mermaid").count(".->") == 2


@pytest.mark.parametrize("form", FORMATS)
def test_a_schedule_shows_the_worker_of_each_reactor(form):
    topology = loop().topology()
    schedule = compile_schedule(topology, build(topology), 3)
    text = draw(topology, None, form, schedule=schedule)
    for label in ("worker 0 (caller)", "worker 1", "worker 2", "workers 0-2"):
        assert label in text
    colours = {colour for _, colour in picture(topology, schedule).legend}
    assert len(colours) == 3
    assert all(colour in text for colour in colours)
    assert "worker" not in draw(topology, None, form)


@pytest.mark.parametrize("form", FORMATS)
def test_names_are_escaped(form):
    program = Program('<&"\\`#> \x07%%{init}\n<script>')
    stage = program.add(Stage, name='a<b> & "c" \\n\n ]]>')
    program.connect(program.input("x", (4,), np.float32), stage.inp)
    text = draw(program.topology(), None, form)
    assert "<script>" not in text and "<b> " not in text and "\x07" not in text
    if form == "svg":
        assert 'a<b> & "c" \\n� ]]>' in texts(text)
    elif form == "dot":
        assert '"a&lt;b&gt; &amp; \\"c\\" \\\\n ]]&gt;\\l' in text
        assert text.startswith('digraph "&lt;&amp;\\"\\\\`#&gt; �%%{init} &lt;script&gt;" {\n')
    else:
        assert "a#lt;b#gt; #amp; #quot;c#quot; #92;n ]]#gt;" in text
        assert "%% program #lt;#amp;#quot;#92;#96;#35;#gt; �%%#123;init#125; #lt;script#gt;\n" in text


@pytest.mark.parametrize("make", PROGRAMS)
def test_text_stays_inside_its_box_and_lines_off_each_other(make):
    check_layout(make())


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_lines_stay_off_each_other_in_random_programs(seed):
    for one_of_ten in range(seed, seed + 10):
        check_layout(wild(one_of_ten))


def test_two_lines_that_change_places_between_neighbours_do_not_run_on_each_other():
    program = Program("crossed")
    one, other = program.add(Wild, name="one"), program.add(Wild, name="other")
    program.connect(one.x, other.a)
    program.connect(one.y, other.c)
    program.connect(one.z, other.b)
    check_layout(program)


def check_layout(program: Program) -> None:
    layout = Layout(picture(program.topology()))
    for node in layout.nodes:
        assert all(text_width(line, SMALL) + 10 <= node.width for line in (*node.lines, node.box.kind))
        for inp, out in zip(node.box.inputs, node.box.outputs, strict=False):
            assert not node.box.kind or text_width(inp, SMALL) + text_width(out, SMALL) + 20 <= node.width
    for column in layout.columns:
        ordered = sorted(column, key=lambda node: node.y)
        assert all(a.y + a.height < b.y for a, b in pairwise(ordered))
    # Two connections of different ports never share a stretch of a line, and none runs through a box.
    pieces = [
        (layout.nets[index][:3], *sorted((begin, end)))
        for index in range(len(layout.picture.arrows))
        for begin, end in pairwise(layout.points(index))
    ]
    for number, (net, (x0, y0), (x1, y1)) in enumerate(pieces):
        for node in layout.nodes:
            assert x1 <= node.x or x0 >= node.x + node.width or y1 < node.y or y0 > node.y + node.height
        for other, (u0, v0), (u1, v1) in pieces[number + 1 :]:
            if net != other and y0 == y1 == v0 == v1:
                assert min(x1, u1) <= max(x0, u0)
            if net != other and x0 == x1 == u0 == u1:
                assert min(y1, v1) <= max(y0, v0)


def test_delayed_connections_that_close_no_cycle_lead_to_the_right():
    layout = Layout(picture(pipeline(after=1).topology()))
    assert [node.column for node in layout.nodes] == [0, 1, 2, 3]
    layout = Layout(picture(loop().topology()))
    assert [node.column for node in layout.nodes] == [0, 1, 2]


def test_the_background_is_explicit():
    root = ET.fromstring(draw(one().topology(), None, "svg"))
    background = root.find("{http://www.w3.org/2000/svg}rect")
    assert background is not None
    assert background.attrib == {"width": "100%", "height": "100%", "fill": "#ffffff"}


@pytest.mark.parametrize(("name", "begins"), [("p.mmd", "flowchart"), ("p.dot", "digraph"), ("p.SVG", "<svg")])
def test_the_ending_chooses_the_format(tmp_path, name, begins):
    path = tmp_path / name
    text = one().draw(str(path))
    assert text.startswith(begins)
    assert path.read_text(encoding="utf-8") == text


def test_the_format_wins_over_the_ending(tmp_path):
    assert one().draw(str(tmp_path / "p.svg"), format="dot").startswith("digraph")


@pytest.mark.parametrize("name", ["p.png", "p", "p.svg.txt"])
def test_a_wrong_ending_is_an_error_before_anything_is_written(tmp_path: Path, name):
    with pytest.raises(ProgramError, match=re.escape(name)):
        one().draw(str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_an_error():
    with pytest.raises(ProgramError, match="format must be 'mermaid'"):
        draw(one().topology(), None, "gif")


def test_a_causality_loop_can_be_drawn():
    program = Program("loop")
    a, b = program.add(Member, name="a"), program.add(Member, name="b")
    program.connect(a.out, b.left)
    program.connect(b.out, a.left)
    assert draw(program.topology(), None, "svg").count("<path") >= 2


def test_a_run_draws_its_own_placement():
    with loop(2).start(executor="inline") as run:
        assert "worker 0 (caller)" in run.draw()
