"""The comparison with Python finds kernels in which one operation was changed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.native import compiled, guards, takeover
from tests.gymnasium_plugin.native.cases import pair, walk

COMPILER = shutil.which("gcc") or shutil.which("cc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
    pytest.mark.skipif(COMPILER is None or compiled.missing() is not None, reason="there is no C compiler"),
]

HERE = Path(__file__).parents[3] / "plugins" / "reactor_gymnasium" / "native"  # wheels have no sources

MUTANTS = [
    ("CartPole-v1", "polemass_length * thetaacc * c / total", "polemass_length * (thetaacc * c) / total"),
    ("CartPole-v1", "th[i] = th[i] + tau * v", "th[i] = th[i] + tau * thd[i] * 1.0000000000000002"),
    ("CartPole-v0", "x < -far || x > far", "x < -far"),
    ("Pendulum-v1", "0.1 * pow(thdot, exponent)", "0.1 * (thdot * thdot * 1.0000000000000002)"),
    ("MountainCar-v0", "kind = STOPPED", "kind = PAIR"),
    ("Acrobot-v1", "s[1] = wrapped(s[1], p[PI])", "s[1] = s[1]"),
    ("FrozenLake-v1", "cumulated[k] > x", "cumulated[k] > x * x"),
    ("Taxi-v4", "b->probs[i] = 1.0", "b->probs[i] = 0.5"),
    ("Taxi, rainy and fickle", "row[FICKLE] = 0", "row[FICKLE] = 1"),
    ("Blackjack-v1", "total(dealer) < 17", "total(dealer) < 18"),
    ("CartPole-v1", "--left[i] <= 0", "--left[i] < 0"),
]


def mutant(folder: Path, old: str, new: str) -> Any:
    found = 0
    shutil.copytree(HERE.parent / "include", folder / "include")
    folder /= "native"
    folder.mkdir()
    for source in (*HERE.glob("_*.h"), HERE / "_kernels.c"):
        text = source.read_text()
        found += old in text
        (folder / source.name).write_text(text.replace(old, new))
    if not found:
        pytest.fail(f"{old!r} stands in no source")
    built = folder / "_kernels.so"
    command = [
        str(COMPILER),
        "-shared",
        "-fPIC",
        "-O2",
        "-ffp-contract=off",
        f"-I{sysconfig.get_path('include')}",
        "-I",
        str(folder),
    ]
    subprocess.run([*command, str(folder / "_kernels.c"), "-o", str(built), "-lm"], check=True, timeout=120)
    loader = ExtensionFileLoader("_kernels", str(built))
    spec = importlib.util.spec_from_loader("_kernels", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(("case", "old", "new"), MUTANTS)
def test_a_mutant_is_found(case: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_kernels", mutant(tmp_path, old, new))
    monkeypatch.setattr(guards, "compared", lambda *args: None)  # or it would not be used at all
    monkeypatch.setattr(takeover, "AT_ONCE", 1)  # a kernel takes over again soon after states were compared
    guards._untrue.cache_clear()
    ours, theirs = pair(case, AutoresetMode.SAME_STEP)
    try:
        with pytest.raises(AssertionError):
            for _ in walk(case, ours, theirs, AutoresetMode.SAME_STEP, 1200, 3, look=5):
                pass
    finally:
        guards._untrue.cache_clear()
        ours.close()
        theirs.close()
