"""Exceptions of the engine, each named after the mistake, and how a reaction's exception travels to the caller."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from reactor_rl.pickling import adopt_class, dumps, loads

__all__ = [
    "AbsentError",
    "ArenaError",
    "CausalityLoopError",
    "NodeDiedError",
    "ProgramError",
    "RunClosedError",
    "RunError",
    "UndeclaredPortError",
    "WorkerDiedError",
    "WorkerHungError",
    "WorkerTraceback",
    "Failure",
    "ordinary",
]


class ProgramError(ValueError):
    """A program is composed in a way that cannot run. Raised before anything is started."""


class CausalityLoopError(ProgramError):
    """Reactions wait for each other within one tick. The message walks the cycle."""


class AbsentError(LookupError):
    """The value of a port or action was read at a tag at which it is absent."""


class UndeclaredPortError(RuntimeError):
    """A reaction touched a port or an action that it does not declare."""


class RunError(RuntimeError):
    """An operation is not possible in the present state of a run."""


class RunClosedError(RunError):
    """The run is over: it was closed, stopped, interrupted, or a reaction raised."""


class WorkerDiedError(RunError):
    """A worker process ended while it was needed.

    Attributes:
        worker: Number of the worker.
        reactors: Names of the reactors that it held.
        exitcode: Its exit status as ``multiprocessing`` reports it: ``-n`` for signal ``n``.
    """

    def __init__(self, message: str, worker: int, reactors: tuple[str, ...], exitcode: int | None) -> None:
        super().__init__(message)
        self.worker = worker
        self.reactors = reactors
        self.exitcode = exitcode

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.worker, self.reactors, self.exitcode)


class WorkerHungError(RunError):
    """A worker has not finished its part of a tick in time, or has not answered a request between two ticks.

    Attributes:
        worker: Number of the worker.
        reactors: Names of the reactors that it holds.
        stopped: Whether its process is stopped, as by SIGSTOP. If not, one of its reactions does not return.
    """

    def __init__(self, message: str, worker: int, reactors: tuple[str, ...], stopped: bool) -> None:
        super().__init__(message)
        self.worker, self.reactors, self.stopped = worker, reactors, stopped

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.worker, self.reactors, self.stopped)


class NodeDiedError(RunError):
    """A node of a federated run was lost while it was needed.

    Attributes:
        node: Number of the node; home is 0.
        reactors: Names of the reactors that it held.
    """

    def __init__(self, message: str, node: int, reactors: tuple[str, ...]) -> None:
        super().__init__(message)
        self.node, self.reactors = node, reactors

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.node, self.reactors)


class ArenaError(MemoryError):
    """The shared memory that a program needs could not be reserved."""


class WorkerTraceback(Exception):
    """The text of a traceback from another process, set as the cause of the exception itself."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def ordinary(error: BaseException) -> Exception:
    """Return an exception that can be sent on: ``error``, or a stand-in for ``SystemExit`` and the like, which end a worker."""
    if isinstance(error, Exception):
        return error
    said = str(error)
    stands = RuntimeError(f"{type(error).__name__} was raised" + (f": {said}" if said else ""))
    stands.__cause__ = error
    return stands


@dataclass
class Failure:
    """An exception that a reaction raised, and where. Failures compare by program order."""

    reaction: int
    where: str
    tag: tuple[int, int]
    error: BaseException
    text: str

    @classmethod
    def of(cls, reaction: int, where: str, tag: tuple[int, int], error: BaseException) -> Failure:
        return cls(reaction, where, tag, error, "".join(traceback.format_exception(error)))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        try:
            error = dumps(self.error)
            loads(error)
        except Exception:  # an exception that cannot travel is replaced by one that can
            error = dumps(RuntimeError(f"{type(self.error).__name__}: {self.error}"))
        state["error"] = error
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        error = loads(state["error"])
        error.__cause__ = WorkerTraceback(state["text"])
        self.__dict__.update(state, error=error)

    def raised(self) -> BaseException:
        """Return the exception, with a note that says where it was raised."""
        adopt_class(self.error)
        note = f"in reaction {self.where} at tag {self.tag}"
        if note not in getattr(self.error, "__notes__", ()):
            self.error.add_note(note)
        return self.error
