"""The commands ``draw``, ``trace``, ``verify`` and ``bench`` of ``python -m reactor_rl``, and the targets that they take.

``bench`` runs the benchmarks of a clone, which are not installed with the package.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import reactor_rl
from reactor_rl.drawing.draw import draw
from reactor_rl.errors import ProgramError
from reactor_rl.program import Program
from reactor_rl.settings import EXECUTORS
from reactor_rl.verify import WORKERS, Factory, verify

__all__ = [
    "UsageError",
    "draw_command",
    "importable_here",
    "load_target",
    "open_target",
    "registered_targets",
    "trace_command",
    "verify_command",
    "bench_command",
    "bench_parser",
]

TARGETS = "reactor_rl.verify"
"""Entry points for the targets that ``verify`` runs by default: functions without arguments."""
TABLES = "reactor_rl.verify_tables"
"""Entry points for mappings of names to such functions."""

TARGET_HELP = "MODULE:FACTORY, a function that makes a program, or a name that doctor lists"
ARGUMENTS_HELP = "arguments of the function: value or key=value, Python literals or else strings"


class UsageError(Exception):
    """The command line asks for something impossible; the message is one line."""


# ---------------------------------------------------------------------- targets


class Registered(NamedTuple):
    """A target that a plugin has registered.

    Attributes:
        name: Of the target.
        where: ``MODULE:FACTORY``, or ``MODULE:TABLE``.
        load: Imports it.
    """

    name: str
    where: str
    load: Callable[[], Any]


def registered_targets() -> list[Registered]:
    """All targets that plugins have registered, sorted by name. Tables are imported, targets are not.

    A table whose requirements are not installed is one target, whose import fails.
    """
    found = [Registered(entry.name, entry.value, entry.load) for entry in entry_points(group=TARGETS)]
    for entry in entry_points(group=TABLES):
        try:
            table: Mapping[str, Any] = entry.load()
        except ImportError:
            found.append(Registered(entry.name, entry.value, entry.load))
        else:
            found += [Registered(name, entry.value, partial(table.__getitem__, name)) for name in table]
    return sorted(found, key=lambda one: one.name)


def load_target(name: str, arguments: Sequence[str] = ()) -> Callable[[], Any]:
    """Resolve ``MODULE:FACTORY``, or a name that a plugin has registered, to a function with its arguments bound.

    Raises:
        UsageError: If the function does not exist or does not take these arguments.
    """
    target: Any = _registered(name)
    if target is None:
        target = _imported(name)
    if not callable(target):
        raise UsageError(f"{name} must be a function, got {target!r}")
    positional = [_value(text) for text in arguments if not _is_keyword(text)]
    keywords = {key: _value(text) for key, _, text in (a.partition("=") for a in arguments if _is_keyword(a))}
    try:
        inspect.signature(target).bind(*positional, **keywords)
    except TypeError as error:
        raise UsageError(f"{name}: {error}") from None
    except ValueError:  # some built-in functions have no signature; calling it will tell
        pass
    return partial(target, *positional, **keywords)


def _registered(name: str) -> Any:
    """A target by the name that a plugin has registered it by; ``None`` if there is no such name."""
    for entry in () if ":" in name else entry_points(group=TARGETS, name=name):
        return _imported(entry.value)
    for one in () if ":" in name else registered_targets():
        if one.name == name:
            try:
                return one.load()
            except ImportError as error:
                raise UsageError(f"cannot import {one.where!r} ({_line(error)})") from error
    return None


def _imported(name: str) -> Any:
    """The function that ``MODULE:FACTORY`` names."""
    module_name, colon, path = name.partition(":")
    if not colon or not module_name or not path:
        raise UsageError(f"{name!r} is not a target; write MODULE:FACTORY, such as my_project.programs:search{_known()}")
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UsageError(f"cannot import {module_name!r} ({_line(error)})") from error
    for attribute in path.split("."):
        try:
            target = getattr(target, attribute)
        except AttributeError:
            raise UsageError(f"module {module_name!r} has no {path!r}") from None
    return target


def _known() -> str:
    names = ", ".join(dict.fromkeys(one.name for one in registered_targets()))
    return names and f", or is one of {names}"


def _is_keyword(text: str) -> bool:
    return text.partition("=")[0].isidentifier() and "=" in text


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def open_target(name: str, arguments: Sequence[str]) -> Iterator[Any]:
    """Make the subject of a target, and close it at the end if it has ``close()``."""
    factory = load_target(name, arguments)
    try:
        subject = factory()
    except ProgramError:
        raise
    except Exception as error:
        raise UsageError(f"{name} raised {_line(error)}") from error
    try:
        yield subject
    finally:
        if not isinstance(subject, Program) and callable(close := getattr(subject, "close", None)):
            close()


def _parser(command: str, function: Callable[..., int], *, optional: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m reactor_rl {command}", description=inspect.getdoc(function))
    parser.add_argument("target", metavar="TARGET", nargs="?" if optional else None, help=TARGET_HELP)
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help=ARGUMENTS_HELP)
    return parser


# ---------------------------------------------------------------------- commands


def draw_command(argv: list[str]) -> int:
    """Draw a program as Mermaid, DOT or SVG."""
    parser = _parser("draw", draw_command)
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (.mmd, .dot or .svg); default: print Mermaid")
    parser.add_argument("--format", choices=("mermaid", "dot", "svg"), help="format, whatever the file's ending")
    parser.add_argument("--workers", type=_positive, help="show the worker of each reactor, for this many workers")
    args = parser.parse_intermixed_args(argv)
    if args.output:
        _check_writable(args.output)
    with open_target(args.target, args.arguments) as subject:
        if isinstance(subject, Program):
            topology, schedule = subject.topology(), None
            if args.workers:
                from reactor_rl.graph import build
                from reactor_rl.schedule import compile_schedule

                schedule = compile_schedule(topology, build(topology), args.workers)
            text = draw(topology, args.output, args.format, schedule=schedule)
        elif callable(getattr(subject, "draw", None)):
            if args.workers or args.format:
                raise UsageError(f"--workers and --format need a Program, and {args.target} does not make one")
            text = subject.draw(args.output)
        else:
            raise UsageError(f"{args.target} must make a Program or an object with draw(), got {subject!r}")
    print(f"wrote {args.output}" if args.output else text, end="\n" if args.output else "")
    return 0


def trace_command(argv: list[str]) -> int:
    """Run a program and record what each worker does, for Perfetto."""
    parser = _parser("trace", trace_command)
    parser.add_argument("-o", "--output", metavar="FILE", default="trace.json", help="file to write (default: %(default)s)")
    parser.add_argument("--ticks", type=_positive, default=100, help="number of ticks (default: %(default)s)")
    parser.add_argument("--executor", choices=("auto", *EXECUTORS), default="auto", help="default: %(default)s")
    parser.add_argument("--workers", type=_positive, help="number of workers (default: the usable cores)")
    args = parser.parse_intermixed_args(argv)
    _check_writable(args.output)
    with open_target(args.target, args.arguments) as subject:
        if isinstance(subject, Program):
            with subject.start(executor=args.executor, workers=args.workers, fingerprint="off") as run:
                with run.trace(args.output) as tracing:
                    run.run(ticks=args.ticks)
                summary = f"{tracing.reactions} reactions on {run.workers} worker(s), executor {run.executor!r}"
        elif _runs_itself(subject):
            subject.trace(args.output, ticks=args.ticks, executor=args.executor, workers=args.workers)
            summary = f"{args.ticks} ticks"
        else:
            raise UsageError(
                f"{args.target} must make a Program, or an object that runs by itself and can be traced, got {subject!r}{_known()}"
                + (". To trace this one, run it in Python within `with it.trace(path):`" if hasattr(subject, "trace") else "")
            )
    print(f"wrote {args.output}: {summary}. Open it at https://ui.perfetto.dev")
    return 0


def _runs_itself(subject: Any) -> bool:
    """Whether ``subject.trace`` takes a number of ticks; a subject that the caller drives takes nothing but a path."""
    try:
        inspect.signature(subject.trace).bind("", ticks=1, executor="auto", workers=None)
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def verify_command(argv: list[str]) -> int:
    """Run a program under several executors and numbers of workers, and compare fingerprints. Exit status 1 if any differs.

    Without a target: everything that installed plugins register.
    """
    parser = _parser("verify", verify_command, optional=True)
    parser.add_argument("--ticks", type=_positive, default=100, help="ticks of each run (default: %(default)s)")
    parser.add_argument("--executors", type=_listed(str), default=EXECUTORS, help=f"default: {','.join(EXECUTORS)}")
    parser.add_argument("--workers", type=_listed(_positive), default=WORKERS, help=f"default: {','.join(map(str, WORKERS))}")
    args = parser.parse_intermixed_args(argv)
    options = {"executors": args.executors, "workers": args.workers, "ticks": args.ticks}
    if args.target:
        label = " ".join([args.target, *args.arguments])
        try:
            return _verify_one(label, load_target(args.target, args.arguments), options)
        except ImportError as error:
            raise UsageError(f"{args.target} raised {_line(error)}") from error
    statuses = [status for one in registered_targets() if (status := _verify_registered(one, options)) is not None]
    if not statuses:
        raise UsageError("nothing to verify: name a target, MODULE:FACTORY (no installed plugin registers one that can run here)")
    return max(statuses)


def _verify_one(label: str, target: Factory, options: dict[str, Any]) -> int:
    def make() -> Any:
        try:
            return target()
        except (ProgramError, ImportError):
            raise
        except Exception as error:
            raise UsageError(f"{label} raised {_line(error)}") from error

    report = verify(make, **options)
    print(f"{label}\n{report}")
    return 0 if report.ok else 1


def _verify_registered(one: Registered, options: dict[str, Any]) -> int | None:
    """Verify a registered target: its exit status, or None if its requirements are not installed."""
    label = f"{one.name} ({one.where})"
    try:
        return _verify_one(label, one.load(), options)
    except ImportError as error:
        own = ("reactor_rl", one.where.partition(":")[0].partition(".")[0])
        if error.name is not None and error.name.partition(".")[0] in own:
            print(f"{label}\n  FAILED: {_line(error)}")
            return 1
        print(f"{label}\n  skipped: {_line(error)}")
        return None
    except (UsageError, ProgramError) as error:
        print(f"{label}\n  FAILED: {error}")
        return 1


def _check_writable(path: str) -> None:
    """Refuse a path that cannot be written, before anything is made or run."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise UsageError(f"cannot write {path!r}: directory {directory!r} does not exist")
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else directory, os.W_OK):
        raise UsageError(f"cannot write {path!r}: it is a directory, or you may not write it")


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be an integer >= 1, got {text!r}")
    return number


