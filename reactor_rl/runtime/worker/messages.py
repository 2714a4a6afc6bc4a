"""What the caller may ask of a worker between ticks, itself included: each request is a name and an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reactor_rl.by_value import inside, own_class
from reactor_rl.errors import RunError
from reactor_rl.failure import Failure, ordinary
from reactor_rl.runtime.worker.checkpoint import checkpoint
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.port_hashes import AllPorts
from reactor_rl.runtime.worker.state import WorkerState, put_back, take
from reactor_rl.runtime.worker.timeline import Timeline

__all__ = ["Reply", "answer"]


class Reply:
    """An answer, or why there is none."""

    def __init__(self, value: Any = None, failure: Failure | None = None) -> None:
        self.value, self.failure = value, failure

    def get(self) -> Any:
        if self.failure is not None:
            own_class(self.failure.error)
            raise self.failure.error
        return self.value


def answer(kernel: Kernel, request: tuple[str, Any]) -> Reply:
    """Do what was asked; an exception becomes the answer."""
    name, argument = request
    try:
        with inside(kernel.copies):
            return Reply(_REQUESTS[name](kernel, argument))
    except BaseException as error:
        if not kernel.worker and not isinstance(error, Exception):
            raise
        where = f"(answering {name} in worker {kernel.worker})"
        return Reply(failure=Failure.of(-1, where, (kernel.time, kernel.microstep), ordinary(error)))


def _failures(kernel: Kernel, _: Any) -> list[Failure]:
    failures, kernel.failures = kernel.failures, []
    return failures


def _trace(kernel: Kernel, on: bool) -> Any:
    if on:
        if any(isinstance(observer, Timeline) for observer in kernel.observers):
            raise RunError("this run is being traced already; end that trace first")
        kernel.observers.append(Timeline(kernel))
        return None
    for observer in kernel.observers:
        if isinstance(observer, Timeline):
            kernel.observers.remove(observer)
            return observer.slices
    return []  # this worker has taken the place of one that was traced


def _digests(kernel: Kernel, _: Any) -> dict[int, bytes]:
    (ports,) = (observer for observer in kernel.observers if isinstance(observer, AllPorts))
    return ports.digests()


def _restore(kernel: Kernel, argument: tuple[WorkerState, int]) -> None:
    put_back(kernel, *argument)
    for observer in kernel.observers:
        if isinstance(observer, AllPorts):
            observer.restart()


_REQUESTS: dict[str, Callable[[Kernel, Any], Any]] = {
    "failures": _failures,
    "trace": _trace,
    "digests": _digests,
    "snapshot": take,
    "restore": _restore,
    "checkpoint": lambda kernel, _: checkpoint(kernel),
}
