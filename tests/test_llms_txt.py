"""``docs/llms.txt`` names pages that exist, all of them, and its one-liners run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "llms.txt").read_text()


def test_every_page_is_named_once() -> None:
    named = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", TEXT, re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("*/*.md"))


def test_it_has_the_form_of_its_convention() -> None:
    """A title, a summary as a quotation, then sections of nothing but links."""
    title, nothing, summary, *_ = TEXT.splitlines()
    assert title.startswith("# ") and not nothing and summary.startswith("> ")
    _, *sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)
    assert sections
    for section in sections:
        assert all(line.startswith("- [") for line in section.splitlines()[1:] if line)


@pytest.mark.docs
def test_its_code_runs() -> None:
    pytest.importorskip("stable_baselines3")
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(compile(code, "llms.txt", "exec"), {})
