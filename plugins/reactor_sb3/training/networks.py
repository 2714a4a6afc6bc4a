"""How the actors evaluate a Q-network of SB3's policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from reactor_torch import Layered, Network, TorchNetwork, layers_of

__all__ = ["network_of"]


def network_of(q_net: nn.Module, space: spaces.Space[Any]) -> Network:
    """The structure of a Q-network, as light to evaluate as possible."""
    return _layered(q_net, space) or TorchNetwork(q_net, keyed=isinstance(space, spaces.Dict))


def _layered(q_net: nn.Module, space: spaces.Space[Any]) -> Layered | None:
    """Its layers, if there is nothing but what :class:`~reactor_torch.Layered` evaluates."""
    body = getattr(q_net, "q_net", None)
    if type(getattr(q_net, "features_extractor", None)) is not FlattenExtractor or type(body) is not nn.Sequential:
        return None
    one_hot = isinstance(space, spaces.Discrete)
    if not one_hot and (not isinstance(space, spaces.Box) or (is_image_space(space) and getattr(q_net, "normalize_images", True))):
        return None
    features = int(space.n) if isinstance(space, spaces.Discrete) else int(np.prod(space.shape or ()))
    layers = layers_of(((f"q_net.{number}", module) for number, module in enumerate(body)), features)
    return Layered(layers, features, one_hot) if layers is not None and Layered.knows(layers) else None
