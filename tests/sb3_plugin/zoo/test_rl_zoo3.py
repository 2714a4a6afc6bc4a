"""The scripts of RL Zoo, run as its users run them, where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from stable_baselines3 import PPO

from reactor_sb3 import ALGORITHMS, Algorithm, SyncPPO

if importlib.util.find_spec("rl_zoo3") is None:  # importing it would change Gymnasium for all other tests
    pytest.skip("rl_zoo3 is not installed", allow_module_level=True)

MASKED = "Masked-v0"
SHORT = ["-n", "512", "--eval-freq", "256", "--eval-episodes", "1", "--seed", "1", "--device", "cpu", "--num-threads", "1"]


def script(folder: Path, *arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "-f", "logs"], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode != 0) is fails, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_ppo_has_the_weights_that_it_has_without_us(tmp_path: Path) -> None:
    train = ["rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1", *SHORT]
    script(tmp_path, *train)
    script(tmp_path, *train, "--gym-packages", "reactor_sb3.zoo", "--vec-env", "subproc")
    theirs, ours = (PPO.load(tmp_path / "logs" / "ppo" / f"CartPole-v1_{run}" / "CartPole-v1.zip") for run in (1, 2))
    of_ours = ours.policy.state_dict()
    assert all(torch.equal(weights, of_ours[name]) for name, weights in theirs.policy.state_dict().items())
    assert "Mean reward" in script(
        tmp_path, "rl_zoo3.enjoy", "--env", "CartPole-v1", "--gym-packages", "reactor_sb3.zoo", "--no-render", "-n", "200"
    )


@pytest.mark.timeout(400)
def test_a_trainer_trains_and_plays(tmp_path: Path) -> None:
    told = ["--algo", "sync_ppo", "--env", "CartPole-v1"]
    said = script(tmp_path, "reactor_sb3.zoo", "train", *told, *SHORT)
    assert "Eval num_timesteps=512" in said and "n_envs', 8" in said
    model = SyncPPO.load(tmp_path / "logs" / "sync_ppo" / "CartPole-v1_1" / "CartPole-v1.zip")
    assert model.num_timesteps == 512 and model.n_actors == 8
    assert "Mean reward" in script(tmp_path, "reactor_sb3.zoo", "enjoy", *told, "--no-render", "-n", "200")


@pytest.mark.timeout(400)
def test_a_search_ends_its_workers(tmp_path: Path) -> None:
    count = tmp_path / "search.py"
    count.write_text(
        "import multiprocessing, reactor_sb3.zoo\nfrom rl_zoo3.train import train\n"
        "train()\nprint('left over:', len(multiprocessing.active_children()))"
    )
    optimize = ["-optimize", "--n-trials", "2", "--n-evaluations", "1", "--no-optim-plots", "--eval-episodes", "1"]
    done = subprocess.run(
        [
            sys.executable, "search.py", "--algo", "sync_dqn", "--env", "CartPole-v1", *SHORT, *optimize,
            "-params", "n_envs:2", "workers:2", "executor:'processes'",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Number of finished trials:  2" in done.stdout and "left over: 0" in done.stdout


def env_of(row: Algorithm) -> list[str]:
    """An environment for it, and where it is found."""
    return ["--env", MASKED, "--gym-packages", "masked"] if row.masks else ["--env", row.env]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("row", ALGORITHMS.values(), ids=lambda row: str(row.key))
def test_every_trainer_trains_and_is_searched(row: Algorithm, tmp_path: Path) -> None:
    (tmp_path / "masked.py").write_text(
        f"import gymnasium\ngymnasium.register({MASKED!r}, 'sb3_contrib.common.envs:InvalidActionEnvDiscrete')\n"
    )
    told = ["train", "--algo", row.key, *env_of(row), *SHORT]
    if row.masks:  # of which the zoo has no settings for environments that it does not know
        told += ["--conf-file", str(settings_of(row, tmp_path))]
    assert "Eval num_timesteps" in script(tmp_path, "reactor_sb3.zoo", *told)
    search = ["-optimize", "--n-trials", "1", "--n-evaluations", "1", "--pruner", "none", "--no-optim-plots", "-params", "n_envs:2"]
    assert "Number of finished trials:  1" in script(tmp_path, "reactor_sb3.zoo", *told, *search)


def settings_of(row: Algorithm, folder: Path) -> Path:
    file = folder / "settings.py"
    file.write_text(f"hyperparams = {{{MASKED!r}: {{'n_timesteps': 512, 'n_envs': 2, 'n_steps': 64, 'policy': {row.policy!r}}}}}\n")
    return file


def test_what_rounds_cannot_give_is_refused(tmp_path: Path) -> None:
    told = ["train", "--algo", "sync_td3", "--env", "Pendulum-v1", *SHORT]
    episodes = script(tmp_path, "reactor_sb3.zoo", *told, "-params", "train_freq:(1, 'episode')", fails=True)
    assert "train_freq in episodes would make rounds of changing length" in episodes
