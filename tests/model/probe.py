"""A probe that writes what real runs do, one line for each step, in an order in which the steps could have been taken.

Nothing of it is in the package: it stands in for functions of it, in this process within ``recording``, in helper processes from
a function that they run before their reactors are built. A line is written before a token is given and behind one that is taken,
before and behind a word is written, around each reaction. Helpers die here, too: at the step that a file names, once.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reactor_rl.runtime import helpers, processes, run, threads
from reactor_rl.runtime.channel import Channel, ControlBlock
from reactor_rl.runtime.worker import main
from reactor_rl.runtime.worker.loop import Observer, WorkerLoop

__all__ = ["Log", "dying", "in_helper", "read", "recording"]

Event = tuple[str, tuple[int, ...]]
"""A kind of step, and its numbers: workers, a reaction, a word and its value."""


class Log:
    """The file, as one process writes it: each line at once, behind those of all others.

    Args:
        path: Of the file.
        dies: Before which line this process kills itself; ``None`` for never.
    """

    def __init__(self, path: str, dies: int | None = None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._left, self.worker = dies, 0

    def write(self, what: str, *numbers: int) -> None:
        if self._left is not None:
            if not self._left:
                os.write(self._file, f"die {self.worker}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        os.write(self._file, (" ".join((what, *map(str, numbers))) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> list[Event]:
    """Everything that was written."""
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(what, tuple(map(int, numbers))) for what, *numbers in lines]


def dying(path: Path, worker: int, lives: int, line: int) -> None:
    """Have a helper of a recorded run die before so many lines, in its first life or in a later one."""
    Path(f"{path}.{worker}.{lives}.{line}").touch()


def _fate(path: str, worker: int) -> int | None:
    """Before which line this life of a helper ends. Each takes the file of the next life that is left."""
    folder, name = os.path.split(path)
    found = sorted(one for one in os.listdir(folder) if one.startswith(f"{name}.{worker}."))
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, one))
            return int(one.rpartition(".")[2])
    return None


def _watch(log: Log, channels: Mapping[tuple[int, int], Channel]) -> None:
    """Write down what goes through channels, at this end of them."""
    for pair, channel in channels.items():
        channel.signal, channel.poll = partial(_give, log, pair, channel.signal), partial(_take, log, pair, channel.poll)


def _give(log: Log, pair: tuple[int, int], signal: Callable[[], None]) -> None:
    log.write("give", *pair)
    signal()


def _take(log: Log, pair: tuple[int, int], poll: Callable[..., bool], *how: Any) -> bool:
    if not poll(*how):
        return False
    log.write("take", *pair)
    return True


class _Words:
    """The shared words, as the caller writes them."""

    def __init__(self, log: Log, words: memoryview) -> None:
        self._log, self._words = log, words

    def __getitem__(self, word: int) -> int:
        return int(self._words[word])

    def __setitem__(self, word: int, value: int) -> None:
        told = word in (ControlBlock.COMMAND, ControlBlock.PASS, ControlBlock.ABORT)
        if told:
            self._log.write("write", word, value)
        self._words[word] = value
        if told:
            self._log.write("wrote", word, value)


class _Reactions(Observer):
    """Writes down the reactions of a loop."""

    def __init__(self, log: Log, loop: WorkerLoop) -> None:
        self._log, self._loop = log, loop

    def before_reaction(self, bit: int) -> None:
        self._log.write("begin", self._loop.worker, self._loop.reactions[bit])

    def after_reaction(self, bit: int) -> None:
        self._log.write("end", self._loop.worker, self._loop.reactions[bit])


def _observed(log: Log, loop: WorkerLoop) -> WorkerLoop:
    loop.observers.append(_Reactions(log, loop))
    return loop


def _binding(log: Log, bind: Callable[..., Any]) -> Callable[..., Any]:
    def bound(*arguments: Any) -> Any:
        loop, *others = bind(*arguments)
        return _observed(log, loop), *others

    return bound


# ---------------------------------------------------------------------- in a helper's process


def in_helper(path: str) -> None:
    """Write down what this helper does from now on, for good."""
    processes.run_helper = partial(_run_helper, path, processes.run_helper)  # type: ignore[attr-defined]


def _run_helper(path: str, run_helper: Callable[..., None], *arguments: Any) -> None:
    worker, channels, revive = arguments[1], arguments[5], arguments[8]
    log = Log(path, _fate(path, worker))
    log.worker = worker
    _watch(log, channels)
    if revive is None:
        main.bind = _binding(log, main.bind)  # type: ignore[attr-defined]
    else:  # what it does again, alone, is nobody's business
        arguments = (*arguments[:8], lambda wait, signal: _observed(log, revive(wait, signal)))
    run_helper(*arguments)


# ---------------------------------------------------------------------- in the caller's process


@contextlib.contextmanager
def recording(path: Path) -> Iterator[None]:
    """Write down what runs do that are started here. Programs with helper processes need :func:`in_helper` in ``worker_setup``."""
    log = Log(str(path))

    def channels_of(original: Callable[..., Any], plan: Any) -> Any:
        channels = original(plan)
        _watch(log, channels)
        return channels

    def start(original: Callable[..., None], self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self.words = _Words(log, self.words)

    def kill(original: Callable[..., None], self: Any, workers: Any) -> None:
        workers = list(workers)
        log.write("kill", *workers)
        original(self, workers)
        log.write("killed", *workers)

    def replace(original: Callable[..., None], self: Any, histories: Mapping[int, Any], reactors: Any) -> None:
        log.write("replace", *histories)
        original(self, histories, reactors)
        _watch(log, {pair: channel for pair, channel in self.channels.items() if not histories.keys().isdisjoint(pair)})

    patched: list[tuple[Any, str, Callable[..., Any]]] = [
        (threads, "channels_of", partial(channels_of, threads.channels_of)),  # type: ignore[attr-defined]
        (processes, "channels_of", partial(channels_of, processes.channels_of)),  # type: ignore[attr-defined]
        (main, "bind", _binding(log, main.bind)),  # type: ignore[attr-defined]
        (run, "bind", _binding(log, run.bind)),  # type: ignore[attr-defined]
        *(
            (owner, name, _method(function, vars(owner)[name]))
            for owner, name, function in (
                (helpers.Helpers, "__init__", start),
                (processes.ProcessesExecutor, "kill", kill),
                (processes.ProcessesExecutor, "replace", replace),
            )
        ),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in patched]
    try:
        for owner, name, function in patched:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
        log.close()


def _method(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any) -> Any:
        return function(original, self, *arguments)

    return method
