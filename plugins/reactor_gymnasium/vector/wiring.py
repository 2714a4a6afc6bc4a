"""The program of a vector environment: shards between the inputs and outputs of the boundary, for each bank its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy.typing as npt

from reactor_gymnasium.placing.placement import Placed
from reactor_gymnasium.vector.sharded import Bank
from reactor_rl import Instance, Program

__all__ = ["ROWS", "banks_of", "wire"]

ROWS = ("observations", "rewards", "terminations", "truncations")
"""What shards write a row of for each environment."""


def banks_of(num_envs: int, batch_size: int) -> list[Bank]:
    """Banks of ``batch_size`` environments each."""
    return [
        Bank(first, first + batch_size, f"_{index}" if batch_size < num_envs else "")
        for index, first in enumerate(range(0, num_envs, batch_size))
    ]


def wire(
    program: Program,
    banks: Iterable[Bank],
    cut: Callable[[Bank], Iterable[Placed]],
    add: Callable[[str, int, int, int, Bank], Instance],
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
        banks: They are told the numbers and rows of their shards.
        cut: The shards of a bank.
        add: Adds one, of a name, from and to an index, for a worker and a bank.
        label: What shards are called in drawings and messages, before their indices.
        actions: Shape and dtype of a bank's actions, if they are an array.
        inputs: What every shard is sent by itself.
        rows: Outputs of which every environment has rows.
        parts: Outputs of which every shard has one.
        width: Rows of an environment.

    Returns:
        The worker of each shard, by name.
    """
    placement: dict[str, int] = {}
    for bank in banks:
        outputs = {name: program.output(name + bank.suffix) for name in (*rows, *parts)}
        batch = None if actions is None else program.input(f"actions{bank.suffix}", *actions)
        for part, (lo, hi, worker, _) in enumerate(cut(bank)):
            number, name = len(placement), f"{label}[{lo}:{hi}]"
            bank.shards.append((number, lo, hi))
            placement[name] = worker
            shard = add(name, lo, hi, worker, bank)
            block = slice((lo - bank.lo) * width, (hi - bank.lo) * width)
            if batch is not None:
                program.connect(batch.rows[block], shard.actions)
            for port in inputs:
                program.connect(program.input(f"{port}_{number}"), getattr(shard, port))
            for port in rows:
                program.connect(getattr(shard, port), outputs[port].rows[block])
            for port in parts:
                program.connect(getattr(shard, port), outputs[port].rows[part])
    return placement
