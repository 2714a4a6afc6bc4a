"""Torch's number of threads changes no weights: neither the first ones nor what is learned, whoever sets it and when."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback

from reactor_sb3 import PQN, SyncDQN

pytestmark = pytest.mark.usefixtures("small_blocks")


class Sets(BaseCallback):
    """Sets torch's threads in the middle of the training."""

    def _on_step(self) -> bool:
        torch.set_num_threads(1 + self.n_calls % 3)
        return True


@pytest.mark.parametrize(("algorithm", "length"), [(PQN, "n_steps"), (SyncDQN, "train_freq")])
def test_torch_threads_change_no_weights(algorithm: Any, length: str) -> None:
    before, found = torch.get_num_threads(), set()
    try:
        for threads, callback in [(1, None), (2, None), (4, Sets())]:
            torch.set_num_threads(threads)
            with algorithm(
                "MlpPolicy", "CartPole-v1", n_actors=2, seed=0, executor="inline", policy_kwargs={"net_arch": [256, 256]},
                **{length: 16},
            ) as model:  # fmt: skip
                first = model.fingerprint()
                model.learn(192, callback=callback)
                found.add((first, model.fingerprint()))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1
