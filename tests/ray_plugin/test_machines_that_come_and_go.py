"""A run gets a machine that has just come, and goes on elsewhere when it is gone, with the same bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from reactor_ray import RayNodes
from reactor_rl import RecoveryWarning

STEPS = 20


def steps_of(envs: Any, steps: range) -> list[bytes]:
    return [envs.step(np.full(4, step % 2))[0].tobytes() for step in steps]


@pytest.mark.timeout(180)
def test_a_machine_comes_and_goes(cluster: Any) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from reactor_gymnasium import ReactorVectorEnv

    make = partial(ReactorVectorEnv, [partial(gymnasium.make, "CartPole-v1")] * 4)
    with make(executor="inline") as envs:
        expected = [envs.reset(seed=1)[0].tobytes(), *steps_of(envs, range(STEPS))]
    new = cluster.add_node(wait=False, num_cpus=3, object_store_memory=100_000_000)
    try:
        with make(executor="ray", nodes=RayNodes(2, num_cpus=3, patience=60.0), workers=1, restarts=1) as envs:
            found = [envs.reset(seed=1)[0].tobytes(), *steps_of(envs, range(STEPS // 2))]
            assert envs._run._transport._transport._machines[1] == new.node_id
            cluster.remove_node(new, allow_graceful=False)
            with pytest.warns(RecoveryWarning, match=r"node 1 \(.*\) (has died|does not answer any more).*It was replaced"):
                found += steps_of(envs, range(STEPS // 2, STEPS))
    finally:
        if new in cluster.worker_nodes:
            cluster.remove_node(new, allow_graceful=False)
    assert found == expected
