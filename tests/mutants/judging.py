"""A copy of the sources in which one statement is missing, and judges that may notice it: the simulation, then tests."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from choosing import Statement, without
from reached import SIMULATION, Reached, mark

COPIED = ("reactor_rl", "plugins", "tests", "benchmarks", "pyproject.toml")
TESTS = (
    "tests/runtime", "tests/federation", "tests/test_reactor.py", "tests/test_recovery.py", "tests/test_run_owner.py",
    "tests/test_by_value.py", "tests/test_trace.py", "tests/test_program.py", "tests/test_manners.py",
    "tests/test_global_random.py", "tests/test_oracle.py", "tests/test_autotune.py", "tests/drawing/test_html.py",
)  # fmt: skip
"""Those that use the runtime for itself. Plugins' tests would notice more, and take minutes."""
FAST = "not slow and not host and not docs"

SEEDS = 300
"""So many simulated runs are tried."""
PATIENCE, SLOWER = 60.0, 6.0
"""A judge that takes so many seconds more than ``SLOWER`` times what it takes without a mutant hangs."""
A_TEST = 40
"""Seconds that one test may take."""
MEMORY = 8 << 30
"""Bytes that a process of a judge may have: a loop without its end must not take those of the machine."""
FIRST = 10
"""So many tests are tried before modules of the others are imported."""
BY_CHANCE = 3
"""So many tests that fail once and then pass are left out before a mutant counts as not noticed."""
SURVIVED, UNREACHED = "survived", "not run"


class Copy:
    """The sources in a folder of their own, where files are changed and judges run."""

    def __init__(self, root: Path) -> None:
        self.root, self._written = root, 0

    @contextlib.contextmanager
    def changed(self, sources: dict[str, str]) -> Iterator[None]:
        """Have other sources in place of those of some files."""
        before = {name: (self.root / name).read_text() for name in sources}
        try:
            for name, source in sources.items():
                self._write(self.root / name, source)
            yield
        finally:
            for name, source in before.items():
                self._write(self.root / name, source)

    def without(self, statement: Statement) -> contextlib.AbstractContextManager[None]:
        return self.changed({statement.file: without((self.root / statement.file).read_text(), statement)})

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        self._written += 1
        second = path.stat().st_mtime_ns // 10**9 + self._written  # bytecode of the one before is told by whole seconds
        os.utime(path, (second, second))

    def run(self, command: list[str], seconds: float, **more: str) -> tuple[bool, str]:
        """Run a judge.

        Args:
            command: What to run.
            seconds: How long it usually takes. One that takes much longer hangs, which is a failure.
            more: Variables of its environment.

        Returns:
            Whether it found everything in order, and what it said.
        """
        folder, run = self.root.parent, uuid.uuid4().hex
        paths = os.pathsep.join(map(str, (self.root, self.root / "plugins", self.root / "tests" / "mutants")))
        environment = os.environ | {"PYTHONPATH": paths, "REACTOR_RL_MUTANT": run, "TMPDIR": str(folder)} | more
        output = folder / f"{run}.txt"
        with output.open("wb") as said:
            process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_limit_memory,
            )  # fmt: skip
            try:
                well = process.wait(PATIENCE + SLOWER * seconds) == 0
            except subprocess.TimeoutExpired:
                well = False
                said.write(b"\nFAILED in time: it hangs\n")
            finally:
                _end(process, run)
        text = output.read_text(errors="replace")
        output.unlink()
        return well, text


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _end(process: subprocess.Popen[bytes], run: str) -> None:
    """End a judge, its process group, and what it has started in other groups."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if run.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
    for path in Path("/dev/shm").glob(f"*rrl-{process.pid:x}-*"):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def copy_of(root: Path) -> Iterator[Copy]:
    """Copy the sources to a temporary folder, which goes with the context."""
    with tempfile.TemporaryDirectory(prefix="rrl-mutants-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "tree"
        target.mkdir()
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            else:
                shutil.copy2(root / name, target / name)
        yield Copy(target)


def reached(copy: Copy, found: list[Statement], seeds: int = SEEDS) -> Reached:
    """Run all judges without a mutant, and note what they run and how long they take.

    Raises:
        RuntimeError: If one of them fails.
    """
    result, folder = Reached(), copy.root.parent
    hits, notes = folder / "hits", folder / "hits.jsonl"
    hits.write_bytes(bytes(len(found)))
    marked = {}
    for file in {one.file for one in found}:
        numbered = {number: one for number, one in enumerate(found) if one.file == file}
        marked[file] = mark((copy.root / file).read_text(), numbered)
    places = {"REACTOR_RL_HITS": str(hits), "REACTOR_RL_HITS_OF_TESTS": str(notes)}
    with copy.changed(marked):
        began = time.monotonic()
        _must(copy.run(_simulation(seeds), 20 * PATIENCE, **places))
        numbers = [number for number, byte in enumerate(hits.read_bytes()) if byte]
        result.note(SIMULATION, time.monotonic() - began, numbers, found)
        hits.write_bytes(bytes(len(found)))
        _must(copy.run([*_tests(list(TESTS)), "-p", "noting"], 20 * PATIENCE, **places))
        result.read(notes, found)
    return result


def _must(done: tuple[bool, str]) -> None:
    if not done[0]:
        raise RuntimeError(f"without a mutant: {done[1][-4000:]}")


def judge(copy: Copy, statement: Statement, known: Reached, seeds: int = SEEDS) -> str:
    """Return who notices that a statement is missing: ``simulation``, a file of tests, ``survived`` or ``not run``."""
    tests = known.tests(statement)
    if not tests and not known.simulated(statement):
        return UNREACHED
    with copy.without(statement):
        if known.simulated(statement):
            well, said = copy.run(_simulation(seeds), known.seconds[SIMULATION])
            if not well:
                return SIMULATION + (", time" if "FAILED in time" in said else "")
        chances = BY_CHANCE
        some, tests = tests[:FIRST], tests[FIRST:]
        while some and chances:
            well, said = copy.run(_tests(some), sum(known.seconds[name] for name in some))
            if well:
                some, tests = tests, []
                continue
            failed = re.search(r"^(?:FAILED|ERROR) (tests/\S+?\.py)(::.*)?$", said, re.MULTILINE)
            if failed is None:
                return "tests" + (", time" if "FAILED in time" in said else "")
            names = [name for name in some if f"{failed[0].split(' ', 1)[1]} ".startswith((f"{name} ", f"{name}\n"))]
            if not names or not copy.run(_tests(names), known.seconds[names[0]])[0]:
                return failed[1]
            some = [name for name in some if name not in names]  # it was chance: the machine may have much to do
            chances -= 1
        return SURVIVED


def _simulation(seeds: int) -> list[str]:
    return [sys.executable, "tests/mutants/simulated.py", str(seeds)]


def _tests(names: list[str]) -> list[str]:
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-m", FAST, "--timeout", str(A_TEST)]
    return [sys.executable, "-m", "pytest", *options, *names]
