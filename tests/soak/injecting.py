"""The process whose system calls fail, for injected.py: phases of a run, and what came of each fault, as JSON."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from reactor_rl import Input, Output, Program, Reactor, Recover, reaction
from reactor_rl.runtime import launch

KINDS = (
    "fork", "mmap", "ftruncate", "posix_fallocate", "memfd_create", "sem_open", "pipe", "socketpair", "write", "read", "poll",
    "pthread_create", "open", "dup", "sendmsg", "recvmsg", "sem_wait", "connect", "fsync", "rename",
)  # fmt: skip
"""In the order of shim.c."""
NEXT_BORN = -1
SETTLING = 0.25
"""Share of the patience that what has ended may take to be gone."""
TICKS = 3
MARK = "--- "
"""Before what is written to standard error about a fault."""


class Doubler(Reactor):
    """Says a number, and an object that becomes larger than its place in the arena."""

    x = Input((), np.float64)
    y = Output((), np.float64)
    said = Output()

    def __init__(self, add: float) -> None:
        self.add, self.ticks = add, 0

    @reaction(x, effects=[y, said])
    def double(self) -> None:
        self.ticks += 1
        self.y.set(2 * self.x.value + self.add)
        self.said.set(bytes(3000 * self.ticks))


def program() -> Program:
    made = Program("doublers")
    x = made.input("x", (), np.float64)
    for number in range(3):
        doubler = made.add(Doubler, add=float(number))
        made.connect(x, doubler.x)
        made.connect(doubler.y, made.output(f"y{number}"))
        made.connect(doubler.said, made.output(f"said{number}"))
    return made


class WrongError(Exception):
    """Other results than without a fault."""


class TornError(Exception):
    """A file that is not whole."""


# ---------------------------------------------------------------------- phases


class Phase:
    """Something that a run does, in a process some of whose calls fail.

    Attributes:
        run: What is to be closed afterwards, as soon as there is one.
        places: Reactors and where they are: the caller and two helpers have one each.
    """

    run: Any = None
    placed = {"executor": "processes", "workers": 3}

    def prepare(self) -> None:
        """What goes before."""

    def act(self) -> None:
        """What is done while a call fails."""
        raise NotImplementedError

    def after(self) -> None:
        """What is checked when nothing fails any more, whether there was an error or not."""

    def helper(self) -> int:
        """The helper whose calls fail."""
        return int(self.run._executor._processes[0].pid)

    def advance(self) -> None:
        for _ in range(TICKS):
            self.run.set(x=np.float64(4.0))
            self.run.tick()
            found = [float(getattr(self.run, f"y{number}")) for number in range(3)]
            lengths = {len(getattr(self.run, f"said{number}")) for number in range(3)}
            if found != [8.0, 9.0, 10.0] or len(lengths) != 1:
                raise WrongError(f"{found}, {lengths}")


class Start(Phase):
    def act(self) -> None:
        self.run = program().start(**self.placed)
        self.advance()
        self.run.close()

    def helper(self) -> int:
        return NEXT_BORN


class Tick(Phase):
    def prepare(self) -> None:
        self.run = program().start(**self.placed)
        self.advance()

    def act(self) -> None:
        self.advance()
        self.run.restore(self.run.snapshot())
        self.advance()
        self.run.close()


class Restart(Phase):
    def prepare(self) -> None:
        self.run = program().start(**self.placed, recover=Recover(restarts=20))
        self.advance()

    def act(self) -> None:
        os.kill(self.run._executor._processes[0].pid, signal.SIGKILL)
        self.advance()
        self.run.close()

    def helper(self) -> int:
        return NEXT_BORN


class Save(Phase):
    """A checkpoint, beside one that is there."""

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name, "run.zip")
    model: Any = None
    old = b""
    placed = {"executor": "inline"}

    def prepare(self) -> None:
        if self.model is None:
            from reactor_sb3 import SyncPPO

            options: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
            type(self).model = model = SyncPPO("MlpPolicy", "CartPole-v1", n_actors=2, **options, **self.placed)
            model.learn(32)
            model.save_checkpoint(self.path)
            Save.old = self.path.read_bytes()
            model.learn(32)
        self.path.write_bytes(self.old)

    def act(self) -> None:
        self.model.save_checkpoint(self.path)

    def after(self) -> None:
        if os.listdir(self.folder.name) != [self.path.name]:
            raise TornError(f"beside it: {os.listdir(self.folder.name)}")
        if self.path.read_bytes() != self.old:
            from reactor_sb3 import SyncPPO

            try:
                SyncPPO.resume(self.path, executor="inline").close()
            except Exception as error:
                raise TornError(repr(error)) from error


class SaveFromHelpers(Save):
    """The same, where a helper has to say what it holds."""

    placed = {"executor": "processes", "workers": 2}

    def after(self) -> None:
        type(self).model, model = None, self.model
        model.close()
        super().after()

    def helper(self) -> int:
        return int(self.model.start()._executor._processes[0].pid)


class Careless(Phase):
    """What each kind of fault is noticed by: a bare error with something left, other results, a torn file, a hang."""

    kept: list[int] = []

    def act(self) -> None:
        self.kept.append(os.memfd_create("left"))
        os.close(os.open(os.devnull, os.O_RDONLY))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
        except OSError:
            while True:
                time.sleep(1.0)
        for ends, error in ((os.pipe, WrongError), (socket.socketpair, TornError)):
            try:
                for end in ends():
                    os.close(end) if isinstance(end, int) else end.close()
            except OSError:
                raise error from None
        os.close(self.kept.pop())


PHASES: dict[str, type[Phase]] = {
    "start": Start, "tick": Tick, "restart": Restart, "save_checkpoint": Save, "save_checkpoint of helpers": SaveFromHelpers,
    "careless": Careless,
}  # fmt: skip


# ---------------------------------------------------------------------- what is left


def held() -> Counter[str]:
    """What this process holds: descriptors by what they are of, threads, processes of its session, names in shared memory."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            found["descriptors of " + os.readlink(f"/proc/self/fd/{name}").partition(":")[0].partition(" ")[0]] += 1
        except OSError:
            continue
    found["threads"] = threading.active_count()
    found["names"] = sum(f"rrl-{os.getpid():x}-" in name for name in os.listdir("/dev/shm"))
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        found["processes"] += int(session) == os.getpid() and state not in "ZX"
    return found


