"""The state of a whole run between two ticks."""

from __future__ import annotations

from typing import Any

from reactor_rl.errors import RunError
from reactor_rl.runtime.worker.state import WorkerState
from reactor_rl.topology import Topology

__all__ = ["Snapshot"]


class Snapshot:
    """The state of a run between two ticks. Restores into any run of the same program, whatever its executor and workers."""

    def __init__(self, topology: Topology, part: WorkerState) -> None:
        self.program, self.part = _shape_of(topology), part

    def must_fit(self, topology: Topology) -> None:
        """Refuse to be restored into another program.

        Raises:
            RunError: If it is a snapshot of another program.
        """
        if self.program != _shape_of(topology):
            raise RunError(
                f"a snapshot of program {self.program[0]!r} does not fit program {topology.name!r}: they differ in "
                "name, reactors, ports or delays"
            )


def _shape_of(topology: Topology) -> tuple[Any, ...]:
    """What two programs must have in common for a snapshot of one to fit the other: the name first."""
    ports = [(topology.port_name(o), o.shape, o.dtype and o.dtype.str, o.rows, o.ring) for o in topology.outputs]
    return topology.name, [node.name for node in topology.reactors], ports, [node.name for node in topology.actions]
