"""Vector environments inside Ray actors: right results on helpers of the actor's own, which end with it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import compare
import envs
import pytest
from compare import fingerprint, played, rollout
from envs import Facts
from gymnasium.vector import SyncVectorEnv

from reactor_gymnasium import ReactorVectorEnv

pytestmark = pytest.mark.timeout(120)


class Steps:
    """What runs in the actor."""

    def trace(self, env_fns: Any, executor: str, seed: int) -> str:
        return fingerprint(played(ReactorVectorEnv(env_fns, executor=executor, workers=2), rollout(seed)))

    def helper(self, env_fns: Any) -> int:
        """Leaves an environment open, and tells which process its helper is."""
        self.envs = ReactorVectorEnv(env_fns, executor="processes", workers=2)
        self.envs.reset(seed=0)
        return int(self.envs._run._executor._processes[0].pid)  # type: ignore[attr-defined]


def test_right_results_and_nothing_left(cluster: Any) -> None:
    ray = pytest.importorskip("ray")
    env_fns = [lambda index=index: Facts(index) for index in range(4)]
    for module in (sys.modules[__name__], compare, envs):  # which actors cannot import
        ray.cloudpickle.register_pickle_by_value(module)
    actor = ray.remote(Steps).options(num_cpus=1).remote()
    theirs = [fingerprint(played(SyncVectorEnv(env_fns), rollout(seed))) for seed in range(2)]
    ours = [actor.trace.remote(env_fns, executor, seed) for seed, executor in enumerate(("processes", "threads"))]
    assert ray.get(ours) == theirs
    helper = Path(f"/proc/{ray.get(actor.helper.remote(env_fns))}")
    assert helper.exists()
    ray.kill(actor)
    end = time.monotonic() + 20.0
    while helper.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not helper.exists()
