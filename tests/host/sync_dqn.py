"""``SyncDQN`` as Stable-Baselines3's own tests use ``DQN``: with one environment, unless they hand over a vector environment."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3 import SyncDQN


class HostSyncDQN(SyncDQN):
    """One actor where ``SyncDQN`` would have eight, in this process; with a vector environment nothing is different."""

    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("executor", "inline")
        kwargs.setdefault("n_actors", None if isinstance(env, VecEnv) else 1)
        super().__init__(policy, env, *args, **kwargs)
