"""Tests of Stable-Baselines3 and of sb3-contrib, run with classes of ours in the place of theirs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest


def source_of(package: str, variable: str, folder: Path) -> Path:
    """The source of the installed version of a package, with its tests.

    Args:
        package: Its name.
        variable: Names the folder of a source distribution, or a checkout; if it is not set, pip is asked for the former.
        folder: Where it goes then.
    """
    if named := os.environ.get(variable):
        return Path(named).absolute()
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1", "--timeout", "15", "--no-deps",
        "--no-binary", package, "--dest", str(folder), f"{package}=={version}",
    ]  # fmt: skip
    advice = f"set {variable} to the source of {package} to run its tests without a network"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not get the source of {package} {version} in time; {advice}")
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        pytest.skip(f"pip cannot get the source of {package} {version} ({reason}); {advice}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    found = list(folder.glob("*/tests"))
    if not found:
        pytest.skip(f"the source distribution of {package} {version} has no tests; {advice}")
    return found[0].parent


def run(checkout: Path, folder: Path, substitutes: dict[str, str], *arguments: str) -> dict[str, Any]:
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(checkout)]),
        "REACTOR_RL_SUBSTITUTE": " ".join(f"{theirs}={ours}" for theirs, ours in substitutes.items()),
        "REACTOR_RL_SUBSTITUTE_REPORT": str(report),
        "OMP_NUM_THREADS": "1",  # torch's threads wait for each other on a busy machine, with SB3's own classes too
    }
    # A file of theirs that cannot be imported (for a missing package) must not keep the others from running.
    options = ["-p", "substitute", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=850, check=False)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found | {"output": done.stdout[-6000:]}


def failures(found: dict[str, Any]) -> list[str]:
    return sorted(name for name, outcome in found["outcomes"].items() if outcome == "failed")


def check(checkout: Path, folder: Path, substitutes: dict[str, str], at_least: int, *arguments: str) -> None:
    """Their tests pass with ours, which are built in so many of those that do."""
    found = run(checkout, folder, substitutes, *arguments)
    failed = failures(found)
    if failed:  # what fails with SB3's own class too (for a missing package, say) tells nothing about ours
        alone = run(checkout, folder, {theirs: theirs for theirs in substitutes}, *failed)
        assert alone["outcomes"].keys() >= set(failed), alone["output"]
        failed = sorted(set(failed) - set(failures(alone)))
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= at_least, f"ours was built in {len(passed)} tests that passed\n{found['output']}"


def without(checkout: Path, refused: dict[str, str]) -> list[str]:
    """Options that leave out tests, all of which there are."""
    for name in refused:
        file, _, function = name.partition("[")[0].partition("::")
        assert f"def {function}(" in (checkout / "tests" / file).read_text(), f"they have no {name}"
    return [f"--deselect=tests/{name}" for name in refused]
