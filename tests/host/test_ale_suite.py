"""ALE's own tests of its vector environment, with ours in its place.

They are not in ALE's wheel. Set ``REACTOR_RL_ALE_CHECKOUT`` to a checkout of its repository.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("REACTOR_RL_ALE_CHECKOUT", "")

pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT, reason="set REACTOR_RL_ALE_CHECKOUT to a checkout of the Arcade Learning Environment to run its vector tests"
    ),
    pytest.mark.timeout(1200),
]

SUITE = "tests/python/test_atari_vector_env.py"
THEIRS = "ale_py.vector_env:AtariVectorEnv"

NOT_OURS = {"test_invalid_reset_masks": "calls ALE's C++ object, and expects ALE's words in messages"}
"""Tests that contradict what ours promises."""


def run(folder: Path, substitute: str, *arguments: str) -> dict[str, Any]:
    report = folder / "report.json"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "REACTOR_RL_SUBSTITUTE": f"{THEIRS}={substitute}",
        "REACTOR_RL_SUBSTITUTE_REPORT": str(report),
    }
    command = [sys.executable, "-m", "pytest", "-p", "substitute", "-q", "-p", "no:cacheprovider", SUITE, *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=1150, check=False)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found | {"output": done.stdout[-6000:]}


def failures(found: dict[str, Any]) -> list[str]:
    return sorted(name for name, outcome in found["outcomes"].items() if outcome == "failed")


def test_ales_own_tests_pass(tmp_path: Path) -> None:
    found = run(tmp_path, "reactor_gymnasium:AtariVectorEnv")
    failed = [name for name in failures(found) if name.rpartition("::")[2].partition("[")[0] not in NOT_OURS]
    if failed:  # what fails with ALE's own class too tells nothing about ours
        alone = run(tmp_path, THEIRS, *[f"--deselect={name}" for name in set(found["outcomes"]) - set(failed)])
        failed = sorted(set(failed) - set(failures(alone)))
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= 50, f"ours was built in {len(passed)} tests that passed"


def test_a_class_that_is_wrong_fails_them(tmp_path: Path) -> None:
    """The runner can tell: an environment of two games that claims to be of more."""
    found = run(tmp_path, "test_ale_suite:Unlike", "-k", "test_reset_step_shapes or test_determinism")
    assert failures(found)


try:
    from reactor_gymnasium import AtariVectorEnv
except ImportError:
    pass
else:

    class Unlike(AtariVectorEnv):
        """Never twice the same."""

        def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(options=options)
