"""Gymnasium on reactor programs: vector environments that use every core and give the same results on any number of them."""

import logging
from typing import TYPE_CHECKING, Any

from reactor_rl import __version__
from reactor_rl.plugin import preload, require_extra

with require_extra("gymnasium", "reactor_gymnasium"):
    from reactor_gymnasium.atari.env import AtariEnv
    from reactor_gymnasium.atari.vector_env import AtariVectorEnv
    from reactor_gymnasium.cli.targets import RolloutTarget, rollout
    from reactor_gymnasium.evaluation.evaluate import evaluate
    from reactor_gymnasium.evaluation.lerobot import LeRobotPolicy
    from reactor_gymnasium.evaluation.report import EvaluationReport
    from reactor_gymnasium.make import make_vec
    from reactor_gymnasium.native.own import CRows, Kernel, KernelRows, kernel_include
    from reactor_gymnasium.native.registered import register_kernel
    from reactor_gymnasium.registry import follow, register
    from reactor_gymnasium.vector.vector_env import ReactorVectorEnv

if TYPE_CHECKING:
    from reactor_gymnasium.native.simulated import MujocoRows

__all__ = [
    "AtariEnv",
    "AtariVectorEnv",
    "CRows",
    "EvaluationReport",
    "Kernel",
    "KernelRows",
    "LeRobotPolicy",
    "MujocoRows",
    "ReactorVectorEnv",
    "RolloutTarget",
    "evaluate",
    "kernel_include",
    "make_vec",
    "register",
    "register_kernel",
    "rollout",
    "__version__",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

preload(
    "gymnasium",
    "gymnasium.vector",
    "gymnasium.wrappers",
    "reactor_gymnasium.vector.shard",
    "reactor_gymnasium.evaluation.shard",
    "reactor_gymnasium.atari.unit",
)
register()
follow()


def __getattr__(name: str) -> Any:
    """Import names that need MuJoCo when they are asked for."""
    if name == "MujocoRows":
        with require_extra("gymnasium", "MujocoRows"):
            from reactor_gymnasium.native.simulated import MujocoRows

        return MujocoRows
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
