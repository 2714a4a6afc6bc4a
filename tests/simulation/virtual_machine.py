"""What the runtime finds in place of the system: clocks, locks, threads, semaphores, pipes and processes of a simulation.

Pipes are those of the kernel as far as the runtime can tell: bytes, a buffer that gets full, half of a message, the other end that
hangs up or is reset. A fork server starts processes, one after the other, and may be killed while it does.
"""

from __future__ import annotations

import contextlib
import errno
import select
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from types import SimpleNamespace
from typing import Any

from virtual_scheduler import SimulatedProcess, Simulation, Task

from reactor_rl.runtime.channel import Channel, ControlBlock
from reactor_rl.runtime.executor import HelperCommand
from reactor_rl.runtime.shared_memory import SharedMemory

_LENGTH = struct.Struct("!i")


class World:
    """The simulation that is running, for all that is in the place of the system."""

    simulation: Simulation | None = None
    rooms: tuple[int, ...] = (64, 1024, 65536)
    """Sizes of the buffers of pipes."""


def now_running() -> Simulation:
    """Return the simulation that is running."""
    assert World.simulation is not None
    return World.simulation


def point(interrupts: bool = True) -> None:
    """Let others go on, if a simulation is running."""
    if World.simulation is not None:
        World.simulation.point(interrupts)


def ident() -> int:
    """Return what stands for the number of the running thread."""
    return 1 if World.simulation is None or World.simulation.current is None else id(World.simulation.current)


class Clock:
    """The module ``time``."""

    @staticmethod
    def monotonic() -> float:
        return 0.0 if World.simulation is None else World.simulation.now

    perf_counter = time = monotonic

    @staticmethod
    def sleep(seconds: float) -> None:
        if World.simulation is not None:
            World.simulation.wait(lambda: False, seconds, patient=True)  # in what counts the seconds of a grace period


def yield_processor() -> None:
    """Give the processor away: for a microsecond, or for a time slice, where others want it."""
    if World.simulation is not None:
        World.simulation.now += 1e-6 if World.simulation.random.random() < 0.95 else 2e-3
        World.simulation.point()


# ---------------------------------------------------------------------- threads


class Lock:
    """A lock, or one that its holder may take again. Ctrl-C strikes while it is waited for, never once it is taken."""

    def __init__(self, again: bool = False) -> None:
        self._holder: int | None = None
        self._times, self._again = 0, again

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = ident()
        if not (self._again and self._holder == me):
            point(interrupts=False)
            if self._holder is not None:
                if not blocking or World.simulation is None:
                    return False
                if not World.simulation.wait(lambda: self._holder is None, None if timeout < 0 else timeout):
                    return False
        self._holder, self._times = me, self._times + 1
        return True

    def release(self) -> None:
        self._times -= 1
        if self._times == 0:
            self._holder = None

    def _is_owned(self) -> bool:
        return self._holder == ident()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def reentrant_lock() -> Lock:
    """Make an RLock."""
    return Lock(again=True)


class Event:
    """A flag that threads wait for."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        point(interrupts=False)
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        point()
        return self._set or (World.simulation is not None and World.simulation.wait(self.is_set, timeout, patient=True))


class Thread:
    """A thread of the process that starts it."""

    def __init__(
        self, target: Callable[..., None] | None = None, args: Sequence[Any] = (), name: str = "", daemon: bool = False
    ) -> None:
        self._target, self._args, self._name = target, args, name
        self._task: Task | None = None

    def start(self) -> None:
        simulation = now_running()
        assert simulation.current is not None
        self._task = simulation.spawn(self._name, simulation.current.process, self.run)
        point(interrupts=False)

    def run(self) -> None:
        assert self._target is not None
        self._target(*self._args)

    @property
    def ident(self) -> int | None:
        return None if self._task is None else id(self._task)

    def is_alive(self) -> bool:
        point()
        return self._task is not None and not self._task.gone

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        assert task is not None
        point()
        if World.simulation is not None and not task.gone:
            World.simulation.wait(lambda: task.gone, timeout, patient=True)


threads = SimpleNamespace(
    Thread=Thread, Lock=Lock, RLock=reentrant_lock, Event=Event, get_ident=ident, current_thread=object, main_thread=object
)
"""The module ``threading``."""


class Empty(Exception):
    """Raised by a queue that stays empty."""


class SimpleQueue:
    """A queue between two threads."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        point()
        self._items.append(item)

    def get(self, timeout: float | None = None) -> Any:
        point()
        if not self._items and not now_running().wait(lambda: self._items, timeout):
            raise Empty
        return self._items.pop(0)

    def get_nowait(self) -> Any:
        point()
        if not self._items:
            raise Empty
        return self._items.pop(0)


queues = SimpleNamespace(SimpleQueue=SimpleQueue, Empty=Empty)
"""The module ``queue``."""


# ---------------------------------------------------------------------- what workers share


