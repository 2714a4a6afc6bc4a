"""The Ray cluster: joined, or started on this machine, and the machines that it has."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from reactor_rl import ProgramError
from reactor_rl.plugin import needs, usable_cores

with needs("ray", 'executor="ray"'):
    import ray

__all__ = ["Machine", "join", "machines"]

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
