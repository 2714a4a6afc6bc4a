"""Reactor programs for reinforcement learning: fixed topology, static schedule, many cores, bit-identical results."""

import logging

from reactor_rl.composition import Bank, Instance
from reactor_rl.errors import (
    AbsentError,
    ArenaError,
    CausalityLoopError,
    NodeDiedError,
    ProgramError,
    RunClosedError,
    RunError,
    UndeclaredPortError,
    WorkerDiedError,
    WorkerHungError,
)
from reactor_rl.program import Program
from reactor_rl.reactor import Input, LogicalAction, Output, Reactor, Timer, reaction, shutdown, startup
from reactor_rl.runtime.run import Run
from reactor_rl.settings import Recover, RecoveryWarning

__version__ = "0.1.0"

__all__ = [
    "AbsentError",
    "ArenaError",
    "Bank",
    "CausalityLoopError",
    "Input",
    "Instance",
    "LogicalAction",
    "NodeDiedError",
    "Output",
    "Program",
    "ProgramError",
    "Reactor",
    "Recover",
    "RecoveryWarning",
    "Run",
    "RunClosedError",
    "RunError",
    "Timer",
    "UndeclaredPortError",
    "WorkerDiedError",
    "WorkerHungError",
    "__version__",
    "reaction",
    "shutdown",
    "startup",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
