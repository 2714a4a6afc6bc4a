"""Our trainers as sb3-contrib's own tests use its algorithms, in this process."""

from __future__ import annotations

from typing import Any

from one_actor import _Inline
from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3.contrib import SyncCrossQ, SyncMaskablePPO, SyncQRDQN, SyncRecurrentPPO, SyncTQC


class _Alone(_Inline):
    """An environment that is given is the only one, as there."""

    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(env, VecEnv):
            kwargs.setdefault("n_actors", 1)
        super().__init__(policy, env, *args, **kwargs)


class HostSyncCrossQ(_Inline, SyncCrossQ):
    pass


class HostSyncMaskablePPO(_Alone, SyncMaskablePPO):
    pass


class HostSyncQRDQN(_Inline, SyncQRDQN):
    pass


class HostSyncRecurrentPPO(_Alone, SyncRecurrentPPO):
    pass


class HostSyncTQC(_Inline, SyncTQC):
    pass
