"""Gymnasium's own tests of vector environments, with ``ReactorVectorEnv`` in the place of ``AsyncVectorEnv``.

They are not in Gymnasium's wheel. Set ``REACTOR_RL_GYMNASIUM_CHECKOUT`` to a checkout of its repository.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("REACTOR_RL_GYMNASIUM_CHECKOUT", "")

pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT, reason="set REACTOR_RL_GYMNASIUM_CHECKOUT to a checkout of Gymnasium's repository to run its vector tests"
    ),
    pytest.mark.timeout(600),
]

SUITES: list[tuple[list[str], int]] = [
    (["tests/vector"], 150),
    (["tests/envs/registration/test_make_vec.py"], 5),
    (["tests/wrappers/vector"], 1),
]
"""Paths, and in how many tests ours must have been built: most of Gymnasium's tests are of other things."""

DISPLAY = "--ignore=tests/wrappers/vector/test_human_rendering.py"
"""These open windows, which ends the interpreter where there is no display."""


def run(paths: list[str], folder: Path, substitute: str) -> dict[str, Any]:
    report = folder / "report.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), CHECKOUT]),
        "REACTOR_RL_SUBSTITUTE": f"gymnasium.vector.async_vector_env:AsyncVectorEnv={substitute}",
        "REACTOR_RL_SUBSTITUTE_REPORT": str(report),
    }
    command = [sys.executable, "-m", "pytest", "-p", "substitute", "-q", DISPLAY, *paths]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found | {"output": done.stdout[-6000:]}


def failures(found: dict[str, Any]) -> list[str]:
    return sorted(name for name, outcome in found["outcomes"].items() if outcome == "failed")


@pytest.mark.parametrize(("paths", "at_least"), SUITES, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_gymnasiums_own_tests_pass(paths: list[str], at_least: int, tmp_path: Path) -> None:
    if not (Path(CHECKOUT) / paths[0]).exists():
        pytest.skip(f"the checkout has no {paths[0]}")
    found = run(paths, tmp_path, "reactor_gymnasium:ReactorVectorEnv")
    failed = failures(found)
    if failed:  # what fails with Gymnasium's own class too (for a missing package, say) tells nothing about ours
        alone = run(failed, tmp_path, "gymnasium.vector.async_vector_env:AsyncVectorEnv")
        assert alone["outcomes"].keys() >= set(failed), alone["output"]
        failed = sorted(set(failed) - set(failures(alone)))
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= at_least, f"ours was built in {len(passed)} tests that passed"


def test_a_class_that_is_wrong_fails_them(tmp_path: Path) -> None:
    """The runner can tell: Gymnasium's for-loop in the place of its processes does not pass."""
    found = run(["tests/vector/test_async_vector_env.py"], tmp_path, "gymnasium.vector.sync_vector_env:SyncVectorEnv")
    assert failures(found)
