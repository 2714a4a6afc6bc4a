"""The program behind a vector environment: its shards, their ports, and the batches that they fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium.vector import VectorEnv

from reactor_gymnasium.placement import place
from reactor_rl import Instance, Program

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["EnvBatch", "Inputs", "wire"]

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


def wire(
    program: Program,
    add: Callable[[str, int, int, int, int], Instance],
    seconds: Sequence[float] | None,
    workers: int,
    actions: tuple[tuple[int, ...], npt.DTypeLike] | None,
    observations: bool,
    *,
    num_envs: int,
    batch_size: int,
    bounds: Sequence[int] | None = None,
    parts: Sequence[str],
    label: str = "environments",
    inputs: Sequence[str] = ("items", "request"),
    rows: Sequence[str] = ("rewards", "terminations", "truncations"),
) -> tuple[list[EnvBatch], dict[str, int]]:
    """Cut environments into batches and shards, and put the shards between the boundary's inputs and outputs.

    Args:
        program: The program that they are added to.
        add: Adds a shard, of a name, from and to an index of environments, for a worker, from a row of its batch on.
        seconds: What a step of each environment costs, if that is known.
        workers: How many workers there are.
        actions: Shape and dtype of a batch's actions, if they are an array.
        observations: Whether observations are rows too.
        num_envs: How many environments there are.
        batch_size: How many of them step together.
        bounds: The first row of each environment, and the row after the last one; ``None`` where each has one row.
        parts: Outputs of which every shard has one.
        label: What shards are called in drawings and messages, before their indices.
        inputs: What every shard is sent by itself.
        rows: Outputs of which every environment has rows.

    Returns:
        The batches, and the worker of each shard, by name.
    """
    rows = ("observations", *rows) if observations else rows
    bounds = range(num_envs + 1) if bounds is None else bounds
    batches: list[EnvBatch] = []
    placement: dict[str, int] = {}
    for first in range(0, num_envs, batch_size):
        suffix = f"_{len(batches)}" if batch_size < num_envs else ""
        batch = EnvBatch(bounds[first], bounds[first + batch_size], suffix)
        batches.append(batch)
        outputs = {name: program.output(name + suffix) for name in (*rows, *parts)}
        actions_in = None if actions is None else program.input(f"actions{suffix}", *actions)
        for part, (lo, hi, worker, _) in enumerate(place(seconds, first, first + batch_size, workers)):
            number, name = len(placement), f"{label}[{lo}:{hi}]"
            batch.shards.append((number, lo, hi))
            placement[name] = worker
            block = slice(bounds[lo] - batch.lo, bounds[hi] - batch.lo)
            shard = add(name, lo, hi, worker, block.start)
            if actions_in is not None:
                program.connect(actions_in.rows[block], shard.actions)
            for port in inputs:
                program.connect(program.input(f"{port}_{number}"), getattr(shard, port))
            for port in rows:
                program.connect(getattr(shard, port), outputs[port].rows[block])
            for port in parts:
                program.connect(getattr(shard, port), outputs[port].rows[part])
    return batches, placement
