"""The carrier that the name of an executor stands for."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from reactor_rl.errors import ProgramError
from reactor_rl.executor_names import CHOICES, LOCAL
from reactor_rl.federation.carrier import Carrier
from reactor_rl.federation.in_process import InProcess

__all__ = ["GROUP", "carrier_for", "check_nodes"]

GROUP = "reactor_rl.carriers"
"""Entry points by which plugins offer carriers: functions of ``nodes`` and ``workers``, under the name of the executor."""


def check_nodes(executor: Any, nodes: Any) -> None:
    """Refuse ``nodes`` where there is one machine.

    Raises:
        ProgramError: Names both.
    """
    if nodes is not None and executor in LOCAL:
        raise ProgramError(f"nodes={nodes!r} needs an executor that has several machines: executor='ray'")


def carrier_for(executor: Any, nodes: Any = None, workers: int | None = None) -> Carrier | None:
    """What carries a run over several nodes, ``None`` if it is to be on one machine.

    Args:
        executor: What the user has said: a name, or a carrier itself.
        nodes: How many nodes, or whatever else the carrier understands; ``None`` for all that it has.
        workers: Number of workers of each node; ``None`` for the cores of each.

    Raises:
        ProgramError: If ``nodes`` are asked for where there is one machine, or nobody offers that carrier, or it has other nodes.
    """
    check_nodes(executor, nodes)
    if executor in LOCAL:
        return None
    if not isinstance(executor, str):
        carrier: Carrier = executor
        if nodes is not None and carrier.nodes != nodes:
            raise ProgramError(f"nodes={nodes!r}, but the carrier {carrier.name!r} has {carrier.nodes}: leave one of the two out")
        return carrier
    if executor == InProcess.name:
        return InProcess(nodes, workers)
    for entry in entry_points(group=GROUP, name=executor):
        found: Carrier = entry.load()(nodes, workers)
        return found
    raise ProgramError(f"executor={executor!r}: choose {', '.join(map(repr, CHOICES[:-1]))} or {CHOICES[-1]!r}")
