"""Our trainers as SB3's own tests use its algorithms, in this process."""

from __future__ import annotations

from typing import Any

from reactor_sb3 import SyncDQN, SyncSAC, SyncTD3
from reactor_sb3.algorithms.sync_a2c import SyncA2C
from reactor_sb3.algorithms.sync_ddpg import SyncDDPG


class _Inline:
    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("executor", "inline")
        super().__init__(policy, env, *args, **kwargs)  # type: ignore[call-arg]


class HostSyncA2C(_Inline, SyncA2C):
    pass


class HostSyncDDPG(_Inline, SyncDDPG):
    pass


class HostSyncDQN(_Inline, SyncDQN):
    pass


class HostSyncSAC(_Inline, SyncSAC):
    pass


class HostSyncTD3(_Inline, SyncTD3):
    pass
