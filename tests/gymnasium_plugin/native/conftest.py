"""Tests of kernels run with every release of Gymnasium; cases that none of them steps there are skipped."""

from __future__ import annotations

import gymnasium
import pytest

from tests.gymnasium_plugin.native.cases import of_another_release


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(item, "callspec", None)
        if params and any(isinstance(value, str) and of_another_release(value) for value in params.params.values()):
            item.add_marker(pytest.mark.skip(reason=f"Gymnasium {gymnasium.__version__} has other code"))
