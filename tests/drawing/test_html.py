"""What a notebook shows of programs, runs and what owns a run: well formed, whatever the names are, and it starts nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from reactor_rl import Input, Output, Program, Reactor, Run, Timer, reaction
from reactor_rl.drawing.draw import html_table
from reactor_rl.plugin import RunOwner

SVG = "{http://www.w3.org/2000/svg}svg"


class Count(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    @reaction(beat, effects=out)
    def count(self):
        self.out.set(1)


class Sum(Reactor):
    inp = Input()

    @reaction(inp)
    def add(self):
        pass


def counting(name: str = "counting") -> Program:
    program = Program(name)
    program.connect(program.bank(Count, 3).out, program.add(Sum).inp.rows)
    program.connect(program.add(Count, name="one").out, program.output("n"))
    return program


def test_a_program_says_what_it_is_made_of() -> None:
    program = counting()
    program.input("scale", (2,), np.float32)
    assert repr(program) == "Program('counting', reactors=5, inputs=[scale], outputs=[n])"


def test_a_program_is_shown_as_its_picture() -> None:
    shown = ET.fromstring(counting("a < b & c")._repr_html_() or "")
    assert shown[0].text == "Program('a < b & c', reactors=5, inputs=[], outputs=[n])"
    (picture,) = shown[1]
    assert picture.tag == SVG and "one" in "".join(picture.itertext())


def test_an_incomplete_program_is_shown_as_text_only() -> None:
    program = Program("incomplete")
    program.connect(program.add(Count).out, program.add(Sum).inp.rows[1])  # and none for row 0
    assert program._repr_html_() is None


class Owner(RunOwner):
    def _running(self) -> Run:
        raise AssertionError("looking must not start anything")

    def __repr__(self) -> str:
        return "Owner()"


def test_a_run_and_its_owner_show_the_workers() -> None:
    owner = Owner()
    assert owner._repr_html_() is None
    with counting().start(executor="threads", workers=2) as run:
        owner._run = run
        for one in (run, owner):
            shown = ET.fromstring(one._repr_html_() or "")
            assert shown[0].text == repr(one)
            assert "worker 1" in "".join(shown[1][0].itertext())
    owner._run = None


@pytest.mark.parametrize("shades", [None, [[0.0, 1.0]]])
def test_a_table_is_plain_text(shades: list[list[float]] | None) -> None:
    shown = ET.fromstring(html_table(["", "<a>", "b"], [["x & y", "1", "2"]], shades))
    assert [cell.text for cell in shown.iter("th")] == [None, "<a>", "b", "x & y"]
    cells = list(shown.iter("td"))
    assert [cell.text for cell in cells] == ["1", "2"]
    assert [cell.get("style") for cell in cells] == (
        [None, None] if shades is None else [f"background:rgba(64,128,224,{opacity})" for opacity in ("0.00", "0.60")]
    )
