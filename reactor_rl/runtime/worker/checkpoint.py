"""What a worker needs, besides the bytes of the arena, to go on from the end of a tick in another process of the same run.

Unlike a snapshot it belongs to one run and one schedule, so that nothing is renumbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reactor_rl.runtime.worker.kernel import Kernel
from reactor_rl.runtime.worker.moment import Agenda
from reactor_rl.runtime.worker.outputs import ObjectOutput
from reactor_rl.runtime.worker.state import pickled_reactors, set_state
from reactor_rl.serialise import loads

__all__ = ["WorkerCheckpoint", "checkpoint", "go_back"]


@dataclass
class WorkerCheckpoint:
    """A worker between two ticks.

    Attributes:
        clock: Its time, microstep, and the numbers of the last pass and of the first one of its tick.
        reactors: The pickled state of each reactor, by index.
        agenda: What is due.
        kept: The values of its object outputs, by index.
    """

    clock: tuple[int, int, int, int]
    reactors: dict[int, bytes]
    agenda: Agenda
    kept: dict[int, list[Any]]


def checkpoint(kernel: Kernel) -> WorkerCheckpoint:
    """Copy what a worker holds in its own memory.

    Raises:
        RunError, TypeError: If the state of a reactor cannot be had; see :func:`reactor_rl.runtime.worker.state.take`.
    """
    clock = kernel.time, kernel.microstep, kernel.number, kernel.tick_number
    kept = {index: port._cells.kept() for index, port in kernel.outputs.items() if isinstance(port, ObjectOutput)}
    return WorkerCheckpoint(clock, pickled_reactors(kernel), kernel.agenda, kept)


def go_back(kernel: Kernel, saved: WorkerCheckpoint) -> None:
    """Make a worker what it was. What was in the arena is there already."""
    for index, reactor in kernel.reactors.items():
        set_state(kernel, index, reactor, loads(saved.reactors[index]))
    kernel.time, kernel.microstep, kernel.number, kernel.tick_number = saved.clock
    kernel.agenda, kernel.pending, kernel.soon, kernel.again = saved.agenda, 0, 0, []
    for action in kernel.actions.values():
        action.clear()
    for index, kept in saved.kept.items():
        port = kernel.outputs[index]
        assert isinstance(port, ObjectOutput)
        port._cells.keep_all(kept)
