"""An algorithm is one file that can be read at once, and nothing that algorithms have in common names one of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[1] / "plugins"
ALGORITHMS = sorted((PLUGINS / "reactor_sb3" / "algorithms").glob("*.py"))
FOLDERS = {
    folder: sorted(folder.rglob("*.py"))
    for folder in (*(PLUGINS / "reactor_sb3" / name for name in ("trainers", "acting", "checkpoints")), PLUGINS / "reactor_torch")
}
COMMON = [path for paths in FOLDERS.values() for path in paths]


def test_every_folder_has_files() -> None:
    assert len(ALGORITHMS) > 4
    assert [str(folder) for folder, paths in FOLDERS.items() if not paths] == []


def own_lines(path: Path) -> int:
    """Lines that are neither blank, an import, a docstring, a comment nor a parameter of a constructor."""
    text = path.read_text()
    lines = text.splitlines()
    left = {number for number, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            left -= set(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            left -= set(range(node.lineno, node.body[0].lineno))
    return len(left)


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_an_algorithm_is_read_at_once(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 200
    assert own_lines(path) <= 150


@pytest.mark.parametrize("path", COMMON, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_common_names_no_algorithm(path: Path) -> None:
    """But for the targets of ``python -m reactor_rl verify``, and in docstrings, as examples."""
    if path.stem == "verify_targets":
        return
    named = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    named |= {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert [name for name in sorted(named) if re.fullmatch(r"Sync[A-Z]\w*|PQN|IPPO", name)] == []
