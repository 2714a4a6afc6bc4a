"""SB3's models of SAC and TD3, our learners for them, and transitions to learn from."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.sac.policies import SACPolicy
from torch import nn

from reactor_sb3.learning.entropy import FixedEntropy, LearnedEntropy
from reactor_sb3.learning.sac_learner import SACLearner
from reactor_sb3.learning.td3_learner import TD3Learner
from reactor_torch import SACBatch, TD3Batch

ROWS = 32
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
SPACES: dict[str, tuple[str, spaces.Space[Any]]] = {
    "box": ("MlpPolicy", spaces.Box(-np.inf, np.inf, (5,), np.float32)),
    "discrete": ("MlpPolicy", spaces.Discrete(4)),
    "image": ("CnnPolicy", spaces.Box(0, 255, (1, 36, 36), np.uint8)),
    "dict": (
        "MultiInputPolicy",
        spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(3)}),
    ),
}


class Nothing(gymnasium.Env[Any, Any]):
    """Spaces; nobody steps it."""

    def __init__(self, observed: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observed, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


class Normalising(FlattenExtractor):
    """Observations with the mean and the deviation of a batch."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.flatten = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(self.features_dim))


class NormalisingCritics(SACPolicy):
    """Of which the critics alone normalise their observations."""

    def make_critic(self, features_extractor: Any = None) -> Any:
        return super().make_critic(Normalising(self.observation_space).to(self.device))


class Mixing(BaseFeaturesExtractor):
    """A layer of its own for a dict."""

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__(space, 6)
        self.layer = nn.Linear(6, 6)

    def forward(self, observations: Any) -> torch.Tensor:
        return torch.tanh(self.layer(torch.cat([part.flatten(1) for part in observations.values()], 1)))


def model_of(algorithm: str, kind: str = "box", **changed: Any) -> Any:
    """SB3's, in the state in which its ``train`` is called."""
    usual, observed = SPACES[kind]
    policy = changed.pop("policy", usual)
    network: dict[str, Any] = {"net_arch": [24, 16], **changed.pop("policy_kwargs", {})}
    if kind == "image":
        network["features_extractor_kwargs"] = {"features_dim": 16}
    if kind == "dict":
        network.setdefault("features_extractor_class", Mixing)
    made: Any = {"sac": SAC, "td3": TD3}[algorithm]
    model = made(
        policy, Nothing(observed), **{"buffer_size": 10, "seed": 1, "device": "cpu", "policy_kwargs": network, **changed}
    )  # fmt: skip
    model.set_logger(configure(None, []))
    return model


def observations_of(space: spaces.Space[Any], rows: int, generator: np.random.Generator) -> Any:
    """As a replay buffer gives them."""
    if isinstance(space, spaces.Dict):
        return {key: observations_of(one, rows, generator) for key, one in space.items()}
    if isinstance(space, spaces.Discrete):
        return torch.from_numpy(generator.integers(0, int(space.n), (rows, 1)))
    assert isinstance(space, spaces.Box)
    if space.dtype == np.uint8:
        return torch.from_numpy(generator.integers(0, 256, (rows, *space.shape)).astype(np.uint8))
    return torch.from_numpy(generator.normal(size=(rows, *space.shape)).astype(np.float32))


def replay(model: Any, rows: int, generator: np.random.Generator, discounts: bool = False) -> ReplayBufferSamples:
    """What a replay buffer might give."""
    columns = torch.from_numpy(generator.normal(size=(2, rows, 1)).astype(np.float32))
    return ReplayBufferSamples(
        observations_of(model.observation_space, rows, generator),
        torch.from_numpy(generator.uniform(-1, 1, (rows, *ACTIONS.shape)).astype(np.float32)),
        observations_of(model.observation_space, rows, generator),
        (columns[0] > 1).float(), 3 * columns[1],
        torch.from_numpy(generator.uniform(0.9, 1, (rows, 1)).astype(np.float32)) if discounts else None,
    )  # fmt: skip


def learner_of(model: Any, split: bool = False) -> Any:
    if isinstance(model, TD3):
        return TD3Learner(model.policy, split)
    learned = model.ent_coef_optimizer is not None
    entropy: Any = (
        LearnedEntropy(model.log_ent_coef, model.ent_coef_optimizer, model.target_entropy)
        if learned
        else FixedEntropy(float(model.ent_coef_tensor))
    )
    return SACLearner(model.policy, entropy, split)


def batch_of(model: Any, learner: Any, given: ReplayBufferSamples) -> Any:
    """With noise that torch's generator gives in the order in which SB3 draws it."""
    seen, shape = learner.observations, given.actions.shape
    parts = (
        seen(given.observations), given.actions, seen(given.next_observations), given.dones, given.rewards,
        model.gamma if given.discounts is None else given.discounts,
    )  # fmt: skip
    if isinstance(model, SAC):
        return SACBatch(*parts, torch.randn(shape), torch.randn(shape))
    limit = model.target_noise_clip
    return TD3Batch(*parts, torch.empty(shape).normal_(0, model.target_policy_noise).clamp_(-limit, limit))


def learn(model: Any, learner: Any, given: ReplayBufferSamples, before: int) -> dict[str, Any]:
    learner.begin_round()
    batches = [batch_of(model, learner, given)]
    if isinstance(model, SAC):
        return learner.learn(batches, model.tau, model.target_update_interval)
    return learner.learn(batches, model.tau, model.policy_delay, before)


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "SAC": ("sac", "box", {}),
    "SAC, auto_0.1": ("sac", "box", {"ent_coef": "auto_0.1", "target_entropy": -0.5}),
    "SAC, fixed": ("sac", "box", {"ent_coef": 0.2, "learning_rate": 1e-3}),
    "TD3": ("td3", "box", {}),
    "TD3, no delay": ("td3", "box", {"policy_delay": 1}),
    "TD3, delay 3": ("td3", "box", {"policy_delay": 3, "target_policy_noise": 0.4, "target_noise_clip": 0.3}),
    **{
        f"{algorithm.upper()}, {kind}{', shared' * shared}": (
            algorithm, kind, {"policy_kwargs": {"share_features_extractor": shared}},
        )
        for algorithm in ("sac", "td3")
        for kind in ("image", "dict")
        for shared in (False, True)
    },
    "SAC, dict, SB3's extractor": ("sac", "dict", {"policy_kwargs": {"features_extractor_class": CombinedExtractor}}),
    "SAC, one of many": ("sac", "discrete", {}),
    "TD3, one of many": ("td3", "discrete", {"policy_delay": 1}),
    "SAC, batch normalisation": ("sac", "box", {"policy": NormalisingCritics}),
    "TD3, batch normalisation": ("td3", "box", {"policy_kwargs": {"features_extractor_class": Normalising}, "policy_delay": 1}),
    "TD3, RMSprop, shared": (
        "td3", "dict",
        {"policy_kwargs": {"share_features_extractor": True, "optimizer_class": torch.optim.RMSprop}, "policy_delay": 1},
    ),
    "SAC, AdamW": (
        "sac", "box", {"policy_kwargs": {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1}}},
    ),
    "SAC, tanh, no hidden layers": ("sac", "box", {"policy_kwargs": {"activation_fn": nn.Tanh, "net_arch": {"pi": [], "qf": [9]}}}),
    **{
        f"{algorithm.upper()}, {count} critics": (algorithm, "box", {"policy_kwargs": {"n_critics": count}})
        for algorithm in ("sac", "td3")
        for count in (1, 3)
    },
}  # fmt: skip
