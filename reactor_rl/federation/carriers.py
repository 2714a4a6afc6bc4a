"""The carrier that the name of an executor stands for, and what it gets to carry."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from reactor_rl.errors import ProgramError
from reactor_rl.executor_names import LOCAL
from reactor_rl.federation.carrier import Carrier

__all__ = ["GROUP", "carrier_for", "shared_out"]

GROUP = "reactor_rl.carriers"
"""Entry points by which plugins offer carriers: functions of ``nodes`` and ``workers``, under the name of the executor."""


def carrier_for(executor: Any, nodes: Any = None, workers: int | None = None) -> Carrier | None:
    """What carries a run over several nodes, ``None`` if it is to be on one machine.

    Args:
        executor: What the user has said: a name, or a carrier itself.
        nodes: How many nodes, or whatever else the carrier understands; ``None`` for all that it has.
        workers: Number of workers of each node; ``None`` for the cores of each.

    Raises:
        ProgramError: If ``nodes`` are asked for where there is one machine, or nobody offers that carrier.
    """
    if executor in LOCAL:
        if nodes is not None:
            raise ProgramError(f"nodes={nodes!r} needs an executor that has several machines: executor='ray'")
        return None
    if not isinstance(executor, str):
        carrier: Carrier = executor
        return carrier
    for entry in entry_points(group=GROUP, name=executor):
        found: Carrier = entry.load()(nodes, workers)
        return found
    raise ProgramError(f"executor={executor!r}: no package that is installed here has it; is reactor_rl installed as a whole?")


def shared_out(workers: Sequence[int], shares: int) -> list[int]:
    """The node of each of so many equal shares of something: contiguous blocks, by the number of workers of each node.

    Args:
        workers: Of each node, home's first.
        shares: How many there are.

    Example:
        >>> shared_out([2, 4], 6)
        [0, 0, 1, 1, 1, 1]
        >>> shared_out([2, 2, 2], 3)
        [0, 1, 2]
    """
    node_of = [node for node, count in enumerate(workers) for _ in range(count)]
    return [node_of[share * len(node_of) // shares] for share in range(shares)]
