"""Gymnasium's own tests of vector environments, with ``ReactorVectorEnv`` in the place of ``AsyncVectorEnv``.

They are not in Gymnasium's wheel. Set ``REACTOR_RL_GYMNASIUM_CHECKOUT`` to a checkout of its repository.
"""

from __future__ import annotations

import functools
import itertools
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


OWN_WORDS = {
    "test_async_vector_subenv_error": "one bug is one line that names its environments, where it has a line for each worker"
}
"""Tests of what the log says, which ours says otherwise on purpose."""


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
    failed = [name for name in failed if name.rpartition("::")[2].partition("[")[0] not in OWN_WORDS]
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= at_least, f"ours was built in {len(passed)} tests that passed"


def test_a_class_that_is_wrong_fails_them(tmp_path: Path) -> None:
    """The runner can tell: Gymnasium's for-loop in the place of its processes does not pass."""
    found = run(["tests/vector/test_async_vector_env.py"], tmp_path, "gymnasium.vector.sync_vector_env:SyncVectorEnv")
    assert failures(found)


# ---------------------------------------------------------------------- shards that step their rows by themselves

NOT_OF_SHARDS = {
    "test_obs_mode_different_different_spaces": "shards have one observation space",
    "test_custom_space_async_vector_env_shared_memory": "there is no shared_memory that could refuse a space",
    "test_async_vector_subenv_error": "steps before the first reset",
}
"""Tests of what ``ReactorVectorEnv.of`` does not promise."""


def test_gymnasiums_own_tests_pass_with_shards(tmp_path: Path) -> None:
    """With ``ReactorVectorEnv.of`` of Gymnasium's own ``SyncVectorEnv``, of about half of the environments each."""
    found = run(["tests/vector"], tmp_path, "test_gymnasium_suite:Halves")
    failed = [name for name in failures(found) if name.rpartition("::")[2].partition("[")[0] not in NOT_OF_SHARDS]
    if failed:
        alone = run(failed, tmp_path, "gymnasium.vector.async_vector_env:AsyncVectorEnv")
        failed = sorted(set(failed) - set(failures(alone)))
    assert failed == [], found["output"]
    passed = [name for name in found["built"] if found["outcomes"][name] == "passed"]
    assert len(passed) >= 130, f"ours was built in {len(passed)} tests that passed"


try:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from reactor_gymnasium.vector.joined import JoinedVectorEnv
except ImportError:
    pass
else:

    class Halves(JoinedVectorEnv):
        """Two ``SyncVectorEnv`` with the parameters of ``AsyncVectorEnv``; calls are of single environments, as there."""

        def __init__(
            self, env_fns: Any, shared_memory: bool = True, copy: bool = True, context: Any = None, daemon: bool = True,
            worker: Any = None, observation_mode: Any = "same", autoreset_mode: Any = AutoresetMode.NEXT_STEP,
        ) -> None:  # fmt: skip
            env_fns = list(env_fns)
            half = (len(env_fns) + 1) // 2
            options = {"observation_mode": observation_mode, "autoreset_mode": autoreset_mode}
            parts = [part for part in (env_fns[:half], env_fns[half:]) if part]
            super().__init__(
                [functools.partial(SyncVectorEnv, part, **options) for part in parts], copy=copy, executor="threads", workers=2
            )

        def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            return tuple(itertools.chain(*super().call("call", name, *args, **kwargs)))

        _set_one = staticmethod(SyncVectorEnv.set_attr)

        def set_attr(self, name: str, values: Any) -> None:
            values = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
            super().set_attr(name, [values[lo:hi] for lo, hi in itertools.pairwise(self.bounds)])
