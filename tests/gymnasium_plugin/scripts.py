"""Running Python programs of a few lines as a user would, and seeing what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from textwrap import dedent

SECONDS = 60


def run(code: str, *, how: str = "file", folder: Path | None = None, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as a script, as ``python -c``, or from standard input, plain or interactive."""
    code = dedent(code)
    with tempfile.TemporaryDirectory() as temporary:
        where = folder or Path(temporary)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        given: str | None = None
        match how:
            case "file":
                path = where / "user_script.py"
                path.write_text(code)
                command = [sys.executable, str(path)]
            case "-c":
                command = [sys.executable, "-c", code]
            case "stdin":
                command, given = [sys.executable, "-"], code
            case "repl":
                command, given = [sys.executable, "-i", "-q"], code
            case "ipython":
                command, given = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"], code
            case _:
                raise ValueError(how)
        return subprocess.run(
            command, input=given, text=True, capture_output=True, timeout=timeout, env=environment, cwd=where, check=False
        )


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end_within(pids: list[int], seconds: float) -> list[int]:
    """Those that still run when the time is over."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    return left


def shared_memory() -> set[str]:
    """Names in shared memory that are ours, or semaphores of Python's."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("rrl-", "sem.mp-", "psm_"))}
