"""Masks: what is asked, what is refused, and predictions with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrib_trainers import Masked, ToyOf, make
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3.common.policies import ActorCriticPolicy
from trainers import PROCESSES, Toy

from reactor_sb3.contrib import SyncMaskablePPO


class Closed(Masked):
    """Forbids everything at the third step of an episode."""

    def action_masks(self) -> Any:
        return np.full(3, self.t != 2)


class Own(MaskableActorCriticPolicy):
    """Has a forward of its own."""

    def forward(self, obs: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
        return super().forward(obs, deterministic, action_masks)


def wrapped() -> Any:
    return ActionMasker(Toy(), lambda env: np.array([True, False, True]))


@pytest.mark.parametrize("place", [{}, PROCESSES], ids=str)
def test_masks_that_forbid_everything(place: dict[str, Any]) -> None:
    with (
        make("maskable_ppo", Closed, **place) as model,
        pytest.raises(ValueError, match=r"environment 0 forbid every choice at step"),
    ):
        model.learn(64)


def test_environments_without_masks() -> None:
    with make("maskable_ppo", Toy) as model, pytest.raises(AttributeError, match=r"environment 0 has no action_masks\(\)"):
        model.learn(64)


def test_policies_without_masks() -> None:
    with pytest.raises(TypeError, match="SyncMaskablePPO needs a MaskableActorCriticPolicy, got ActorCriticPolicy"):
        make("maskable_ppo", policy=ActorCriticPolicy)


def test_a_mask_may_be_a_wrappers() -> None:
    with make("maskable_ppo", wrapped, evaluate_every=1, evaluate_episodes=2) as model:
        model.learn(256)
        assert set(np.unique(model.rollout_buffer.actions)) == {0, 2}
        seen = model.observation_space.sample()
        assert {int(model.predict(seen, action_masks=[False, True, False])[0]) for _ in range(9)} == {1}


def test_a_policy_of_your_own_is_given_masks() -> None:
    with make("maskable_ppo", ToyOf("maskable_ppo"), Own, evaluate_every=1, evaluate_episodes=2) as model:
        model.learn(256)  # the environment would fail
        assert len(model.evaluations) > 1


def test_without_masking(tmp_path: Path) -> None:
    with make("maskable_ppo", Toy) as model:
        model.learn(64, use_masking=False)
        assert set(np.unique(model.rollout_buffer.actions)) == {0, 1, 2}
        model.save_checkpoint(tmp_path / "run.zip")
        weights = model.learn(64, use_masking=False, reset_num_timesteps=False).fingerprint()
    with SyncMaskablePPO.resume(tmp_path / "run.zip") as model:
        assert model.learn(64, use_masking=False, reset_num_timesteps=False).fingerprint() == weights


class ByChoice(Toy):
    """Whose masks have a row for each choice."""

    def __init__(self) -> None:
        super().__init__(actions=spaces.MultiDiscrete([3, 3]))

    def action_masks(self) -> Any:
        return [[True, False, True], [False, True, True]]


def test_masks_with_a_row_for_each_choice() -> None:
    with make("maskable_ppo", ByChoice) as model:
        model.learn(128)
        taken = model.rollout_buffer.actions.reshape(-1, 2)
    assert set(taken[:, 0]) == {0, 2} and set(taken[:, 1]) == {1, 2}
