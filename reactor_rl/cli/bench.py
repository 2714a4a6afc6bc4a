"""``python -m reactor_rl bench``: the benchmarks of a clone, which are not installed with the package."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import reactor_rl
from reactor_rl.cli.commands import UsageError

__all__ = ["bench_command"]

RUNNER = "suites.py"


def bench_command(argv: list[str]) -> int:
    """Measure it here beside everything that people use today, as one HTML page (``--quick``: in five minutes)."""
    folder = _folder(argv)
    process = subprocess.Popen([sys.executable, str(folder / RUNNER), *argv])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the benchmarks too; they write their report and end
            continue


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
