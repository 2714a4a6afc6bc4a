"""Every Python block of the README and of the pages runs: a page's blocks in order, as one script, as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {
    "README.md": ("stable_baselines3", "mpe2"),
    "docs/guide/multi-agent.md": ("stable_baselines3", "mpe2"),
    "docs/guide/notebooks.md": ("IPython", "gymnasium", "pettingzoo", "pandas"),
    "docs/guide/training.md": ("stable_baselines3",),
    "docs/guide/vector-environments.md": ("gymnasium", "ale_py"),
    "docs/guide/zoo.md": ("rl_zoo3",),
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def script_of(page: str) -> str:
    """The Python blocks of a page, each line where it stands on the page, so that a traceback names the page's line."""
    found, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = not inside and line == "```python"
            found.append("")
        else:
            found.append(line if inside else "")
    return "\n".join(found) + "\n"


WITH_BLOCKS = [page for page in PAGES if script_of(page.read_text()).strip()]


def test_a_block_is_found_where_it_stands() -> None:
    assert script_of("a\n```python\nx = 1\n```\n```\ny\n```\n```python\nz = x\n```\n") == "\n\nx = 1\n\n\n\n\n\nz = x\n\n"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_says_which_language_it_is_in(page: Path) -> None:
    """Python that calls itself something else would not be run."""
    blocks = re.findall(r"^[ \t]*```(.*?)\n(.*?)^[ \t]*```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} <= {"", "python"}
    for language, block in blocks:
        assert language or not re.search(r"^(import|from|def|class|with) ", block, re.MULTILINE), block


@pytest.mark.timeout(240)  # ten seconds of one core each; most of it is imports, which wait for others on a busy machine
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(name_of(page), ()):
        pytest.importorskip(name)
    script = tmp_path / f"{page.stem}.py"
    script.write_text(script_of(page.read_text()))
    # Where other programs are busy, threads of torch wait for each other: see the page on training.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=220, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


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
