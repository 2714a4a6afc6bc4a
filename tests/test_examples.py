"""Every example runs from top to bottom, as a user would run it, and prints what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "vector_env.py": "the same on one worker and on two: True",
    "evolution.py": "the same inline: True",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", sorted(PROMISES))
def test_example(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert PROMISES[name] in done.stdout
    assert "Traceback" not in done.stderr
