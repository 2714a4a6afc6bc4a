"""The life of a helper, in a thread or a process, and the requests that every worker answers between two ticks.

A helper takes a token, does what the caller wants, and waits for the next one until it is told to quit. A request is a name and
an argument; the caller's own worker answers the same ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from reactor_rl.errors import Failure, RunError, ordinary
from reactor_rl.pickling import adopt_class, inside
from reactor_rl.runtime.channel import Channel, ControlBlock, SpinControl
from reactor_rl.runtime.executor import Aborted, HelperCommand, Pair, Reactors, wait_for
from reactor_rl.runtime.plan import Plan, control_words
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.loop import WorkerLoop
from reactor_rl.runtime.worker.observers import PortHashes, Timeline
from reactor_rl.runtime.worker.state import WorkerState, checkpoint, load_state, save_state
from reactor_rl.runtime.worker.values import SideBlock

__all__ = ["Reply", "Pipe", "note_differing", "reply_to", "run_helper"]

_differing: list[Any] = []
"""Settings of the caller that this process does not have."""


def note_differing(found: Sequence[Any]) -> None:
    """Note what of the caller's settings this process does not have, until the caller asks."""
    _differing.extend(found)


class Reply:
    """The reply of a worker to a request: a value, or the failure in its place."""

    def __init__(self, value: Any = None, failure: Failure | None = None) -> None:
        self.value, self.failure = value, failure

    def get(self) -> Any:
        if self.failure is not None:
            adopt_class(self.failure.error)
            raise self.failure.error
        return self.value


def reply_to(loop: WorkerLoop, request: tuple[str, Any]) -> Reply:
    """Answer a request; an exception becomes the reply."""
    name, argument = request
    try:
        with inside(loop.copies):
            return Reply(_REQUESTS[name](loop, argument))
    except BaseException as error:
        if not loop.worker and not isinstance(error, Exception):
            raise
        where = f"(answering {name} in worker {loop.worker})"
        return Reply(failure=Failure.of(-1, where, (loop.time, loop.microstep), ordinary(error)))


def _failures(loop: WorkerLoop, _: Any) -> list[Failure]:
    failures, loop.failures = loop.failures, []
    return failures


def _trace(loop: WorkerLoop, on: bool) -> Any:
    if on:
        if any(isinstance(observer, Timeline) for observer in loop.observers):
            raise RunError("this run is being traced already; end that trace first")
        loop.observers.append(Timeline(loop))
        return None
    for observer in loop.observers:
        if isinstance(observer, Timeline):
            loop.observers.remove(observer)
            return observer.slices
    return []  # this worker has replaced one that was traced


def _digests(loop: WorkerLoop, _: Any) -> dict[int, bytes]:
    (ports,) = (observer for observer in loop.observers if isinstance(observer, PortHashes))
    return ports.digests()


def _restore(loop: WorkerLoop, argument: tuple[WorkerState, int]) -> None:
    load_state(loop, *argument)
    for observer in loop.observers:
        if isinstance(observer, PortHashes):
            observer.restart()


_REQUESTS: dict[str, Callable[[WorkerLoop, Any], Any]] = {
    "failures": _failures,
    "trace": _trace,
    "digests": _digests,
    "snapshot": save_state,
    "restore": _restore,
    "checkpoint": lambda loop, _: checkpoint(loop),
    "settings": lambda loop, _: list(_differing) if loop.worker else [],
}


Revive = Callable[[Callable[[int], None], Callable[[int], None]], WorkerLoop]
"""Makes the loop of a helper from its functions to wait and to signal."""


class Pipe(Protocol):
    """A two-way connection that sends whole objects, such as ``multiprocessing.Pipe`` makes."""

    def send(self, obj: Any) -> None: ...

    def recv(self) -> Any: ...


def run_helper(
    plan: Plan,
    worker: int,
    memory: memoryview,
    sides: Sequence[SideBlock | None],
    reactors: Reactors,
    channels: Mapping[Pair, Channel],
    pipe: Pipe,
    spin: float,
    revive: Revive | None = None,
) -> None:
    """Build the loop of a helper and serve the caller until it says QUIT or the run is aborted.

    ``revive`` builds it in place of :func:`bind`, for a helper that replaces another one.
    """
    words = control_words(memory, plan.layout)
    inbound = {source: channel for (source, target), channel in channels.items() if target == worker}
    outbound = {target: channel.signal for (source, target), channel in channels.items() if source == worker}

    spinning = SpinControl(spin)

    def wait(source: int) -> None:
        if not loop.observers:
            wait_for(inbound[source], spinning, words)
            return
        for observer in loop.observers:
            observer.before_wait()
        wait_for(inbound[source], spinning, words)
        for observer in loop.observers:
            observer.after_wait(f"worker {source}")

    def signal(target: int) -> None:
        outbound[target]()

    try:
        if revive is None:
            loop, _, _ = bind(plan, worker, memory, sides, reactors, wait, signal)
        else:
            loop = revive(wait, signal)
    except BaseException as error:
        where = ", ".join(plan.names_of(worker))
        with contextlib.suppress(OSError):
            doing = "unpickling" if revive is None else "bringing back"
            pipe.send(Failure.of(-1, f"({doing} the reactors {where} in worker {worker})", (0, 0), ordinary(error)))
        return
    try:
        _obey(loop, words, inbound[0], pipe, spinning)
    except Aborted:
        loop.shut_down_alone()


def _obey(loop: WorkerLoop, words: memoryview, start: Channel, pipe: Pipe, spinning: SpinControl) -> None:
    while True:
        for observer in loop.observers:
            observer.before_wait()
        if not start.wait(spinning):
            start.poll(True)
        for observer in loop.observers:
            observer.after_wait("worker 0")
        # Another thread that closes the run writes QUIT, over which the caller may write the command of its pass a moment later.
        command = HelperCommand.QUIT if words[ControlBlock.ABORT] else words[ControlBlock.COMMAND]
        if command == HelperCommand.FIRST:
            loop.first_pass(words[ControlBlock.TIME], words[ControlBlock.PASS])
        elif command == HelperCommand.AGAIN:
            loop.next_pass(words[ControlBlock.PASS])
        elif command == HelperCommand.MESSAGE:
            try:
                pipe.send(reply_to(loop, pipe.recv()))
            except (EOFError, OSError):  # the caller has hung up
                raise Aborted from None
        elif command == HelperCommand.START:
            loop.start_pass()
        elif command == HelperCommand.STOP:
            loop.stop_pass(words[ControlBlock.TIME], words[ControlBlock.PASS])
        else:
            loop.shut_down_alone()
            return
