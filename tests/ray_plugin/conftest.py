"""A Ray cluster of three machines' worth of raylets, for all tests of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MEMORY = 100_000_000
"""Bytes of each object store."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Home with one CPU, and two nodes with two, which this process has joined."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from ray.cluster_utils import Cluster

    here = Path(__file__).parent
    with pytest.MonkeyPatch.context() as patch:  # what tests share can be imported on the nodes, too
        patch.setenv("RAY_worker_niceness", "0")  # else other busy processes hold them up
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here.parent, here, here.parent / "sb3_plugin"))), prepend=os.pathsep)
        found = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": MEMORY}
        )
        for _ in range(2):
            found.add_node(wait=False, num_cpus=2, object_store_memory=MEMORY)
    try:
        found.wait_for_nodes()
        ray.init(address=found.address, log_to_driver=False, configure_logging=False)
        yield found
    finally:
        ray.shutdown()
        found.shutdown()
