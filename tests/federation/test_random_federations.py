"""Random programs on several nodes say what the interpreter says, value for value and tag for tag.

``python tests/federation/test_random_federations.py 3000`` tries as many.
"""

from __future__ import annotations

import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from machines import ProgramSpec, build
from random_programs import QUIET, check, programs, told

from reactor_rl.executor_names import NamedExecutor
from reactor_rl.federation.in_process import InProcess


@st.composite
def federations(draw: Any, spec: ProgramSpec, inside: NamedExecutor = "threads") -> dict[str, Any]:
    """Where the reactors of a program land: on which nodes, and on which worker there."""
    names = [node.name for node in build(spec).topology().reactors]
    nodes, workers = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    how: dict[str, Any] = {"executor": InProcess(nodes, workers, inside)}
    if draw(st.booleans()) or draw(st.booleans()):
        how["on"] = {name: draw(st.integers(0, nodes - 1)) for name in names}
    if draw(st.booleans()):
        how["placement"] = {name: draw(st.integers(0, workers - 1)) for name in names}
    return {**how, "debug": draw(st.booleans()), "caller_works": draw(st.booleans()), "skipping": draw(st.booleans())}


def agree(data: Any, spec: ProgramSpec) -> None:
    record = told(spec)
    check(spec, record, **data.draw(federations(spec)))


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=60)
@given(st.data(), programs())
def test_federations_are_the_oracle(data: Any, spec: ProgramSpec) -> None:
    agree(data, spec)


@pytest.mark.timeout(240)
@settings(QUIET, max_examples=4)
@given(st.data(), programs())
def test_federations_of_processes_are_the_oracle(data: Any, spec: ProgramSpec) -> None:
    record = told(spec)
    check(spec, record, **data.draw(federations(spec, "processes")))


if __name__ == "__main__":
    settings(QUIET, max_examples=int(sys.argv[1]))(given(st.data(), programs())(agree))()
