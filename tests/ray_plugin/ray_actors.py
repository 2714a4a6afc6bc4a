"""The processes behind the nodes of a run, for tests that do something to them."""

from __future__ import annotations

import os
from typing import Any


def process_of(run: Any, node: int) -> int:
    """The process that hosts a node."""
    import ray

    carrier = run._carrier
    while not hasattr(carrier, "_actors"):  # around that of Ray there may be others
        carrier = carrier._carrier
    return int(ray.get(carrier._actors[node].__ray_call__.remote(lambda _: os.getpid())))
