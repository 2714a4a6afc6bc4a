"""Stable-Baselines3's own tests, with ``ReactorVecEnv`` in the place of ``SubprocVecEnv``, and our trainers in those of theirs.

They are in its source distribution and not in its wheel. ``REACTOR_RL_SB3_CHECKOUT`` names its unpacked folder, or a checkout; if
that is not set, pip is asked for the one of the installed version.
"""

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

pytestmark = pytest.mark.timeout(900)

VEC_ENV_FILES = ["tests/test_vec_envs.py", "tests/test_utils.py"]
"""The others (normalisation, monitors, stacks) build no ``SubprocVecEnv``."""

BUILDS_VEC_ENV = "not make_atari_env and not test_video_recorder and not test_evaluate_vector_env"
"""The last two take half of the time, and build none either."""

VEC_ENV = "stable_baselines3.common.vec_env.subproc_vec_env:SubprocVecEnv"

DQN_FILES = [
    f"tests/test_{name}.py"
    for name in (
        "callbacks", "cnn", "custom_policy", "deterministic", "dict_env", "identity", "logger", "n_step_replay", "predict", "run",
        "save_load", "spaces", "train_eval_mode", "utils",
    )
]  # fmt: skip
DQN = "stable_baselines3.dqn.dqn:DQN"
BUILDS_DQN = (
    "(DQN or dqn or test_eval_callback_logs_are_written_with_the_correct_timestep or test_eval_success_logging or "
    "test_checkpoint_additional_info or test_save_load_no_target_params or test_policy_is_vectorized_obs) "
    "and not test_dict_spaces and not test_multiprocessing"
)
"""Tests that have DQN as a parameter, or say so in their names; and those that say it nowhere but in their code.

The two that are left out take a third of the time, with dicts, of which others are left.
"""

REFUSED = {
    "test_callbacks.py::test_eval_success_logging": "hindsight replay asks the environment for rewards again; it is an actor's",
    "test_save_load.py::test_set_env": "wants the last observation in the model's _last_obs, and it is in an actor",
}
"""What ``SyncDQN`` refuses by design, or keeps elsewhere; and all of ``test_her.py``, which is of hindsight replay."""

CONTINUOUS_FILES = [
    f"tests/test_{name}.py" for name in ("custom_policy", "deterministic", "n_step_replay", "predict", "run", "train_eval_mode")
]
"""Files whose tests of SAC and TD3 take less than four seconds together; images, dicts, spaces and saved files take longer."""
CONTINUOUS = {"stable_baselines3.sac.sac:SAC": "one_actor:HostSyncSAC", "stable_baselines3.td3.td3:TD3": "one_actor:HostSyncTD3"}
BATCH_NORM = "statistics of batch normalisation in SAC's actor would see next observations before observations"
CONTINUOUS_REFUSED = {
    "test_run.py::test_offpolicy_multi_env[SAC]": "state-dependent noise: the policy would draw it, and the trainer does",
    "test_train_eval_mode.py::test_sac_train_with_batch_norm": BATCH_NORM,
    "test_train_eval_mode.py::test_offpolicy_collect_rollout_batch_norm[SAC]": BATCH_NORM,
    "test_train_eval_mode.py::test_predict_with_dropout_batch_norm[Pendulum-v1-SAC]": BATCH_NORM,
}
"""What ``SyncSAC`` refuses by design, in those files."""


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SB3's source."""
    named = os.environ.get("REACTOR_RL_SB3_CHECKOUT")
    if named:
        return Path(named).absolute()
    try:
        version = importlib.metadata.version("stable-baselines3")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("Stable-Baselines3 is not installed")
    folder = tmp_path_factory.mktemp("sb3")
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1", "--timeout", "15", "--no-deps",
        "--no-binary", "stable-baselines3", "--dest", str(folder), f"stable-baselines3=={version}",
    ]  # fmt: skip
    advice = "set REACTOR_RL_SB3_CHECKOUT to the source of Stable-Baselines3 to run its tests without a network"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip did not get the source of Stable-Baselines3 {version} in time; {advice}")
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        pytest.skip(f"pip cannot get the source of Stable-Baselines3 {version} ({reason}); {advice}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.glob("*/tests")
    return source.parent


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


def test_their_vector_environment_tests_pass(checkout: Path, tmp_path: Path) -> None:
    check(checkout, tmp_path, {VEC_ENV: "reactor_sb3:ReactorVecEnv"}, 25, "-k", BUILDS_VEC_ENV, *VEC_ENV_FILES)


def without(checkout: Path, refused: dict[str, str]) -> list[str]:
    """Options that leave out tests, all of which there are."""
    for name in refused:
        file, _, function = name.partition("[")[0].partition("::")
        assert f"def {function}(" in (checkout / "tests" / file).read_text(), f"they have no {name}"
    return [f"--deselect=tests/{name}" for name in refused]


def test_their_dqn_tests_pass(checkout: Path, tmp_path: Path) -> None:
    refused = without(checkout, REFUSED)
    check(checkout, tmp_path, {DQN: "one_actor:HostSyncDQN"}, 50, "-k", BUILDS_DQN, *refused, *DQN_FILES)


def test_their_sac_and_td3_tests_pass(checkout: Path, tmp_path: Path) -> None:
    refused = without(checkout, CONTINUOUS_REFUSED)
    check(checkout, tmp_path, CONTINUOUS, 31, "-k", "SAC or sac or TD3 or td3", *refused, *CONTINUOUS_FILES)
