"""The program of a vector environment: shards between the inputs and outputs of the boundary, for each batch its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy.typing as npt

from reactor_gymnasium.placing.placement import place
from reactor_gymnasium.vector.env_batch import EnvBatch
from reactor_rl import Instance, Program

__all__ = ["wire"]


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
