"""A process that carries out one function at the other end of a connection, in the same condition as a worker of a run.

What takes its own time, as whole trainings do, needs no ticks: who starts several waits for all of them with
``multiprocessing.connection.wait``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import cloudpickle

from reactor_rl.errors import RunError
from reactor_rl.pickling import loads
from reactor_rl.runtime.arithmetic import Arithmetic, arithmetic
from reactor_rl.runtime.launch import ChildProcess, begin, context_named, end_all, environment, new_process
from reactor_rl.runtime.limits import shortages_named
from reactor_rl.runtime.line import Line
from reactor_rl.runtime.processes import LOST, ProcessStart, settle

__all__ = ["WorkerProcess", "end_workers"]

SLICE = 0.1
"""Seconds between two looks whether a process that does not read has ended. Nobody waits for it at every tick, so it may be longer
than that of a run's workers.
"""


class WorkerProcess:
    """A process with numeric libraries on one thread, without the caller's ``__main__``, that ends with the caller.

    Args:
        function: Called in the process with its end of the connection; the process ends when it returns.
        start_method: ``"forkserver"``, ``"spawn"`` or ``"fork"``; ``None`` for the system's best.

    Raises:
        ValueError: If this system does not have the start method.
    """

    def __init__(self, function: Callable[[Any], object], start_method: str | None = None) -> None:
        self._context = context_named(start_method)
        self._connection, self._theirs = self._context.Pipe()
        self._line = Line(self._connection)
        arguments = cloudpickle.dumps(function), self._theirs, os.getpid(), environment(), arithmetic()
        self._child = ChildProcess(new_process(self._context, 1, _main, arguments))
        self._start = ProcessStart(self._context, [(1, self._child, self._theirs)])

    def start(self) -> None:
        """Start the process. If this is interrupted, :func:`end_workers` ends it all the same.

        Raises:
            RunError: If it cannot be started.
        """
        with shortages_named("start a worker"):
            if self._context.get_start_method() == "fork":  # the thread that forks is the child's main thread
                self._start.run()
            else:
                begin(self._context)
                self._start.in_background()
                self._start.wait(None)
            for error in self._start.failed.values():
                if isinstance(error, LOST):
                    raise RunError("a worker, or the fork server that starts workers, was killed as it was started") from error
                raise error

    @property
    def handles(self) -> tuple[Any, Any]:
        """Handles for ``multiprocessing.connection.wait``: ready at a message, and at the end of the process."""
        return self._connection, self._child.watch

    @property
    def ended(self) -> bool:
        """Whether the process was started and has ended."""
        return self._child.ended

    def send(self, message: Any) -> None:
        """Send a message. Does nothing if the process has ended, which :meth:`receive` tells."""
        with contextlib.suppress(OSError):
            self._line.send(message)
            while not self._line.sent(SLICE) and not self.ended:
                pass

    def receive(self) -> Any:
        """The next message, without waiting.

        Raises:
            TimeoutError: If not all of it is there yet.
            EOFError: If the process has ended, or has closed its connection.
        """
        ended = self.ended  # before the look for messages: who has ended sends no more
        try:
            return self._line.receive(0.0)
        except TimeoutError:
            if ended:
                raise EOFError from None
            raise
        except OSError:
            raise EOFError from None


def end_workers(workers: Collection[WorkerProcess], grace: float) -> list[int | None]:
    """End processes at the same time, and return their exit statuses. May be called again, if it was interrupted.

    Args:
        workers: The processes.
        grace: Seconds that they have to end by themselves, once they have found their connection closed.

    Returns:
        ``-n`` for signal ``n``; ``None`` if a process was not started, or other code has reaped it.
    """
    for worker in workers:
        worker._line.hang_up()
    here = [worker for worker in workers if worker._start.stop(partial(end_all, [worker._child], 0.0))]
    end_all([worker._child for worker in here], grace)
    found = {worker: worker._child.status() for worker in here if worker._child.started}
    for worker in here:
        worker._child.close()
        worker._line.close()
        worker._theirs.close()
    return [found.get(worker) for worker in workers]


def _main(function: bytes, connection: Any, caller: int, variables: dict[str, str], settings: Arithmetic) -> None:
    settle("a worker", caller, variables, settings)
    loads(function)(connection)
