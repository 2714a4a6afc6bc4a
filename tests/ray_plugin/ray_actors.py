"""The processes behind the nodes of a run, for tests that do something to them."""

from __future__ import annotations

import os
from typing import Any


def process_of(run: Any, node: int) -> int:
    """The process that hosts a node."""
    import ray

    transport = run._transport
    while not hasattr(transport, "_actors"):  # around that of Ray there may be others
        transport = transport._transport
    return int(ray.get(transport._actors[node].__ray_call__.remote(lambda _: os.getpid())))
