"""Minibatches of tests are cut into blocks although they are small."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_torch import networks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: Any) -> None:
    """Blocks of autograd from eight rows on; the extension's have 64 rows in any case."""
    monkeypatch.setattr(networks, "LEAST_ROWS", 8)
    monkeypatch.setattr(networks, "LEAST_FLOPS", 1)