def more(since: Counter[str], seconds: float) -> list[str]:
    """What this process holds more of, once it has settled."""
    end = time.monotonic() + seconds
    while True:
        gc.collect()
        found = [f"{count - since[name]} {name}" for name, count in held().items() if count > since[name]]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.01)


# ---------------------------------------------------------------------- one fault


def is_clear(error: BaseException) -> bool:
    """Whether an error is one of ours, or says more than what its number means."""
    if type(error).__module__.partition(".")[0].startswith("reactor_"):
        return True
    return isinstance(error, OSError) and str(error) != f"[Errno {error.errno}] {os.strerror(error.errno or 0)}"


LEAVING = {("popen_forkserver.py", "_launch"), ("forkserver.py", "connect_to_new_process")}
"""Functions of ``multiprocessing`` that an error leaves without closing what they have opened."""


def origin(error: BaseException) -> tuple[str, str]:
    """The file and the function that an error comes from, through the errors that were made of it."""
    while error.__cause__ is not None and error.__cause__.__traceback__ is not None:  # that of another process has none
        error = error.__cause__
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return os.path.basename(frame.f_code.co_filename), frame.f_code.co_name


def fault(phase: type[Phase], kind: str, number: int, n: int, settling: float) -> dict[str, Any] | None:
    """Let a call fail. Returns what came of it, or ``None`` if there was no such call."""
    done = phase()
    launch.begin(launch.context_named(None))  # a server that was ended is followed by another one
    before = held()
    done.prepare()
    target = {"caller": os.getpid, "helper": done.helper, "server": lambda: launch._server[1]._forkserver_pid}[WHO]()
    outcome, said, leaves = "", "", False
    SHIM.fault_arm(KINDS.index(kind), n, number, target)
    try:
        done.act()
        outcome = "unaffected"
    except (WrongError, TornError) as error:
        outcome, said = "wrong" if isinstance(error, WrongError) else "torn", repr(error)
    except Exception as error:
        outcome, said = "clear" if is_clear(error) else "unclear", f"{type(error).__name__}: {error}"
        leaves = origin(error) in LEAVING
    fired = SHIM.fault_disarm()
    try:
        done.after()
        if done.run is not None:
            done.run.close(timeout=3.0)
    except TornError as error:
        outcome, said = "torn", f"{said} {error}"
    except Exception as error:
        outcome, said = "unclear", f"{said}, then in close() {error!r}"
    done.run = None
    if fired and said and isinstance(done, (Start, Tick, Restart)):  # now nothing fails, and there is nothing to be in the way
        following = Start()
        try:
            following.act()
        except Exception as error:
            outcome, said = "spoilt", f"{said}, then {error!r}"
            following.run = None
    launch.begin(launch.context_named(None))
    left = more(before, settling)
    if left and leaves and outcome == "clear":
        outcome = "Python's"
    if not fired:
        return (
            None if outcome == "unaffected" and not left else {"outcome": "wrong", "said": f"without a fault: {said}", "left": left}
        )
    return {"outcome": outcome, "said": said[:400], "left": left}


def main(phase: type[Phase], todo: list[tuple[str, int, int]], most: int, patience: float, said: int) -> None:
    """Let each kind of call fail, from a number on, and write what came of it to a descriptor."""

    def say(what: Any) -> None:
        os.write(said, json.dumps(what).encode() + b"\n")

    for _ in range(2):  # what is started for good
        once = phase()
        once.prepare()
        once.act()
        once.after()
    for kind, number, first in todo:
        for n in range(first, most + 1):
            say({"begins": (kind, number, n)})
            sys.stderr.write(f"{MARK}{kind} {number} {n}\n")
            sys.stderr.flush()
            faulthandler.dump_traceback_later(patience, exit=True)
            found = fault(phase, kind, number, n, SETTLING * patience)
            faulthandler.cancel_dump_traceback_later()
            if found is None:
                break
            say({"kind": kind, "number": number, "n": n, **found})
    if Save.model is not None:
        Save.model.close()
    say({"over": True})


if __name__ == "__main__":
    WHO = sys.argv[2]
    SHIM = ctypes.CDLL(sys.argv[3])
    main(PHASES[sys.argv[1]], json.loads(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]))
