"""Random programs: every executor must say what the interpreter says, value for value and tag for tag."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings
from machines import Boom, ProgramSpec, build
from random_programs import QUIET, placements, programs, same, told

from reactor_rl.interpret import Record


def check(spec: ProgramSpec, record: Record, trace: Path | None = None, skipping: bool = False, **how: Any) -> None:
    program, inputs = build(spec), spec.inputs()
    run = program.start(fingerprint="all", **how)
    try:
        tracing = run.trace(str(trace)) if trace is not None else None
        if tracing is not None:
            tracing.__enter__()
        done, raised = 0, None
        try:
            for tick, expected in enumerate(record.boundary):
                run.set(**inputs.get(tick, {}))
                if skipping:
                    run.run(1)
                else:
                    run.tick()
                done += 1
                seen = {name: getattr(run, name) for name in expected}
                assert same(seen, expected), (tick, seen, expected)
        except Boom as error:
            raised = error
        if raised is None:
            assert record.error is None
        else:
            assert record.error is not None, raised
            where, tag, original = record.error
            assert done == len(record.boundary) - 1
            assert str(raised) == str(original)
            assert any(f"{where} at tag {tag}" in note for note in raised.__notes__), (raised.__notes__, where, tag)
        assert run.stopped == (record.stopped or record.error is not None)
        assert run.fingerprint() == record.fingerprint
        if tracing is not None:
            tracing.__exit__(None, None, None)
    finally:
        with contextlib.suppress(Boom):  # a shutdown reaction may raise too
            run.close()


@settings(QUIET, max_examples=150)
@given(programs(), st.booleans(), st.booleans())
def test_inline_is_the_oracle(spec: ProgramSpec, debug: bool, skipping: bool) -> None:
    check(spec, told(spec), executor="inline", debug=debug, skipping=skipping)


@settings(QUIET, max_examples=100)
@given(st.data(), programs(), st.integers(2, 4), st.booleans(), st.booleans())
def test_threads_are_the_oracle(data: Any, spec: ProgramSpec, workers: int, debug: bool, caller_works: bool) -> None:
    record = told(spec)
    placed = data.draw(placements(spec, workers))
    skipping = data.draw(st.booleans())
    check(spec, record, executor="threads", workers=workers, debug=debug, caller_works=caller_works, skipping=skipping, **placed)


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=20)
@given(st.data(), programs(), st.integers(2, 4), st.booleans(), st.booleans())
def test_processes_are_the_oracle(data: Any, spec: ProgramSpec, workers: int, debug: bool, caller_works: bool) -> None:
    record = told(spec)
    placed = data.draw(placements(spec, workers))
    check(spec, record, executor="processes", workers=workers, debug=debug, caller_works=caller_works, **placed)


@settings(QUIET, max_examples=20)
@given(programs(), st.sampled_from(["inline", "threads"]))
def test_tracing_changes_nothing(tmp_path_factory: Any, spec: ProgramSpec, executor: str) -> None:
    record = told(spec)
    assume(record.error is None)
    check(spec, record, executor=executor, workers=2, trace=tmp_path_factory.mktemp("trace") / "trace.json")
