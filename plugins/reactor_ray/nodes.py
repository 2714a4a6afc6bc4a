"""Which machines of a Ray cluster take part in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from reactor_rl import ProgramError

__all__ = ["RayNodes", "Strategy", "as_ray_nodes"]

Strategy = Literal["STRICT_SPREAD", "SPREAD", "PACK", "STRICT_PACK"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True)
class RayNodes:
    """Which machines of a Ray cluster take part in a run; what ``nodes=`` may be where a number does not say enough.

    A node beside this process is a Ray actor, which hosts its part of the program on as many workers as it has CPUs. The CPUs are
    reserved by a placement group. None of it ever changes a result.

    Args:
        count: How many, this process included, which is the first of them; ``None`` for all machines of the cluster. Of a placement
            group, one more than it has bundles.
        num_cpus: CPUs that each of the others gets; ``None`` for as many as its machine has.
        strategy: How the others are placed, in Ray's words. ``None`` for each on a machine of its own, apart from that of this
            process (``"STRICT_SPREAD"``); or, if the cluster is this machine alone and there are no ``num_cpus``, all of them here.
        placement_group: A group of Ray's that is there already, whose bundles the others get in order. It is yours to remove.
        runtime_env: Given to Ray: how packages and files get to the others (``working_dir``, ``pip``, ``env_vars``, ...).
        patience: Seconds to wait until the CPUs are there. Where the cluster has to grow first, that needs ``count`` and
            ``num_cpus``: without them, nodes are those machines that are there already.

    Raises:
        ProgramError: If a number or a name makes no sense.

    Example:
        >>> from reactor_ray import RayNodes
        >>> RayNodes(3, num_cpus=8).count
        3
    """

    count: int | None = None
    num_cpus: int | None = None
    strategy: Strategy | None = None
    placement_group: Any = None
    runtime_env: Mapping[str, Any] | None = None
    patience: float = 60.0

    def __post_init__(self) -> None:
        for name, number in (("nodes", self.count), ("num_cpus", self.num_cpus)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ProgramError(f"{name}={number!r}: a whole number of at least 1, or None for all that there are")
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise ProgramError(f"strategy={self.strategy!r}: choose {', '.join(map(repr, STRATEGIES))}, or None")
        said = any(one is not None for one in (self.count, self.num_cpus, self.strategy))
        if self.placement_group is not None and said:
            raise ProgramError("a placement group says itself how many nodes there are, with which CPUs and where: leave those out")


def as_ray_nodes(nodes: int | RayNodes | None) -> RayNodes:
    """The ``RayNodes`` that ``nodes=`` means.

    Raises:
        ProgramError: If it is neither a number nor :class:`RayNodes`.
    """
    return nodes if isinstance(nodes, RayNodes) else RayNodes(nodes)
