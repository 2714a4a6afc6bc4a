"""Random programs: every executor must say what the interpreter says, value for value and tag for tag."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings
from machines import ProgramSpec
from random_programs import QUIET, check, placements, programs, told


@settings(QUIET, max_examples=150)
@given(programs(), st.booleans(), st.booleans())
def test_inline_is_the_oracle(spec: ProgramSpec, debug: bool, skipping: bool) -> None:
    check(spec, told(spec), executor="inline", debug=debug, skipping=skipping)


@settings(QUIET, max_examples=50)
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