class TokenChannel(Channel):
    """A channel whose semaphore is a number. What spins and what parks is the real :meth:`Channel.wait`."""

    made: list[TokenChannel] = []
    """All of this simulation."""

    def __init__(self) -> None:
        self._tokens, self.named, self.pair = 0, True, (-1, -1)
        self.signal, self.poll = self._give, self._take
        self.made.append(self)

    def _give(self) -> None:
        point()
        self._tokens += 1
        if World.simulation is not None and World.simulation.log is not None:
            World.simulation.say(f"gives a token to {self.pair[1]}")

    def _take(self, block: bool = True, seconds: float | None = None) -> bool:
        point()
        if World.simulation is None:
            return True
        if not self._tokens and block:
            World.simulation.wait(lambda: self._tokens, seconds)
        if not self._tokens:
            return False
        self._tokens -= 1
        if World.simulation.log is not None:
            World.simulation.say(f"takes a token of {self.pair[0]}")
        return True

    def unlink(self) -> None:
        self.named = False

    def unlink_attached(self) -> None:
        self.named = False

    def __del__(self) -> None: ...


_NAMES = {getattr(ControlBlock, name): name for name in ("COMMAND", "TIME", "PASS", "STOPPED", "ABORT")}
_COMMANDS = {value: name for name, value in vars(HelperCommand).items() if name.isupper()}


def _word(index: int) -> str:
    """Name a word, for the log. Those that each worker has are not told from the stamps that follow."""
    return _NAMES.get(index, f"word {index}")


