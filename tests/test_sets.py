"""Where tests are: each is in one of two sets, and their folders are those of the packages."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLUGINS = ("gymnasium", "sb3", "pettingzoo", "torch", "ray")
PACKAGES = {"": "reactor_rl", **{f"{name}_plugin": f"plugins/reactor_{name}" for name in PLUGINS}}
"""Where the tests of each package are."""
METHODS = {"contracts", "host", "model", "mutants", "simulation", "soak"}
"""Folders that are of no package: each is a way of testing, with what it needs."""


def commands() -> list[str]:
    """The test command of README.md and the second command, as .ci/run makes them."""
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if re.match(r"(test|rest)_command=", line)]
    script = "\n".join([*lines, 'printf "%s\\n" "$test_command" "$rest_command"'])
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="a script of bash")
def test_each_test_is_in_one_of_the_two_sets() -> None:
    default, rest = (shlex.split(command) for command in commands())
    pytest_of_default = default[default.index("&&") + 1 :]
    assert pytest_of_default[:-1] == rest[:-1] == ["python", "-m", "pytest", "-n", "logical", "-m"]  # no other choice of tests

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    registered = [line.partition(":")[0] for line in settings["markers"]]
    assert sorted(set(re.findall(r"\w+", default[-1])) - {"not", "or"}) == sorted(registered)
    for size in range(len(registered) + 1):
        for marks in itertools.combinations(registered, size):
            known = {name: name in marks for name in registered}
            chosen = [eval(expression, {"__builtins__": {}}, known) for expression in (default[-1], rest[-1])]
            assert chosen == [not marks, bool(marks)]


def test_their_folders_are_the_packages() -> None:
    tests = ROOT / "tests"
    folders = {file.parent.relative_to(tests) for file in tests.rglob("test_*.py")} - {Path(name) for name in METHODS}
    astray = []
    for folder in folders:
        plugin = folder.parts[0] if folder.parts and folder.parts[0] in PACKAGES else ""
        package = ROOT / PACKAGES[plugin] / folder.relative_to(plugin)
        if not (package / "__init__.py").exists():
            astray.append(f"tests/{folder} has tests, and there is no package {package.relative_to(ROOT)}")
    assert not astray
