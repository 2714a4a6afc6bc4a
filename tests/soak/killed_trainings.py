"""Trainings by SB3's own algorithms, saved by ``SaveRun``, that are killed at random instants and resumed, again and again."""

from __future__ import annotations

import hashlib
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from killed_runs import Outcome

sys.path.insert(0, str(Path(__file__).parents[1] / "sb3_plugin"))
from saved_runs import flat, new, outcome

from reactor_sb3 import SaveRun, resume_run


def trainings_killed(name: str, kills: int, steps: int = 600, every: int = 60, ends: float = math.inf) -> Outcome:
    """Kill a training as often as that, wherever it is; it goes on from its file, or anew where there is none yet.

    Args:
        name: Of the algorithm; see ``saved_runs.new``.
        kills: How often.
        steps: Of a training.
        every: How many of them from one save to the next.
        ends: When no more are killed.
    """
    torch.set_num_threads(1)
    draw, found = random.Random(0), Outcome()
    with tempfile.TemporaryDirectory() as folder:
        path, result = Path(folder) / "run.zip", Path(folder) / "result"
        began = time.monotonic()
        expected = _in_a_process(lambda: result.write_text(_hash(new(name).learn(steps))), result, None)
        whole = time.monotonic() - began

        def go_on() -> None:
            if path.exists():
                run = resume_run(path, executor="inline")
                run.learn(callback=SaveRun(path, every))
                result.write_text(_hash(run.model))
            else:
                result.write_text(_hash(new(name).learn(steps, callback=SaveRun(path, every))))

        while found.kills < kills and time.time() < ends:
            seen = _in_a_process(go_on, result, draw.uniform(0.0, whole))
            if seen is None:
                found.kills += 1
            else:
                found.runs += 1
                found.different += seen != expected
                path.unlink()
        found.runs += 1
        found.different += _in_a_process(go_on, result, None) != expected
    return found


def _in_a_process(work: Callable[[], object], result: Path, seconds: float | None) -> str | None:
    """Do something in another process, which is killed after some seconds. Returns what it has left, None if it was killed."""
    result.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    ends = time.monotonic() + (seconds if seconds is not None else 600.0)
    while time.monotonic() < ends:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if status:
                raise RuntimeError(f"a training ended with status {status}")
            return result.read_text()
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _hash(model: object) -> str:
    return hashlib.blake2b(repr(flat(outcome(model))).encode()).hexdigest()
