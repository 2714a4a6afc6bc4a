"""What ``doctor`` says of the plugins: which compiled kernels are in use, and of torch's threads where the machine is busy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCTOR = """
import os, sys
from reactor_rl.cli.doctor import doctor_command
{before}
sys.exit(doctor_command(["--no-measure"]))
"""


def doctor(folder: Path, before: str = "") -> dict[str, str]:
    """What it says, by label; warnings together."""
    command = [sys.executable, "-c", DOCTOR.format(before=before)]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    found = {line[:20].strip(): line[20:] for line in said if not line.startswith("warning: ")}
    return found | {"warnings": "\n".join(line for line in said if line.startswith("warning: "))}


@pytest.mark.slow
def test_kernels_that_are_not_compiled_are_told(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium")
    pytest.importorskip("torch")
    kernels = ("reactor_gymnasium.atari._frames", "reactor_torch._products")
    found = doctor(tmp_path, f"sys.modules.update(dict.fromkeys({kernels!r}))")
    assert found["Atari frames"].startswith("not compiled: OpenCV")
    assert found["networks"].startswith("not compiled: torch")
    assert "C compiler" in found["warnings"]


@pytest.mark.slow
def test_kernels_that_are_in_use_are_told(tmp_path: Path) -> None:
    for name in ("gymnasium", "torch"):
        pytest.importorskip(name)
    frames = pytest.importorskip("reactor_gymnasium.atari._frames")
    pytest.importorskip("torch")
    found = doctor(tmp_path)
    assert found["Atari frames"] == f"compiled kernel, {'AVX2' if frames.AVX2 else 'portable'}"
    assert found["networks"].startswith("compiled kernel, ")
    assert "C compiler" not in found["warnings"]


@pytest.mark.slow
def test_a_plugin_whose_library_is_missing_is_skipped(tmp_path: Path) -> None:
    found = doctor(tmp_path, "sys.modules['gymnasium'] = None")
    assert "frames" in found and "[gymnasium]" in found["frames"]


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False])
def test_torch_on_a_busy_machine_is_warned_of(busy: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    load = "(100.0, 0, 0)" if busy else "(0.0, 0, 0)"
    found = doctor(tmp_path, f"os.environ.pop('OMP_NUM_THREADS', None); os.getloadavg = lambda: {load}")
    assert ("torch.set_num_threads(1)" in found["warnings"]) is busy
