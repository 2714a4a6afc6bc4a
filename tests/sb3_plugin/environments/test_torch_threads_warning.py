"""SB3's own algorithms on a busy machine: one warning of torch's threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gymnasium
import pytest
import torch

from reactor_sb3 import ReactorVecEnv
from reactor_sb3.environments.vec_env import warn_of_threads


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    warn_of_threads.cache_clear()
    yield
    warn_of_threads.cache_clear()


def told(monkeypatch: pytest.MonkeyPatch, threads: int, load: float) -> list[warnings.WarningMessage]:
    """What two resets warn of, if this machine were so."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    envs = ReactorVecEnv([partial(gymnasium.make, "CartPole-v1")], executor="inline")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        envs.reset()
        envs.reset()
    envs.close()
    return found


def test_one_warning_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, threads=2, load=(os.cpu_count() or 1) + 1.0)
    assert len(found) == 1 and "torch.set_num_threads(1)" in str(found[0].message)
    assert found[0].filename == str(Path(__file__))


@pytest.mark.parametrize(("threads", "load"), [(1, 100.0), (2, 0.5)])
def test_none_where_nothing_waits(monkeypatch: pytest.MonkeyPatch, threads: int, load: float) -> None:
    assert told(monkeypatch, threads, load) == []
