"""Masks: what is asked, what is refused, and predictions with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import ToyOf, make
from every_other import in_turn
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3.common.policies import ActorCriticPolicy
from trainers import Toy

from reactor_sb3 import SyncMaskablePPO


class Own(MaskableActorCriticPolicy):
    """Has a forward of its own."""

    def forward(self, obs: Any, deterministic: bool = False, action_masks: Any = None) -> Any:
        return super().forward(obs, deterministic, action_masks)


def wrapped() -> Any:
    return ActionMasker(Toy(), lambda env: np.array([True, False, True]))


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


@pytest.mark.slow
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


class Answering(Toy):
    """Answers something of its own when it is asked for masks."""

    def __init__(self, actions: Any, answer: Any) -> None:
        super().__init__(actions=actions)
        self.answer = answer

    def action_masks(self) -> Any:
        return self.answer


THREE, PAIRS, BITS = spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(2)
NO_MASKS: list[tuple[Any, Any, str]] = [
    (THREE, np.ones(2, bool), r"returned an array of shape \(2,\), and for actions of Discrete\(3\) there are 3 masks in a row"),
    (THREE, np.ones(4, bool), r"returned an array of shape \(4,\)"),
    (THREE, None, "returned None"),
    (THREE, True, "returned True"),
    (THREE, "110", "returned '110'"),
    (THREE, {"a": 1}, r"returned \{'a': 1\}"),
    (THREE, [], r"returned an array of shape \(0,\)"),
    (THREE, np.ones((3, 1)), r"returned an array of shape \(3, 1\)"),
    (THREE, np.ones((3, 3)), r"returned an array of shape \(3, 3\)"),
    (THREE, [[1], [1, 0]], r"returned \[\[1\], \[1, 0\]\]"),
    (THREE, ["1", "0", "1"], "in which some masks are neither true nor false, 1 nor 0"),
    (THREE, [1, np.nan, 0], "neither true nor false"),
    (THREE, [0.5, 0.5, 1], "neither true nor false"),
    (THREE, [2, 1, 0], "neither true nor false"),
    (THREE, [None, True, True], "neither true nor false"),
    (PAIRS, np.ones(3, bool), "there are 5 masks in a row"),
    (PAIRS, np.ones((2, 3)), "there are 5 masks in a row"),
    (BITS, np.ones(2, bool), "there are 4 masks in a row"),
]
MASKS: list[tuple[Any, Any]] = [
    (THREE, [1, 0, 1]), (THREE, np.array([1.0, 0.0, 1.0])), (THREE, np.ones(3, np.int8)), (THREE, np.ones((1, 3))),
    (THREE, torch.ones(3, dtype=torch.bool)), (PAIRS, np.ones(5)), (PAIRS, [[1, 0, 1], [0, 1]]),
    (PAIRS, (np.ones(3), np.ones(2, bool))), (BITS, np.ones(4)), (BITS, np.ones((2, 2), bool)),
]  # fmt: skip


@in_turn("number", range(len(NO_MASKS)), kept=7)
def test_masks_that_are_none(number: int) -> None:
    space, answer, said = NO_MASKS[number]
    with make("maskable_ppo", lambda: Answering(space, answer), n_actors=2) as model:
        with pytest.raises(ValueError, match=rf"^action_masks\(\) of environment 0 .*{said}") as raised:
            model.learn(64)
    assert "raised in environment 0" in raised.value.__notes__


@in_turn("number", range(len(MASKS)), kept=5)
def test_masks_of_every_kind(number: int) -> None:
    space, answer = MASKS[number]
    with make("maskable_ppo", lambda: Answering(space, answer), n_actors=2, evaluate_every=1) as model:
        model.learn(64)
