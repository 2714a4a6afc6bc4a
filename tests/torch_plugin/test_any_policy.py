"""Policies that only autograd can differentiate are learned as SB3 learns them, and flat models are saved and loaded by SB3."""

from __future__ import annotations

import copy
import io
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.logger import configure
from torch_plugin.sb3_models import WAYS, load_state, ppo, ppo_batch, ppo_learner, rollout

ROWS = 16
CLOSE = 1e-5
IMAGES = spaces.Box(0, 255, (1, 36, 36), np.uint8)
NUMBERS = spaces.Box(-1, 1, (3,), np.float32)


class Fixed(gymnasium.Env[Any, Any]):
    """Observations of a space that mean nothing; it never ends."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


def difference(ours: torch.nn.Module, theirs: torch.nn.Module) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


CASES: dict[str, tuple[str, spaces.Space[Any], spaces.Space[Any], dict[str, Any]]] = {
    "convolutions, shared": ("CnnPolicy", IMAGES, spaces.Discrete(3), {}),
    "convolutions, apart": ("CnnPolicy", IMAGES, spaces.Discrete(3), {"policy_kwargs": {"share_features_extractor": False}}),
    "dicts": ("MultiInputPolicy", spaces.Dict({"a": NUMBERS, "b": IMAGES}), spaces.MultiBinary(2), {}),
    "state-dependent exploration": ("MlpPolicy", NUMBERS, NUMBERS, {"use_sde": True, "ent_coef": 0.01}),
    "squashed": (
        "MlpPolicy", NUMBERS, NUMBERS,
        {"use_sde": True, "ent_coef": 0.01, "policy_kwargs": {"squash_output": True, "full_std": False, "use_expln": True}},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_any_policy_by_autograd(case: str) -> None:
    name, observations, actions, arguments = CASES[case]

    def made() -> PPO:
        env = Fixed(observations, actions)
        env.observation_space.seed(0)
        return PPO(name, env, n_steps=ROWS, batch_size=ROWS, n_epochs=1, seed=0, device="cpu", **arguments)

    theirs, ours = made(), made()
    learner = ppo_learner(ours, "written")
    theirs.learn(ROWS)  # fills the buffer, and moves away from the policy that filled it
    theirs.set_logger(configure(None, []))
    assert isinstance(theirs.rollout_buffer, DictRolloutBuffer) == (case == "dicts")
    for update in range(3):
        given = next(iter(theirs.rollout_buffer.get(ROWS)))
        load_state(ours, theirs)
        learner.begin()
        theirs.rollout_buffer.get = lambda _, given=given: iter([given])  # type: ignore[method-assign]
        theirs.train()
        del theirs.rollout_buffer.get
        ours.policy.set_training_mode(True)
        learner.update(ppo_batch(ours, given))
        assert difference(ours.policy, theirs.policy) < CLOSE, update


@in_turn("way", WAYS, kept=1)
def test_sb3_saves_and_loads_ppo(way: str) -> None:
    model, generator = ppo("box"), np.random.default_rng(0)
    learner = ppo_learner(model, way)
    batches = [ppo_batch(model, rollout(model, 64, generator)) for _ in range(4)]
    learner.begin()
    for batch in batches[:2]:
        learner.update(batch)
    file = io.BytesIO()
    model.save(file)
    loaded = PPO.load(file, device="cpu")
    fresh = ppo("box")
    fresh_learner = ppo_learner(fresh, way)
    fresh.set_parameters(copy.deepcopy(model.get_parameters()))  # moments are kept as they are given
    others = [ppo_learner(loaded, way), fresh_learner]
    for one in (learner, *others):
        one.begin()
        for batch in batches[2:]:
            one.update(batch)
        assert torch.equal(one.flat.data, learner.flat.data)
        assert torch.equal(torch.nn.utils.parameters_to_vector(model.policy.parameters()), one.flat.data)
