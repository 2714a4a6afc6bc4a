"""The machines of a Ray cluster: joined or started, and reserved for a run."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from reactor_ray.nodes import RayNodes, Strategy
from reactor_rl import ProgramError, RunError
from reactor_rl.plugin import require_extra, usable_cores

with require_extra("ray", 'executor="ray"'):
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = ["Bundles", "Machine", "Reservation", "join", "machines"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """A machine of the cluster (in Ray's words, a node).

    Attributes:
        id: Ray's identifier of it.
        name: How it is called in messages.
        cpus: How many CPUs it has for Ray.
        home: Whether this process runs on it.
    """

    id: str
    name: str
    cpus: int
    home: bool


def join() -> None:
    """Be part of a cluster: of the one that this process has joined already, of ``RAY_ADDRESS``, or of one on this machine alone.

    One that is started here ends with this process, or with ``ray.shutdown()``.

    Raises:
        ProgramError: In a process that is connected through Ray Client, or would be, and so on no machine of the cluster.
    """
    address = os.environ.get("RAY_ADDRESS")
    joined = ray.is_initialized()
    if ray.util.client.ray.is_connected() or (not joined and str(address).startswith("ray://")):
        raise ProgramError(
            "through Ray Client (ray://) this process is on no machine of the cluster: start it on one of them, with "
            "RAY_ADDRESS=auto or as a job (ray job submit)"
        )
    if joined:
        return
    if address is None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of its next version's default
        ray.init(address="local", num_cpus=usable_cores(), include_dashboard=False)
        _log.info("started Ray on this machine, for RAY_ADDRESS names no cluster")
    else:
        ray.init(address=address)
        _log.info("joined the Ray cluster at %s", address)


def machines() -> list[Machine]:
    """The machines of the cluster that are alive: this one first, the others by name."""
    home = ray.get_runtime_context().get_node_id()
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            id, cpus = node["NodeID"], int(node["Resources"].get("CPU", 0))
            found.append(Machine(id, f"{node['NodeName']} ({id[:8]})", cpus, id == home))
    return sorted(found, key=lambda one: (not one.home, one.name))


NODE_ID = "ray.io/node-id"
"""Ray's own label of each machine."""


@dataclass(frozen=True)
class Bundles:
    """The wants of the nodes beside home, in Ray's words: a bundle for each.

    Attributes:
        cpus: CPUs of each.
        strategy: How they are placed.
        selector: Labels of the machines that each may be on, ``None`` for any.
    """

    cpus: tuple[int, ...]
    strategy: Strategy = "STRICT_SPREAD"
    selector: tuple[dict[str, str], ...] | None = None

    @classmethod
    def of(cls, nodes: RayNodes) -> Bundles:
        """The request, in the cluster as it is.

        Raises:
            RunError: If it cannot be had. Says what there is.
        """
        if nodes.placement_group is not None:
            return cls(tuple(max(1, int(bundle.get("CPU", 1))) for bundle in nodes.placement_group.bundle_specs))
        found = machines()
        home, away = found[0], found[1:]
        if not away and nodes.strategy is None and nodes.num_cpus is None:  # all on this machine, which shares its CPUs among them
            count = nodes.count or 1
            return cls((max(1, home.cpus // count),) * (count - 1), "PACK")
        count = len(away) if nodes.count is None else nodes.count - 1
        strategy = nodes.strategy or "STRICT_SPREAD"
        if strategy != "STRICT_SPREAD":
            return cls((nodes.num_cpus or 1,) * count, strategy)
        if nodes.num_cpus is not None:  # on any machine with so many, which need not be there yet
            return cls((nodes.num_cpus,) * count, strategy, ({NODE_ID: f"!{home.id}"},) * count)
        if len(away) < count:
            raise RunError(
                f"nodes={nodes.count} needs {count} machines beside this one, and the cluster has {len(away)}: {_told(found)}. "
                f"Start Ray on more of them (ray start --address=...), wait for them with RayNodes({nodes.count}, num_cpus=..., "
                f'patience=...), or have several nodes on a machine with RayNodes({nodes.count}, strategy="PACK")'
            )
        most = sorted(away, key=lambda one: -one.cpus)[:count]
        most.sort(key=lambda one: one.name)
        return cls(tuple(max(1, one.cpus) for one in most), strategy, tuple({NODE_ID: one.id} for one in most))


class Reservation:
    """A placement group that holds bundles for a run.

    Args:
        bundles: What is wanted.
        nodes: What was asked for, with a placement group that may be there already.

    Raises:
        RunError: If the cluster does not have it in time. Says what it has.
    """

    def __init__(self, bundles: Bundles, nodes: RayNodes) -> None:
        self._cpus, self._own = bundles.cpus, nodes.placement_group is None
        self._group = nodes.placement_group
        if self._own:
            selector = None if bundles.selector is None else list(bundles.selector)
            wanted = [{"CPU": cpus} for cpus in bundles.cpus]
            self._group = placement_group(wanted, strategy=bundles.strategy, bundle_label_selector=selector)
        try:
            if not self._group.wait(nodes.patience):
                raise RunError(
                    f"{len(bundles.cpus)} nodes with {' and '.join(map(str, bundles.cpus))} CPUs were not there after "
                    f"{nodes.patience:g} s. The cluster has {_told(machines())}; others may be using them. Ask for less with "
                    "RayNodes(count, num_cpus=...), wait for longer with patience=, or have several nodes on a machine with "
                    'strategy="PACK"'
                )
        except BaseException:
            self.release()
            raise

    def options(self, bundle: int) -> dict[str, Any]:
        """For an actor that gets a bundle's CPUs."""
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        return {"num_cpus": self._cpus[bundle], "scheduling_strategy": strategy}

    def release(self) -> None:
        """Give back what was reserved here."""
        if self._own and ray.is_initialized():
            remove_placement_group(self._group)


def _told(found: list[Machine]) -> str:
    return ", ".join(f"{one.name} with {one.cpus} CPUs{' (this one)' if one.home else ''}" for one in found)
