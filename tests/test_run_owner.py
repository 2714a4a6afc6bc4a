"""Something that owns a run: how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from reactor_rl import Output, Program, Reactor, Run, Timer, reaction, shutdown
from reactor_rl.plugin import RunOwner


class Counter(Reactor):
    each = Timer(period=1)
    count = Output()

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    @reaction(each, effects=count)
    def go(self) -> None:
        self.count.set(self.tag[0])

    @reaction(shutdown)
    def end(self) -> None:
        if self.fails:
            raise RuntimeError("the end")


class Owner(RunOwner):
    def __init__(self, fails: bool = False) -> None:
        program = Program("counts")
        program.connect(program.add(Counter, fails).count, program.output("count"))
        self._run = program.start(executor="inline")

    def _running(self) -> Run:
        assert self._run is not None
        return self._run


def test_it_is_closed_at_the_end_of_with(tmp_path: Path) -> None:
    with Owner() as owner:
        run = owner._running()
        run.tick()
        assert run.count == 0
        assert "counter" in owner.draw() and owner.running
        with owner.trace(str(tmp_path / "trace.json")) as tracing:
            run.tick()
        assert tracing.reactions == 1
    assert run.stopped and owner._run is None and not owner.running
    owner.close()


def test_what_the_end_raises_is_raised_once() -> None:
    owner = Owner(fails=True)
    with pytest.raises(RuntimeError, match="the end"):
        owner.close()
    assert owner._run is None
    owner.close()


def test_an_interrupted_end_is_ended_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()
    run = owner._running()

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owner.close()
    monkeypatch.undo()
    assert owner._run is run and not run.stopped
    owner.close()
    assert run.stopped and owner._run is None
