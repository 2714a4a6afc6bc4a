"""Fingerprints that are kept in the repository: not only alike on every number of workers, but what they were before.

Only environments whose arithmetic is exact everywhere: numpy's sines and cosines differ in the last bit between processors.
"""

from __future__ import annotations

from typing import Any

import pytest

from reactor_gymnasium import rollout

GOLDEN = {"Blackjack-v1": "6bf23c7cd5bd82c03cf51451a0d7a474", "FrozenLake-v1": "a664cd55b33db0260a99bbf9723be064"}

ATARI = {0: "275d77fbd4aaaab820787e21a4315ecf", 2: "4544f7838f01ec1954f905a43e809707"}
"""By ``batch_size``: it decides which results come when."""


@pytest.mark.parametrize(("executor", "workers"), [("inline", 1), ("threads", 3), ("processes", 2), ("processes", 4)])
@pytest.mark.parametrize("env_id", sorted(GOLDEN))
def test_the_fingerprint_is_the_one_on_record(env_id: str, executor: str, workers: int) -> None:
    assert rollout(env_id, num_envs=8, seed=0).fingerprint(executor, workers, ticks=100) == GOLDEN[env_id]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "workers", "batch_size"), [("inline", 1, 0), ("threads", 3, 2), ("processes", 2, 0), ("processes", 3, 2)]
)
def test_the_fingerprint_of_atari(executor: str, workers: int, batch_size: int) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    options: dict[str, Any] = {"preprocess": True, "batch_size": batch_size, "max_num_frames_per_episode": 60}
    assert rollout("ALE/Pong-v5", num_envs=4, seed=0, **options).fingerprint(executor, workers, ticks=40) == ATARI[batch_size]
