"""A torch module as layers: what those who evaluate networks without torch know of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

__all__ = ["Layer", "layers_of"]

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


class Layer(NamedTuple):
    """One layer.

    Attributes:
        kind: ``"linear"``, ``"normalised"`` (LayerNorm), or an activation: ``"relu"``, ``"tanh"``, ``"sigmoid"``.
        name: Its module's name, under which a state dict has its parameters.
        inputs: How many numbers it is given.
        outputs: How many it gives.
        epsilon: What a normalisation adds to the variance.
    """

    kind: str
    name: str
    inputs: int
    outputs: int
    epsilon: float = 0.0


def layers_of(modules: Iterable[tuple[str, nn.Module]], width: int) -> tuple[Layer, ...] | None:
    """Modules that follow each other, as layers.

    Args:
        modules: Their names, and themselves.
        width: How many numbers the first one is given.

    Returns:
        The layers; ``None`` if one of them is of another kind or does not fit the one before.
    """
    layers = []
    for name, module in modules:
        if type(module) is nn.Linear and module.weight.dtype == torch.float32 and module.in_features == width:
            layers.append(Layer("linear", name, width, module.out_features))
            width = module.out_features
        elif type(module) is nn.LayerNorm and module.normalized_shape == (width,) and module.bias is not None:
            layers.append(Layer("normalised", name, width, width, module.eps))
        elif type(module) in _ACTIVATIONS:
            layers.append(Layer(_ACTIVATIONS[type(module)], name, width, width))
        else:
            return None
    return tuple(layers)
