"""The packages tell type checkers that they have types: what mypy says of a user's file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
USERS = """
from reactor_rl import Program, Reactor, Run
from reactor_gymnasium import ReactorVectorEnv


def start(program: Program) -> Run:
    return program.start(executor="inline", workers=2)


def make() -> ReactorVectorEnv:
    return ReactorVectorEnv([], workers="two")


reveal_type(start(Program()).fingerprint())
start(Program()).tick("now")
"""
LEFT_OUT = ("torch", "jax", "jaxlib", "matplotlib", "IPython", "cv2", "pygame")
"""What hosts and we import here and there, and a user's file does not touch: it takes five times as long as all the rest."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_user_s_file_is_checked_against_our_types(tmp_path: Path) -> None:
    for name in ("mypy", "gymnasium"):
        pytest.importorskip(name)
    (tmp_path / "users.py").write_text(USERS)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\n[mypy-{','.join(f'{name}.*' for name in LEFT_OUT)}]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={os.devnull}", "users.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    said = found.stdout
    assert re.search(r'Revealed type is "(builtins\.)?str"', said), said
    assert "users.py:11" in said and '"workers"' in said
    assert 'Too many arguments for "tick" of' in said
    assert "missing library stubs or py.typed marker" not in said
    assert "Found 2 errors in 1 file" in said


@pytest.mark.parametrize("package", ["reactor_rl", *(f"plugins/{path.name}" for path in (ROOT / "plugins").glob("reactor_*"))])
def test_every_package_has_the_marker(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
