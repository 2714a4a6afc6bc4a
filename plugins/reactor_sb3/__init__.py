"""Stable-Baselines3 on reactor programs: the same weights on any number of cores."""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from reactor_rl import __version__
from reactor_rl.plugin import preload, require_extra

with require_extra("sb3", "reactor_sb3"):
    from reactor_sb3.algorithms.pqn import PQN
    from reactor_sb3.algorithms.sync_a2c import SyncA2C
    from reactor_sb3.algorithms.sync_ddpg import SyncDDPG
    from reactor_sb3.algorithms.sync_dqn import SyncDQN
    from reactor_sb3.algorithms.sync_ppo import SyncPPO
    from reactor_sb3.algorithms.sync_sac import SyncSAC
    from reactor_sb3.algorithms.sync_td3 import SyncTD3
    from reactor_sb3.algorithms.table import ALGORITHMS, Algorithm
    from reactor_sb3.checkpoints.resumed_run import ResumedRun, resume_run
    from reactor_sb3.environments.from_vector_env import from_vector_env
    from reactor_sb3.environments.vec_env import ReactorVecEnv
    from reactor_sb3.evaluation.callback import ReactorEvalCallback
    from reactor_sb3.exporting.export import export
    from reactor_sb3.sweeping.pruning import SuccessiveHalving
    from reactor_sb3.sweeping.report import SearchReport, TrialReport
    from reactor_sb3.sweeping.sweep import sweep
    from reactor_sb3.sweeping.training import Trial
    from reactor_sb3.trainers.callbacks import SaveCheckpoint, SaveRun, StopOnEvaluation
    from reactor_sb3.trainers.options import RunOptions

if TYPE_CHECKING:
    from reactor_sb3.algorithms.sync_ars import SyncARS
    from reactor_sb3.algorithms.sync_crossq import SyncCrossQ
    from reactor_sb3.algorithms.sync_maskable_ppo import SyncMaskablePPO
    from reactor_sb3.algorithms.sync_qrdqn import SyncQRDQN
    from reactor_sb3.algorithms.sync_recurrent_ppo import SyncRecurrentPPO
    from reactor_sb3.algorithms.sync_tqc import SyncTQC
    from reactor_sb3.algorithms.sync_trpo import SyncTRPO

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "PQN",
    "ReactorEvalCallback",
    "ReactorVecEnv",
    "ResumedRun",
    "RunOptions",
    "SaveCheckpoint",
    "SaveRun",
    "SearchReport",
    "StopOnEvaluation",
    "SuccessiveHalving",
    "SyncA2C",
    "SyncARS",
    "SyncCrossQ",
    "SyncDDPG",
    "SyncDQN",
    "SyncMaskablePPO",
    "SyncPPO",
    "SyncQRDQN",
    "SyncRecurrentPPO",
    "SyncSAC",
    "SyncTD3",
    "SyncTQC",
    "SyncTRPO",
    "Trial",
    "TrialReport",
    "export",
    "from_vector_env",
    "resume_run",
    "sweep",
    "__version__",
]


if find_spec("sb3_contrib") is None:  # then `from reactor_sb3 import *` leaves them out
    for _row in ALGORITHMS.values():
        if _row.extra == "contrib":
            __all__.remove(_row.name)


def __getattr__(name: str) -> Any:
    """Those of sb3-contrib's algorithms, imported when somebody asks for them: they need an extra."""
    row = ALGORITHMS.get(name)
    if row is None:
        raise AttributeError(f"module 'reactor_sb3' has no attribute {name!r}")
    globals()[name] = found = row.cls
    preload(found.__module__)
    return found


logging.getLogger(__name__).addHandler(logging.NullHandler())

preload(
    "stable_baselines3.common.monitor",
    "stable_baselines3.common.vec_env",
    "reactor_sb3.environments.vec_env",
    "reactor_sb3.acting.evaluator",
)
