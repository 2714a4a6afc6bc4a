"""PettingZoo's own checks, which are in its wheel, of the environments that our tests play with.

What the plugin is tested on is legal. There is nothing of ours to put in the place of something of PettingZoo's: the plugin plays
environments, and has none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pettingzoo")
pytest.importorskip("torch")

from agent_envs import Crowd
from runner_envs import Herd, Table

PARALLEL: dict[str, Callable[[], Any]] = {
    "herd": Herd,
    "herd with masks observed": partial(Herd, masks="observation"),
    "crowd": partial(Crowd, "deaths"),
    "crowd that lives together": partial(Crowd, "together"),
}


@pytest.fixture
def checks() -> Any:
    """They warn of what is unusual, a missing state() for instance; what they refuse they raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pettingzoo.test

        yield pettingzoo.test


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_environments_pass(name: str, checks: Any) -> None:
    checks.parallel_api_test(PARALLEL[name](), num_cycles=100)


def test_turns_pass(checks: Any) -> None:
    checks.api_test(Table(), num_cycles=100)


def test_an_environment_that_breaks_the_rules_fails(checks: Any) -> None:
    class Silent(Herd):
        def step(self, actions: Any) -> Any:
            return {}, *super().step(actions)[1:]

    with pytest.raises((AssertionError, KeyError)):
        checks.parallel_api_test(Silent(), num_cycles=10)
