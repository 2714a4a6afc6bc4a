"""SB3's models of SAC and TD3, updates of our trainers for them, and transitions to learn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from reactor_sb3 import ALGORITHMS
from reactor_sb3.trainers.learner import finish
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_torch import Networks, Update

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


class OneWidth(SACPolicy):
    """With gSDE whose deviations are the same for all actions."""

    def make_actor(self, features_extractor: Any = None) -> Any:
        given = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return Actor(**given, full_std=False).to(self.device)


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


class Learner:
    """A model of SB3's that is updated as a trainer of ours does it.

    Args:
        model: The model; its attributes are this one's.
        split: Whether both losses are computed from the same weights.
    """

    def __init__(self, model: Any, split: bool = False) -> None:
        self.model, self.split = model, split
        self.trainer: Any = ALGORITHMS[f"Sync{type(model).__name__}"].cls
        self.nets = Networks(self.trainer.networks(self), self.trainer.losses(self))
        self.update_in_round = self._n_updates = 0
        self.generator = torch.default_generator

    def __getattr__(self, name: str) -> Any:
        model = self.__dict__["model"]
        return getattr(model if hasattr(model, name) else self.__dict__["trainer"], name)

    def descend(self, **minibatches: Any) -> Update:
        found: Update = self.trainer.descend(self, **minibatches)
        return found

    def step_along(self, loss: str, statistics: Mapping[str, float]) -> None:
        self.trainer.step_along(self, loss, statistics)

    def named(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        names: dict[str, float] = self.trainer.named(self, found)
        return names

    def seen(self, rows: Any) -> Any:
        return self.trainer.seen(self, rows)

    def standard_normal(self, actions: torch.Tensor) -> torch.Tensor:
        return OffPolicyTrainer.standard_normal(cast(Any, self), actions)

    def batch(self, given: ReplayBufferSamples) -> Any:
        """With noise that torch's generator gives in the order in which SB3 draws it."""
        return self.trainer.batch(self, OffPolicyTrainer._transitions(cast(Any, self), given))

    def updates(self, given: Iterable[ReplayBufferSamples], before: int = 0) -> Update:
        """Updates of a round; each returns what is logged, by name."""
        self.nets.begin_round(self.nets.losses)
        self._n_updates = before
        found: list[dict[str, float]] = []
        for self.update_in_round, one in enumerate(given):
            self._n_updates += 1
            found.append((yield from self.trainer.update(self, self.batch(one))))
        self.nets.end_round()
        return {name: [one[name] for one in found if name in one] for name in found[-1]}  # type: ignore[return-value]


def learn(learner: Learner, given: ReplayBufferSamples, before: int) -> dict[str, Any]:
    """One update; returns the only value of what is logged, in a list, by name."""
    return finish(learner.updates([given], before), learner.nets)


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
    "SAC, gSDE": ("sac", "box", {"use_sde": True, "policy_kwargs": {"log_std_init": -1}}),
    "SAC, gSDE, fixed": ("sac", "box", {"use_sde": True, "ent_coef": 0.2, "policy_kwargs": {"clip_mean": 0.2, "log_std_init": -2}}),
    "SAC, gSDE, expln": (
        "sac", "box", {"use_sde": True, "policy_kwargs": {"use_expln": True, "log_std_init": 0.01, "net_arch": [8, 2]}},
    ),
    "SAC, gSDE, one width": ("sac", "box", {"use_sde": True, "policy": OneWidth}),
    "SAC, gSDE, no bounds": ("sac", "box", {"use_sde": True, "policy_kwargs": {"clip_mean": 0.0, "activation_fn": nn.Tanh}}),
    "SAC, gSDE, dict": ("sac", "dict", {"use_sde": True}),
    **{
        f"{algorithm.upper()}, {count} critics": (algorithm, "box", {"policy_kwargs": {"n_critics": count}})
        for algorithm in ("sac", "td3")
        for count in (1, 3)
    },
}  # fmt: skip
