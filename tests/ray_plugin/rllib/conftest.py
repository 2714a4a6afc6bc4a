"""What the tests of RLlib share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def rllibs_own_warnings() -> Iterator[None]:
    """RLlib and what it uses warn about themselves, which is theirs to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
