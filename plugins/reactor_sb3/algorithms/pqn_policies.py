"""Networks for PQN: layer normalisation after each hidden layer, before the activation, in the place of a target network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

__all__ = ["ANNEALED", "Annealed", "CnnPolicy", "MlpPolicy", "MultiInputPolicy", "NormalisedCnn", "PQNPolicy"]


class NormalisedCnn(BaseFeaturesExtractor):
    """The convolutions of Mnih et al. (2015) with layer normalisation, as in Gallici et al. (2024).

    Args:
        observation_space: Images, ``(channels, height, width)``.
        features_dim: Length of what comes out.
        normalized_image: Whether images are in [0, 1] already; accepted for SB3, which passes it.
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 512, normalized_image: bool = False) -> None:
        super().__init__(observation_space, features_dim)
        layers: list[nn.Module] = []
        sample = torch.zeros(1, *observation_space.shape)
        for channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            convolution = nn.Conv2d(sample.shape[1], channels, size, stride)
            with torch.no_grad():
                sample = convolution(sample)
            layers += [convolution, nn.LayerNorm(list(sample.shape[1:])), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(math.prod(sample.shape[1:]), features_dim), nn.LayerNorm(features_dim), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features of a batch of images."""
        return self.layers(observations)  # type: ignore[no-any-return]


class NormalisedQNetwork(QNetwork):
    """SB3's Q-network with layer normalisation, and initial weights as CleanRL's (orthogonal, gain sqrt 2)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        layers: list[nn.Module] = []
        width = self.features_dim
        for hidden in self.net_arch:
            layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), self.activation_fn()]
            width = hidden
        self.q_net = nn.Sequential(*layers, nn.Linear(width, int(self.action_space.n)))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]


class PQNPolicy(BasePolicy):
    """A Q-network and its optimiser.

    Args:
        observation_space: What is observed.
        action_space: What can be done.
        lr_schedule: Learning rate, by what remains of the training.
        net_arch: Hidden layers; by default 120 and 84, after ``NormalisedCnn`` none.
        activation_fn: Activation.
        features_extractor_class: What precedes them.
        features_extractor_kwargs: For it.
        normalize_images: Whether images are divided by 255.
        optimizer_class: The optimiser.
        optimizer_kwargs: For it.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.RAdam,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class,
            features_extractor_kwargs,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            normalize_images=normalize_images,
        )
        if net_arch is None:
            net_arch = [] if features_extractor_class is NormalisedCnn else [120, 84]
        self.net_args: dict[str, Any] = {
            "observation_space": observation_space,
            "action_space": action_space,
            "net_arch": net_arch,
            "activation_fn": activation_fn,
            "normalize_images": normalize_images,
        }
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        self.q_net = NormalisedQNetwork(**arguments).to(self.device)
        self.optimizer = self.optimizer_class(self.q_net.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def forward(self, obs: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        """Greedy actions."""
        return self._predict(obs, deterministic)

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        return self.q_net._predict(observation, deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {
            "net_arch": self.net_args["net_arch"],
            "activation_fn": self.net_args["activation_fn"],
            "lr_schedule": self._dummy_schedule,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            "features_extractor_class": self.features_extractor_class,
            "features_extractor_kwargs": self.features_extractor_kwargs,
        }


MlpPolicy = PQNPolicy


class CnnPolicy(PQNPolicy):
    """For images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"features_extractor_class": NormalisedCnn, **kwargs})


class MultiInputPolicy(PQNPolicy):
    """For dicts of observations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"features_extractor_class": CombinedExtractor, **kwargs})


@dataclass(frozen=True)
class Annealed:
    """A schedule that falls linearly, from ``initial`` in the first round towards 0 after the last."""

    initial: float

    def __call__(self, progress_remaining: float) -> float:
        return self.initial * progress_remaining


ANNEALED = Annealed(2.5e-4)
"""PQN's usual learning rate, which falls to 0 until the end of the training: that of purejaxql for Atari (Gallici et al. 2024)."""
