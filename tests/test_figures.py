"""Every measured number in README and docs is the one of its result file, and ``benchmarks/figures.py --check`` notices if not."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RATIO = "<!-- figure: vector_env / CartPole-v1 x 64 / ratios / AsyncVectorEnv; x -->{}<!-- end -->"


def figures(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and output."""
    command = [sys.executable, ROOT / "benchmarks" / "figures.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_page_has_what_the_result_files_say() -> None:
    status, said = figures("--check")
    assert status == 0, said


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700  # all words, code and tables too


def test_a_number_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Much faster: {RATIO.format('?')}.\n\n<!-- figures: front -->\n<!-- end of figures -->\n")
    assert figures("--write", page)[0] == 0
    right = page.read_text()
    assert figures("--check", page)[0] == 0
    ratio = right.split("-->", 1)[1].split("<")[0]
    assert ratio.endswith("x") and float(ratio[:-1]) > 0
    page.write_text(right.replace(ratio, f"1{ratio}", 1))
    status, said = figures("--check", page)
    assert status == 1 and f"{page}:1: differs" in said
    table = right.splitlines()[5]
    page.write_text(right.replace(table, table.replace("| ", "| 1", 2)))
    status, said = figures("--check", page)
    assert status == 1 and f"{page}:3: differs" in said


UNBACKED = [
    "It is 1.43x as fast.",
    "It is 9\ntimes as fast.",
    "It is twice as fast.",
    "Faster by a factor of 9.",
    "An update takes 3 ms.",
    "It needs **64 MB**.",
    "That makes 1,200 steps/s.",
    "That makes 1,200 steps of all of them a second.",
    "It saves 30 % of it.",
    "It costs 0.43 of that.",
    "| a | b |\n|---|---|\n| steps | 1,200 |",
    "```{note}\nIt takes 3 ms.\n```",
    "It does `1.43x`.",
    "It does `1,200 steps/s`.",
    "a <!-- figure: vector_env / none --> 3 <!-- end -->",
    "a <!-- figure: vector_env / CartPole-v1 x 64 -->3",
    "<!-- figures: front -->",
    RATIO.format("18.7x"),
    "a <!-- figure: none / a -->3<!-- end -->",
    "<!-- figures: none -->\n<!-- end of figures -->",
]


def test_a_number_that_nothing_backs_is_refused(tmp_path: Path) -> None:
    pages = [tmp_path / f"{number}.md" for number in range(len(UNBACKED))]
    for page, prose in zip(pages, UNBACKED, strict=True):
        page.write_text(f"# Page\n\n{prose}\n")
    status, said = figures("--check", *pages)
    assert status == 1
    assert [prose for page, prose in zip(pages, UNBACKED, strict=True) if not re.search(rf"{page}:[345]: ", said)] == []


def test_counts_settings_versions_and_code_are_no_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# 64 CartPoles on 2 workers, 84 x 84, 10,000 steps\n\n"
        "After `120 s`, in blocks of `64 MB`. Gymnasium 1.4, Python 3.11 to 3.13, "
        "arXiv 2312.04704 ([its page](https://arxiv.org/abs/2312.04704)).\n\n```\n3 ms, 1.43x\n```\n\n```python\nx = 0.5\n```\n"
        "| a | `0.5` | 3 of 4 |\n"
    )
    assert figures("--check", page) == (0, "every figure is the one of its result file\n")


def test_a_table_says_when_it_was_taken_and_how_busy_the_machine_was(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for name in ("broadcast", "training"):  # without a record of the run, and with one
        page.write_text(f"<!-- figures: {name} -->\n<!-- end of figures -->\n")
        assert figures("--write", page)[0] == 0
        found = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        date, average = (
            (found["run"]["began"][:10], found["run"]["load"]["before"]["average"])
            if "run" in found
            else (found["machine"]["date"], found["machine"]["load_before"])
        )
        machine = found["machine"]
        cores = f"{machine['cores']} cores of {machine['cpu'].replace('(R)', '')}"
        assert f"\n\n<small>Taken on {date}; load average {average} on {cores} before" in page.read_text()


def test_a_result_file_names_no_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import recording

    monkeypatch.setattr(recording, "load", lambda: {"average": 0.0, "taken": 0.0})
    monkeypatch.setattr(sys, "argv", ["soak.py", "--output", str(tmp_path), "--seconds", "9", f"--output={tmp_path}"])
    path = recording.write_json(argparse.Namespace(output=tmp_path, quick=False), "soak", {})
    assert json.loads(path.read_text())["run"]["arguments"] == ["--seconds", "9"]
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        assert not [one for one in json.loads(file.read_text()).get("run", {}).get("arguments", []) if one.startswith("/")], file
