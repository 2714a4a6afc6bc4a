"""Helpers compute as the calling process does, wherever and whenever they are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reactor_rl import Output, Program, Reactor, Recover, RecoveryWarning, Timer, reaction, startup
from reactor_rl.federation.in_process import InProcess
from reactor_rl.runtime import arithmetic

pytestmark = [pytest.mark.skipif(arithmetic._libc is None, reason="no fesetenv"), pytest.mark.timeout(120)]
WAYS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "workers": 3},
    {"executor": "processes", "workers": 2},
    {"executor": "processes", "workers": 4, "caller_works": False},
    {"executor": "federated", "nodes": 2, "workers": 2},
    {"executor": InProcess(2, 2, "processes")},
]
DOWNWARD = {"x86_64": 0x400, "AMD64": 0x400, "aarch64": 0x800000, "arm64": 0x800000}


class Computes(Reactor):
    """Says what comes out of sums that the settings decide."""

    each = Timer(period=1)
    sums, pid, told = Output(4, np.float64), Output(), Output()

    @reaction(startup)
    def begin(self) -> None:
        self.three, self.small = np.array([3.0]), np.array([sys.float_info.min])

    @reaction(each, effects=(sums, pid, told))
    def go(self) -> None:
        third = (1.0 / self.three)[0], (-1.0 / self.three)[0]
        small = (self.small * 0.3)[0]
        self.sums.set(np.array([*third, small, third[0] * 1e-310]))
        self.pid.set(os.getpid())
        torch = sys.modules.get("torch")
        if torch is not None:
            torch = str(torch.tensor([0.1]).dtype), torch.are_deterministic_algorithms_enabled()
        self.told.set((np.geterr()["over"], torch))


def computes() -> Program:
    program = Program("computes")
    bank = program.bank(Computes, 5)
    for name in ("sums", "pid", "told"):
        program.connect(getattr(bank, name), program.output(name).rows)
    return program


def outcome(**how: Any) -> tuple[bytes, list[Any]]:
    with computes().start(**how) as run:
        run.run(3)
        return run.sums.tobytes(), run.values("told")


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before, errors = arithmetic._now(), np.geterr()
    yield
    arithmetic._put(before)
    np.seterr(**errors)


def round_downward() -> None:
    import platform

    if platform.machine() not in DOWNWARD:
        pytest.skip("another processor")
    assert arithmetic._libc.fesetround(DOWNWARD[platform.machine()]) == 0


def flush() -> None:
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")


@pytest.mark.parametrize("change", [round_downward, flush])
def test_the_processors_settings_are_those_of_the_caller(change: Any) -> None:
    usual = outcome(executor="inline")[0]
    assert arithmetic.arithmetic().floats == b""
    change()
    changed = outcome(executor="inline")[0]
    assert changed != usual
    assert [outcome(**way)[0] == changed for way in WAYS] == [True] * len(WAYS)


def test_numpys_errors_are_those_of_the_caller() -> None:
    np.seterr(over="raise", under="print")
    for way in WAYS:
        assert {over for over, _ in outcome(**way)[1]} == {"raise"}
    np.seterr(over="call")  # the function stays where it is
    assert {over for over, _ in outcome(executor="processes", workers=4, caller_works=False)[1]} == {"warn"}


@pytest.mark.slow
def test_torchs_settings_are_those_of_the_caller() -> None:
    torch = pytest.importorskip("torch")
    try:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        for way in (*WAYS[:3], WAYS[-1]):
            assert {settings for _, settings in outcome(**way)[1]} == {("torch.float64", True)}
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_torchs_settings_travel() -> None:
    torch = pytest.importorskip("torch")
    usual = arithmetic.arithmetic()
    try:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True, warn_only=True)
        changed = arithmetic.arithmetic()
        arithmetic.take(usual)
        assert torch.get_default_dtype() is torch.float32 and not torch.are_deterministic_algorithms_enabled()
        arithmetic.take(changed)
        assert torch.get_default_dtype() is torch.float64 and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_nobody_imports_torch_for_the_usual_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = arithmetic.arithmetic()
    assert usual == (arithmetic._machine(), b"", {}, {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(arithmetic.importlib, "import_module", pytest.fail)
    arithmetic.take(usual)
    with pytest.raises(pytest.fail.Exception):
        arithmetic.take(usual._replace(torch={"dtype": "float64"}))


def test_a_replacement_computes_as_the_one_that_it_replaces() -> None:
    round_downward()
    with computes().start(executor="processes", workers=3, caller_works=False, recover=Recover(restarts=2)) as run:
        run.tick()
        sums = run.sums.tobytes()
        arithmetic._libc.fesetround(0)  # what counts is how it was when the run started
        killed = run.values("pid")[0]
        os.kill(killed, signal.SIGKILL)
        with pytest.warns(RecoveryWarning):
            run.run(2)
        assert run.sums.tobytes() == sums and killed not in run.values("pid")


MODULE = """
from reactor_rl import Output, Program, Reactor, Timer, reaction
import numpy as np

class Says(Reactor):
    each = Timer(period=1)
    out = Output((), np.float64)

    @reaction(each, effects=out)
    def go(self):
        self.out.set(np.array(3e-310))
"""
SCRIPT = """
import numbers_written_out, torch
from reactor_rl import Program

if __name__ == "__main__":
    torch.set_flush_denormal(True)
    for way in {"executor": "inline"}, {"executor": "processes", "workers": 2, "caller_works": False}:
        program = Program("says")
        program.connect(program.add(numbers_written_out.Says).out, program.output("out"))
        with program.start(**way) as run:
            run.tick()
            print(run.out.tobytes().hex())
"""


@pytest.mark.slow
def test_numbers_in_source_are_read_as_they_are_written(tmp_path: Path) -> None:
    """The caller has imported the module before it changed anything, and no compiled one was kept."""
    pytest.importorskip("torch")
    (tmp_path / "numbers_written_out.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-B", "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    one, other = done.stdout.split()
    assert one == other != "00" * 8
