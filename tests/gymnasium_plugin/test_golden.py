"""Fingerprints that are kept in the repository: not only alike on every number of workers, but what they were before.

Only environments whose arithmetic is exact everywhere: numpy's sines and cosines differ in the last bit between processors.
"""

from __future__ import annotations

import pytest

from reactor_gymnasium import rollout

GOLDEN = {
    "Blackjack-v1": "6bf23c7cd5bd82c03cf51451a0d7a474",
    "FrozenLake-v1": "a664cd55b33db0260a99bbf9723be064",
}


@pytest.mark.parametrize(("executor", "workers"), [("inline", 1), ("threads", 3), ("processes", 2), ("processes", 4)])
@pytest.mark.parametrize("env_id", sorted(GOLDEN))
def test_the_fingerprint_is_the_one_on_record(env_id: str, executor: str, workers: int) -> None:
    assert rollout(env_id, num_envs=8, seed=0).fingerprint(executor, workers, ticks=100) == GOLDEN[env_id]
