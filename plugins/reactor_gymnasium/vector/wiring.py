"""The program of a vector environment: shards between the inputs and outputs of the boundary, for each batch its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy.typing as npt

from reactor_gymnasium.placing.placement import Placed
from reactor_gymnasium.vector.env_batch import EnvBatch
from reactor_rl import Instance, Program

__all__ = ["ROWS", "wire"]

ROWS = ("observations", "rewards", "terminations", "truncations")
"""What shards write a row of for each environment."""


def wire(
    program: Program,
    batches: Iterable[EnvBatch],
    cut: Callable[[EnvBatch], Iterable[Placed]],
    add: Callable[[str, int, int, int, EnvBatch], Instance],
    *,
    label: str,
    actions: tuple[tuple[int, ...], npt.DTypeLike] | None,
    inputs: Sequence[str],
    rows: Sequence[str],
    parts: Sequence[str],
    width: int = 1,
) -> dict[str, int]:
    """Put shards between the boundary's inputs and outputs.

    Args:
        program: Where they go.
        batches: They are told the numbers and rows of their shards.
        cut: The shards of a batch.
        add: Adds one, of a name, from and to an index, for a worker and a batch.
        label: What shards are called in drawings and messages, before their indices.
        actions: Shape and dtype of a batch's actions, if they are an array.
        inputs: What every shard is sent by itself.
        rows: Outputs of which every environment has rows.
        parts: Outputs of which every shard has one.
        width: Rows of an environment.

    Returns:
        The worker of each shard, by name.
    """
    placement: dict[str, int] = {}
    for batch in batches:
        outputs = {name: program.output(name + batch.suffix) for name in (*rows, *parts)}
        actions_in = None if actions is None else program.input(f"actions{batch.suffix}", *actions)
        for part, (lo, hi, worker, _) in enumerate(cut(batch)):
            number, name = len(placement), f"{label}[{lo}:{hi}]"
            batch.shards.append((number, lo, hi))
            placement[name] = worker
            shard = add(name, lo, hi, worker, batch)
            block = slice((lo - batch.lo) * width, (hi - batch.lo) * width)
            if actions_in is not None:
                program.connect(actions_in.rows[block], shard.actions)
            for port in inputs:
                program.connect(program.input(f"{port}_{number}"), getattr(shard, port))
            for port in rows:
                program.connect(getattr(shard, port), outputs[port].rows[block])
            for port in parts:
                program.connect(getattr(shard, port), outputs[port].rows[part])
    return placement
