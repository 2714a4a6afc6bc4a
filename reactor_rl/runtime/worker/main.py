"""The life of a helper, in a thread or in a process: take a token, do what the caller wants, until told to quit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from reactor_rl.failure import Failure, ordinary
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.executor import Aborted, Commands, Pair, Reactors, wait_for
from reactor_rl.runtime.patience import Patience
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.words import Words
from reactor_rl.runtime.worker.bind import bind
from reactor_rl.runtime.worker.cells import Side
from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.messages import answer

__all__ = ["Connection", "serve"]

Revive = Callable[[Callable[[int], None], Callable[[int], None]], Kernel]
"""Gives the kernel of a helper, from how it waits and how it signals."""


class Connection(Protocol):
    """A two-way line of whole objects, such as ``multiprocessing.Pipe`` gives."""

    def send(self, obj: Any) -> None: ...

    def recv(self) -> Any: ...

    def poll(self, timeout: float | None = 0.0) -> bool: ...


def serve(
    plan: Plan,
    worker: int,
    memory: memoryview,
    sides: Sequence[Side | None],
    reactors: Reactors,
    channels: Mapping[Pair, Channel],
    connection: Connection,
    spin: float,
    revive: Revive | None = None,
) -> None:
    """Build the kernel of a helper and serve the caller until it says QUIT or the run is aborted.

    ``revive`` builds it in the place of :func:`bind`, for a helper that takes another one's place.
    """
    words = memory[: plan.layout.words * 8].cast("q")
    inbound = {source: channel for (source, target), channel in channels.items() if target == worker}
    outbound = {target: channel.signal for (source, target), channel in channels.items() if source == worker}

    patience = Patience(spin)

    def wait(source: int) -> None:
        if not kernel.observers:
            wait_for(inbound[source], patience, words)
            return
        for observer in kernel.observers:
            observer.before_wait()
        wait_for(inbound[source], patience, words)
        for observer in kernel.observers:
            observer.after_wait(f"worker {source}")

    def signal(target: int) -> None:
        outbound[target]()

    try:
        if revive is None:
            kernel, _, _ = bind(plan, worker, memory, sides, reactors, wait, signal)
        else:
            kernel = revive(wait, signal)
    except BaseException as error:
        where = ", ".join(plan.names_of(worker))
        with contextlib.suppress(OSError):
            doing = "unpickling" if revive is None else "bringing back"
            connection.send(Failure.of(-1, f"({doing} the reactors {where} in worker {worker})", (0, 0), ordinary(error)))
        return
    try:
        _loop(kernel, words, inbound[0], connection, patience)
    except Aborted:
        kernel.shut_down_alone()


def _loop(kernel: Kernel, words: memoryview, start: Channel, connection: Connection, patience: Patience) -> None:
    while True:
        for observer in kernel.observers:
            observer.before_wait()
        if not start.wait(patience):
            start.poll(True)
        for observer in kernel.observers:
            observer.after_wait("worker 0")
        command = words[Words.COMMAND]
        if command == Commands.FIRST:
            kernel.first_pass(words[Words.TIME], words[Words.PASS])
        elif command == Commands.AGAIN:
            kernel.next_pass(words[Words.PASS])
        elif command == Commands.MESSAGE:
            try:
                connection.send(answer(kernel, connection.recv()))
            except (EOFError, OSError):  # the caller has hung up
                raise Aborted from None
        elif command == Commands.START:
            kernel.start_pass()
        elif command == Commands.STOP:
            kernel.stop_pass(words[Words.TIME], words[Words.PASS])
        else:
            kernel.shut_down_alone()
            return
