"""Traces: a row for each worker, reactions with their tags, waits; and what a trace is for: seeing work overlap."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from reactor_rl import Input, LogicalAction, Output, Program, Reactor, RunError, Timer, reaction

EXECUTORS = [("inline", 1), ("threads", 2), ("processes", 2)]


class Busy(Reactor):
    """Computes for a while at every tick."""

    beat = Timer(period=1)
    inp = Input()
    out = Output((), np.int64)

    def __init__(self, seconds: float = 0.0):
        self.seconds = seconds

    @reaction(beat, uses=inp, effects=out)
    def work(self):
        until = perf_counter() + self.seconds
        while perf_counter() < until:
            pass
        self.out.set(self.tag[0])


class Steps(Reactor):
    inp = Input()
    step = LogicalAction()

    @reaction(inp, effects=step)
    def first(self):
        self.step.schedule(0)

    @reaction(step)
    def second(self):
        pass


class Boom(Reactor):
    beat = Timer(offset=2, period=1)

    @reaction(beat)
    def explode(self):
        raise ValueError("boom")


def pair(seconds: float = 0.0, after: int | None = 1) -> Program:
    """Two reactors of equal cost, joined with a delay both ways, so that nothing orders them within a tick."""
    program = Program("pair")
    one, other = program.add(Busy, seconds, name="sampler"), program.add(Busy, seconds, name="learner")
    program.connect(one.out, other.inp, after=after)
    program.connect(other.out, one.inp, after=1)
    return program


def recorded(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def slices(events: list[dict], category: str) -> list[dict]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
def test_a_row_for_each_worker_and_every_reaction_with_its_tag(tmp_path, executor, workers):
    path = tmp_path / "trace.json"
    with pair().start(executor=executor, workers=workers) as run:
        run.run(3)  # what happened before is not in it
        with run.trace(str(path)) as tracing:
            run.run(4)
        run.run(2)  # nor what happens after
    events = recorded(path)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {worker: f"worker {worker}" + " (caller)" * (worker == 0) for worker in range(workers)}
    reactions = slices(events, "reaction")
    assert tracing.reactions == len(reactions)
    for reactor in ("sampler", "learner"):
        mine = [e for e in reactions if e["args"]["reactor"] == reactor]
        assert [e["args"]["tag"] for e in mine] == [[time, 0] for time in (3, 4, 5, 6)]
        assert {e["args"]["reaction"] for e in mine} == {"work"}
        assert len({e["tid"] for e in mine}) == 1
    assert {e["tid"] for e in reactions} == set(range(workers))
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in events if e["ph"] == "X")
    assert [e["name"] for e in events if e["ph"] == "b"] == [f"tick {time}" for time in (3, 4, 5, 6)]
    # The rows of those who wait for somebody show it, the helpers' idle time between ticks included.
    waits = slices(events, "wait")
    assert {e["tid"] for e in waits} == (set(range(workers)) if workers > 1 else set())
    assert all(e["name"] in {f"wait for worker {other}" for other in range(workers) if other != e["tid"]} for e in waits)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("executor", "workers"), EXECUTORS[1:])
def test_slices_of_one_worker_never_overlap(tmp_path, executor, workers):
    path = tmp_path / "trace.json"
    with pair(2e-4, after=None).start(executor=executor, workers=workers) as run, run.trace(str(path)):
        run.run(20)
    for worker in range(workers):
        row = sorted((e["ts"], e["ts"] + e["dur"]) for e in recorded(path) if e["ph"] == "X" and e["tid"] == worker)
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(row))


@pytest.mark.timeout(60)
def test_with_a_delay_two_workers_run_at_the_same_time_within_a_tick(tmp_path):
    path = tmp_path / "trace.json"
    with pair(5e-3).start(executor="processes", workers=2) as run:
        run.run(2)
        with run.trace(str(path)):
            run.run(10)
    assert len(overlapping_ticks(recorded(path))) >= 5  # without the delay it is never any; a busy machine may spoil some


def test_a_helper_that_waits_for_another_one_shows_it(tmp_path):
    path = tmp_path / "trace.json"
    placed = {"sampler": 1, "learner": 2}
    with pair(after=None).start(executor="threads", workers=3, placement=placed) as run, run.trace(str(path)):
        run.run(4)
    waits = {(e["tid"], e["name"]) for e in slices(recorded(path), "wait")}
    assert waits >= {(1, "wait for worker 0"), (2, "wait for worker 0"), (2, "wait for worker 1")}


@pytest.mark.timeout(60)
def test_without_a_delay_they_take_turns(tmp_path):
    path = tmp_path / "trace.json"
    with pair(1e-3, after=None).start(executor="processes", workers=2) as run, run.trace(str(path)):
        run.run(10)
    # The learner reads what the sampler writes at the same tag.
    assert overlapping_ticks(recorded(path)) == []


def overlapping_ticks(events: list[dict]) -> list[int]:
    spans: dict[int, dict[str, tuple[float, float]]] = {}
    for event in slices(events, "reaction"):
        spans.setdefault(event["args"]["tag"][0], {})[event["args"]["reactor"]] = (event["ts"], event["ts"] + event["dur"])
    return [
        time for time, found in spans.items()
        if max(begin for begin, _ in found.values()) < min(end for _, end in found.values())
    ]  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
def test_microsteps_are_told_apart(tmp_path, executor, workers):
    program = Program("microsteps")
    busy, steps = program.add(Busy), program.add(Steps)
    program.connect(busy.out, steps.inp)
    path = tmp_path / "trace.json"
    with program.start(executor=executor, workers=workers) as run, run.trace(str(path)):
        run.run(2)
    found = [(e["name"], e["args"]["tag"]) for e in slices(recorded(path), "reaction") if e["args"]["reactor"] == "steps"]
    assert found == [("steps.first", [0, 0]), ("steps.second", [0, 1]), ("steps.first", [1, 0]), ("steps.second", [1, 1])]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
def test_tracing_changes_no_result(tmp_path, executor, workers):
    found = []
    for traced in (False, True):
        with pair().start(executor=executor, workers=workers, fingerprint="all") as run:
            if traced:
                with run.trace(str(tmp_path / "trace.json")):
                    run.run(5)
            else:
                run.run(5)
            found.append(run.fingerprint())
    assert found[0] == found[1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
def test_what_was_recorded_is_written_when_a_reaction_raises(tmp_path, executor, workers):
    program = pair()
    program.add(Boom)
    path = tmp_path / "trace.json"
    with program.start(executor=executor, workers=workers) as run:
        with pytest.raises(ValueError, match="boom"), run.trace(str(path)):
            run.run(10)
    names = [e["name"] for e in slices(recorded(path), "reaction")]
    assert names.count("sampler.work") == 3
    assert "boom.explode" in names


def test_what_was_recorded_is_handed_over_when_the_block_ends_however_it_does():
    program = pair()
    program.add(Boom)
    with program.start(executor="threads", workers=2) as run:
        with run.recording() as before:
            run.run(1)
            assert before == []
        with pytest.raises(ValueError, match="boom"), run.recording() as found:
            run.run(10)
    assert [sum("sampler" in str(one) for worker in slices for one in worker) for slices in (before, found)] == [1, 2]


def test_tracing_is_off_again_after_an_exception_in_the_block(tmp_path):
    with pair().start(executor="inline") as run:
        with contextlib.suppress(KeyError), run.trace(str(tmp_path / "one.json")):
            run.run(2)
            raise KeyError
        with run.trace(str(tmp_path / "two.json")) as tracing:
            run.run(1)
        assert tracing.reactions == 2
    assert len(slices(recorded(tmp_path / "one.json"), "reaction")) == 4


def test_a_run_is_traced_once_at_a_time(tmp_path):
    with pair().start(executor="inline") as run, run.trace(str(tmp_path / "one.json")):
        with pytest.raises(RunError, match="already"), run.trace(str(tmp_path / "two.json")):
            pass
        run.run(1)
    assert len(slices(recorded(tmp_path / "one.json"), "reaction")) == 2


def test_a_missing_directory_is_found_out_before_anything_runs(tmp_path):
    with pair().start(executor="inline") as run:
        with pytest.raises(FileNotFoundError, match=r"directory .* does not exist"):
            run.trace(str(tmp_path / "nowhere" / "trace.json"))
        with pytest.raises(IsADirectoryError):
            run.trace(str(tmp_path))
        assert run.time == 0
