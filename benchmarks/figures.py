"""Every measured number in README.md and docs/ comes from benchmarks/results/, by this script. CONTRIBUTING.md has the rule.

python benchmarks/figures.py              # print the tables
python benchmarks/figures.py --write      # put tables and numbers into the pages
python benchmarks/figures.py --check      # exit with 1 if a page has others, or a number in prose that no result file backs

A table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`, a number in prose in
`<!-- figure: FILE / KEY / KEY; HOW -->1.43x<!-- end -->`: where it is found in the file, and how it is shown.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from prose import measured
from tables import TABLES
from tabulated import digits, small_print

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
TABLE = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- end of figures -->", re.DOTALL)
INLINE = re.compile(r"<!-- figure: ([^;>]+?)(?:; ([^>]*?))? -->(.*?)<!-- end -->")
HOW = re.compile(r"(?:([\d.e+-]+) ?([*/]) ?)?(.*)")


class FigureError(Exception):
    """A place that names no figure."""


def pages() -> list[Path]:
    """What the check reads."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "docs").glob("llms*.txt"))]


@cache
def results(name: str) -> dict[str, Any]:
    """What a file in benchmarks/results/ holds."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise FigureError(f"there is no benchmarks/results/{name}.json")
    return dict(json.loads(path.read_text()))


def figure(path: str, how: str | None) -> str:
    """One number, as it is shown.

    Args:
        path: ``FILE / KEY / KEY``: keys of the file, or of its ``cases``. At the end ``median`` goes without saying.
        how: ``[NUMBER * | NUMBER /] UNIT``: the number is multiplied by the found one or divided by it. None: as it is.

    Raises:
        FigureError: There is no such number.
    """
    name, *keys = path.split(" / ")
    found: Any = results(name)
    if keys and keys[0] not in found:
        found = found.get("cases", {})
    for key in keys:
        if isinstance(found, list) and key.lstrip("-").isdigit() and -len(found) <= int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            there = ", ".join(map(repr, found)) if isinstance(found, dict) else repr(found)[:80]
            raise FigureError(f"{path!r}: there is no {key!r}, there is {there}")
    if isinstance(found, dict):
        found = found.get("median")
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise FigureError(f"{path!r} is no number")
    match = HOW.fullmatch(how or "")
    assert match
    number, operation, unit = match.groups()
    if operation:
        found = float(number) * found if operation == "*" else float(number) / found
    return (f"{found:,}" if isinstance(found, int) else digits(found)) + (unit if unit in ("", "x") else f" {unit}")


def table(name: str) -> str:
    """A table of result files, as Markdown. That of a single file says when it was taken, and how busy the machine was."""
    if name not in TABLES:
        raise FigureError(f"there is no table {name!r}, there are {', '.join(TABLES)}")
    files, function = TABLES[name]
    found = function(*map(results, files))
    return found if len(files) > 1 else f"{found}\n{small_print(results(files[0]))}"


def filled(text: str) -> str:
    """A page with what the result files say in its places.

    Raises:
        FigureError: A place names no figure.
    """
    text = TABLE.sub(lambda found: f"<!-- figures: {found[1]} -->\n{table(found[1])}<!-- end of figures -->", text)
    return INLINE.sub(
        lambda found: found[0].removesuffix(f"{found[3]}<!-- end -->") + f"{figure(found[1], found[2])}<!-- end -->", text
    )


def faults(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong with a page: line, from 1, and what it is."""
    for found in (*TABLE.finditer(text), *INLINE.finditer(text)):
        line = text.count("\n", 0, found.start()) + 1
        try:
            if filled(found[0]) != found[0]:
                yield line, "differs from the result file: run python benchmarks/figures.py --write"
        except FigureError as error:
            yield line, str(error)
    rest = INLINE.sub(lambda found: " ", TABLE.sub(lambda found: "\n" * found[0].count("\n"), text))
    for broken in re.finditer(r"<!--\s*(?:figures?:|end)[^>]*>?", rest):
        yield (
            rest.count("\n", 0, broken.start()) + 1,
            f"{broken[0]!r} belongs to no place: see CONTRIBUTING.md for how one is written",
        )
    for found in re.finditer(r"^ {0,3}<!-- figure:", text, re.MULTILINE):
        yield text.count("\n", 0, found.start()) + 1, "a place cannot begin a line: Markdown would take the line for HTML"
    for line, said in measured(rest):
        yield line, f"{said!r} looks measured: put it into a place, or write it as code if it is a setting (CONTRIBUTING.md)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, help="default: README.md and all of docs/")
    parser.add_argument("--write", action="store_true", help="put tables and numbers into the pages")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page has others, or a measured number in no place")
    options = parser.parse_args()
    if not (options.write or options.check):
        for name in TABLES:
            print(f"{name}\n{table(name)}")
        return 0
    wrong = 0
    for page in options.pages or pages():
        text = page.read_text()
        if options.write:
            try:
                page.write_text(filled(text))
            except FigureError as error:
                print(f"{page}: {error}")
                wrong += 1
            continue
        for line, said in faults(text):
            print(f"{page}:{line}: {said}")
            wrong += 1
    if options.check:
        print(f"{wrong} faults" if wrong else "every figure is the one of its result file")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
