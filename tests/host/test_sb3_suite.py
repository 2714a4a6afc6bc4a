"""Stable-Baselines3's own tests, with ``ReactorVecEnv`` in the place of ``SubprocVecEnv``, and our trainers in those of theirs.

They are in its source distribution and not in its wheel. ``REACTOR_RL_SB3_CHECKOUT`` names its unpacked folder, or a checkout; if
that is not set, pip is asked for the one of the installed version.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from suites import check, source_of, without

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
    "test_save_load.py::test_set_env": "wants the last observation in the model's _last_obs, and it is in an actor",
}
"""What ``SyncDQN`` refuses by design, or keeps elsewhere."""

CONTINUOUS_FILES = [
    f"tests/test_{name}.py" for name in ("custom_policy", "deterministic", "n_step_replay", "predict", "run", "train_eval_mode")
]
"""Files whose tests of SAC and TD3 take less than four seconds together; images, dicts, spaces and saved files take longer."""
CONTINUOUS = {f"stable_baselines3.{name.lower()}.{name.lower()}:{name}": f"one_actor:HostSync{name}" for name in ("SAC", "TD3")}
BATCH_NORM = "statistics of batch normalisation in SAC's actor would see next observations before observations"
CONTINUOUS_REFUSED = {
    "test_train_eval_mode.py::test_sac_train_with_batch_norm": BATCH_NORM,
    "test_train_eval_mode.py::test_offpolicy_collect_rollout_batch_norm[SAC]": BATCH_NORM,
    "test_train_eval_mode.py::test_predict_with_dropout_batch_norm[Pendulum-v1-SAC]": BATCH_NORM,
}
"""What ``SyncSAC`` refuses by design, in those files."""

OTHER_FILES = [
    f"tests/test_{name}.py"
    for name in (
        "callbacks", "custom_policy", "deterministic", "dict_env", "gae", "identity", "logger", "predict", "run", "save_load",
        "sde", "spaces", "train_eval_mode",
    )
]  # fmt: skip
OTHERS = {"stable_baselines3.a2c.a2c:A2C": "one_actor:HostSyncA2C", "stable_baselines3.ddpg.ddpg:DDPG": "one_actor:HostSyncDDPG"}
BUILDS_OTHERS = "(A2C or a2c or DDPG or ddpg) and not test_dict_spaces and not test_multiprocessing"
SAMPLES = "calls collect_rollouts() itself, and actors sample"
SEEDED = "ends above a threshold with this seed and SB3's own order of draws; with other seeds SB3's own class does not either"
OTHERS_REFUSED = {
    "test_callbacks.py::test_callbacks[A2C]": "is stopped in the middle of a round, which counts as a whole one",
    "test_dict_env.py::test_consistency[DDPG]": "a dict's networks learn by autograd, whose last bits are not the extension's",
    "test_dict_env.py::test_dict_vec_framestack[False-DDPG]": "learning_starts is beyond what the replay buffer can hold",
    "test_dict_env.py::test_dict_vec_framestack[True-DDPG]": "learning_starts is beyond what the replay buffer can hold",
    "test_identity.py::test_discrete[env1-A2C]": SEEDED,
    "test_identity.py::test_discrete[env2-A2C]": SEEDED,
    "test_save_load.py::test_set_env[A2C]": REFUSED["test_save_load.py::test_set_env"],
    "test_save_load.py::test_set_env[DDPG]": REFUSED["test_save_load.py::test_set_env"],
    "test_train_eval_mode.py::test_a2c_ppo_collect_rollouts_with_batch_norm[Pendulum-v1-A2C]": SAMPLES,
    "test_train_eval_mode.py::test_a2c_ppo_collect_rollouts_with_batch_norm[CartPole-v1-A2C]": SAMPLES,
}
"""The same of ``SyncA2C`` and ``SyncDDPG``."""


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SB3's source."""
    return source_of("stable-baselines3", "REACTOR_RL_SB3_CHECKOUT", tmp_path_factory.mktemp("sb3"))


def test_their_vector_environment_tests_pass(checkout: Path, tmp_path: Path) -> None:
    check(checkout, tmp_path, {VEC_ENV: "reactor_sb3:ReactorVecEnv"}, 25, "-k", BUILDS_VEC_ENV, *VEC_ENV_FILES)


def test_their_dqn_tests_pass(checkout: Path, tmp_path: Path) -> None:
    refused = without(checkout, REFUSED)
    check(checkout, tmp_path, {DQN: "one_actor:HostSyncDQN"}, 50, "-k", BUILDS_DQN, *refused, *DQN_FILES)


def test_their_hindsight_tests_pass(checkout: Path, tmp_path: Path) -> None:
    classes = {DQN: "one_actor:HostSyncDQN", **CONTINUOUS, **OTHERS}
    check(checkout, tmp_path, classes, 20, "-k", "not performance and not multiprocessing", "tests/test_her.py")


def test_their_sac_and_td3_tests_pass(checkout: Path, tmp_path: Path) -> None:
    refused = without(checkout, CONTINUOUS_REFUSED)
    check(checkout, tmp_path, CONTINUOUS, 31, "-k", "SAC or sac or TD3 or td3", *refused, *CONTINUOUS_FILES)


def test_their_a2c_and_ddpg_tests_pass(checkout: Path, tmp_path: Path) -> None:
    refused = without(checkout, OTHERS_REFUSED)
    check(checkout, tmp_path, OTHERS, 90, "-k", BUILDS_OTHERS, *refused, *OTHER_FILES)
