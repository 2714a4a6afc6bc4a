"""Nodes that are lost are brought back, and nobody can tell from the values.

``python tests/federation/test_lost_nodes.py 3000`` tries as many programs.
"""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from machines import ProgramSpec, build
from random_programs import QUIET, advance, ended, programs, told

from reactor_rl import (
    Input,
    NodeDiedError,
    Output,
    Program,
    ProgramError,
    Reactor,
    Recover,
    RecoveryWarning,
    RunClosedError,
    Timer,
    WorkerHungError,
    reaction,
    startup,
)  # fmt: skip
from reactor_rl.federation import recovery
from reactor_rl.federation.home import FederatedRun
from reactor_rl.federation.in_process import InProcess
from reactor_rl.federation.transport import NodeRequest
from reactor_rl.runtime import lifetime

pytestmark = pytest.mark.faults


class Careless(InProcess):
    """Loses nodes now and then, in the middle of a call or just after it was given one, and each at most once in a tick."""

    def __init__(self, nodes: int, workers: int, seed: int, chance: float) -> None:
        super().__init__(nodes, workers)
        self.draw, self.chance, self.when = random.Random(seed), chance, 0
        self.spared: set[int] = set()
        self.losses = 0

    def send(self, node: int, call: NodeRequest) -> None:
        super().send(node, call)
        if call.question is not None:
            return
        if call.command == "first" and call.time > self.when:
            self.when, self.spared = call.time, set()
        if node not in self.spared and self.draw.random() < self.chance:
            self.spared.add(node)
            self.losses += 1
            self.lose(node)


