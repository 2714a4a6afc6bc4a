"""Stable-Baselines3's own tests of vector environments, with ``ReactorVecEnv`` in the place of ``SubprocVecEnv``.

They are in its source distribution and not in its wheel. Set ``REACTOR_RL_SB3_CHECKOUT`` to its unpacked folder, or to a checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = os.environ.get("REACTOR_RL_SB3_CHECKOUT", "")

pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT, reason="set REACTOR_RL_SB3_CHECKOUT to the source of Stable-Baselines3 to run its vector environment tests"
    ),
    pytest.mark.timeout(900),
]

SUITE = [
    f"tests/test_{name}.py"
    for name in ("vec_envs", "vec_normalize", "vec_monitor", "vec_stacked_obs", "vec_check_nan", "vec_extract_dict_obs", "utils")
]
THEIRS = "stable_baselines3.common.vec_env.subproc_vec_env:SubprocVecEnv"


def run(folder: Path, substitute: str, *arguments: str) -> dict[str, Any]:
    report = folder / "report.json"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), CHECKOUT]),
        "REACTOR_RL_SUBSTITUTE": f"{THEIRS}={substitute}",
        "REACTOR_RL_SUBSTITUTE_REPORT": str(report),
    }
    command = [sys.executable, "-m", "pytest", "-p", "substitute", "-q", "-p", "no:cacheprovider", *SUITE, *arguments]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, timeout=850, check=False)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found | {"output": done.stdout[-6000:]}


def failures(found: dict[str, Any]) -> list[str]:
    return sorted(name for name, outcome in found["outcomes"].items() if outcome == "failed")


def test_their_own_tests_pass(tmp_path: Path) -> None:
    found = run(tmp_path, "reactor_sb3:ReactorVecEnv")
    failed = failures(found)
    if failed:  # what fails with SB3's own class too (for a missing package, say) tells nothing about ours
        alone = run(tmp_path, THEIRS, *[f"--deselect={name}" for name in set(found["outcomes"]) - set(failed)])
        failed = sorted(set(failed) - set(failures(alone)))
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= 25, f"ours was built in {len(passed)} tests that passed"
