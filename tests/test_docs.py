"""Every Python block of the README and of the pages runs: a page's blocks in order, as one script, as a reader would type them."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PICTURES = ROOT / "docs" / "pictures"
HOSTS = {
    "reactor_gymnasium": "gymnasium",
    "reactor_sb3.zoo": "rl_zoo3",  # before what it is part of
    "reactor_sb3": "stable_baselines3",
    "reactor_pettingzoo": "pettingzoo",
    "reactor_ray.rllib": "tree",  # which RLlib needs, and Ray alone does not bring
    "reactor_ray": "ray",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def script_of(page: str) -> str:
    """The Python blocks of a page, each line where it stands on the page, so that a traceback names the page's line.

    Of a block that shows a change (``diff``), what it looks like afterwards.
    """
    found, language = [], ""
    for line in page.splitlines():
        if line.startswith("```"):
            language = "" if language else line.removeprefix("```") or "text"
            found.append("")
        elif language == "diff":
            found.append(line[1:] if line[:1] in "+ " else "")
        else:
            found.append(line if language == "python" else "")
    return "\n".join(found) + "\n"


def missing_for(script: str) -> set[str]:
    """What a script imports, or the host library of a plugin that it imports, and is not installed."""
    imported = {name for name, used in (("ale_py", r"Atari|ALE/"), ("moviepy", "RecordVideo")) if re.search(used, script)}
    for node in ast.walk(ast.parse(script)):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    needed = {next((HOSTS[own] for own in HOSTS if f"{name}.".startswith(f"{own}.")), name.partition(".")[0]) for name in imported}
    return {name for name in needed if importlib.util.find_spec(name) is None}


WITH_BLOCKS = [page for page in PAGES if script_of(page.read_text()).strip()]


def test_a_block_is_found_where_it_stands() -> None:
    assert script_of("a\n```python\nx = 1\n```\n```\ny\n```\n```python\nz = x\n```\n") == "\n\nx = 1\n\n\n\n\n\nz = x\n\n"
    assert script_of("```diff\n-x = 1\n+x = 2\n y = x\n```\n") == "\n\nx = 2\ny = x\n\n"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_says_which_language_it_is_in(page: Path) -> None:
    """Python that calls itself something else would not be run."""
    blocks = re.findall(r"^[ \t]*```(.*?)\n(.*?)^[ \t]*```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} <= {"", "python", "diff", "{eval-rst}"}
    for language, block in blocks:
        assert language or not re.search(r"^(import|from|def|class|with) ", block, re.MULTILINE), block


@pytest.mark.timeout(240)  # some seconds of one core each; more where other programs are busy
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path, run_script: Callable[..., tuple[int, str]]) -> None:
    written = script_of(page.read_text())
    if missing := missing_for(written):
        pytest.skip(f"needs {', '.join(sorted(missing))}")
    script = tmp_path / "page.py"  # named like no library
    script.write_text(written)
    status, said = run_script(script, tmp_path)
    assert status == 0, said[-6000:]
    for drawn in tmp_path.glob("*.svg"):
        shown = PICTURES / drawn.name
        assert not shown.exists() or shown.read_text() == drawn.read_text(), f"the page draws {drawn}, {shown} is another picture"


def test_every_drawing_is_drawn_by_a_page() -> None:
    drawn = {name for page in PAGES for name in re.findall(r"draw\(\"(.*\.svg)\"\)", script_of(page.read_text()))}
    assert {picture.name for picture in PICTURES.glob("*.svg")} <= drawn


def test_the_source_distribution_has_what_the_readme_uses() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    readme = (ROOT / "README.md").read_text()
    files = set(re.findall(r"-c (\S+)", readme)) | {path.split("/")[0] for path in re.findall(r"\]\(([^)#:]+)\)", readme)}
    files |= {path.split("/")[0] for path in re.findall(r"`((?:benchmarks|examples|tests)/[\w/.]*)`", readme)}
    assert "constraints.txt" in files
    assert files <= set(included)


def test_the_page_on_installation_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "start" / "install.md").read_text(), re.MULTILINE)
    assert set(project["optional-dependencies"]) <= {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
