"""The site builds without a warning, so none of its links is broken; it describes every public name; links of other pages hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "reactor_rl", "reactor_gymnasium", "reactor_pettingzoo", "reactor_pettingzoo.learning", "reactor_ray", "reactor_ray.rllib",
    "reactor_sb3", "reactor_sb3.zoo", "reactor_torch",
)  # fmt: skip
OTHER_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/README.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, just built."""
    for name in ("sphinx", "myst_parser", "furo", "stable_baselines3", "pettingzoo"):
        pytest.importorskip(name)
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-n", "-q", "-d", str(out / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, "docs", str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


@pytest.mark.timeout(240)  # ten seconds of one core, half of them imports
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with open(site / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    described = {name for kind, objects in inventory.items() if kind.startswith("py:") for name in objects}
    for package in PACKAGES:
        public = {f"{package}.{name}" for name in exported(package) if not name.startswith("__")}
        assert public and public <= described


def exported(package: str) -> list[str]:
    """The ``__all__`` of a package. It is read, not imported: RLlib and RL Zoo are not installed everywhere."""
    folder = ROOT if package == "reactor_rl" else ROOT / "plugins"
    path = folder / package.replace(".", "/")
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    (names,) = re.findall(r"^__all__ = (\[.*?\])$", source, re.MULTILINE | re.DOTALL)
    return list(ast.literal_eval(names))


def anchors(page: str) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", OTHER_PAGES)
def test_links_outside_the_site_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), f"{target}#{anchor}"
