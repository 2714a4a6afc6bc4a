"""``python -m reactor_rl bench``: the benchmarks of a clone, which are not installed with the package."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import reactor_rl
from reactor_rl.cli.commands import UsageError

__all__ = ["bench_command", "bench_parser"]

RUNNER = "suites.py"


def bench_command(argv: list[str]) -> int:
    """Measure it here beside everything that people use today, as one HTML page (``--quick``: in five minutes)."""
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
    """What the command line may have, which the help says anywhere; the suites are known to the clone's folder only."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl bench",
        description="Benchmarks against everything that people use today, on this machine, as one HTML page and one JSON file.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="which (default: all; with --quick those that are part of it)")
    parser.add_argument(
        "--quick", action="store_true", help="a few cases of the main suites, within five minutes: a hint, no figures to quote"
    )
    parser.add_argument("--output", type=Path, default=Path("report"), help="folder of the report (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, help="for all suites together, shared out among them (default: 270 with --quick, else none)"
    )
    parser.add_argument(
        "--benchmarks", metavar="FOLDER", help="the folder benchmarks/ of a clone (default: that of the clone one is in)"
    )
    return parser


def _folder(argv: list[str]) -> Path:
    """The folder that ``--benchmarks`` names, else that of the clone that one is in, else of the one that is installed in place.

    Raises:
        UsageError: There is none.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--benchmarks", type=Path)
    folder: Path | None = parser.parse_known_args(argv)[0].benchmarks
    if folder is not None:
        if not (folder / RUNNER).is_file():
            raise UsageError(f"there is no {RUNNER} in {str(folder)!r}: --benchmarks takes the folder benchmarks/ of a clone")
        return folder
    here = Path.cwd()
    for place in (here, *here.parents, Path(reactor_rl.__file__).parent.parent):
        if (place / "benchmarks" / RUNNER).is_file():
            return place / "benchmarks"
    raise UsageError("no benchmarks here: run it in a clone of the repository, or name its folder with --benchmarks FOLDER")
