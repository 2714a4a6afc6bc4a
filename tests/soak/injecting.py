"""The process whose system calls fail, for injected.py: phases of a run, and what came of each fault, as JSON."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
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
SETTLING = 5.0
"""Seconds that what has ended may take to be gone."""
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

    model: Any = None
    old = b""

    def prepare(self) -> None:
        if Save.model is None:
            from reactor_sb3 import SyncPPO

            how = {"executor": "processes", "workers": 2} if WHO == "helper" else {"executor": "inline"}
            options: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
            Save.model = SyncPPO("MlpPolicy", "CartPole-v1", n_actors=2, **options, **how)
            Save.model.learn(32)
            self.path.write_bytes(b"")
            Save.model.save_checkpoint(self.path)
            Save.old = self.path.read_bytes()
            Save.model.learn(32)
        self.path.write_bytes(Save.old)

    path = Path(tempfile.gettempdir(), f"injected-{os.getpid()}", "run.zip")

    def act(self) -> None:
        Save.model.save_checkpoint(self.path)

    def after(self) -> None:
        beside = [name for name in os.listdir(self.path.parent) if name != self.path.name]
        if beside:
            raise TornError(f"beside it: {beside}")
        if self.path.read_bytes() != Save.old:
            from reactor_sb3 import SyncPPO

            try:
                SyncPPO.resume(self.path, executor="inline").close()
            except Exception as error:
                raise TornError(repr(error)) from error

    def helper(self) -> int:
        return int(Save.model._session.run._executor._processes[0].pid)


PHASES: dict[str, Callable[[], Phase]] = {"start": Start, "tick": Tick, "restart": Restart, "save_checkpoint": Save}


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


def more(since: Counter[str]) -> list[str]:
    """What this process holds more of, once it has settled."""
    end = time.monotonic() + SETTLING
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


def fault(phase: Callable[[], Phase], kind: str, number: int, n: int) -> dict[str, Any] | None:
    """Let a call fail. Returns what came of it, or ``None`` if there was no such call."""
    done = phase()
    if not isinstance(done, Save):
        launch.begin(launch.context_named(None))  # a server that was ended is followed by another one
    before = held()
    done.prepare()
    if isinstance(done, Save):  # it goes on with one model
        before = held()
    target = {"caller": os.getpid, "helper": done.helper, "server": lambda: launch._server[1]._forkserver_pid}[WHO]()
    outcome = said = ""
    SHIM.fault_arm(KINDS.index(kind), n, number, target)
    try:
        done.act()
        outcome = "unaffected"
    except WrongError as error:
        outcome, said = "wrong", repr(error)
    except Exception as error:
        outcome, said = "clear" if is_clear(error) else "unclear", f"{type(error).__name__}: {error}"
        error.__traceback__ = None
    fired = SHIM.fault_disarm()
    try:
        done.after()
        if done.run is not None:
            done.run.close(timeout=3.0)
    except TornError as error:
        outcome, said = "torn", f"{said} {error}"
    except Exception as error:
        outcome, said = "unclear", f"{said}, then in close() {error!r}"
        error.__traceback__ = None
    done.run = None
    if not isinstance(done, Save):
        launch.begin(launch.context_named(None))
    left = more(before)
    if not fired:
        return (
            None if outcome == "unaffected" and not left else {"outcome": "wrong", "said": f"without a fault: {said}", "left": left}
        )
    return {"outcome": outcome, "said": said[:300], "left": left}


def main(phase: Callable[[], Phase], todo: list[tuple[str, int, int]], most: int, patience: float, said: int) -> None:
    """Let each kind of call fail, from a number on, and write what came of it to a descriptor."""

    def say(what: Any) -> None:
        os.write(said, json.dumps(what).encode() + b"\n")

    Save.path.parent.mkdir()
    if phase is not Save:
        for _ in range(2):  # what is started for good
            started = Start()
            started.act()
    for kind, number, first in todo:
        for n in range(first, most + 1):
            say({"begins": (kind, number, n)})
            sys.stderr.write(f"{MARK}{kind} {number} {n}\n")
            sys.stderr.flush()
            faulthandler.dump_traceback_later(patience, exit=True)
            found = fault(phase, kind, number, n)
            faulthandler.cancel_dump_traceback_later()
            if found is None:
                break
            say({"kind": kind, "number": number, "n": n, **found})
    say({"over": True})
    if Save.model is not None:
        Save.model.close()


if __name__ == "__main__":
    WHO = sys.argv[2]
    SHIM = ctypes.CDLL(sys.argv[3])
    main(PHASES[sys.argv[1]], json.loads(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7]))
