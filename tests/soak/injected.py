"""System calls that fail, each in turn: while a run starts, ticks, replaces a helper and is saved, in every process of it.

``python tests/soak/injected.py`` makes the n-th call of each kind fail, for every n, and writes the file ``injected.json`` of
``benchmarks/results/``. Each is to end in a clear error, or to change nothing; nothing may be left, and a file that was there
stays whole. Exits 1 if not. Phases run in a process of their own under ``shim.c``.

What is Python's own is counted apart. It waits for ever by two faults that cannot come alone: ``mmap`` has no memory for what a new
thread begins with, for which ``Thread.start()`` waits (known by what Python writes); ``write`` ends with EPIPE though who reads the
pipe lives, and ``multiprocessing.resource_tracker`` waits for its process (the shim lets that happen to sockets only). If it has
too few descriptors while it starts a process from a fork server, ``multiprocessing`` leaves a pipe open, or the process behind.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(path) for path in (HERE, HERE.parent) if str(path) not in sys.path]

import injecting  # noqa: E402
from ctrl_c import left_by  # noqa: E402

E = errno
ERRORS: dict[str, tuple[int, ...]] = {
    "fork": (E.EAGAIN, E.ENOMEM), "mmap": (E.ENOMEM,), "ftruncate": (E.ENOSPC,), "posix_fallocate": (E.ENOSPC, E.EINTR),
    "memfd_create": (E.EMFILE, E.ENOMEM), "sem_open": (E.ENOSPC, E.EMFILE, E.ENOMEM), "pipe": (E.EMFILE,),
    "socketpair": (E.EMFILE,), "write": (E.EINTR, E.EPIPE, E.ENOBUFS), "read": (E.EINTR, E.ECONNRESET), "poll": (E.EINTR, E.ENOMEM),
    "pthread_create": (E.EAGAIN,),
    "open": (E.EMFILE, E.EINTR), "dup": (E.EMFILE,), "sendmsg": (E.ENOMEM,), "recvmsg": (E.ENOMEM,), "sem_wait": (E.EINTR,),
    "connect": (E.ECONNREFUSED, E.EAGAIN),
}  # fmt: skip
"""What calls of a run may end with."""
OF_FILES: dict[str, tuple[int, ...]] = {
    "write": (E.ENOSPC, E.EIO, E.EINTR), "fsync": (E.EIO,), "rename": (E.ENOSPC, E.EXDEV), "open": (E.EMFILE, E.ENOSPC),
    "mmap": (E.ENOMEM,), "read": (E.EIO,),
}  # fmt: skip
"""What those of a process that saves may end with."""
PLACES = (
    ("start", "caller"), ("start", "helper"), ("start", "server"), ("tick", "caller"), ("tick", "helper"), ("restart", "caller"),
    ("restart", "helper"), ("restart", "server"), ("save_checkpoint", "caller"),
    ("save_checkpoint of helpers", "caller"), ("save_checkpoint of helpers", "helper"),
)  # fmt: skip
"""What goes on, and whose calls fail."""
MOST = 40
"""Calls of a kind that fail, one after the other. A run that waits makes any number of them."""
PATIENCE = 20.0
"""Seconds after which a run with a fault counts as hung."""

Pair = tuple[str, int]
"""A kind of call, and what it ends with."""


class Trial(NamedTuple):
    """What came of one fault.

    Attributes:
        kind, number, n: Which call of which kind ended with which error.
        outcome: ``unaffected``, ``clear`` (an error that says why), ``unclear``, ``wrong`` (other results), ``torn`` (the file is
            not whole), ``spoilt`` (the next run fails), ``hung``, ``ended`` (the whole process), or ``Python's`` (hung where Python
            itself waits for ever, or an error after which it leaves something itself).
        said: The error, if any.
        left: What there was more of afterwards.
    """

    kind: str
    number: int
    n: int
    outcome: str
    said: str
    left: list[str]

    @property
    def bad(self) -> bool:
        return self.outcome != "Python's" and (bool(self.left) or self.outcome not in ("unaffected", "clear"))

    def __str__(self) -> str:
        which = f"{self.kind} {errno.errorcode[self.number]} {self.n}: {self.outcome}"
        return " | ".join([which, *([self.said] if self.said else []), *(f"LEFT {one}" for one in self.left)])


def built(folder: Path) -> Path | None:
    """Compile the shim. Returns where it is, or ``None`` if this system has no compiler, or is no Linux."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    shim = folder / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-w", "-o", str(shim), str(HERE / "shim.c"), "-ldl"], check=True)
    return shim


def trials(
    phase: str, who: str, pairs: Sequence[Pair], shim: Path, most: int = MOST, patience: float = PATIENCE
) -> Iterator[Trial]:
    """Let the calls fail, one after the other, until there is no such call any more; or ``most`` of each."""
    begin = dict.fromkeys(pairs, 1)
    while begin:
        todo = [(kind, number, n) for (kind, number), n in begin.items()]
        at: Pair | None = None
        for said in _in_a_process(phase, who, todo, shim, most, patience):
            if isinstance(said, str):  # it has hung, or ended
                assert at is not None, said
                outcome = "Python's" if _is_pythons(said) else "hung" if "Timeout (" in said else "ended"
                yield Trial(*at, begin[at], outcome, "" if outcome == "Python's" else said[-3000:], [])
                begin[at] += 1
            elif "begins" in said:
                if at is not None and at != tuple(said["begins"][:2]):
                    del begin[at]
                at = (said["begins"][0], said["begins"][1])
                begin[at] = said["begins"][2]
            elif "over" in said:
                begin = {}
            else:
                yield Trial(**said)


