"""A training by one of SB3's own algorithms that is killed and resumed ends as one that was never interrupted."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from saved_runs import EVERY, STEPS, Forgetful, envs, flat, new, normalized, outcome
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from reactor_rl import RunError
from reactor_sb3 import ReactorVecEnv, SaveRun, SyncDQN, SyncPPO, resume_run
from reactor_sb3.checkpoints.archive import CorruptError

CHILD = Path(__file__).parents[1] / "saved_runs.py"
pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("one_thread")]


def finished(model: Any) -> Any:
    seen = flat(outcome(model))
    model.env.close()
    return seen


@cache
def uninterrupted(name: str) -> Any:
    return finished(new(name).learn(STEPS))


class Ends(BaseCallback):
    """Ends a training within a rollout."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        return self.num_timesteps < self.at


def interrupted(name: str, path: Path, at: int = 170, every: int = EVERY) -> None:
    model = new(name).learn(STEPS, callback=[SaveRun(path, every), Ends(at)])
    model.env.close()
    # What is drawn afterwards must be the run's own.
    random.seed(5), np.random.seed(5), torch.manual_seed(5)


@pytest.fixture(scope="module")
def ppo_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("run") / "run.zip"
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as all tests here have
    interrupted("PPO", path)
    torch.set_num_threads(before)
    return path


