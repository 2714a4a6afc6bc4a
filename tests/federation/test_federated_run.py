"""What a run on several nodes does beside giving the right values: calls, errors, time-outs, traces, drawings."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import (
    Input,
    LogicalAction,
    NodeDiedError,
    Output,
    Program,
    ProgramError,
    Reactor,
    RunClosedError,
    Timer,
    WorkerDiedError,
    WorkerHungError,
    reaction,
    startup,
)  # fmt: skip
from reactor_rl.federation.cut import GATEWAY, cut, nodes_of
from reactor_rl.federation.in_process import InProcess
from reactor_rl.federation.transport import NodeReply, NodeRequest


class Roll(Reactor):
    """Half of a loop, which can be held up."""

    params = Input()
    returns = Output((), np.float32)

    def __init__(self) -> None:
        self.sum = np.float32(0)

    @reaction(params, effects=returns)
    def roll(self) -> None:
        if GATE.get(self.bank_index) is not None:
            GATE[self.bank_index].wait(30)
        self.sum += self.params.value.sum() + self.bank_index
        self.returns.set(self.sum)


GATE: dict[int, threading.Event] = {}


class Search(Reactor):
    """The other half, at home; now and then it takes some microsteps."""

    returns = Input()
    think = LogicalAction()
    candidates = Output((4, 3), np.float32)
    best = Output((), np.float32)

    def __init__(self, microsteps: int = 0) -> None:
        self.microsteps = microsteps
        self.x = np.zeros((4, 3), np.float32)

    @reaction(returns, effects=[candidates, think, best])
    def gather(self) -> None:
        self.x[...] = 0.5 * self.x + self.returns.value[:, None] + np.arange(3, dtype=np.float32)
        self.finish(self.microsteps)

    @reaction(think, effects=[candidates, think, best])
    def ponder(self) -> None:
        self.x *= 0.5
        self.finish(self.think.value)

    def finish(self, left: int) -> None:
        if left:
            self.think.schedule(0, left - 1)
        else:
            self.candidates.set(self.x)
            self.best.set(self.x.max())


def search(microsteps: int = 0) -> Program:
    program = Program("search")
    members = program.bank(Roll, 4, name="rolls")
    home = program.add(Search, microsteps, name="search")
    program.connect(home.candidates.rows, members.params, after=1, initial=np.zeros(3, np.float32))
    program.connect(members.returns, home.returns.rows)
    program.connect(home.best, program.output("best"))
    return program


def bests(ticks: int = 6, microsteps: int = 0, **how: Any) -> list[float]:
    found = []
    with search(microsteps).start(**how) as run:
        for _ in range(ticks):
            run.tick()
            found.append(float(run.best))
    return found


# ---------------------------------------------------------------------- calls


@pytest.mark.parametrize("microsteps", [0, 3])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_a_star_takes_one_call_per_node_and_tick(nodes: int, microsteps: int) -> None:
    """However many microsteps home takes by itself."""
    expected = bests(microsteps=microsteps, executor="inline")
    with search(microsteps).start(executor="federated", nodes=nodes, workers=1) as run:
        before, found = run.calls, []
        for _ in range(6):
            run.tick()
            found.append(float(run.best))
        assert run.calls - before == 6 * (nodes - 1)
        assert (run.nodes, run.workers, run.executor) == (nodes, nodes, "federated")
    assert found == expected


class Seldom(Reactor):
    beat = Timer(3, 100)
    out = Output()

    @reaction(beat, effects=out)
    def go(self) -> None:
        self.out.set(self.tag[0])


class Hears(Reactor):
    heard = Input()
    out = Output()

    @reaction(heard, effects=out)
    def hear(self) -> None:
        self.out.set((self.tag[0], self.heard.value))


def test_times_at_which_nothing_happens_anywhere_take_no_call() -> None:
    program = Program("seldom")
    seldom, hears = program.add(Seldom), program.add(Hears)
    program.connect(seldom.out, hears.heard, after=5)
    program.connect(hears.out, program.output("heard"))
    with program.start(executor="federated", nodes=3, workers=1, on={"seldom": 1, "hears": 2}) as run:
        before = run.calls
        assert run.run(105) == 105
        assert run.calls - before == 2 * 4  # ticks 0, 3, 8 and 103
        assert run.heard is None
        run.run(4)
        assert run.heard == (108, 103)


def test_what_comes_at_the_next_tick_is_known_at_home() -> None:
    program = Program("soon")
    seldom, hears = program.add(Seldom), program.add(Hears)
    program.connect(seldom.out, hears.heard, after=1)
    program.connect(hears.out, program.output("heard"))
    with program.start(executor="federated", nodes=2, workers=1, on={"seldom": 1, "hears": 1}) as run:
        assert run.run(5) == 5
        assert run.heard == (4, 3)


class Thinks(Reactor):
    each = Timer(period=1)
    think = LogicalAction()
    out = Output()

    @reaction(each, effects=think)
    def begin(self) -> None:
        self.think.schedule()

    @reaction(think, effects=out)
    def end(self) -> None:
        self.out.set(self.tag)


@pytest.mark.timeout(60)
def test_a_microstep_that_only_another_node_needs_is_taken() -> None:
    program = Program("thinks")
    program.connect(program.add(Thinks).out, program.output("thought"))
    with program.start(executor="federated", nodes=2, workers=1, on={"thinks": 1}) as run:
        for tick in range(3):
            run.tick()
            assert run.thought == (tick, 1)


@pytest.mark.timeout(60)
def test_nobody_waits_for_a_node_that_takes_no_part_in_a_microstep() -> None:
    program = Program("thinks")
    seldom, hears, thinks = program.add(Seldom), program.add(Hears), program.add(Thinks)
    program.connect(seldom.out, hears.heard)
    program.connect(hears.out, program.output("heard"))
    program.connect(thinks.out, program.output("thought"))
    with program.start(executor="federated", nodes=3, workers=1, on={"seldom": 1, "hears": 2}) as run:
        before = run.calls
        run.run(4)
        assert (run.heard, run.thought) == ((3, 3), (3, 1))
        assert run.calls - before == 4 * (1 + 2) + 4  # node 2 waits in the middle of each tick, and takes part in microsteps


# ---------------------------------------------------------------------- what goes wrong


class TakesItsTime(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    @reaction(startup)
    def begin(self) -> None:
        time.sleep(1.0)

    @reaction(beat, effects=out)
    def go(self) -> None:
        self.out.set(self.tag[0])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_startup_reactions_take_their_time(workers: int) -> None:
    program = Program("slow to start")
    bank = program.bank(TakesItsTime, 2, name="slow")
    program.connect(bank.out, program.output("ticks").rows)
    how: dict[str, Any] = {"timeout": 0.4, "caller_works": workers == 1, "on": {"slow": 1}}
    with program.start(executor="federated", nodes=2, workers=workers, **how) as run:
        run.run(2)
        assert run.ticks.tolist() == [1, 1]


class Raises(Reactor):
    beat = Timer(period=1)

    @reaction(beat)
    def go(self) -> None:
        if self.tag[0] == 2:
            time.sleep(0.05 * (2 - self.bank_index))
            raise ValueError(f"number {self.bank_index}")


def test_of_several_errors_that_of_the_first_reaction_of_the_program() -> None:
    program = Program("raising")
    program.bank(Raises, 3, name="raises")
    with program.start(executor="federated", nodes=3, workers=1, on={"raises": [2, 1, 0]}) as run:
        run.run(2)
        with pytest.raises(ValueError, match="number 0") as caught:
            run.tick()
        assert caught.value.__notes__ == ["in reaction raises[0].go at tag (2, 0)"]
        with pytest.raises(RunClosedError):
            run.tick()


class FailsToStart(Reactor):
    @reaction(startup)
    def begin(self) -> None:
        raise OSError("no such game")


def test_an_error_of_a_startup_reaction_elsewhere() -> None:
    program = Program("starting")
    program.add(FailsToStart, name="game")
    with pytest.raises(OSError, match="no such game"):
        program.start(executor="federated", nodes=2, workers=1, on={"game": 1})


def test_a_lost_node_is_named() -> None:
    transport = InProcess(3, 1)
    with search().start(executor=transport) as run:
        run.run(2)
        transport.lose(2)
        with pytest.raises(NodeDiedError, match=r"node 2 was lost in tick 2; it held rolls\[3\]") as caught:
            run.tick()
        assert caught.value.node == 2 and caught.value.reactors == ("rolls[3]",)
        with pytest.raises(RunClosedError, match="NodeDiedError"):
            run.tick()


def test_closing_waits_for_lost_nodes_too() -> None:
    transport, before = InProcess(3, 1), set(threading.enumerate())
    GATE[3] = gate = threading.Event()
    try:
        with search().start(executor=transport) as run:
            run.tick_async()
            transport.lose(2)
            with pytest.raises(NodeDiedError, match="node 2 was lost in tick 0"):
                run.tick_wait()
        (lost,) = set(threading.enumerate()) - before
        threading.Timer(0.2, gate.set).start()
        transport.close(30.0)
        assert not lost.is_alive()
    finally:
        gate.set()
        GATE.clear()


class Dies(Reactor):
    beat = Timer(period=1)

    @reaction(beat)
    def go(self) -> None:
        if self.bank_index and self.tag[0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_on_another_node() -> None:
    program = Program("dying")
    program.bank(Dies, 2, name="dies")
    transport = InProcess(2, 2, "processes")
    with program.start(executor=transport, on={"dies": 1}, placement={"dies[0]": 0, "dies[1]": 1}) as run:
        run.run(2)
        with pytest.raises(WorkerDiedError, match=r"worker 1 was killed by SIGKILL; it held dies\[1\]") as caught:
            run.tick()
        assert caught.value.__notes__ == ["on node 1"]


def test_what_several_nodes_read_is_copied_once() -> None:
    class Watched(InProcess):
        def send(self, node: int, call: NodeRequest) -> None:
            sent.append((call.time, [part for message in call.messages for content in message.contents for part in content.values]))
            super().send(node, call)

    sent: list[tuple[int, list[Any]]] = []
    expected = bests(4, executor="inline")
    assert bests(4, executor=Watched(3, 1)) == expected
    of_ticks = {tick: [parts[0] for time, parts in sent if time == tick and parts] for tick in (1, 2, 3)}
    for one, other in of_ticks.values():
        assert one is other and one.shape == (4, 3)
    assert of_ticks[1][0] is not of_ticks[2][0]


def test_a_timeout_loses_nothing() -> None:
    expected = bests(2, executor="inline")
    GATE[3] = threading.Event()
    try:
        with search().start(executor="federated", nodes=2, workers=1) as run:
            run.tick_async()
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                run.tick_wait(timeout=0.1)
            assert time.monotonic() - began < 20.0  # a tick that is done, but late, takes the 30 seconds of the gate
            GATE[3].set()
            run.tick_wait(timeout=10)
            assert float(run.best) == expected[0]
            run.tick()
            assert float(run.best) == expected[1]
    finally:
        GATE.clear()


class Prompt(InProcess):
    """Has the next reply, however little time there is for it."""

    def receive(self, timeout: float) -> tuple[int, NodeReply]:
        return super().receive(30.0)


def test_a_tick_whose_replies_are_all_there_is_done_however_late_it_is() -> None:
    expected = bests(3, executor="inline")
    found = []
    with search().start(executor=Prompt(3, 1)) as run:
        for _ in range(3):
            run.tick_async()
            with pytest.raises(TimeoutError):
                run.tick_wait(timeout=0.0)
            run.tick_wait(timeout=0.0)  # it has nothing left to do
            found.append(float(run.best))
    assert found == expected


class Slow(Roll):
    """Takes its time to be saved."""

    def __getstate__(self) -> dict[str, Any]:
        if GATE.get(self.bank_index) is not None:
            GATE[self.bank_index].wait(30)
        return vars(self)


@pytest.mark.timeout(60)
def test_a_question_ends_when_another_thread_closes_the_run() -> None:
    program = Program("slow")
    program.connect(program.input("params", (), np.float32), program.bank(Slow, 2, name="rolls").params)
    run = program.start(executor="federated", nodes=2, workers=1, on={"rolls": [0, 1]})
    GATE[1] = gate = threading.Event()
    try:
        other = threading.Timer(0.1, run.close, (0.0,))
        other.start()
        with pytest.raises(RunClosedError):
            run.snapshot()
        assert not gate.is_set()
    finally:
        gate.set()
        GATE.clear()
        other.join()


def test_a_node_that_hangs_is_named() -> None:
    GATE[3] = gate = threading.Event()
    try:
        with search().start(executor="federated", nodes=2, workers=1, timeout=0.2) as run:
            with pytest.raises(WorkerHungError, match=r"node 1 has not answered for 0.2 s in tick 0; it holds rolls\[2\]"):
                run.tick()
            gate.set()
    finally:
        GATE.clear()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"executor": "inline", "on": {"search": 0}}, "on= needs an executor with several nodes"),
        ({"executor": "threads", "nodes": 2}, "nodes=2 needs an executor"),
        ({"executor": "federated", "nodes": 0}, "nodes must be an integer >= 1"),
        ({"executor": "federated", "on": {"zebra": 0}}, "on names 'zebra', which the program does not have; it has: rolls, search"),
        ({"executor": "federated", "on": {"rolls": 2}}, "must be a node from 0, home, to 1, got 2"),
        ({"executor": "federated", "on": {"rolls": [0, 1]}}, r"on\['rolls'\] has 2 node"),
        ({"executor": "federated", "placement": {"zebra": 0}}, "placement names reactors"),
        ({"executor": "federated", "costs": {"zebra": 1.0}}, "costs name reactors"),
        ({"executor": InProcess(2), "nodes": 3}, "nodes must be 2, as many as the transport has, or left out, got 3"),
    ],
)
def test_what_cannot_be_meant(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        search().start(**how)


# ---------------------------------------------------------------------- how it is cut, and looked at


def test_the_parts_are_ordinary_programs() -> None:
    topology = search().topology()
    home, other = cut(topology, nodes_of(topology, (1, 1)))
    names = [[reactor.name for reactor in part.topology.reactors] for part in (home, other)]
    assert names == [["rolls[0]", "rolls[1]", "search", GATEWAY], ["rolls[2]", "rolls[3]", GATEWAY]]
    assert [(link.source, link.target, link.late) for link in home.links] == [(1, 0, False), (0, 1, True)]
    assert home.links == other.links
    for part in (home, other):
        for port, whole in zip(part.topology.outputs, part.outputs, strict=True):
            there = topology.outputs[whole]
            assert (port.shape, port.dtype, port.rows, port.delays) == (there.shape, there.dtype, there.rows, there.delays)
    written = sorted(part.outputs[index] for part in (home, other) for index in part.own)
    assert written == [port.index for port in topology.outputs]


def test_what_makes_nodes_wait_for_each_other_stays_at_home() -> None:
    program = Program("chain")
    source = program.add(Seldom, name="source")
    waits = program.bank(Hears, 4, name="waits")
    follows = program.bank(Hears, 4, name="follows")
    program.connect(source.out, waits.heard)
    program.connect(waits.out, follows.heard, after=1)
    assert nodes_of(program.topology(), (1, 1)) == (0, *[0] * 4, 0, 0, 1, 1)
    assert nodes_of(program.topology(), (1, 3)) == (0, *[0] * 4, 0, 1, 1, 1)
    assert nodes_of(program.topology(), (1, 1), {"waits": 1, "waits[0]": 0}) == (0, 0, 1, 1, 1, 0, 0, 1, 1)


def test_a_drawing_shows_the_nodes() -> None:
    with search().start(executor="federated", nodes=2, workers=1) as run:
        text = run.draw()
    assert "nodes 0-1" in text and "node 0 (home)" in text and "node 1" in text


def test_a_trace_has_a_row_for_each_worker_of_each_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_rl.federation.node.perf_counter_ns", lambda: time.perf_counter_ns() + 3600 * 10**9)
    path = tmp_path / "trace.json"
    with search().start(executor="federated", nodes=3, workers=1) as run:
        with run.trace(str(path)) as tracing:
            run.run(4)
        assert tracing.reactions >= 4 * 5
    events = json.loads(path.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert rows == {0: "node 0, worker 0 (caller)", 1: "node 1, worker 0", 2: "node 2, worker 0"}
    waits = {event["name"] for event in events if event.get("cat") == "wait"}
    assert waits == {"wait for node 1", "wait for node 2", "wait for the other nodes"}
    here = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("tid") == 0 and "dur" in e)
    assert all(end <= begin + 0.01 for (_, end), (begin, _) in pairwise(here))  # microseconds; a wait begins after what was before
    spans = {name: [e for e in events if e.get("name") == name] for name in ("rolls[3].roll", "search.gather")}
    hour = 3600e6  # by which the clock of other nodes seems to be ahead, so that their slices are moved back
    for early, late in zip(*spans.values(), strict=True):
        assert abs(late["ts"] - early["ts"] - hour) < 5e6


def test_a_node_that_is_over_says_so() -> None:
    transport = InProcess(2, 1)
    run = search().start(executor=transport)
    host = transport._threads[1]._host
    run.close()
    reply = host.handle(NodeRequest("first"))
    assert reply.error is not None and isinstance(reply.error.error, RunClosedError)
