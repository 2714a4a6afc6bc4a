"""Each update of SyncDQN, begun from SB3's own weights and moments, ends with the weights of SB3's own ``train()``."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn
from trainers import BOX, SPACES, Toy, both, new, same_draws

from reactor_sb3 import SyncDQN
from reactor_sb3.streams import Purpose, drawing_from, stream
from reactor_sb3.trainers.learner import finish, scratch_of, throw_away_update
from reactor_torch import kernels

pytestmark = pytest.mark.usefixtures("small_blocks")
UPDATES = 25
CLOSE = 1e-5


class Frozen(DQNPolicy):
    """Its first layer is left as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.q_net.q_net[0].requires_grad_(False)


class AllButABias(DQNPolicy):
    """Its optimiser does not know of one parameter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        learned = [weights for name, weights in self.q_net.named_parameters() if name != "q_net.2.bias"]
        self.optimizer = torch.optim.Adam(learned, lr=1e-4)


class Doubled(QNetwork):
    """The layers of SB3's, and values that are twice as high."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(obs)


class Doubling(DQNPolicy):
    """A policy of such networks."""

    def make_q_net(self) -> QNetwork:
        return Doubled(**self._update_features_extractor(self.net_args)).to(self.device)


class Halved(NatureCNN):
    """Features that nobody could know by the layers alone."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations) / 2


KINDS = {
    **SPACES,
    "parts": ("MultiInputPolicy", spaces.Dict(place=spaces.Box(-1, 1, (2, 2), np.float64), vector=BOX)),
}
CASES: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    # Where gradients come from, observations, the policy if it is not SB3's usual one, and what differs otherwise.
    "as it comes": ("compiled", "box", None, {}),
    "clipped often, quick": ("compiled", "box", None, {"max_grad_norm": 0.1, "learning_rate": lambda remaining: 1e-3 * remaining}),
    "3 steps": ("compiled", "box", None, {"n_steps": 3, "gamma": 0.9}),
    "discrete observations": ("compiled", "discrete", None, {}),
    "no timeouts": ("compiled", "box", None, {"replay_buffer_kwargs": {"handle_timeout_termination": False}}),
    "AdamW": (
        "compiled", "box", None,
        {"policy_kwargs": {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1, "eps": 1e-6}}},
    ),
    "RMSprop": ("compiled", "box", None, {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop, "net_arch": [16, 16]}}),
    "tanh": ("compiled", "box", None, {"policy_kwargs": {"activation_fn": nn.Tanh, "net_arch": [24]}}),
    "another activation": ("autograd", "box", None, {"policy_kwargs": {"activation_fn": nn.ELU, "net_arch": [24]}}),
    "images": ("autograd" if kernels.compiled is None else "compiled", "image", None, {}),
    "images with a forward of their own": ("autograd", "image", None, {"policy_kwargs": {"features_extractor_class": Halved}}),
    "dict": ("autograd", "dict", None, {}),
    "a dict of numbers": ("compiled", "parts", None, {}),
    "a forward of its own": ("autograd", "box", Doubling, {}),
    "images and a forward of its own": ("autograd", "image", Doubling, {"policy_kwargs": {"features_extractor_class": NatureCNN}}),
    "frozen layer": ("autograd", "box", Frozen, {}),
    "a bias that the optimiser lacks": ("autograd", "box", AllButABias, {}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_update_is_that_of_sb3(case: str) -> None:
    gradients, kind, policy, changed = CASES[case]
    usual, space = KINDS[kind]
    ours = new("dqn", partial(Toy, space), policy or usual, **{"learning_rate": 1e-4, "learning_starts": 10**6, **changed})
    with ours:
        ours.learn(160)
    assert f"gradients={gradients!r}" in repr(ours)
    names = {
        "learning_rate", "gamma", "max_grad_norm", "n_steps", "policy_kwargs", "buffer_size", "batch_size", "replay_buffer_kwargs",
    }  # fmt: skip
    theirs = DQN(policy or usual, ours.get_env(), device="cpu", seed=5, **{name: ours.arguments[name] for name in names})
    theirs.set_logger(configure(None, []))
    theirs.replay_buffer = ours.replay_buffer
    updates, batch_size = (10, 8) if kind == "image" else (UPDATES, 32)  # convolutions take their time
    for update in range(updates):
        if update % 10 == 0:
            with drawing_from(stream(update, Purpose.MINIBATCHES)):
                theirs.train(2, batch_size)  # so that ours has other weights and moments to begin with
            polyak_update(theirs.q_net.parameters(), theirs.q_net_target.parameters(), 0.5)
            theirs._current_progress_remaining = ours._current_progress_remaining = 1 - update / updates
        ours.set_parameters(deepcopy(theirs.get_parameters()))  # torch's optimisers keep what they are given
        before = [weights.clone() for weights in theirs.q_net.parameters()]
        for model in (theirs, ours):
            with ours.limited_threads(), same_draws(ours, stream(update, Purpose.REPLAY)):
                model.train(1, batch_size)
        learned = False
        for old, mine, wanted in zip(before, ours.policy.parameters(), theirs.policy.parameters(), strict=False):
            torch.testing.assert_close(mine, wanted, rtol=0, atol=CLOSE)
            learned = learned or not torch.equal(old, wanted)
        assert learned, update
        expected = theirs.logger.name_to_value["train/loss"]
        assert ours.logger.name_to_value["train/loss"] == pytest.approx(expected, rel=1e-5), update


@pytest.mark.parametrize("policy", ["MlpPolicy", Frozen, AllButABias])
def test_target_networks_follow(policy: Any) -> None:
    """Whatever of the network learns, all of it arrives in the target network."""
    with new("dqn", policy=policy, gradient_steps=1, target_update_interval=10**6) as model:
        model.learn(128)
        target = model.q_net_target
        first = [weights.clone() for weights in target.parameters()]
        with torch.no_grad():
            for weights in model.q_net.parameters():
                weights += 1
        model.gradient_steps, model.target_update_interval = 0, model.n_envs * model.rollout_steps  # once a round
        model.tau = 0.25
        model.learn(model.n_envs * model.rollout_steps, reset_num_timesteps=False)
        for now, old, source in zip(target.parameters(), first, model.q_net.parameters(), strict=True):
            torch.testing.assert_close(now, old + 0.25 * (source - old))
        model.tau = 1.0
        model.learn(model.n_envs * model.rollout_steps, reset_num_timesteps=False)
        assert all(torch.equal(*pair) for pair in zip(target.parameters(), model.q_net.parameters(), strict=True))


@both
def test_what_is_measured_is_an_update_of_a_copy(algorithm: str) -> None:
    """The placement times the learner itself, and the model stays as it was."""
    with new(algorithm) as model:
        model.learn(128)
        update = throw_away_update(model)
        assert model.updates_due() == {"dqn": 2, "pqn": 4}[algorithm]
        weights, moments = model.fingerprint(), deepcopy(model.policy.optimizer.state_dict()["state"])
        scratch = scratch_of(model)
        assert scratch.nets.compiled == model.nets.compiled
        before = [one.clone() for one in scratch.policy.q_net.parameters()]
        batch = model.example()
        finish(scratch.update(batch), scratch.nets)
        assert not all(torch.equal(*pair) for pair in zip(before, scratch.policy.q_net.parameters(), strict=True))
        update()
        assert model.fingerprint() == weights
        now = model.policy.optimizer.state_dict()["state"]
        assert all(torch.equal(moments[index][name], now[index][name]) for index in moments for name in moments[index])


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    with SyncDQN("MlpPolicy", "CartPole-v1", learning_starts=0, batch_size=4, seed=0, executor="inline") as model:
        model.learn(16)
        done = model.n_updates
        with torch.no_grad():
            next(model.q_net.parameters()).fill_(float("nan"))
        with pytest.raises(ValueError, match=rf"loss is nan in update {done + 1}, and so are the parameters"):
            model.learn(16, reset_num_timesteps=False)
