"""Kernels give the bits of SyncVectorEnv: what is returned, the states, the generators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.native.compiled import missing
from tests.gymnasium_plugin.native.cases import CASES, ROWS, Counted, in_modes, pair, same, walk

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*reward exceeding:UserWarning"),
]

ENDLESS = {"Pendulum-v1", "Pendulum, g=9.81"}
ENDS_LATE = {
    "Acrobot-v1",
    "MountainCar-v0",
    "CartPole-v0",
    "Taxi-v4",
    "Taxi, rainy and fickle",
    "CliffWalkingSlippery-v1",
    "MountainCarContinuous-v0",
}
ENDS_SOON = {"CartPole, sutton_barto_reward", "FrozenLake, not slippery", "Blackjack-v1", "Blackjack, natural"}


def compare(case: str, mode: AutoresetMode, steps: int, seed: int, monkeypatch: pytest.MonkeyPatch, **kwargs: Any) -> None:
    counted = Counted(monkeypatch)
    ours, theirs = pair(case, mode, **kwargs)
    terminated = truncated = both = 0
    try:
        for _, (_, _, ended, cut, _) in walk(case, ours, theirs, mode, steps, seed):
            terminated, truncated = terminated + int(ended.sum()), truncated + int(cut.sum())
            both += int((ended & cut).sum())
    finally:
        ours.close()
        theirs.close()
    assert counted.taken > steps // 2
    assert terminated > 0 or case in ENDLESS
    assert truncated > 0 or case in ENDS_SOON or (case in ENDS_LATE and steps < 1000)


@pytest.mark.parametrize("case", CASES)
def test_steps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, AutoresetMode.SAME_STEP, 200, 3, monkeypatch)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("case", ["CartPole-v1", "FrozenLake-v1"])
def test_modes(case: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, mode, 200, 3, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode", "seed"), in_modes(CASES))
def test_many_steps(case: str, mode: AutoresetMode, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, mode, 3000, seed, monkeypatch)


@pytest.mark.parametrize("case", ["CartPole-v1", "Taxi-v4"])
@pytest.mark.parametrize("place", [{"executor": "threads", "workers": 2}, {"executor": "processes", "workers": 2}])
def test_on_helpers(case: str, place: dict[str, Any]) -> None:
    mode = AutoresetMode.SAME_STEP
    ours, theirs = pair(case, mode, **place)
    try:
        for _ in walk(case, ours, theirs, mode, 150, 1):
            pass
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("case", ["CartPole-v1", "FrozenLake-v1"])
def test_resets_in_the_middle(case: str) -> None:
    ours, theirs = pair(case, AutoresetMode.NEXT_STEP)
    random = np.random.default_rng(0)
    try:
        for round_ in range(6):
            for step, _ in walk(case, ours, theirs, AutoresetMode.NEXT_STEP, 80, round_, look=1000):
                if step == 40:
                    mask = random.random(ROWS) < 0.5
                    mask[round_ % ROWS] = True
                    seeds = [None, *random.integers(0, 1 << 30, ROWS - 1).tolist()]
                    same(
                        ours.reset(seed=seeds, options={"reset_mask": mask.copy()}),
                        theirs.reset(seed=seeds, options={"reset_mask": mask.copy()}),
                    )
                if step == 60:
                    same(ours.reset(), theirs.reset())
    finally:
        ours.close()
        theirs.close()
