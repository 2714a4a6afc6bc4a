"""Environments that step together: all of a vector environment's, or one of the equal batches that take turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium.vector import VectorEnv

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["EnvBatch", "Inputs"]

Inputs = npt.NDArray[Any] | dict[str, Any]
"""Actions as they go in: one array, or pickled objects by name of the boundary input."""


@dataclass(eq=False)
class EnvBatch:
    """Environments that step together: all of them, or one of the equal parts that take turns.

    Attributes:
        lo: Index of the first one.
        hi: One past the index of the last one.
        suffix: What the names of its boundary ports end in.
        shards: Numbers of its shards, each with the index of its first environment and one past that of its last.
        write_actions: Sets the actions of the coming tick, where they are one array.
        rows: View of the observations' slot, where they are arrays.
        rewards: View of the rewards' slot, ``(hi - lo,)``; likewise ``terminations`` and ``truncations``.
        copy_rewards: Gives the rewards, as they are handed out.
        objects: The observations' object leaves, as of the batch's last tick.
        infos: Infos of its last tick, until they are handed out.
        ready: Whether that tick is over and its results were not handed out.
        fresh: Whether that tick was a reset, whose results are handed out in the place of a step's.
    """

    lo: int
    hi: int
    suffix: str
    shards: list[tuple[int, int, int]] = field(default_factory=list)
    objects: list[Any] | None = None
    infos: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    fresh: bool = False

    def bind(self, run: Run, actions: bool, observations: bool) -> None:
        """Look up once what every step uses."""
        self.write_actions: Callable[[Any], None] | None = run.writer(f"actions{self.suffix}") if actions else None
        self.rows: npt.NDArray[Any] | None = run.view(f"observations{self.suffix}") if observations else None
        self.rewards: npt.NDArray[Any] = run.view(f"rewards{self.suffix}")
        self.copy_rewards: Callable[[], npt.NDArray[Any]] = self.rewards.copy
        self.terminations: npt.NDArray[Any] = run.view(f"terminations{self.suffix}")
        self.truncations: npt.NDArray[Any] = run.view(f"truncations{self.suffix}")
        self.read_extras = run.reader(f"extras{self.suffix}")

    @cached_property
    def info_adder(self) -> VectorEnv[Any, Any, Any]:
        """A vector environment of as many, for Gymnasium's ``_add_info``, which only needs to know how many there are."""
        envs: VectorEnv[Any, Any, Any] = VectorEnv()
        envs.num_envs = self.hi - self.lo
        return envs
