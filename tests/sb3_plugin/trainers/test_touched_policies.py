"""Policies that somebody has changed after they were made: what they compute is what acts and learns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn
from trainers import Toy

from reactor_sb3 import PQN, SyncDQN, SyncPPO, SyncSAC

pytestmark = pytest.mark.usefixtures("small_blocks")
BOX = spaces.Box(-1, 1, (2,), np.float32)


class Hooked(ActorCriticPolicy):
    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.value_net.register_forward_hook(lambda module, given, found: 100 * torch.tanh(found / 100) + 7)


class Shifted(ActorCriticPolicy):
    """Whose values have an offset that is not learned."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        nn.init.constant_(self.value_net.bias, 50.0)
        learned = [one for name, one in self.named_parameters() if name != "value_net.bias"]
        self.optimizer = torch.optim.Adam(learned, lr_schedule(1))


class Fixed(ActorCriticPolicy):
    """Whose standard deviations are not learned."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.log_std.requires_grad_(False)


class One(ActorCriticPolicy):
    """Which has one standard deviation for all actions."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.log_std = nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.Adam(self.parameters(), lr_schedule(1))


class Shared(ActorCriticPolicy):
    """Whose actor and critic have the same layers."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        self.mlp_extractor.value_net = self.mlp_extractor.policy_net


class Headless(ActorCriticPolicy):
    """Whose last layer has no bias."""

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Linear(self.mlp_extractor.latent_dim_pi, self.action_net.out_features, bias=False)  # type: ignore[arg-type]
        self.optimizer = torch.optim.Adam(self.parameters(), lr_schedule(1))


def taught(policy: Any, actions: Any) -> SyncPPO:
    """A trainer after a round, whose actors have noted what the policy computes: values, and probabilities of actions."""
    model = SyncPPO(
        policy, partial(Toy, actions=actions), n_actors=2, n_steps=16, batch_size=16, n_epochs=1, seed=0, executor="inline"
    )
    with model, torch.no_grad():
        before = {name: one.clone() for name, one in model.policy.state_dict().items()}
        model.learn(32)
        buffer = model.rollout_buffer
        after = model.policy.state_dict()
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        model.policy.load_state_dict(before)
        seen = torch.as_tensor(buffer.observations).flatten(0, 1)
        taken = torch.as_tensor(buffer.actions).flatten(0, 1).squeeze(-1).float()
        values, log_prob, _ = model.policy.evaluate_actions(seen, taken)
        np.testing.assert_allclose(values.flatten(), buffer.values.flatten(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(log_prob, buffer.log_probs.flatten(), rtol=1e-3, atol=1e-4)
        assert changed
    return model


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        (Hooked, BOX), (Shifted, spaces.Discrete(3)), (Fixed, BOX), (One, BOX),
        (Shared, spaces.Discrete(3)), (Headless, spaces.MultiBinary(3)),
    ],
)  # fmt: skip
def test_what_acts_is_what_the_policy_computes(policy: Any, actions: Any) -> None:
    model = taught(policy, actions)
    assert model.nets.compiled == (policy is Headless)
    if policy in (Hooked, Shared):
        assert model.acting()[1].policy.why_torch is not None


class Boltzmann(DQNPolicy):
    def _predict(self, obs: Any, deterministic: bool = True) -> torch.Tensor:
        return torch.distributions.Categorical(logits=self.q_net(obs)).sample()


def test_policies_that_choose_in_a_way_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Boltzmann has a _predict\(\) of its own"):
        SyncDQN(Boltzmann, "CartPole-v1", seed=0)
    assert PQN("MlpPolicy", "CartPole-v1", seed=0).nets.compiled


@pytest.mark.parametrize("envs", [1, 3])
def test_one_sigma_for_all_numbers_of_an_action(envs: int) -> None:
    noise = NormalActionNoise(np.zeros(2), 0.1)  # type: ignore[arg-type]
    with SyncSAC(
        "MlpPolicy", partial(Toy, actions=BOX), n_actors=2, envs_per_actor=envs, action_noise=noise, learning_starts=8,
        batch_size=8, seed=0, executor="inline",
    ) as model:  # fmt: skip
        assert model.learn(48).num_timesteps >= 48
