"""How the actors evaluate a Q-network of SB3's policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from reactor_torch import Layered, Network, TorchNetwork, layers_of

__all__ = ["features_of", "layered_of", "network_of"]


def features_of(space: spaces.Space[Any], *, normalized: bool) -> tuple[int, bool] | None:
    """What SB3 makes of observations before the first layer, if it does nothing else: flattens them, or sets one of many to 1.

    Args:
        space: Of observations.
        normalized: Whether images are divided by 255.

    Returns:
        How many numbers there are then, and whether one of them is 1 and all others are 0.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n), True
    if not isinstance(space, spaces.Box) or (is_image_space(space) and normalized):
        return None
    return int(np.prod(space.shape)), False


def network_of(q_net: nn.Module, space: spaces.Space[Any]) -> Network:
    """The structure of a Q-network, as light to evaluate as possible."""
    return layered_of(q_net, space) or TorchNetwork(q_net, keyed=isinstance(space, spaces.Dict))


def layered_of(network: nn.Module, space: spaces.Space[Any], name: str = "q_net", more: int = 0) -> Layered | None:
    """The layers of a network, if there is nothing but what :class:`~reactor_torch.Layered` evaluates.

    Args:
        network: One of SB3's.
        space: Of observations.
        name: Of the layers in it, which follow its features extractor.
        more: How many numbers they are given behind those of observations.
    """
    body = getattr(network, name, None)
    flat = features_of(space, normalized=getattr(network, "normalize_images", True))
    extractor = type(getattr(network, "features_extractor", None))
    if extractor is not FlattenExtractor or type(body) is not nn.Sequential or flat is None:
        return None
    features, one_hot = flat
    layers = layers_of(((f"{name}.{number}", module) for number, module in enumerate(body)), features + more)
    return Layered(layers, features, one_hot) if layers is not None and Layered.knows(layers) else None
