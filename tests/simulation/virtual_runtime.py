"""The real runtime in a simulated world: which names of its modules stand for what of :mod:`virtual_machine`.

What runs is the code of ``reactor_rl``, with both of its executors that have helpers: Run, Helpers, RecoveringHelpers, InputLog,
WorkerRevival, ProcessesExecutor and its starts, ThreadsExecutor, Line, run_helper, WorkerLoop, Channel.wait. Shared memory is real.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from virtual_machine import (
    Clock,
    Files,
    ForkServerContext,
    ProcFile,
    TokenChannel,
    Words,
    World,
    ident,
    point,
    queues,
    reentrant_lock,
    replaced,
    threads,
    wait_for_processes,
    yield_processor,
)
from virtual_scheduler import SimulatedProcess, Simulation

from reactor_rl import pickling
from reactor_rl.runtime import (
    channel,
    executor,
    helpers,
    launch,
    lifetime,
    line,
    numeric_threads,
    processes,
    recovery,
    revival,
    run,
    shared_memory,
    supervisor,
)
from reactor_rl.runtime import threads as threads_executor
from reactor_rl.runtime.module_settings import ModuleSettings
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.revival import WorkerHistory
from reactor_rl.runtime.shared_memory import SharedMemory
from reactor_rl.runtime.worker import bind as binding
from reactor_rl.runtime.worker import loop, main, presence


class _Numpy:
    """The module ``numpy``, which reads the words of :class:`Words`."""

    @staticmethod
    def frombuffer(words: Any, dtype: Any) -> Any:
        return np.frombuffer(words.whole, dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_numpy = _Numpy()


def _nothing(*args: Any, **kwargs: Any) -> None: ...


class _Handle:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def detach(self) -> int:
        return os.dup(self._fd)


def _copied(argument: Any) -> Any:
    """An argument of a process as it finds it: blocks of memory are mapped anew."""
    if isinstance(argument, SharedMemory):
        block: SharedMemory = SharedMemory.__new__(SharedMemory)
        block.__setstate__({"purpose": argument.purpose, "size": argument.size, "handle": _Handle(argument._fd)})
        return block
    if isinstance(argument, list):
        return [_copied(one) for one in argument]
    if isinstance(argument, dict):
        for pair, one in argument.items():
            if isinstance(one, TokenChannel):
                one.pair = pair
        return dict(argument)
    return argument


def _load(load: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a process is given to load: its history as it is now, all else cannot change."""
    history = load[-1]
    return (*load[:-1], pickle.loads(pickle.dumps(history)) if isinstance(history, WorkerHistory) else history)


class _Runs(set[Any]):
    """Runs that were begun and not closed. All are kept for as long as this: a run that is collected closes itself then."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def add(self, run: Any) -> None:
        super().add(run)
        self.kept.append(run)


class SimulatedRuntime:
    """What is kept of the runtime in one simulation.

    Attributes:
        runs: Runs that were begun and not closed.
        loops: The loops that were made, and in which process.
        files: The ends of pipes.
        channels: The channels of the caller.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.runs = _Runs()
        self.loops: list[tuple[SimulatedProcess, Any]] = []
        self.files = Files()
        self.channels: list[TokenChannel] = []

    def _noted(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """Note the loops that are bound."""

        def bound(*args: Any) -> Any:
            made = bind(*args)
            current = self.simulation.current
            assert current is not None
            self.loops.append((current.process, made[0]))
            return made

        return bound

    def _end_server(self) -> None:
        point()
        self.simulation.server.end(-9)

    def _compiled(self, plan: Plan | None, spin: float, kind: str) -> Callable[..., Any]:
        """Have :func:`supervisor.start` take a plan that is compiled already, if there is one."""
        if plan is None:
            return supervisor.compile_program

        def compile_program(*_: Any) -> tuple[Plan, Any]:
            threaded = kind == "threads"
            return plan, threads_executor.ThreadsExecutor(plan, spin) if threaded else processes.ProcessesExecutor(
                plan, spin, None, ()
            )

        return compile_program

    @contextlib.contextmanager
    def installed(self, plan: Plan | None, spin: float, kind: str, pause: float) -> Iterator[None]:
        """Put the simulated world under the runtime within the block.

        Args:
            plan: What runs; ``None``: whatever is compiled.
            spin: Seconds that workers spin.
            kind: The executor, ``"threads"`` or ``"processes"``.
            pause: Seconds between two saves of a recovering run.
        """
        files, context = self.files, ForkServerContext(self.files, _copied)
        bind = self._noted(binding.bind)
        TokenChannel.made = self.channels
        words = {"control_words": Words}
        clocks = {
            module: {"time": Clock} for module in (channel, helpers, launch, lifetime, line, recovery, revival, threads_executor)
        }
        places: dict[Any, dict[str, Any]] = {
            channel: {"clock": Clock.monotonic, "yield_processor": yield_processor},
            executor: {"Channel": TokenChannel},
            helpers: words,
            binding: words,
            main: {**words, "bind": bind},
            revival: {**words, "bind": bind},
            presence: {"np": _numpy},
            loop: {"get_ident": ident},
            lifetime: {"get_ident": ident, "runs": self.runs},
            lifetime.RunLifetime: {"__del__": _nothing},  # of a run that was struck before it did anything
            run: {"bind": bind, "runs": self.runs, "RLock": reentrant_lock, "when_forked": _nothing},
            recovery: {"tell": self.simulation.say, "SHORTEST_PAUSE": pause, "PAUSE_FACTOR": 0},
            supervisor: {"compile_program": self._compiled(plan, spin, kind)},
            shared_memory: {"available_memory": lambda: None},
            numeric_threads: {"_for_good": True},
            pickling: {"_alone": True, "_here": pickling._Here()},
            line: {"os": files.os(), "select": files.select(), "_End": files.shutter()},
            launch: {
                "os": SimpleNamespace(close=_nothing, getpid=os.getpid),
                "connection": SimpleNamespace(wait=wait_for_processes),
                "start_process": lambda _, process: process.start(),
            },
            processes: {
                "Channel": TokenChannel,
                "Path": ProcFile,
                "_watch": _nothing,
                "arithmetic": _nothing,
                "atexit": SimpleNamespace(register=_nothing),
                "begin": lambda _: point(),
                "bind": bind,
                "cloudpickle": SimpleNamespace(dumps=_load),
                "context_named": lambda _: context,
                "end_server": self._end_server,
                "environment": dict,
                "numeric_threads": SimpleNamespace(for_good=_nothing),
                "pickling": SimpleNamespace(for_good=_nothing),
                "settings_of": lambda _: ModuleSettings(),
                "take": _nothing,
                "take_environment": _nothing,
                "threading": threads,
            },
            threads_executor: {
                "arithmetic": _nothing,
                "numeric_threads": SimpleNamespace(ended=_nothing),
                "queue": queues,
                "take": _nothing,
                "threading": threads,
            },
        }
        for module, names in clocks.items():
            places.setdefault(module, {}).update(names)
        World.simulation = self.simulation
        try:
            with replaced(places):
                yield
        finally:
            World.simulation = None
