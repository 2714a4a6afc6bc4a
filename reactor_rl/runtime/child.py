"""A helper's process as the caller sees it.

Whether it has ended is asked of the kernel (a pidfd on Linux, elsewhere the sentinel of ``multiprocessing``) and not of its exit
status: where SIGCHLD is ignored, or somebody else reaps children, nobody but them ever hears of that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.context import BaseContext
from typing import Any

from reactor_rl.runtime.launch import start_process

__all__ = ["Child", "wait_for_all"]

_STATUS = 0.2
"""Seconds that the exit status of a process that has ended may take to arrive."""


class Child:
    """One process, from before it is started until it is gone.

    Args:
        process: A process of ``multiprocessing`` that is not started.
    """

    def __init__(self, process: Any) -> None:
        self._process = process
        self._pidfd = -1
        self._watch: Any = None

    def start(self, context: BaseContext) -> None:
        """Start the process; see :func:`~reactor_rl.runtime.launch.start_process`."""
        start_process(context, self._process)

    @property
    def pid(self) -> int | None:
        """Its number, ``None`` before it is started."""
        pid: int | None = self._process.pid
        return pid

    @property
    def started(self) -> bool:
        """Whether there is such a process, or was."""
        return self.pid is not None

    @property
    def watch(self) -> Any:
        """What becomes readable when the process has ended."""
        if self._watch is None:
            self._watch = self._process.sentinel
            if hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):  # it has ended already, and the sentinel says so too
                    self._watch = self._pidfd = os.pidfd_open(self._process.pid)
        return self._watch

    @property
    def ended(self) -> bool:
        """Whether the process was started and has ended."""
        return self.started and bool(connection.wait([self.watch], 0))

    def status(self) -> int | None:
        """The exit status of a process that has ended, ``-n`` for signal ``n``; ``None`` if somebody else got it."""
        self._process.join(_STATUS)
        status: int | None = self._process.exitcode
        return status

    def end(self, *, kill: bool) -> None:
        """Terminate or kill the process, if it was started."""
        if not self.started:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()

    def close(self) -> None:
        """Let go of a process that was not started, or has ended."""
        if self.started:
            if self.status() is None:  # ``multiprocessing`` would take it for alive, and keep it for ever
                self._process._popen.returncode = 255
            self._process.close()
        fd, self._pidfd = self._pidfd, -1
        if fd >= 0:
            os.close(fd)


def wait_for_all(children: Sequence[Child], seconds: float | None) -> list[Child]:
    """Wait until every process has ended, at most so many seconds. Returns those that have not."""
    end = None if seconds is None else time.monotonic() + seconds
    while alive := [child for child in children if child.started and not child.ended]:
        remaining = None if end is None else end - time.monotonic()
        if remaining is not None and remaining <= 0.0:
            return alive
        connection.wait([child.watch for child in alive], remaining)
    return []
