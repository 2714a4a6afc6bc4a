"""Plain programs on the machines of a cluster: values, errors, stops, snapshots, traces, drawings, and nodes that die or hang."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from machines import ProgramSpec, build
from random_programs import QUIET, check, programs, told
from ray_actors import process_of

from reactor_rl import (
    Input,
    NodeDiedError,
    Output,
    Program,
    Reactor,
    Recover,
    RecoveryWarning,
    RunClosedError,
    reaction,
)  # fmt: skip
from reactor_rl.errors import WorkerTraceback

RAY = {"executor": "ray", "nodes": 3, "workers": 1}


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=3, phases=[Phase.generate], database=None)
@given(st.data(), programs())
def test_programs_are_the_oracle(cluster: Any, data: Any, spec: ProgramSpec) -> None:
    record = told(spec)
    on = {reactor.name: data.draw(st.integers(0, 2)) for reactor in build(spec).topology().reactors}
    check(spec, record, executor="ray", nodes=3, workers=data.draw(st.integers(1, 2)), on=on)


class Counts(Reactor):
    """Adds how often it was called to what it is given; number 3 ends everything if that is negative (an error) or 0 (a stop)."""

    x = Input()
    y = Output((), np.int64)

    def __init__(self) -> None:
        self.calls = 0

    @reaction(x, effects=y)
    def count(self) -> None:
        given, self.calls = int(self.x.value), self.calls + 1
        if self.bank_index == 3 and given < 0:
            raise ValueError(f"{given} is less than nothing")
        if self.bank_index == 3 and given == 0:
            self.request_stop()
        self.y.set(given + self.calls)


def star() -> Program:
    program = Program("star")
    bank = program.bank(Counts, 4, name="counts")
    program.connect(program.input("given"), bank.x)
    program.connect(bank.y, program.output("counted").rows)
    return program


def counted(run: Any, given: int) -> list[int]:
    run.set(given=given)
    run.tick()
    return run.counted.tolist()  # type: ignore[no-any-return]


@pytest.mark.timeout(120)
def test_what_a_run_can_do(cluster: Any, tmp_path: Path) -> None:
    with star().start(**RAY) as run:
        assert (run.executor, run.nodes, run.workers) == ("ray", 3, 3)
        assert counted(run, 10) == [11] * 4
        snapshot = run.snapshot()
        assert counted(run, 10) == [12] * 4
        run.restore(snapshot)
        assert counted(run, 10) == [12] * 4
        with run.trace(str(tmp_path / "trace.json")) as tracing:
            assert counted(run, 10) == [13] * 4
        assert tracing.reactions >= 4
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        rows = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        assert rows == ["node 0, worker 0 (caller)", "node 1, worker 0", "node 2, worker 0"]
        assert {"counts[0].count", "counts[3].count"} <= {event["name"] for event in events}
        drawing = run.draw()
        assert all(text in drawing for text in ("node 0 (home)", "node 1", "node 2"))
        with pytest.raises(ValueError, match="-1 is less than nothing") as caught:
            counted(run, -1)
        assert caught.value.__notes__ == ["in reaction counts[3].count at tag (3, 0)"]
        assert isinstance(caught.value.__cause__, WorkerTraceback) and "in count" in str(caught.value.__cause__)
        with pytest.raises(RunClosedError, match=r"counts\[3\].count raised ValueError"):
            counted(run, 10)
    with star().start(**RAY) as run:
        run.restore(snapshot)
        assert counted(run, 0) == [2] * 4
        assert run.stopped


@pytest.mark.timeout(120)
def test_a_node_that_dies_is_named(cluster: Any) -> None:
    with star().start(**RAY) as run:
        counted(run, 1)
        os.kill(process_of(run, 2), signal.SIGKILL)
        with pytest.raises(NodeDiedError, match=r"node 2 \(\S+ \(\w{8}\)\) has died: .* in tick 1; it held counts\[") as caught:
            counted(run, 1)
        assert caught.value.node == 2 and set(caught.value.reactors) < {f"counts[{index}]" for index in range(4)}


@pytest.mark.timeout(120)
def test_a_node_that_hangs_is_replaced(cluster: Any) -> None:
    with star().start(**RAY, recover=Recover(restarts=1), timeout=1.0) as run:
        assert counted(run, 10) == [11] * 4
        os.kill(process_of(run, 1), signal.SIGSTOP)
        with pytest.warns(RecoveryWarning, match=r"node 1 \(.*\) has not answered for 1.0 s in tick 1. It was replaced"):
            assert counted(run, 10) == [12] * 4
        assert counted(run, 10) == [13] * 4
