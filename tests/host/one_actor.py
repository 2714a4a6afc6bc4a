"""Our trainers as SB3's own tests use its algorithms: with one environment, unless they hand over a vector environment."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3 import SyncDQN, SyncSAC, SyncTD3


class _OneActor:
    """One actor where there would be eight, in this process; with a vector environment nothing is different."""

    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("executor", "inline")
        kwargs.setdefault("n_actors", None if isinstance(env, VecEnv) else 1)
        super().__init__(policy, env, *args, **kwargs)  # type: ignore[call-arg]


class HostSyncDQN(_OneActor, SyncDQN):
    pass


class HostSyncSAC(_OneActor, SyncSAC):
    pass


class HostSyncTD3(_OneActor, SyncTD3):
    pass
