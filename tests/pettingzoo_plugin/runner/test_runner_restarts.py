"""A runner whose workers are killed reports what one does that was left alone."""

from __future__ import annotations

import os
import random
import signal
import warnings
from functools import partial
from typing import Any

import pytest
from mpe2 import simple_spread_v3
from runner_envs import mlp

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
from reactor_rl import RecoveryWarning

spread = partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)
POLICIES: dict[str, Any] = {"by row": lambda: {"all": RandomPolicy()}, "together": lambda: {"all": mlp(0, 18, 5)}}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", POLICIES)
def test_killed_workers_change_no_result(name: str) -> None:
    how: dict[str, Any] = {"num_envs": 6}
    with MultiAgentRunner(spread, POLICIES[name](), executor="inline", **how) as runner:
        expected = [runner.run(600, seed=seed, progress_bar=False).fingerprint for seed in range(2)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with MultiAgentRunner(spread, POLICIES[name](), executor="processes", workers=3, restarts=9, **how) as runner:
            seen = []
            for seed in range(2):
                child = random.Random(seed).choice(runner._run._executor._processes)  # type: ignore[union-attr,attr-defined]
                os.kill(child.pid, signal.SIGKILL)
                seen.append(runner.run(600, seed=seed, progress_bar=False).fingerprint)
    assert seen == expected
    assert sum(one.category is RecoveryWarning for one in said) == 2