class Words:
    """The words that all workers share; at each look at one of them others may go on."""

    __slots__ = ("whole",)

    def __init__(self, memory: memoryview, layout: Any) -> None:
        self.whole = memory[: layout.words * 8].cast("q")

    def __getitem__(self, index: Any) -> Any:
        if (simulation := World.simulation) is not None:  # not by point(): most points are here
            simulation.points += 1
            if simulation.points >= simulation._next:
                simulation._happen(True)
        return self.whole[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        point()
        self.whole[index] = value
        if World.simulation is not None and World.simulation.log is not None:
            World.simulation.say(f"{_word(index)} is {_COMMANDS.get(value, value) if index == ControlBlock.COMMAND else value}")

    def __len__(self) -> int:
        return len(self.whole)


# ---------------------------------------------------------------------- pipes


class Stream:
    """Bytes on their way from one end of a pipe to the other."""

    def __init__(self, room: int) -> None:
        self.data, self.room = bytearray(), room
        self.shut = False  # nothing more will come
        self.unread = False  # the reader is gone
        self.reset = False  # an end was closed while there was something to read


class End:
    """One end of a duplex pipe, and how many processes have it open."""

    def __init__(self, number: int, inbox: Stream, outbox: Stream) -> None:
        self.number, self.inbox, self.outbox, self.open = number, inbox, outbox, 1

    def fileno(self) -> int:
        return self.number

    def close(self) -> None:
        if self.open:
            self.open -= 1
            if not self.open:
                self.shut_down()
                self.outbox.reset = bool(self.inbox.data)

    def shut_down(self) -> None:
        for stream in (self.inbox, self.outbox):
            stream.shut = True
        self.inbox.unread = True

    # As the kernel has it, without waiting.

    def write(self, data: Any) -> int:
        point()
        if self.outbox.shut or self.outbox.unread:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        room = self.outbox.room - len(self.outbox.data)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        self.outbox.data += bytes(data[:room])
        return min(room, len(data))

    def read(self, most: int) -> bytes:
        point()
        if not self.inbox.data:
            if self.inbox.reset:
                self.inbox.reset = False
                raise ConnectionResetError(errno.ECONNRESET, "reset")
            if self.inbox.shut:
                return b""
            raise BlockingIOError(errno.EAGAIN, "empty")
        came = bytes(self.inbox.data[:most])
        del self.inbox.data[:most]
        return came

    def readable(self) -> bool:
        return bool(self.inbox.data) or self.inbox.shut

    def writable(self) -> bool:
        return self.outbox.shut or len(self.outbox.data) < self.outbox.room

    # A connection of multiprocessing, which waits.

    def send(self, thing: Any) -> None:
        content = bytes(ForkingPickler.dumps(thing))
        data = _LENGTH.pack(len(content)) + content
        while data:
            try:
                data = data[self.write(data) :]
            except BlockingIOError:
                now_running().wait(self.writable)

    def recv(self) -> Any:
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return ForkingPickler.loads(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                came = self.read(size - len(data))
            except BlockingIOError:
                now_running().wait(self.readable)
                continue
            if not came:
                raise EOFError
            data += came
        return data


class Files:
    """The open ends of pipes of the caller, by number, and the functions of ``os``, ``select`` and ``socket`` for them."""

    def __init__(self) -> None:
        self.ends: dict[int, End] = {}

    def pipe(self) -> tuple[End, End]:
        room, number = now_running().random.choice(World.rooms), len(self.ends) + 1000
        one, other = Stream(room), Stream(room)
        mine, theirs = End(number, one, other), End(number + 1, other, one)
        self.ends |= {number: mine, number + 1: theirs}
        return mine, theirs

    def os(self) -> SimpleNamespace:
        def readv(number: int, parts: Sequence[memoryview]) -> int:
            came = self.ends[number].read(len(parts[0]))
            parts[0][: len(came)] = came
            return len(came)

        return SimpleNamespace(
            set_blocking=lambda number, blocking: None, write=lambda number, data: self.ends[number].write(data), readv=readv,
            dup=lambda number: number,
        )  # fmt: skip

    def select(self) -> SimpleNamespace:
        files = self

        class Poll:
            def register(self, number: int, events: int) -> None:
                self._end, self._events = files.ends[number], events

            def poll(self, milliseconds: float) -> list[Any]:
                end, events = self._end, self._events
                point()
                reads, writes = bool(events & select.POLLIN), bool(events & select.POLLOUT)

                def ready() -> bool:
                    return end.inbox.shut or (reads and end.readable()) or (writes and end.writable())

                simulation = now_running()
                return [end] if ready() or (milliseconds > 0 and simulation.wait(ready, milliseconds / 1000)) else []

        return SimpleNamespace(poll=Poll, POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)

    def shutter(self) -> Callable[..., Any]:
        """Return what stands for the socket that shuts a pipe down."""
        return lambda fileno: SimpleNamespace(shutdown=lambda how: self.ends[fileno].shut_down())


# ---------------------------------------------------------------------- processes


class Process:
    """A process of ``multiprocessing``, started by the fork server."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], name: str, copied: Callable[[Any], Any]) -> None:
        self._target, self._args, self._name, self._copied = target, args, name, copied
        self._process: SimulatedProcess | None = None
        self._popen = SimpleNamespace(returncode=None)
        self._closed = False

    def start(self) -> None:
        """Start the process.

        Raises:
            EOFError, ConnectionResetError: If the fork server is killed meanwhile.
        """
        simulation = now_running()
        if simulation.server.ended:  # the next start has another one
            simulation.server = SimulatedProcess("fork server", 2)
        server = simulation.server
        takes = None if server.stopped else simulation.random.choice([0.0, 1e-4, 0.1])
        simulation.wait(lambda: server.ended, takes)
        if server.ended:
            raise simulation.random.choice([EOFError(), ConnectionResetError(errno.ECONNRESET, "reset"), BrokenPipeError()])
        arguments = tuple(map(self._copied, self._args))
        ends = [argument for argument in arguments if isinstance(argument, End)]
        for end in ends:
            end.open += 1
        self._process = process = simulation.process(self._name.rpartition(" ")[2], lambda: self._target(*arguments))
        process.at_end += [end.close for end in ends]
        process.at_end += [block._release for argument in arguments for block in _blocks(argument)]
        point(interrupts=False)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def sentinel(self) -> SimulatedProcess | None:
        return self._process

    @property
    def exitcode(self) -> int | None:
        return None if self._process is None else self._process.status

    def join(self, seconds: float | None = None) -> None:
        process = self._process
        if process is not None and not process.ended:
            now_running().wait(lambda: process.ended, seconds, patient=True)

    def _signal(self, number: int) -> None:
        point()
        process = self._process
        if process is not None and not process.ended:
            process.signal = number

    def kill(self) -> None:
        self._signal(9)

    def terminate(self) -> None:
        if self._process is not None and not self._process.ended:
            now_running().notes.append(f"helper {self._process.name} was terminated")
        self._signal(15)

    def close(self) -> None:
        self._closed = True


def _blocks(argument: Any) -> list[SharedMemory]:
    """The blocks of memory that a process has open for an argument."""
    return [one for one in (argument if isinstance(argument, list) else [argument]) if isinstance(one, SharedMemory)]


def wait_for_processes(sentinels: Iterable[SimulatedProcess], seconds: float | None = None) -> list[SimulatedProcess]:
    """Wait until one of some processes has ended; ``multiprocessing.connection.wait``."""
    processes = list(sentinels)
    point()
    if seconds != 0 and not any(process.ended for process in processes):
        now_running().wait(lambda: any(process.ended for process in processes), seconds, patient=True)
    return [process for process in processes if process.ended]


class ProcFile:
    """What ``/proc/PID/stat`` says of a process."""

    def __init__(self, path: str) -> None:
        self._pid = path.split("/")[2]

    def read_text(self) -> str:
        for process in now_running().helpers:
            if str(process.pid) == self._pid and not process.ended:
                return f"{self._pid} (helper) {'T' if process.stopped else 'S'} 1"
        raise FileNotFoundError


class ForkServerContext:
    """A context of ``multiprocessing``."""

    def __init__(self, files: Files, copied: Callable[[Any], Any]) -> None:
        self._files, self._copied = files, copied

    def get_start_method(self) -> str:
        return "forkserver"

    def Pipe(self) -> tuple[End, End]:  # noqa: N802
        return self._files.pipe()

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], name: str, daemon: bool) -> Process:  # noqa: N802
        return Process(target, args, name, self._copied)


@contextlib.contextmanager
def replaced(places: Mapping[Any, Mapping[str, Any]]) -> Any:
    """Have attributes of modules be others within the block."""
    before = [(module, name, vars(module).get(name, replaced)) for module, names in places.items() for name in names]
    try:
        for module, names in places.items():
            for name, value in names.items():
                setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            if value is replaced:
                delattr(module, name)
            else:
                setattr(module, name, value)
