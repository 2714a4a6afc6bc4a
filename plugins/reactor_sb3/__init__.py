"""Stable-Baselines3 on reactor programs: the same weights on any number of cores."""

from reactor_rl.extras import needs
from reactor_rl.runtime.launch import preload

with needs("sb3", "reactor_sb3"):
    from reactor_sb3.callbacks import SaveCheckpoint, StopOnEvaluation
    from reactor_sb3.from_vector_env import from_vector_env
    from reactor_sb3.pqn import PQN
    from reactor_sb3.sync_dqn import SyncDQN
    from reactor_sb3.vec_env import ReactorVecEnv

__all__ = ["PQN", "ReactorVecEnv", "SaveCheckpoint", "StopOnEvaluation", "SyncDQN", "from_vector_env"]

preload("stable_baselines3.common.monitor", "stable_baselines3.common.vec_env", "reactor_sb3.vec_env", "reactor_sb3.evaluator")
