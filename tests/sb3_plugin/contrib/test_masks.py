"""Masks: what is asked, what is refused, and predictions with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_trainers import Masked, ToyOf, make
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3.common.policies import ActorCriticPolicy
from trainers import PROCESSES, Toy


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


def test_without_masking() -> None:
    with make("maskable_ppo", Toy) as model:
        model.learn(64, use_masking=False)
        assert set(np.unique(model.rollout_buffer.actions)) == {0, 1, 2}
