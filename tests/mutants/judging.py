"""A copy of the sources in which one statement is missing, and judges that may notice it: the simulation, then tests."""

from __future__ import annotations

import ast
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from choosing import Statement, without

COPIED = ("reactor_rl", "plugins", "tests", "benchmarks", "pyproject.toml")
TESTS = (
    "tests/runtime", "tests/federation", "tests/test_reactor.py", "tests/test_recovery.py", "tests/test_run_owner.py",
    "tests/test_by_value.py", "tests/test_trace.py", "tests/test_oracle.py",
)  # fmt: skip
"""Those that use the runtime for itself. Plugins' tests would notice more, and take minutes."""
FAST = "not slow and not host and not docs and not faults"

SEEDS = 300
PATIENCE, SLOWER = 60.0, 6.0
"""A judge that takes so many seconds more than ``SLOWER`` times what it takes without a mutant hangs."""
A_TEST = 40
"""Seconds that one test may take."""
MEMORY = 8 << 30
"""Bytes that a process of a judge may have: a loop without its end must not take those of the machine."""
AGAIN = 3
"""So many tests that fail once and then pass are left out before a mutant counts as not noticed."""
SURVIVED = "survived"


@dataclass
class Copy:
    """The sources in a folder of their own, where files are changed and judges run."""

    root: Path
    _written: int = 0
    took: dict[str, float] = field(default_factory=dict)
    """How long judges take without a mutant."""

    @contextlib.contextmanager
    def mutant(self, statement: Statement) -> Iterator[None]:
        path = self.root / statement.file
        source = path.read_text()
        self._write(path, without(source, statement))
        try:
            yield
        finally:
            self._write(path, source)

    def _write(self, path: Path, source: str) -> None:
        path.write_text(source)
        self._written += 1
        second = path.stat().st_mtime_ns // 10**9 + self._written  # bytecode of the one before is told by whole seconds
        os.utime(path, (second, second))

    def run(self, judge: str, command: list[str]) -> tuple[bool, str]:
        """Run a judge.

        Returns:
            Whether it found everything in order, and what it said. One that takes too long found that it hangs.
        """
        limit = PATIENCE + SLOWER * self.took[judge] if judge in self.took else 20 * PATIENCE
        mark = uuid.uuid4().hex
        paths = os.pathsep.join(map(str, (self.root, self.root / "plugins")))
        environment = os.environ | {"PYTHONPATH": paths, "REACTOR_RL_MUTANT": mark, "TMPDIR": str(self.root.parent)}
        with (self.root.parent / f"{mark}.txt").open("w+") as said:
            process = subprocess.Popen(
                command, cwd=self.root, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_limit_memory,
            )  # fmt: skip
            try:
                well = process.wait(limit) == 0
            except subprocess.TimeoutExpired:
                well = False
                said.write("\nFAILED time - it hangs\n")
            finally:
                _end(process, mark)
            said.seek(0)
            text = said.read()
        Path(said.name).unlink()
        return well, text


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a judge, its process group, and what it has started in other groups."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
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


def check(copy: Copy) -> None:
    """Run all judges without a mutant, and note how long they take.

    Raises:
        RuntimeError: If one is not content.
    """
    for name, command in (("simulation", _simulation()), ("tests", _tests(_files(copy.root)))):
        began = time.monotonic()
        well, said = copy.run(name, command)
        if not well:
            raise RuntimeError(f"without a mutant: {said[-3000:]}")
        copy.took[name] = time.monotonic() - began


def judge(copy: Copy, statement: Statement) -> str:
    """Return who notices that a statement is missing: ``simulation``, a file of tests, or ``survived``."""
    with copy.mutant(statement):
        well, said = copy.run("simulation", _simulation())
        if not well:
            return "simulation" + _hung(said)
        passed: list[str] = []
        while len(passed) <= AGAIN:
            well, said = copy.run(
                "tests", [*_tests(in_order(copy.root, statement.file)), *(f"--deselect={name}" for name in passed)]
            )
            if well:
                return SURVIVED
            failed = re.search(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", said, re.MULTILINE)
            if failed is None:
                return "tests" + _hung(said)
            name = failed[1]
            if not copy.run("tests", _tests([name]))[0]:  # else it was chance: the machine may have much to do
                return name.split("::")[0]
            passed.append(name)
        return SURVIVED


def _hung(said: str) -> str:
    return ", time" if "FAILED time" in said else ""


def _simulation() -> list[str]:
    return [sys.executable, "tests/mutants/simulated.py", str(SEEDS)]


def _tests(names: list[str]) -> list[str]:
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "-m", FAST, "--timeout", str(A_TEST)]
    return [sys.executable, "-m", "pytest", *options, *names]


def _files(root: Path) -> list[str]:
    paths = [
        path for name in TESTS for path in ([root / name] if name.endswith(".py") else sorted((root / name).rglob("test_*.py")))
    ]
    return [path.relative_to(root).as_posix() for path in paths]


def in_order(root: Path, file: str) -> list[str]:
    """Return files of tests, those first that import the module of ``file`` themselves."""
    module = file.removesuffix(".py").replace("/", ".")
    used = imported(root)
    return sorted(_files(root), key=lambda name: module not in used[name])


def imported(root: Path) -> Mapping[str, set[str]]:
    """Return modules that each file of tests imports."""
    found: dict[str, set[str]] = {}
    for name in _files(root):
        of = found[name] = set()
        for node in ast.walk(ast.parse((root / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                of |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                of |= {alias.name for alias in node.names}
    return found
