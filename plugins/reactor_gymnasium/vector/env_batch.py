"""Environments that step together: all of a vector environment's, or one of the equal batches that take turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium.vector import VectorEnv

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["EnvBatch", "Inputs", "batches_of"]

Inputs = npt.NDArray[Any] | dict[str, Any]
"""Actions as they go in: one array, or pickled objects by name of the boundary input."""


class EnvBatch:
    """Environments that step together: all of them, or one of the equal parts that take turns.

    Attributes:
        lo: Index of the first one.
        hi: One past the index of the last one.
        suffix: What the names of its boundary ports end in.
        shards: Numbers of its shards, each with its first row and one past its last.
        write_actions: Sets the actions of the coming tick, where they are one array.
        rows: View of the observations' slot, where they are arrays.
        rewards: View of the rewards' slot, ``(hi - lo,)``; likewise ``terminations`` and ``truncations``.
        objects: The observations' object leaves, as of the batch's last tick.
        infos: Infos of its last tick, until they are handed out.
        ready: Whether that tick is over and its results were not handed out.
        fresh: Whether that tick was a reset, whose results are handed out in the place of a step's.
        counted: A vector environment of as many, for the methods of Gymnasium's that only need to know how many there are.
    """

    rows: npt.NDArray[Any] | None
    rewards: npt.NDArray[Any]
    terminations: npt.NDArray[Any]
    truncations: npt.NDArray[Any]

    def __init__(self, lo: int, hi: int, suffix: str) -> None:
        self.lo, self.hi, self.suffix = lo, hi, suffix
        self.shards: list[tuple[int, int, int]] = []
        self.objects: list[Any] | None = None
        self.infos: dict[str, Any] = {}
        self.ready = self.fresh = False
        self.counted: VectorEnv[Any, Any, Any] = VectorEnv()
        self.counted.num_envs = hi - lo

    def bind(self, run: Run, actions: bool, observations: bool) -> None:
        """Look up once what every step uses."""
        self.write_actions: Callable[[Any], None] | None = run.writer(f"actions{self.suffix}") if actions else None
        self.rows = run.view(f"observations{self.suffix}") if observations else None
        self.rewards = run.view(f"rewards{self.suffix}")
        self.terminations = run.view(f"terminations{self.suffix}")
        self.truncations = run.view(f"truncations{self.suffix}")
        self.any_extras = run.watcher(f"extras{self.suffix}")


def batches_of(num_envs: int, batch_size: int) -> list[EnvBatch]:
    """Banks of ``batch_size`` environments each."""
    return [
        EnvBatch(first, first + batch_size, f"_{index}" if batch_size < num_envs else "")
        for index, first in enumerate(range(0, num_envs, batch_size))
    ]
