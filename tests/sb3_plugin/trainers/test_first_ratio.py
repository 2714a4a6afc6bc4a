"""Who acts and who learns have one order of sums: before the first update of a round PPO's ratios are exactly 1."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from policy_cases import CASES, choices_of
from stable_baselines3.common.logger import configure

from reactor_torch import kernels

NAMES = [name for name, case in CASES.items() if case.plain and case.judged and not case.touched]

pytestmark = [
    pytest.mark.usefixtures("small_blocks"),
    pytest.mark.skipif(kernels.compiled is None, reason="torch has other last bits where it differentiates"),
]


class Chance(gymnasium.Env[Any, Any]):
    """Observations, rewards and masks by chance; episodes of seven steps."""

    def __init__(self, observed: Any, actions: Any) -> None:
        self.observation_space, self.action_space = observed, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(1000)))
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), float(self.np_random.normal()), self.steps == 7, False, {}

    def action_masks(self) -> Any:
        parts = [self.np_random.random(size) < 0.5 for size in choices_of(self.action_space)]
        for part in parts:
            part[self.np_random.integers(len(part))] = True
        return np.concatenate(parts)


def divergence(folder: Path, name: str, rows: int, epochs: int) -> tuple[float, float]:
    """Of the last epoch of a round of 64 steps, as it is logged: the divergence, and how many ratios were clipped."""
    case = CASES[name]
    model = case.make(
        case.kind, partial(Chance, case.observed, case.actions), n_actors=2, envs_per_actor=2, n_steps=16, batch_size=rows,
        n_epochs=epochs, clip_range=1e-7, seed=0, policy_kwargs=case.small() | case.network, executor="inline", device="cpu",
        **case.more,
    )  # fmt: skip
    with model:
        model.set_logger(configure(str(folder), ["csv"]))
        model.learn(64)
        model.logger.close()
    (logged,) = csv.DictReader((folder / "progress.csv").read_text().splitlines())
    return float(logged["train/approx_kl"]), float(logged["train/clip_fraction"])


@pytest.mark.parametrize("name", NAMES)
def test_the_first_ratio_is_one(name: str, tmp_path: Path) -> None:
    assert divergence(tmp_path, name, 64, 1) == (0.0, 0.0)


@pytest.mark.slow
def test_later_ones_are_not(tmp_path: Path) -> None:
    assert min(divergence(tmp_path, "ppo box, apart", 64, 2)) > 0.0
    assert min(divergence(tmp_path, "ppo box, apart", 16, 1)) > 0.0
