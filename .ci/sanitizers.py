"""Compiles the extensions with sanitizers of GCC and runs their tests: ``python .ci/sanitizers.py``. Exits 1 if there is a report.

AddressSanitizer and UndefinedBehaviorSanitizer for all of them, each apart: with both at once networks take many times as long to
compile. ThreadSanitizer for networks, whose threads it watches. Before any test, each has to report a fault that was made for it.

``--free-threaded PYTHON`` watches the executor ``threads`` instead. It needs a CPython without a lock that was itself compiled with
ThreadSanitizer, and there numpy, cloudpickle, threadpoolctl, pytest, pytest-timeout and hypothesis:

    ./configure --disable-gil --with-thread-sanitizer && setarch -R make
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from recording import print_machine, write_json  # noqa: E402

from hatch_build import MACROS, SOURCES, Source  # noqa: E402
from reactor_rl.runtime.channel import ControlBlock  # noqa: E402
from reactor_rl.runtime.plan import LINE  # noqa: E402

CC = os.environ.get("CC", "gcc")
NEEDED = ("reactor_rl", "plugins", "tests", "benchmarks", "pyproject.toml", "hatch_build.py")
"""What the tests of extensions look at. They run in a copy: what is compiled for users stays as it is."""


class Sanitizer(NamedTuple):
    """One of GCC's.

    Attributes:
        flags: For the compiler.
        libraries: That an interpreter has to load first, if any.
        variable, options: How it is told what to do.
        report: By which its reports begin.
        fault: C in which ``int fault(void)`` does what it is there to find.
        layout: Whether addresses must not be drawn at random.
        whole_memory: Whether it watches what malloc gives, so that everything has to come from there.
    """

    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    variable: str
    options: str
    report: str
    fault: str
    layout: bool = False
    whole_memory: bool = False


SANITIZERS = {
    "address": Sanitizer(
        ("-fsanitize=address",),
        ("libasan.so", "libstdc++.so.6"),  # whose exceptions it watches as well, once they are there
        "ASAN_OPTIONS",
        "detect_leaks=0",  # the interpreter itself ends with memory that it has not given back
        "ERROR: AddressSanitizer",
        "#include <stdlib.h>\nint fault(void) { volatile char *at = malloc(8); return at[8]; }",
        whole_memory=True,
    ),
    "undefined": Sanitizer(
        ("-fsanitize=undefined",),
        (),
        "UBSAN_OPTIONS",
        "print_stacktrace=1",
        ": runtime error: ",
        "int fault(void) { volatile int most = 2147483647; return most + 1; }",
    ),
    "thread": Sanitizer(
        ("-fsanitize=thread",),
        ("libtsan.so",),
        "TSAN_OPTIONS",
        "exitcode=0:die_after_fork=0",  # reports are counted, and a test forks
        "WARNING: ThreadSanitizer",
        "#include <pthread.h>\nstatic int word;\n"
        "static void *add(void *none) { word++; return none; }\n"
        "int fault(void) { pthread_t other; pthread_create(&other, 0, add, 0); word++; return pthread_join(other, 0); }",
        layout=True,
    ),
}

TESTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("_frames", ""): ("tests/gymnasium_plugin/atari/test_frames.py",),
    ("_kernels", ""): (
        "tests/gymnasium_plugin/native/test_same_as_python.py",
        "tests/gymnasium_plugin/native/test_calls.py",
        "tests/gymnasium_plugin/native/test_stacks.py",
    ),
    ("_products", ""): (
        "tests/torch_plugin/test_products.py",
        "tests/torch_plugin/test_convolutions.py",
        "tests/torch_plugin/test_lstm.py",
        "tests/torch_plugin/test_natural.py",
        "tests/torch_plugin/test_teams.py",
        "tests/torch_plugin/test_first_weights.py",
        "tests/contracts/test_layer_kinds.py",
        "tests/contracts/test_losses.py",
        "-knot touched and not librarys and not all_rows and not not_name",  # the same code again
    ),
    ("_products", "thread"): (
        "tests/torch_plugin/test_products.py",
        "tests/torch_plugin/test_convolutions.py",
        "tests/torch_plugin/test_teams.py",
        "tests/contracts/test_layer_kinds.py",
        "-kthreads or helps or child or teams",
    ),
}
"""By extension and sanitizer, or for all sanitizers but ThreadSanitizer."""

PAIRS = [
    f"{name} / {source.name}" for name in SANITIZERS for source in SOURCES if name != "thread" or (source.name, "thread") in TESTS
]
"""Sanitizers and extensions, as cases of the result file are called."""
FREE_THREADED = ("tests/test_oracle.py", "tests/runtime/test_executors.py", "-kthreads")
NO_ANSWER = 1800
"""Seconds after which a test counts as hung. Some take a hundred times as long as without a sanitizer."""


class Found(NamedTuple):
    """What came of some tests.

    Attributes:
        tests, failed, skipped: How many, by what pytest says; none if the interpreter was ended.
        reports: Of the sanitizer.
        meant: Other reports, of the one word that is looked at without a token; see :func:`is_abort`.
        status: That the interpreter ended with.
        cpu_seconds: That the tests took of all cores.
    """

    tests: int
    failed: int
    skipped: int
    reports: int
    meant: int
    status: int
    cpu_seconds: float


UNDER = shlex.split(os.environ.get("REACTOR_RL_UNDER", ""))
"""The command by which compilations and tests of extensions are started, if any: ``nice -n 19``, say."""


def cpu_seconds() -> float:
    """Of all processes that were waited for, so that what else the machine does counts for nothing."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_abort(report: str) -> bool:
    """Whether a report is about the word ABORT of an arena of threads, which is meant to be read at any time.

    A thread that reads it a moment too early goes on to its next wait, and reads it again there.
    """
    word, block = re.search(r" of size 8 at (0x\w+)", report), re.search(r"heap block of size \d+ at (0x\w+)", report)
    if word is None or block is None:
        return False
    arena = -(-int(block[1], 16) // LINE) * LINE  # see reactor_rl.runtime.plan.aligned_zeros
    return int(word[1], 16) == arena + 8 * ControlBlock.ABORT


class Watched:
    """Interpreters that a sanitizer watches.

    Args:
        sanitizer: Which one.
        folder: For what it writes.
        python: The interpreter.
        inside: Whether the interpreter itself was compiled with it.
    """

    def __init__(self, sanitizer: Sanitizer, folder: Path, python: str = sys.executable, inside: bool = False) -> None:
        self._sanitizer, self._folder, self._python = sanitizer, folder, python
        folder.mkdir(parents=True, exist_ok=True)
        # Memory of every object comes from malloc, else the ends of most are not seen.
        self._variables = {
            sanitizer.variable: f"{sanitizer.options}:log_path={folder}/report",
            "PYTHONMALLOC": "malloc" if sanitizer.whole_memory else "default",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if sanitizer.libraries and not inside:
            self._variables["LD_PRELOAD"] = " ".join(map(path_of, sanitizer.libraries))

    def run(self, arguments: Sequence[str], where: Path, under: Sequence[str] = ()) -> int:
        """Run it with arguments in a folder; its output goes to a file. Returns the exit status."""
        paths = os.pathsep.join(map(str, (where, where / "plugins")))
        variables = [f"{name}={value}" for name, value in (self._variables | {"PYTHONPATH": paths}).items()]
        fixed = ["setarch", "-R"] if self._sanitizer.layout else []  # which must not be watched itself
        with (self._folder / "output.txt").open("w") as output:
            return subprocess.run(
                [*under, *fixed, "env", *variables, self._python, *arguments],
                cwd=where, stdout=output, stderr=subprocess.STDOUT, check=False,
            ).returncode  # fmt: skip

    def reports(self) -> list[str]:
        """Reports by now."""
        files = [*self._folder.glob("report*"), self._folder / "output.txt"]
        texts = [file.read_text(errors="replace") for file in files if file.exists()]
        return [report for text in texts for report in text.split(self._sanitizer.report)[1:]]

    def test(self, tests: Sequence[str], where: Path) -> Found:
        """Run tests, but for slow ones."""
        result = self._folder / "tests.xml"
        begin = cpu_seconds()
        options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", f"--timeout={NO_ANSWER}", f"--junitxml={result}"]
        status = self.run(["-m", "pytest", *options, *tests], where, UNDER)
        seconds = round(cpu_seconds() - begin, 1)
        count = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        if result.exists():
            for suite in ElementTree.parse(result).getroot().iter("testsuite"):
                count = {name: number + int(suite.get(name, 0)) for name, number in count.items()}
        failed = count["failures"] + count["errors"]
        reports = self.reports()
        meant = sum(map(is_abort, reports))
        return Found(count["tests"] - count["skipped"], failed, count["skipped"], len(reports) - meant, meant, status, seconds)


def path_of(library: str) -> str:
    """Where the compiler has a library."""
    said = subprocess.run([CC, f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def compile_with(sanitizer: Sanitizer, file: Path, into: Path, flags: Sequence[str] = (), under: Sequence[str] = ()) -> float:
    """Compile a shared library. Returns the seconds that it took."""
    include = sysconfig.get_paths()["include"]
    begin = cpu_seconds()
    subprocess.run(
        [
            *under, CC, "-shared", "-fPIC", "-w", *flags, "-O1", "-g1", "-fno-omit-frame-pointer", *sanitizer.flags,
            f"-I{include}", str(file), "-o", str(into), "-lm", "-lpthread",
        ],
        check=True,
    )  # fmt: skip
    return round(cpu_seconds() - begin, 1)


def compile_extension(sanitizer: Sanitizer, source: Source, copy: Path) -> float:
    """Compile an extension into the copy. Returns the seconds that it took."""
    package = copy / "plugins" / source.package
    for old in package.glob(f"{source.name}*.so"):
        old.unlink()
    suffix = ".abi3.so" if any(name == "Py_LIMITED_API" for name, _ in MACROS) else sysconfig.get_config_var("EXT_SUFFIX")
    flags = [flag for flag in source.flags if not flag.startswith(("-O", "-g"))] + [f"-D{name}={value}" for name, value in MACROS]
    return compile_with(sanitizer, package / source.file, package / f"{source.name}{suffix}", flags, UNDER)


def finds_its_fault(name: str, folder: Path) -> bool:
    """Whether a sanitizer reports what was made for it, in an interpreter as the tests are run in."""
    sanitizer = SANITIZERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fault.c").write_text(sanitizer.fault)
    compile_with(sanitizer, folder / "fault.c", folder / "fault.so")
    watched = Watched(sanitizer, folder)
    watched.run(["-c", f"import ctypes; ctypes.CDLL({str(folder / 'fault.so')!r}).fault()"], folder)
    return bool(watched.reports())


def is_watched_itself(python: str) -> bool:
    """Whether an interpreter has no lock and was compiled with ThreadSanitizer."""
    asked = "import sysconfig as s; print(s.get_config_var('Py_GIL_DISABLED'), s.get_config_var('CONFIG_ARGS'))"
    said = subprocess.run(["setarch", "-R", python, "-c", asked], capture_output=True, text=True, check=True).stdout
    return said.startswith("1 ") and "--with-thread-sanitizer" in said


def copied(into: Path) -> Path:
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, into / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "results"))
        else:
            shutil.copy(ROOT / name, into / name)
    return into


def watched_extensions(options: argparse.Namespace, copy: Path, known: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What came of every extension and sanitizer that is asked for, with its name, but for those that are known."""
    for name, sanitizer in SANITIZERS.items():
        cases = [case for case in PAIRS if options.only in case and case not in known]
        wanted = [source for source in SOURCES if f"{name} / {source.name}" in cases]
        if not wanted:
            continue
        if not finds_its_fault(name, options.logs / name):
            raise SystemExit(f"{name}: the fault that was made for it is not reported; see {options.logs / name}")
        for source in SOURCES:  # others are left out: tests have to do without them
            for old in (copy / "plugins" / source.package).glob(f"{source.name}*.so"):
                old.unlink()
        for source in wanted:
            seconds = compile_extension(sanitizer, source, copy)
            tests = TESTS.get((source.name, name)) or TESTS[source.name, ""]
            found = Watched(sanitizer, options.logs / f"{name}-{source.name}").test(tests, copy)
            yield f"{name} / {source.name}", {**found._asdict(), "cpu_seconds_to_compile": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only what contains this: 'address', '_kernels', 'thread / _products'")
    parser.add_argument("--free-threaded", metavar="PYTHON", default="", help="watch the executor 'threads' of this interpreter")
    parser.add_argument(
        "--logs", type=Path, default=None, help="folder for reports and output (default: a temporary one that stays)"
    )
    parser.add_argument("--output", type=Path, default=None, help="folder for the result file (default: benchmarks/results)")
    parser.add_argument("--merge", action="store_true", help="do what is missing in the result file that there is")
    options = parser.parse_args()
    results = ROOT / "benchmarks" / "results"
    options.quick, options.whole = False, not options.only and not options.free_threaded
    options.output = options.output or (results if options.whole or options.merge else results / "part")
    file = options.output / "sanitizers.json"
    options.logs = options.logs or Path(tempfile.mkdtemp(prefix="sanitizers-"))
    if options.free_threaded and not is_watched_itself(options.free_threaded):
        parser.error(f"{options.free_threaded} has a lock, or was not compiled with ThreadSanitizer")
    print_machine()
    cases: dict[str, dict[str, Any]] = json.loads(file.read_text())["cases"] if options.merge and file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        if options.free_threaded:
            watched = Watched(SANITIZERS["thread"], options.logs / "free-threaded", options.free_threaded, inside=True)
            found: Any = [("thread / free-threaded", watched.test(FREE_THREADED, copy)._asdict())]
        else:
            found = watched_extensions(options, copy, [*cases])
        for name, case in found:
            cases[name] = case
            options.whole = set(PAIRS) <= cases.keys()
            write_json(options, "sanitizers", cases)
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in case.items()), flush=True)
    bad = [name for name, case in cases.items() if case["reports"] or case["failed"] or case["status"] or not case["tests"]]
    if bad:
        print(f"see {options.logs}: {', '.join(bad)}")
    return int(bool(bad) or not cases)


if __name__ == "__main__":
    sys.exit(main())
