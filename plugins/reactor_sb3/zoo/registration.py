"""What ``rl_zoo3`` is told, all of it in tables and one attribute of its own, but for the place of hyperparameters."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

from rl_zoo3 import ALGOS
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.hyperparams_opt import HYPERPARAMS_CONVERTER, HYPERPARAMS_SAMPLER
from stable_baselines3.common.vec_env import DummyVecEnv

from reactor_sb3.algorithms.pqn import PQN
from reactor_sb3.algorithms.sync_dqn import SyncDQN
from reactor_sb3.algorithms.sync_ppo import SyncPPO
from reactor_sb3.algorithms.sync_sac import SyncSAC
from reactor_sb3.algorithms.sync_td3 import SyncTD3
from reactor_sb3.contrib import SyncCrossQ, SyncMaskablePPO, SyncQRDQN, SyncRecurrentPPO, SyncTQC
from reactor_sb3.environments.vec_env import ReactorVecEnv
from reactor_sb3.trainers.trainer import Trainer
from reactor_sb3.zoo.search import convert_pqn, sample_pqn

__all__ = ["TRAINERS", "register"]

TRAINERS: dict[str, type[Trainer]] = {
    "pqn": PQN, "sync_dqn": SyncDQN, "sync_ppo": SyncPPO, "sync_sac": SyncSAC, "sync_td3": SyncTD3,
    "sync_qrdqn": SyncQRDQN, "sync_tqc": SyncTQC, "sync_crossq": SyncCrossQ,
    "sync_ppo_mask": SyncMaskablePPO, "sync_ppo_lstm": SyncRecurrentPPO,
}  # fmt: skip
"""The trainers by the names that ``--algo`` knows them by."""


def register() -> None:
    """Tell ``rl_zoo3`` of the vector environment and the trainers. Importing :mod:`reactor_sb3.zoo` does it; again is harmless."""
    ExperimentManager.default_vec_env_cls = ReactorVecEnv
    ALGOS.update(TRAINERS)
    for name in TRAINERS:
        like = name.removeprefix("sync_")
        HYPERPARAMS_SAMPLER[name] = HYPERPARAMS_SAMPLER.get(like, sample_pqn)
        HYPERPARAMS_CONVERTER[name] = HYPERPARAMS_CONVERTER.get(like, convert_pqn)
    plain = ExperimentManager.read_hyperparameters
    if hasattr(plain, "__wrapped__"):
        return

    @wraps(plain)
    def read_hyperparameters(self: ExperimentManager) -> Any:
        if self.algo in TRAINERS:
            # Actors have copies of these environments, and nobody steps the originals: they need no workers.
            self.vec_env_class = DummyVecEnv
            if not Path(self.config).exists() and Path(self.config).name == f"{self.algo}.yml":  # nobody has named another
                self.config = f"reactor_sb3.zoo.hyperparams.{self.algo}"
        return plain(self)

    ExperimentManager.read_hyperparameters = read_hyperparameters
