"""A plugin whose host library is not installed says which extra brings it; the extras exist, and bring it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BLOCKED = """
import sys

sys.modules[{missing!r}] = None  # it is not to be found
{before}
try:
    {code}
except ImportError as error:
    print(error)
else:
    print("nothing was missing")
"""

PLOT = "Report = reactor_pettingzoo.Report; r = Report.__new__(Report); r.__dict__['episodes'] = (1,); r.plot('x.png')"

CASES = [
    ("gymnasium", "gymnasium", "import reactor_gymnasium", ""),
    ("gymnasium", "sb3", "import reactor_sb3", ""),
    ("stable_baselines3", "sb3", "import reactor_sb3", ""),
    ("torch", "sb3", "import reactor_sb3", ""),
    ("pettingzoo", "pettingzoo", "import reactor_pettingzoo", ""),
    ("torch", "pettingzoo", "import reactor_pettingzoo", ""),
    ("ale_py", "atari", "AtariVectorEnv('pong', 2)", "from reactor_gymnasium import AtariVectorEnv"),
    ("cv2", "atari", "AtariVectorEnv('pong', 2, img_height=42, executor='inline')", "from reactor_gymnasium import AtariVectorEnv"),
    ("matplotlib", "pettingzoo", PLOT, "import reactor_pettingzoo"),
    ("sb3_contrib", "contrib", "from reactor_sb3 import SyncTQC", "import reactor_sb3"),
    ("optuna", "sweep", "sweep(print, {})", "from reactor_sb3 import sweep"),
    ("onnx", "export", "export(SyncPPO('MlpPolicy', 'CartPole-v1'), 'policy.onnx')", "from reactor_sb3 import SyncPPO, export"),
    ("av", "watch", "SyncDQN('MlpPolicy', 'CartPole-v1', watch='run.gif')", "from reactor_sb3 import SyncDQN"),
]
"""What is missing, the extra that brings it, what a user does, and what went before."""

DISTRIBUTION = {
    "stable_baselines3": "stable-baselines3",
    "sb3_contrib": "sb3-contrib",
    "ale_py": "ale-py",
    "cv2": "opencv-python-headless",
}


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "extra", "code", "before"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_what_is_missing_names_its_extra(missing: str, extra: str, code: str, before: str, tmp_path: Path) -> None:
    for name in dict.fromkeys([before.partition("import ")[0].removeprefix("from ").strip() or "numpy", missing]):
        pytest.importorskip(name)
    script = BLOCKED.format(missing=missing, code=code, before=before)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert f"needs {missing}, which is not installed" in done.stdout, done.stdout
    assert f"[{extra}]" in done.stdout


# The last one is what the zoo's --optimize writes its report with, and asks for after its last trial.
@pytest.mark.parametrize(("missing", "extra"), [*(case[:2] for case in CASES), ("pandas", "zoo")])
def test_that_extra_brings_it(missing: str, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def brought(name: str) -> set[str]:
        wanted = project["optional-dependencies"][name]
        names = {one.partition(">=")[0].strip() for one in wanted}
        inner = {one for name in names if name.startswith("reactor-rl[") for one in name[11:-1].split(",")}
        return names.union(*(brought(one) for one in inner))

    assert DISTRIBUTION.get(missing, missing) in brought(extra)
