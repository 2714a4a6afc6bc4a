"""Random programs on several nodes say what the interpreter says, value for value and tag for tag.

``python tests/federation/test_random_federations.py 3000`` tries as many.
"""

from __future__ import annotations

import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from machines import ProgramSpec
from random_programs import QUIET, check, federations, programs, told

MANNERS = st.fixed_dictionaries({"debug": st.booleans(), "skipping": st.booleans()})


def agree(data: Any, spec: ProgramSpec) -> None:
    record = told(spec)
    check(spec, record, **data.draw(federations(spec)), **data.draw(MANNERS))


@pytest.mark.slow
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
    check(spec, record, **data.draw(federations(spec, "processes")), **data.draw(MANNERS))


if __name__ == "__main__":
    settings(QUIET, max_examples=int(sys.argv[1]))(given(st.data(), programs())(agree))()
