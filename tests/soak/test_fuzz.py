"""Few random environments; many are tried by hand (``python benchmarks/faults.py --only spaces``)."""

from __future__ import annotations

import pytest
from fuzz import fuzz


@pytest.mark.timeout(120)
def test_random_environments_are_as_in_sync() -> None:
    counts = fuzz(30)
    assert counts["examples"] >= 30 and counts["inline"] and counts["threads"] and counts["processes"]
    assert sum(count for what, count in counts.items() if what.startswith("raised")) < counts["examples"] // 2
