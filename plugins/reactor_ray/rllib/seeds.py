"""Seeds of a runner's environments, keyed by what they are for: no two environments of an algorithm share one."""

from __future__ import annotations

import numpy as np

__all__ = ["environment_seeds"]


def environment_seeds(seed: int, runner: int, num_envs: int, *, evaluation: bool = False) -> list[int]:
    """One seed below 2**31 for each environment.

    RLlib gives environment ``i`` of runner ``r`` the seed ``seed + r + i``, so that environment 1 of runner 1 plays the episodes
    of environment 0 of runner 2.

    Args:
        seed: That of the algorithm.
        runner: The index of the runner: 0 is the local one.
        num_envs: How many environments it has.
        evaluation: Whether the runner is one of those that evaluate.
    """
    keys = [(int(evaluation), runner, index) for index in range(num_envs)]
    return [int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0]) >> 1 for key in keys]
