"""Its folder is where the tests of all packages find :mod:`trainers`."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def small_blocks(monkeypatch: Any) -> None:
    """Cut minibatches into blocks although they are small: of autograd from eight rows on; the extension's have 64 in any case."""
    from reactor_torch import networks

    monkeypatch.setattr(networks, "LEAST_ROWS", 8)
    monkeypatch.setattr(networks, "LEAST_FLOPS", 1)
