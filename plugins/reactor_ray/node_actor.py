"""The Ray actor that hosts a node's part of a run."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from reactor_ray.likeness import described
from reactor_ray.parcels import fitted, unpacked
from reactor_rl.plugin import Host, dumps, needs

with needs("ray", 'executor="ray"'):
    import ray

__all__ = ["NodeActor"]


class NodeActor:
    """A process on another machine that hosts a node; Ray makes all calls in its main thread, one after the other."""

    _host: Host | None = None

    def where(self, packages: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Ray's identifier of the machine, and what results of it depend on."""
        return ray.get_runtime_context().get_node_id(), described(packages)

    def open(self, parcel: bytes) -> None:
        """Take what the node is made of."""
        self._host = Host(parcel)

    def call(self, results: int, *arguments: Any) -> Any:
        """Do what home wants, and answer in so many pieces."""
        assert self._host is not None
        return fitted(dumps(self._host.call(unpacked(arguments))), results)

    def close(self, timeout: float | None) -> None:
        """End the node's workers."""
        if self._host is not None:
            self._host.close(timeout)
            self._host = None
            gc.collect()  # Ray ends processes by a signal, in which nothing is to be torn down
