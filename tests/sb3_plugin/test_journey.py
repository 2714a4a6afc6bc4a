"""One update of ``SyncSAC``, split and with gradient workers, executes few files: a reader can follow it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from stable_baselines3.common.callbacks import BaseCallback

import reactor_sb3
import reactor_torch
from reactor_sb3 import SyncSAC

FOLDERS = tuple(str(Path(str(package.__file__)).parent) for package in (reactor_sb3, reactor_torch))
MOST = 15


class Journey(BaseCallback):
    """Notes which files execute from when the second minibatch of a round is sampled until the third one is."""

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()
        self.sampled = 0

    def _on_rollout_start(self) -> None:
        sys.setprofile(self._called)

    def _on_step(self) -> bool:
        sys.setprofile(None)
        return True

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(FOLDERS):
            return
        self.sampled += frame.f_code.co_name == "sample" and "replay" in file
        if self.sampled == 2:
            self.files.add(file)


@pytest.mark.timeout(120)
def test_an_update_executes_few_files() -> None:
    with SyncSAC(
        "MlpPolicy", "Pendulum-v1", train_freq=8, gradient_steps=3, learning_starts=8, batch_size=16, split=True, n_learners=2,
        policy_kwargs={"net_arch": [8]}, seed=0, executor="inline",
    ) as model:  # fmt: skip
        model.learn(8)
        updates = model.n_updates
        model.learn(8, callback=(journey := Journey()), reset_num_timesteps=False)
        assert journey.sampled == 3 and model.n_updates == updates + 3
    opened = sorted(str(Path(file).relative_to(Path(FOLDERS[0]).parent)) for file in journey.files)
    assert 1 < len(opened) <= MOST, "\n".join(opened)