@pytest.mark.slow
def test_killed_and_resumed_is_uninterrupted(tmp_path: Path) -> None:
    names = ["PPO", "DQN", "SAC"]
    command = [sys.executable, str(CHILD), str(tmp_path), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout is not None
        try:
            for name, pid in zip(names, child.stdout.readline().split(), strict=True):
                while not (tmp_path / f"{name}.zip").exists():
                    assert child.poll() is None
                    time.sleep(0.002)
                time.sleep(random.random() * 0.1)  # wherever it is then
                os.kill(int(pid), signal.SIGKILL)
            assert child.stdout.readline().split() == [str(int(signal.SIGKILL))] * 3
        finally:
            os.killpg(child.pid, signal.SIGKILL)
    for name in names:
        with resume_run(tmp_path / f"{name}.zip", executor="inline") as run:
            assert 0 < run.model.num_timesteps <= STEPS
            assert flat(outcome(run.learn())) == uninterrupted(name), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PPO, drawn noise", "A2C", "TD3"])
def test_interrupted_twice_and_resumed_is_uninterrupted(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    interrupted(name, path)
    first = resume_run(path)
    assert 100 <= first.model.num_timesteps < 170
    first.learn([SaveRun(path, EVERY), Ends(240)])
    first.close()
    second = resume_run(path)
    assert 200 <= second.model.num_timesteps < 240
    assert second.remaining_timesteps == STEPS - second.model.num_timesteps
    assert finished(second.learn(lambda *_: True)) == uninterrupted(name)


@pytest.mark.slow
def test_it_goes_on_in_other_places_and_in_environments_that_are_given(ppo_file: Path) -> None:
    with resume_run(ppo_file, workers=2, executor="processes") as run:
        venv = run.model.get_env().unwrapped
        assert isinstance(venv, ReactorVecEnv) and (venv.workers, venv.executor) == (2, "processes")
        assert flat(outcome(run.learn())) == uninterrupted("PPO")
        assert run.remaining_timesteps == 0 and run.learn().num_timesteps == run.model.num_timesteps
    env = normalized()
    run = resume_run(ppo_file, env)
    assert run.model.get_env() is env
    assert finished(run.learn()) == uninterrupted("PPO")


def test_only_the_filled_part_of_a_replay_buffer_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    interrupted("SAC", path, at=80)
    with resume_run(path, executor="inline") as run:
        assert run.model.replay_buffer.pos == 25 and len(run.model.replay_buffer.actions) == 500
    assert path.stat().st_size < 100_000


def test_what_cannot_be_saved_is_refused_when_the_training_begins(tmp_path: Path) -> None:
    path = tmp_path / "run.zip"

    def refused(model: Any, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            model.learn(64, callback=SaveRun(path))
        model.env.close()
        assert not path.exists()

    def ppo(env: Any) -> Any:
        return PPO("MlpPolicy", env, n_steps=16, batch_size=16, device="cpu")

    refused(
        ppo(VecNormalize(envs("CartPole-v1", DummyVecEnv))), TypeError, "of a DummyVecEnv cannot be saved .* make a ReactorVecEnv"
    )
    forgetful: list[Callable[[], Any]] = [lambda: Forgetful(gymnasium.make("CartPole-v1"))]
    refused(
        ppo(ReactorVecEnv(forgetful, executor="inline")), RunError, "environment 0 of ReactorVecEnv .* exactly: another one into"
    )
    trainer = SyncPPO("MlpPolicy", "CartPole-v1", n_actors=1, n_steps=16, batch_size=16, device="cpu", executor="inline")
    with trainer, pytest.raises(TypeError, match="for SyncPPO there is SaveCheckpoint"):
        trainer.learn(64, callback=SaveRun(path))
    for wrong, match in (({"every": 0}, "every"), ({"on_error": "no"}, 'choose "warn" or "raise"')):
        with pytest.raises(ValueError, match=match):
            SaveRun(path, **wrong)  # type: ignore[arg-type]


def with_threads(source: Path, path: Path, threads: Any) -> Path:
    """The file, as where torch had so many threads."""
    with zipfile.ZipFile(source) as whole, zipfile.ZipFile(path, "w") as changed:
        for name in whole.namelist():
            data = whole.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                (pair,) = [pair for pair in manifest["state"]["dict"] if pair[0] == "threads"]
                assert pair[1]["is"] >= 1
                pair[1] = {"is": threads}
                data = json.dumps(manifest).encode()
            changed.writestr(name, data)
    return path


def test_another_number_of_threads_is_a_warning(ppo_file: Path, tmp_path: Path) -> None:
    """It names both, and the call that brings the first one back; who makes that gets none."""
    path = with_threads(ppo_file, tmp_path / "run.zip", threads=2)
    says = r"run.zip was written where torch had 2 threads, and here it has 1: .* torch.set_num_threads\(2\) before run.learn\(\)"
    with pytest.warns(UserWarning, match=says) as given:
        resume_run(path).close()
    assert [Path(one.filename).name for one in given] == [Path(__file__).name]
    torch.set_num_threads(2)
    resume_run(path).close()


def test_what_cannot_have_been_saved_is_refused(ppo_file: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match=r"state\.threads must be a whole number from 0 on, got '2'"):
        resume_run(with_threads(ppo_file, tmp_path / "run.zip", threads="2"))


def test_what_cannot_be_resumed_is_refused(ppo_file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        resume_run(tmp_path / "nothing.zip")
    with pytest.raises(TypeError, match="cannot change seed"):
        resume_run(ppo_file, seed=1)
    with pytest.raises(ValueError, match=r"wrappers .* were VecFrameStack of VecNormalize of VecMonitor, and here they are none"):
        resume_run(ppo_file, envs("CartPole-v1"))
    with pytest.raises(ValueError, match="there are 3 environments, and the run that was saved has 2"):
        resume_run(ppo_file, normalized(3))
    with pytest.raises(ValueError, match=r"this is the state of .*CartPoleEnv, it cannot be put into .*AcrobotEnv"):
        resume_run(ppo_file, normalized(env_id="Acrobot-v1"))
    with pytest.raises(TypeError, match="of a DummyVecEnv cannot be saved"):
        resume_run(ppo_file, VecNormalize(envs("CartPole-v1", DummyVecEnv)))
    data = ppo_file.read_bytes()
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="damaged"):
        resume_run(damaged)
    middle = len(data) // 2
    damaged.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with pytest.raises(ValueError, match="damaged"):
        resume_run(damaged)


def test_files_of_other_kinds_say_what_they_are(ppo_file: Path, tmp_path: Path) -> None:
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=1, device="cpu", executor="inline") as trainer:
        trainer.save_checkpoint(tmp_path / "trainer.zip")
        trainer.save(tmp_path / "weights.zip")
    with pytest.raises(ValueError, match=r"is a checkpoint of SyncDQN: use SyncDQN.resume\(\)"):
        resume_run(tmp_path / "trainer.zip")
    with pytest.raises(ValueError, match=r"was written by save\(\)"):
        resume_run(tmp_path / "weights.zip")
    with pytest.raises(ValueError, match=r"is a checkpoint of PPO: use resume_run\(\)"):
        SyncPPO.resume(ppo_file)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.zip"
    interrupted("A2C", path, at=70)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    model = new("A2C")
    with pytest.warns(UserWarning, match="could not be written .no space. .* tries again in 50 steps"):
        model.learn(70, callback=SaveRun(path, EVERY))
    model.env.close()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.zip"]
