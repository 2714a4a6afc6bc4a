"""Environments that do not return, once, and what is to come of that."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reactor_rl import RecoveryWarning, WorkerHungError


def stall(path: Path) -> None:
    """Do not return, in a helper, if there is a file, which is gone then."""
    if path.exists() and multiprocessing.parent_process() is not None:
        path.unlink()
        time.sleep(100)


def check_named_or_replaced(play: Callable[..., str], restarts: int, where: str, **how: Any) -> None:
    """With ``restarts`` it ends as inline; without, the error says where the helper is. It may take two seconds."""
    expected = play(executor="inline")
    how |= {"executor": "processes", "workers": 2, "restarts": restarts}
    if restarts:
        with pytest.warns(RecoveryWarning, match=rf"did not return for 2.0 s \(it is in {where}"):
            assert play(**how) == expected
    else:
        with pytest.raises(WorkerHungError, match=rf"worker 1 has not ended its part of tick \d+ in 2.0 s; it is in {where}"):
            play(**how)
