"""A case of the soak in a process of its own: whether it hangs, leaves or loses something.

``python tests/soak/alone.py "64 threads"`` takes the case twice and says as JSON what the second time added to the process.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(path) for path in (HERE, HERE.parent, HERE.parent / "gymnasium_plugin") if str(path) not in sys.path]

import embedding  # noqa: E402
import starving  # noqa: E402
from ctrl_c import left_by  # noqa: E402
from fuzz import fuzz  # noqa: E402

SPACES = "random spaces and infos"
SETTLING = 5.0
"""Seconds that what has ended may take to be gone."""
CASES: dict[str, Callable[[], object]] = embedding.CASES | starving.CASES


def held() -> dict[str, int]:
    """What this process holds: descriptors, threads, processes and names in shared memory."""
    me = f"rrl-{os.getpid():x}-"
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": sum(len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")),
        "shared memory": sum(me in name for name in os.listdir("/dev/shm")),
    }


def grown(since: dict[str, int]) -> list[str]:
    """What this process holds more of, once it has settled."""
    end = time.monotonic() + SETTLING
    while True:
        gc.collect()
        more = [f"{count - since[name]} more {name}" for name, count in held().items() if count > since[name]]
        if not more or time.monotonic() > end:
            return more
        time.sleep(0.05)


def take(name: str, count: int, seed: int) -> dict[str, Any]:
    """Take a case in this process, random examples once and everything else twice."""
    try:
        if name == SPACES:
            fuzz(20)  # what is started for good
            before = held()
            return {"counts": fuzz(count, seed), "left": grown(before)}
        CASES[name]()
        before = held()
        CASES[name]()
        return {"left": grown(before)}
    except starving.UnavailableError as error:
        return {"skipped": str(error)}


def alone(name: str, seconds: float, count: int = 1, seed: int = 0) -> dict[str, Any]:
    """Take a case in a process of its own.

    Args:
        name: Of the case.
        seconds: After which it counts as hung, and is killed.
        count: Of random examples.
        seed: Of random examples.

    Returns:
        ``hung``, or ``lost`` (what was wrong), or ``skipped`` (why), or ``left`` (what it left behind); ``counts`` of
        random examples.
    """
    command = [sys.executable, "-W", "ignore", __file__, name, str(count), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            said, wrong = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {"hung": True}
    found: dict[str, Any] = json.loads(said.splitlines()[-1]) if process.returncode == 0 else {"lost": wrong[-3000:]}
    found["left"] = [*found.get("left", []), *left_by(process.pid)]
    return found


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(take(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))}\n")
