"""A compiled program, as it is sent to every worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reactor_rl.runtime.arena import ArenaLayout
from reactor_rl.schedule import Schedule
from reactor_rl.topology import Topology

__all__ = ["Options", "Plan"]


@dataclass(frozen=True)
class Options:
    """What the caller asked for."""

    debug: bool = False
    fingerprint: Literal["boundary", "all", "off"] = "boundary"


@dataclass(frozen=True)
class Plan:
    """What a worker needs besides its reactors, its memory and its channels."""

    topology: Topology
    schedule: Schedule
    layout: ArenaLayout
    options: Options

    def reactors_of(self, worker: int) -> tuple[int, ...]:
        """Indices of the reactors that live on a worker, in program order."""
        return tuple(index for index, home in enumerate(self.schedule.placement) if home == worker)

    def names_of(self, worker: int) -> tuple[str, ...]:
        """Names of the reactors that live on a worker."""
        return tuple(self.topology.reactors[index].name for index in self.reactors_of(worker))

    def home(self, reactor: int) -> int:
        """Worker of a reactor; the boundary is the caller's."""
        return 0 if reactor < 0 else self.schedule.placement[reactor]