def agree(data: Any, spec: ProgramSpec) -> None:
    record = told(spec)
    nodes, workers, seed = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 2)), data.draw(st.integers(0, 1000))
    transport = Careless(nodes, workers, seed, 0.15)
    recover = Recover(restarts=1000, log_bytes=data.draw(st.sampled_from([1, 500, 1 << 20])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        run = build(spec).start(executor=transport, recover=recover)
        try:
            advance(run, spec, record)
        finally:
            ended(run)


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=15)
@given(st.data(), programs())
def test_programs_whose_nodes_are_lost_are_the_oracle(data: Any, spec: ProgramSpec) -> None:
    agree(data, spec)


HELD: list[Hashable] = []
"""Where somebody does not return, once for each time that the place is in the list."""
LET_GO = threading.Event()


def pass_by(place: Hashable) -> None:
    if place in HELD:
        HELD.remove(place)
        LET_GO.wait(30)


@contextmanager
def held(*places: Hashable) -> Iterator[None]:
    HELD.extend(places)
    try:
        yield
        assert not HELD
    finally:
        HELD.clear()
        LET_GO.set()
        LET_GO.clear()


class Sum(Reactor):
    """Adds up what it is given, and tells with a delay."""

    inp = Input()
    out = Output((), np.int64)

    def __init__(self) -> None:
        self.sum = 0

    @reaction(inp, effects=out)
    def add(self) -> None:
        pass_by((self.bank_index, self.tag[0]))
        self.sum += int(self.inp.value) * 3 + self.tag[0]
        self.out.set(self.sum)

    def __getstate__(self) -> dict[str, Any]:
        pass_by("state" if self.sum else "new")
        return vars(self)


class Count(Reactor):
    each = Timer(period=1)
    last = Input()
    out = Output((), np.int64)

    @reaction(each, uses=last, effects=out)
    def count(self) -> None:
        self.out.set(self.tag[0] + int(self.last.value.sum()) % 7)


def sums() -> Program:
    program = Program("sums")
    count, bank = program.add(Count), program.bank(Sum, 2, name="sum")
    program.connect(count.out, bank.inp, after=1, initial=np.int64(0))
    program.connect(bank.out, count.last.rows, after=2, initial=np.zeros(2, np.int64))
    program.connect(bank.out, program.output("sums").rows)
    return program


def trajectory(ticks: int, **how: Any) -> list[Any]:
    with sums().start(**how) as run:
        found = []
        for _ in range(ticks):
            run.tick()
            found.append(run.sums.tolist())
    return found


@pytest.mark.parametrize("log_bytes", [1, 1 << 20])
def test_a_lost_node_is_told_and_changes_nothing(log_bytes: int) -> None:
    expected = trajectory(40, executor="inline")
    transport = Careless(3, 1, 0, 0.1)
    with pytest.warns(RecoveryWarning, match=r"node \d was lost in tick \d+. It was replaced after") as said:
        found = trajectory(40, executor=transport, recover=Recover(restarts=100, log_bytes=log_bytes), on={"sum": [1, 2]})
    assert found == expected and len(said) == transport.losses > 3


def test_notes_begin_anew_when_they_are_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    keep = recovery.RecoveringTransport._keep

    def counted(self: Any, node: int, notes: Any, *moment: int) -> None:
        keep(self, node, notes, *moment)
        kept.append(len(notes.requests))

    monkeypatch.setattr(recovery.RecoveringTransport, "_keep", counted)
    recover = Recover(restarts=1, log_bytes=5 * recovery.OVERHEAD)
    trajectory(40, executor=InProcess(2, 1), recover=recover, on={"sum": [1, 1]})
    assert len(kept) > 5 and set(kept) == {2}  # the startup reactions, and the state


def test_no_more_are_replaced_than_that() -> None:
    transport = Careless(2, 1, 0, 1.0)
    with pytest.warns(RecoveryWarning), pytest.raises(NodeDiedError, match=r"Recover\(restarts=2\) is used up"):
        trajectory(40, executor=transport, recover=Recover(restarts=2), on={"sum": 1})


@pytest.mark.parametrize(("place", "log_bytes"), [((1, 5), 1 << 20), ("state", 1)])
def test_a_node_that_hangs_is_replaced(place: Hashable, log_bytes: int) -> None:
    expected = trajectory(12, executor="inline")
    recover = Recover(restarts=1, log_bytes=log_bytes)
    with held(place), pytest.warns(RecoveryWarning, match=r"node \d has not answered for 1.0 s in tick \d. It was replaced"):
        found = trajectory(12, executor=InProcess(3, 1), recover=recover, timeout=1.0, on={"sum": [1, 2]})
    assert found == expected


def test_a_node_whose_worker_hangs_is_replaced() -> None:
    expected = trajectory(12, executor="inline")
    how = {"executor": InProcess(2, 3), "recover": Recover(restarts=1), "timeout": 1.0, "caller_works": False}
    with held((1, 5)), pytest.warns(RecoveryWarning, match=r"node 1 has (lost a worker \(.* it is in sum|not answered for 1.0 s)"):
        found = trajectory(12, **how, on={"sum": 1})
    assert found == expected


@pytest.mark.parametrize(
    ("places", "restarts", "why"),
    [
        ([(1, 5), (1, 5)], 3, "as the one before it, which has not answered for 1.0 s in the same tick"),
        ([(1, 5), (0, 7)], 1, r"and Recover\(restarts=1\) is used up"),
    ],
)
def test_who_hangs_again_is_named(places: list[Hashable], restarts: int, why: str) -> None:
    how = {"executor": InProcess(2, 1), "recover": Recover(restarts=restarts), "timeout": 1.0}
    with (
        held(*places),
        pytest.warns(RecoveryWarning),
        pytest.raises(WorkerHungError, match=rf"node 1 has .*{why}.*it holds sum\[0\]"),
    ):
        trajectory(12, **how, on={"sum": 1})


class Leaves(Reactor):
    each = Timer(period=1)

    @reaction(each)
    def leave(self) -> None:
        sys.exit(3)


@pytest.mark.timeout(60)
def test_a_reaction_that_exits_on_a_node_is_an_error() -> None:
    program = Program("leaves")
    program.add(Leaves)
    with (
        program.start(executor=InProcess(2, 1), on={"leaves": 1}) as run,
        pytest.raises(RuntimeError, match="SystemExit was raised: 3"),
    ):
        run.tick()


class Loses(Reactor):
    """Loses a node, and then gives it something."""

    each = Timer(period=1)
    out = Output((), np.int64)

    @reaction(each, effects=out)
    def go(self) -> None:
        if self.tag[0] == 2:
            LOSING[-1].lose(1)
        self.out.set(self.tag[0])


LOSING: list[InProcess] = []


@pytest.mark.timeout(60)
def test_a_node_that_is_lost_while_home_computes_is_an_error() -> None:
    """Home hears of it as it sends a message, in a reaction of its own, and would wait for the node ever after."""
    program = Program("loses")
    loses, adds = program.add(Loses), program.add(Sum)
    program.connect(loses.out, adds.inp)
    program.connect(adds.out, program.output("sum"))
    LOSING.append(InProcess(2, 1))
    with program.start(executor=LOSING[-1], on={"sum": 1}) as run, pytest.raises(NodeDiedError, match="node 1"):
        run.run(6)


class Tells(Reactor):
    """Tells something from its startup reaction on."""

    each = Timer(period=1)
    out = Output((), np.int64)

    @reaction(startup, each, effects=out)
    def tell(self) -> None:
        self.out.set(self.tag[0] + 1)


class LosesAt(InProcess):
    """Loses a node as it is given some requests: each at its first time, or always."""

    def __init__(self, nodes: int, *whens: tuple[int, str, int | str], always: bool = False) -> None:
        super().__init__(nodes, 2)
        self.whens, self.always = list(whens), always

    def send(self, node: int, request: NodeRequest) -> None:
        super().send(node, request)
        when = node, request.command, request.time if request.question is None else request.question[0]
        if when in self.whens:
            if not self.always:
                self.whens.remove(when)
            self.lose(node)


@pytest.mark.parametrize("log_bytes", [1, 1 << 20])
def test_a_node_whose_startup_reactions_waited_for_another_node_is_brought_back(log_bytes: int) -> None:
    """Its log begins with all requests of its startup pass, also where a state is saved."""
    program = Program("tells")
    tells, adds = program.add(Tells), program.add(Sum)
    program.connect(tells.out, adds.inp)
    program.connect(adds.out, program.output("sum"))
    found = []
    for how in ({"executor": "inline"}, {"executor": LosesAt(3, (2, "first", 4)), "on": {"tells": 1, "sum": 2}}):
        recover = Recover(log_bytes=log_bytes) if found else None
        with warnings.catch_warnings(record=True) as said, program.start(**how, recover=recover) as run:
            warnings.simplefilter("always", RecoveryWarning)
            found.append([(run.tick(), int(run.sum))[1] for _ in range(8)])
    assert found[0] == found[1] and len(said) == 1


def test_a_node_that_is_lost_at_the_end_of_the_start_leaves_nothing() -> None:
    program = sums()
    with pytest.raises(NodeDiedError, match=r"node 1 was lost in tick 0; it held sum\[0\]") as caught:
        program.start(executor=LosesAt(2, (1, "ask", "workers")), on={"sum": [1, 0]})
    assert caught and not [run for run in lifetime.runs if run._topology.name == "sums"]  # the error keeps what it came through


def test_a_node_that_is_lost_again_while_its_state_is_saved_is_named() -> None:
    transport = LosesAt(2, (1, "ask", recovery.KEEP), (1, "start", 0), always=True)
    transport.whens.remove((1, "start", 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        with sums().start(executor=transport, recover=Recover(log_bytes=1), on={"sum": [1, 0]}) as run:
            transport.whens.append((1, "start", 0))
            with pytest.raises(NodeDiedError, match="which was lost in the same tick, in tick 0; it held sum"):
                run.tick()


def test_a_node_that_is_replaced_as_another_thread_closes_the_run_is_ended() -> None:
    transport = LosesAt(2, (1, "first", 2))
    replace = transport.replace

    def replace_late(node: int) -> None:
        other = threading.Thread(target=run.close)
        other.start()
        other.join(10)
        replace(node)

    transport.replace = replace_late  # type: ignore[method-assign]
    run = sums().start(executor=transport, recover=Recover(), on={"sum": [1, 0]})
    with pytest.raises(RunClosedError, match="closed by another thread"):
        run.run(6)
    assert not transport._threads


def test_what_recovery_does_not_go_with() -> None:
    with pytest.raises(ProgramError, match="fingerprint='all'"):
        sums().start(executor=InProcess(2, 1), recover=Recover(), fingerprint="all")


if __name__ == "__main__":
    settings(QUIET, max_examples=int(sys.argv[1]))(given(st.data(), programs())(agree))()


def test_a_run_that_nobody_has_waits_for_no_node_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as it was given up: its start has ended the nodes, and closing it, as the garbage collector does, must end too."""
    runs: list[FederatedRun] = []

    def interrupted(run: FederatedRun, *args: Any) -> None:
        runs.append(run)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FederatedRun, "_count_others", interrupted)
        patch.setattr(FederatedRun, "_mark_broken", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sums().start(executor=InProcess(2, 1))
    closing = threading.Thread(target=runs[0].close, daemon=True)
    closing.start()
    closing.join(20.0)
    assert not closing.is_alive()