def _listed(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(kind(part) for part in text.split(",") if part)


def importable_here() -> None:
    """Make modules of the current directory importable as targets, however the command was started."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())


RUNNER = "suites.py"


def bench_command(argv: list[str]) -> int:
    """Measure this library beside its alternatives on this machine, as one HTML page (``--quick``: in five minutes)."""
    try:
        folder = _folder(argv)
    except UsageError:
        if not {"-h", "--help"} & set(argv):
            raise
        bench_parser("In a clone of the repository this lists the suites.").print_help()
        return 0
    process = subprocess.Popen([sys.executable, str(folder / RUNNER), *argv])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the benchmarks too; they write their report and end
            continue


def bench_parser(epilog: str) -> argparse.ArgumentParser:
    """The parser of ``bench``, whose ``--help`` works anywhere; only the clone's folder knows the suites."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl bench",
        description="Benchmarks against the alternatives, on this machine, as one HTML page and one JSON file.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="suites to run (default: all, or the main ones with --quick)")
    parser.add_argument("--quick", action="store_true", help="a few cases of the main suites in five minutes: too rough to quote")
    parser.add_argument("--output", type=Path, default=Path("report"), help="folder of the report (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, help="time limit for all suites together (default: 270 with --quick, else unlimited)"
    )
    parser.add_argument("--benchmarks", metavar="FOLDER", help="the folder benchmarks/ of a clone (default: the clone you are in)")
    return parser


def _folder(argv: list[str]) -> Path:
    """Find the benchmarks: in ``--benchmarks FOLDER``, in the clone around the current directory, or in an editable install.

    Raises:
        UsageError: If they are not found.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--benchmarks", type=Path)
    folder: Path | None = parser.parse_known_args(argv)[0].benchmarks
    if folder is not None:
        if not (folder / RUNNER).is_file():
            raise UsageError(f"--benchmarks must name the folder benchmarks/ of a clone; {str(folder)!r} does not contain {RUNNER}")
        return folder
    here = Path.cwd()
    for place in (here, *here.parents, Path(reactor_rl.__file__).parent.parent):
        if (place / "benchmarks" / RUNNER).is_file():
            return place / "benchmarks"
    raise UsageError("no benchmarks here: run it in a clone of the repository, or name its folder with --benchmarks FOLDER")