def _in_a_process(phase: str, who: str, todo: Any, shim: Path, most: int, patience: float) -> Iterator[Any]:
    """What a process says that does these; what it wrote about the last of them if it hangs, at the end."""
    with tempfile.TemporaryDirectory() as folder:
        plan, errors = Path(folder, "plan"), Path(folder, "errors")
        plan.write_bytes(bytes(4096))
        variables = {"LD_PRELOAD": str(shim), "REACTOR_RL_FAULTS": str(plan), "OMP_NUM_THREADS": "1"}
        heard, said = os.pipe()  # helpers would have its standard output, too
        command = [sys.executable, "-W", "ignore", injecting.__file__, phase, who, str(shim), json.dumps(todo), str(most)]
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                [*command, str(patience), str(said)], pass_fds=[said], stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                env={**os.environ, **variables}, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            os.close(said)
            over = False
            with os.fdopen(heard) as lines:
                for line in lines:  # who hangs ends itself
                    message = json.loads(line)
                    over = over or "over" in message
                    yield message
        if not over:
            _end_helpers(process.pid)
        left = left_by(process.pid)
        assert not left, left
        if not over:
            yield f"exit status {process.returncode}\n" + errors.read_text(errors="replace").rpartition(injecting.MARK)[2]


def _end_helpers(session: int) -> None:
    """Kill what a process that hung has left: a helper that hangs before it watches its caller does not end."""
    for _ in range(100):  # the fork server may be about to have another one
        alive = 0
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) != session or fields[0] in "ZX" or b"resource_tracker" in (path / "cmdline").read_bytes():
                    continue  # the tracker removes names when all others have ended
                os.kill(int(path.name), signal.SIGKILL)
                alive += 1
        if not alive:
            break
        time.sleep(0.05)


def _is_pythons(written: str) -> bool:
    """Whether a thread could not begin, for which ``Thread.start()`` waits."""
    return "Exception ignored in thread started by: <bound method Thread._bootstrap" in written and "MemoryError" in written


def summary(found: Sequence[Trial]) -> dict[str, Any]:
    """Counts of each kind of call and error."""
    counts: dict[str, Counter[str]] = {}
    for trial in found:
        count = counts.setdefault(f"{trial.kind} {errno.errorcode[trial.number]}", Counter())
        count["faults"] += 1
        count[trial.outcome] += 1
        count["left"] += bool(trial.left)
    return {name: dict(count) for name, count in counts.items()}


def main() -> int:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from recording import print_machine, write_json

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only places whose name begins like this: 'start', 'tick, helper'")
    parser.add_argument("--calls", default="", help="only these kinds of calls, separated by commas")
    parser.add_argument("--most", type=int, default=MOST, help=f"calls of a kind (default {MOST})")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help=f"seconds after which a run hangs (default {PATIENCE:.0f})"
    )
    parser.add_argument("--merge", action="store_true", help="do what is missing in the result file that there is")
    parser.add_argument("--output", type=Path, default=None, help="folder of the result file (default: benchmarks/results)")
    options = parser.parse_args()
    all_calls = not options.calls and options.most == MOST
    options.quick = False
    results = ROOT / "benchmarks" / "results"
    options.output = options.output or (results if all_calls and (options.merge or not options.only) else results / "part")
    file = options.output / "injected.json"
    print_machine()
    cases: dict[str, Any] = json.loads(file.read_text())["cases"] if options.merge and file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        shim = built(Path(folder))
        if shim is None:
            sys.stdout.write("no compiler, or no Linux\n")
            return 1
        for phase, who in PLACES:
            name = f"{phase}, {who}"
            if not name.startswith(options.only) or name in cases:
                continue
            began = time.monotonic()
            found = []
            for trial in trials(phase, who, pairs_of(phase, who, options.calls), shim, options.most, options.patience):
                found.append(trial)
                if trial.bad:
                    sys.stdout.write(f"{name}: {trial}\n")
                    sys.stdout.flush()
            seconds = round(time.monotonic() - began, 1)
            outcomes = Counter(trial.outcome for trial in found)
            left, bad = sum(bool(trial.left) for trial in found), sum(trial.bad for trial in found)
            cases[name] = {"faults": len(found), **outcomes, "left": left, "bad": bad, "seconds": seconds}
            sys.stdout.write(f"{name}: {cases[name]}\n")
            sys.stdout.flush()
            cases[name]["calls"] = summary(found)
    options.whole = all_calls and len(cases) == len(PLACES)
    write_json(options, "injected", cases)
    return int(any(case["bad"] for case in cases.values()))


def pairs_of(phase: str, who: str, only: str = "") -> list[Pair]:
    """What is to fail in a place."""
    errors = OF_FILES if phase == "save_checkpoint" else ERRORS
    found = [(kind, number) for kind, numbers in errors.items() for number in numbers if not only or kind in only.split(",")]
    return [pair for pair in found if who != "helper" or pair[1] != E.EPIPE]  # by which it would know that its caller has ended


if __name__ == "__main__":
    sys.exit(main())
