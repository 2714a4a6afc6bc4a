"""How large, how ambiguous and how entangled is the repository? ``python .ci/size.py`` prints it; exits 1 above a goal.

Lines of each package, class names that mean several things, files and pages that are too long, and places where tests reach into
private names of the product or exchange parts of its modules. A goal that is missed is a reason to delete, not to raise the goal.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("reactor_rl", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "plugins").glob("reactor_*")))
SOURCES = ("*.py", "*.pyi", "*.c", "*.h")
REFERENCE = ("docs/reference", "docs/benchmarks")
"""Pages that are looked up, not read: tables and lists of names."""
RECORDS = ("_replace", "_asdict", "_fields", "_make")
"""Methods that a NamedTuple documents."""
SHOWN = 12


class Goal(NamedTuple):
    """What a count is to be.

    Attributes:
        most: The largest count that is well.
        count: What it is.
    """

    most: int
    count: int

    @property
    def missed(self) -> bool:
        return self.count > self.most


def lines(folder: str, patterns: Sequence[str] = SOURCES) -> int:
    return sum(file.read_bytes().count(b"\n") for pattern in patterns for file in (ROOT / folder).rglob(pattern))


def trees(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted((ROOT / folder).rglob("*.py")):
        yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())


def class_names() -> dict[str, list[str]]:
    """Classes of the product whose name another one has too, with the files that have them."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file, tree in trees(package):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(file)
    return {name: files for name, files in sorted(found.items()) if len(files) > 1}


def comments() -> tuple[int, int]:
    """Lines of Python in the product, and how many of them are comments that say something."""
    texts = [
        line.strip() for package in PACKAGES for file in (ROOT / package).rglob("*.py") for line in file.read_text().splitlines()
    ]
    return len(texts), sum(text.startswith("#") and not text.startswith(("# ---", "# noqa", "# type")) for text in texts)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in RECORDS


def touches(tree: ast.Module) -> Iterator[int]:
    """Lines of a test that use a private name of something else, or exchange a part of a module of ours."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    own |= {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    ours = _names_of_ours(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0].startswith("reactor_"):
            yield from (node.lineno for alias in node.names if _is_private(alias.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("setattr", "delattr"):
            yield from (node.lineno for argument in node.args[:1] if isinstance(argument, ast.Name) and argument.id in ours)


def _names_of_ours(tree: ast.Module) -> set[str]:
    """What a test has imported from the product."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0].startswith("reactor_"):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names if alias.name.startswith("reactor_")}
    return found


def pages() -> dict[str, int]:
    """Words of each page, those that are looked up left out."""
    found = {page.relative_to(ROOT).as_posix(): len(page.read_text().split()) for page in (ROOT / "docs").rglob("*.md")}
    return {name: count for name, count in found.items() if not name.startswith(REFERENCE)}


def main() -> int:
    by_package = {package: lines(package) for package in PACKAGES}
    print("lines of the product: " + ", ".join(f"{name} {count:,}" for name, count in by_package.items()))
    twice = class_names()
    for name, files in twice.items():
        print(f"class {name}: {', '.join(files)}")
    places = Counter({file: len(set(touches(tree))) for file, tree in trees("tests")})
    for file, count in places.most_common(SHOWN):
        print(f"{count:4} private touches: {file}")
    longest = Counter(pages())
    for page, count in longest.most_common(SHOWN):
        print(f"{count:6,} words: {page}")
    files = {file: len(text) for package in PACKAGES for file, text in _texts(package)}
    for file, count in Counter(files).most_common(SHOWN):
        print(f"{count:6,} lines: {file}")
    whole, said = comments()
    print(f"comments: {said} of {whole:,} lines ({100 * said / whole:.1f} %)")
    goals = {
        "lines of the product": Goal(58_000, sum(by_package.values())),
        "lines of tests": Goal(40_000, lines("tests")),
        "class names that mean several things": Goal(0, len(twice)),
        "private touches of tests": Goal(40, places.total()),
        "pages over 1,500 words": Goal(0, sum(count > 1500 for count in longest.values())),
        "words of CHANGELOG.md": Goal(2500, len((ROOT / "CHANGELOG.md").read_text().split())),
        "files of Python over 600 lines": Goal(0, sum(count > 600 for count in files.values())),
    }
    for what, goal in goals.items():
        print(f"{'MISSED' if goal.missed else 'met':6} {what}: {goal.count:,} of {goal.most:,}")
    return int(any(goal.missed for goal in goals.values()))


def _texts(package: str) -> Iterator[tuple[str, list[str]]]:
    for file in (ROOT / package).rglob("*.py"):
        yield file.relative_to(ROOT).as_posix(), file.read_text().splitlines()


if __name__ == "__main__":
    sys.exit(main())
