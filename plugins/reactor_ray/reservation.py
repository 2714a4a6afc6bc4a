"""CPUs of other machines, held for a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reactor_ray.cluster import Machine, machines
from reactor_ray.nodes import RayNodes
from reactor_rl import RunError
from reactor_rl.plugin import needs

with needs("ray", 'executor="ray"'):
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = ["Reservation"]

NODE_ID = "ray.io/node-id"
"""Ray's own label of each machine."""


@dataclass(frozen=True)
class Reservation:
    """CPUs of other machines, held for a run: a bundle of a placement group for each node beside home.

    Attributes:
        group: The placement group, ``None`` where there is no other node.
        cpus: CPUs of each bundle.
        own: Whether it was made here, and so is removed here.
    """

    group: Any
    cpus: tuple[int, ...]
    own: bool

    @classmethod
    def of(cls, nodes: RayNodes) -> Reservation:
        """Reserve what is asked for.

        Raises:
            RunError: If the cluster does not have it in time. Says what it has.
        """
        if nodes.placement_group is not None:
            group = nodes.placement_group
            _await(group, nodes)
            return cls(group, tuple(max(1, int(bundle.get("CPU", 1))) for bundle in group.bundle_specs), False)
        found = machines()
        if len(found) == 1 and nodes.strategy is None:
            return cls._here(nodes, found[0])
        away = [one for one in found if not one.home]
        count = len(away) if nodes.count is None else nodes.count - 1
        strategy = nodes.strategy or "STRICT_SPREAD"
        wanted = [{NODE_ID: f"!{found[0].id}"}] * count if strategy == "STRICT_SPREAD" else None
        if nodes.num_cpus is not None:
            return cls._made([nodes.num_cpus] * count, strategy, wanted, nodes)
        if wanted is None:
            return cls._made([1] * count, strategy, None, nodes)
        best = sorted(away, key=lambda one: (-one.cpus, one.name))[:count]
        if len(best) < count:
            raise RunError(
                f"nodes={nodes.count} needs {count} machines beside this one, and the cluster has {len(away)}: {_told(found)}. "
                "Start Ray on more of them (ray start --address=...), or have several nodes on a machine with "
                'RayNodes(..., strategy="PACK")'
            )
        best.sort(key=lambda one: one.name)
        return cls._made([max(1, one.cpus) for one in best], strategy, [{NODE_ID: one.id} for one in best], nodes)

    @classmethod
    def _here(cls, nodes: RayNodes, home: Machine) -> Reservation:
        """All nodes on this machine, which shares its CPUs among them."""
        count = (nodes.count or 1) - 1
        return cls._made([nodes.num_cpus or max(1, home.cpus // (count + 1))] * count, "PACK", None, nodes)

    @classmethod
    def _made(cls, cpus: list[int], strategy: str, selector: list[dict[str, str]] | None, nodes: RayNodes) -> Reservation:
        if not cpus:
            return cls(None, (), False)
        group = placement_group([{"CPU": cpu} for cpu in cpus], strategy=strategy, bundle_label_selector=selector)
        try:
            _await(group, nodes)
        except BaseException:
            remove_placement_group(group)
            raise
        return cls(group, tuple(cpus), True)

    def options(self, bundle: int) -> dict[str, Any]:
        """For an actor that gets a bundle's CPUs."""
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle)
        return {"num_cpus": self.cpus[bundle], "scheduling_strategy": strategy}

    def release(self) -> None:
        """Give back what was reserved here."""
        if self.own and ray.is_initialized():
            remove_placement_group(self.group)


def _await(group: Any, nodes: RayNodes) -> None:
    if not group.wait(nodes.patience):
        cpus = [int(bundle.get("CPU", 0)) for bundle in group.bundle_specs]
        raise RunError(
            f"{len(cpus)} nodes with {' and '.join(map(str, cpus))} CPUs were not there after {nodes.patience:g} s. "
            f"The cluster has {_told(machines())}; others may be using them. Ask for less with RayNodes(count, num_cpus=...), "
            "or wait for longer with patience="
        )


def _told(found: list[Machine]) -> str:
    return ", ".join(f"{one.name} with {one.cpus} CPUs{' (this one)' if one.home else ''}" for one in found)
