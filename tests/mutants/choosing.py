"""Statements that may be deleted, and a source without one of them."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLACES = ("reactor_rl/runtime", "reactor_rl/federation")

JUDGED = (
    ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Delete, ast.Break, ast.Continue, ast.Assert,
)  # fmt: skip
"""Kinds of statements that are deleted. Of an ``if``, a loop, a ``with`` or a function in a function those inside are, one by one.

Left out are:

* docstrings, ``pass`` and annotations without a value: they do nothing;
* imports, ``global`` and ``nonlocal``: without one the next line that uses the name fails, which says nothing about a test;
* what is not in a function (``__all__``, constants, fields of classes), for the same reason;
* warnings and notes on errors (``SAYING``): a run does the same without them.
"""

SAYING = ("add_note", "tell", "warn")
"""Functions that only say something."""


@dataclass(frozen=True, order=True)
class Statement:
    """A statement of a function, by its text: a line above it may come or go."""

    file: str
    line: int
    column: int
    end: int
    end_column: int
    function: str
    text: str
    number: int
    """The how manieth of those that are alike in that function, from 1."""

    @property
    def name(self) -> str:
        return f"{self.function}: {self.text}" + (f" ({self.number})" if self.number > 1 else "")


def statements(source: str, file: str = "") -> list[Statement]:
    """Return the statements of a file that may be deleted, in its order."""
    lines = source.encode().splitlines(keepends=True)
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for function, node in _in_functions(ast.parse(source), (), False):
        if isinstance(node, JUDGED) and not _does_nothing(node):
            place = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
            text = " ".join(_text(lines, *place).decode().split())
            seen[function, text] += 1
            found.append(Statement(file, *place, function, text, seen[function, text]))
    return sorted(found)


def _in_functions(node: ast.AST, names: tuple[str, ...], inside: bool) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_functions(child, (*names, child.name), True)
        elif isinstance(child, ast.ClassDef):
            yield from _in_functions(child, (*names, child.name), False)
        else:
            if inside and isinstance(child, ast.stmt):
                yield ".".join(names), child
            yield from _in_functions(child, names, inside)


def _does_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Call):
        called = node.value.func
        return getattr(called, "attr", getattr(called, "id", "")) in SAYING
    return isinstance(node.value, ast.Constant)


def _text(lines: list[bytes], line: int, column: int, end: int, end_column: int) -> bytes:
    chosen = lines[line - 1 : end]
    chosen[-1] = chosen[-1][:end_column]
    return b"".join([chosen[0][column:], *chosen[1:]])


def without(source: str, statement: Statement) -> str:
    """Return a source with ``pass`` in place of a statement."""
    lines = source.encode().splitlines(keepends=True)
    before, after = lines[: statement.line], lines[statement.end - 1 :]
    before[-1] = before[-1][: statement.column]
    after[0] = after[0][statement.end_column :]
    return b"".join([*before, b"pass", *after]).decode()


def of_tree(root: Path, only: str = "") -> list[Statement]:
    """Return the statements of all files of ``PLACES`` whose path has ``only`` in it."""
    files = sorted(path for place in PLACES for path in (root / place).rglob("*.py"))
    names = {path: path.relative_to(root).as_posix() for path in files}
    return [found for path in files if only in names[path] for found in statements(path.read_text(), names[path])]


def in_turn(found: list[Statement], seed: int) -> list[Statement]:
    """Return statements in the order in which they are judged: the same for the same seed and sources."""
    mixed = sorted(found)
    random.Random(seed).shuffle(mixed)
    return mixed
