"""Trainers of sb3-contrib's algorithms; they need the extra ``contrib``."""

from reactor_rl.plugin import preload, require_extra

with require_extra("contrib", "reactor_sb3.contrib"):
    from reactor_sb3.algorithms.sync_ars import SyncARS
    from reactor_sb3.algorithms.sync_crossq import SyncCrossQ
    from reactor_sb3.algorithms.sync_maskable_ppo import SyncMaskablePPO
    from reactor_sb3.algorithms.sync_qrdqn import SyncQRDQN
    from reactor_sb3.algorithms.sync_recurrent_ppo import SyncRecurrentPPO
    from reactor_sb3.algorithms.sync_tqc import SyncTQC
    from reactor_sb3.algorithms.sync_trpo import SyncTRPO

__all__ = ["SyncARS", "SyncCrossQ", "SyncMaskablePPO", "SyncQRDQN", "SyncRecurrentPPO", "SyncTQC", "SyncTRPO"]

preload("reactor_sb3.contrib")
