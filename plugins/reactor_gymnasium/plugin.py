"""The one door for other plugins: what of this package they may use beyond :mod:`reactor_gymnasium` itself."""

from reactor_gymnasium.atari.game import AtariGame
from reactor_gymnasium.environments.closing import close_all
from reactor_gymnasium.environments.fold import Folded, untouched
from reactor_gymnasium.environments.infos import Packed, merge, pack, unpack
from reactor_gymnasium.environments.storage import Casting, Leaves
from reactor_gymnasium.placing.env_costs import EnvCosts
from reactor_gymnasium.placing.executor_choice import decide
from reactor_gymnasium.placing.placement import place
from reactor_gymnasium.placing.step_cost import drawn, median_step
from reactor_gymnasium.registration.registry import repeat_registrations
from reactor_gymnasium.vector.arguments import (
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
from reactor_gymnasium.vector.calls import CallingVectorEnv
from reactor_gymnasium.vector.env_batch import EnvBatch, Inputs, batches_of
from reactor_gymnasium.vector.life import Life
from reactor_gymnasium.vector.shard import Failures, InfosAndFailures, Shard
from reactor_gymnasium.vector.wiring import ROWS, wire

__all__ = [
    "ROWS",
    "AtariGame",
    "EnvBatch",
    "Bools",
    "CallingVectorEnv",
    "Casting",
    "EnvCosts",
    "EnvFn",
    "InfosAndFailures",
    "Failures",
    "Folded",
    "Inputs",
    "Leaves",
    "Life",
    "Packed",
    "Shard",
    "batches_of",
    "check_actions",
    "checked_executor",
    "checked_mask",
    "checked_number",
    "checked_seeds",
    "close_all",
    "decide",
    "drawn",
    "encoded",
    "median_step",
    "merge",
    "pack",
    "place",
    "repeat_registrations",
    "thrown_away",
    "unpack",
    "untouched",
    "wire",
]
