"""What travels by value is a copy for a reactor, whichever thread its worker goes on in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reactor_rl import Input, Output, Program, Reactor, reaction
from reactor_rl.pickling import decode, encode


class Reads(Reactor):
    given, seen = Input(), Output()

    @reaction(given, effects=seen)
    def go(self) -> None:
        self.seen.set(type(self.given.value).level)


def reads() -> Program:
    program = Program("reads")
    reader = program.add(Reads)
    program.connect(program.input("given"), reader.given)
    program.connect(reader.seen, program.output("seen"))
    return program


@pytest.mark.parametrize("caller_works", [True, False])
def test_a_class_is_as_it_was_when_it_was_sent(caller_works: bool) -> None:
    class Course:
        level = 0

    def tick(run: Any) -> int:
        run.set(given=Course())
        Course.level += 1
        run.tick()
        assert type(decode(encode(Course()))) is Course  # no reaction is running
        return int(run.seen)

    how: dict[str, Any] = {"executor": "inline"} if caller_works else {"executor": "processes", "workers": 2, "caller_works": False}
    with reads().start(**how) as run, ThreadPoolExecutor(1) as elsewhere:
        assert [tick(run), tick(run)] == [0, 1]
        assert elsewhere.submit(tick, run).result() == 2
        assert tick(run) == 3
