"""The one door for other plugins: what of this package they may use beyond :mod:`reactor_gymnasium` itself."""

from reactor_gymnasium.arguments import (
    Bools,
    EnvFn,
    check_actions,
    checked_executor,
    checked_mask,
    checked_number,
    checked_seeds,
    encoded,
    thrown_away,
)
from reactor_gymnasium.atari.game import AtariGame
from reactor_gymnasium.environments.block import BoundRows, EnvBlock, close_all
from reactor_gymnasium.environments.infos import Packed, merge, note_whose_info, pack, unpack
from reactor_gymnasium.environments.owning import as_number, own
from reactor_gymnasium.environments.saving import known_way, load, replacing, save, saved_exactly
from reactor_gymnasium.environments.storage import Casting, Leaves, joint_writer
from reactor_gymnasium.placement import EnvCosts, decide, drawn, late_helpers, median_step
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.vector.env_program import EnvBatch, Inputs
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_gymnasium.vector.sharded import CallingVectorEnv

__all__ = [
    "AtariGame",
    "EnvBatch",
    "Bools",
    "BoundRows",
    "CallingVectorEnv",
    "Casting",
    "EnvBlock",
    "EnvCosts",
    "EnvFn",
    "Failures",
    "Infos",
    "Inputs",
    "Leaves",
    "Packed",
    "Shard",
    "as_number",
    "check_actions",
    "checked_executor",
    "checked_mask",
    "checked_number",
    "checked_seeds",
    "close_all",
    "decide",
    "drawn",
    "encoded",
    "joint_writer",
    "known_way",
    "late_helpers",
    "load",
    "median_step",
    "merge",
    "note_whose_info",
    "pack",
    "repeat_registrations",
    "own",
    "replacing",
    "save",
    "saved_exactly",
    "thrown_away",
    "unpack",
]
