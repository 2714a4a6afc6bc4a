"""Networks of equal architecture, evaluated together.

Ten networks of 50-64-5 one by one spend nearly all their time in the dispatch of torch calls. Here they are one call of a compiled
extension; where it could not be built torch evaluates them, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from torch import nn

from reactor_rl.plugin import aligned_zeros
from reactor_torch import kernels
from reactor_torch.dense import Layer, acting_network, layers_of
from reactor_torch.forward import DenseForward
from reactor_torch.parameters import parameter_record, write_parameters
from reactor_torch.unmodified import reason

__all__ = ["DenseNetwork", "Stacked", "dense_network_of", "ends_in_softmax", "is_compiled"]

Array = npt.NDArray[Any]

_LAST = (nn.Softmax, nn.LogSoftmax)
"""Layers that may come last and are left out: actions are chosen by the logits before it."""


@dataclass(frozen=True)
class DenseNetwork:
    """Linear layers and activations.

    Attributes:
        layers: The layers, whose names are their places: networks of equal architecture have equal ones.
        weights: A record of their parameters.
    """

    layers: tuple[Layer, ...]
    weights: Array


def dense_network_of(module: nn.Module, space: Space[Any]) -> DenseNetwork | None:
    """The layers of a module that consists of linear layers and activations alone, ``None`` for any other."""
    flat = list(_flattened(module))
    if None in flat:
        return None
    if flat and isinstance(flat[-1], _LAST):
        flat.pop()
    shape = space.shape or ()
    if flat and isinstance(flat[0], nn.Flatten) and (flat[0].start_dim, flat[0].end_dim) == (1, -1):
        flat.pop(0)
    elif len(shape) != 1:
        return None
    layers = layers_of(((str(place), module) for place, module in enumerate(flat)), int(np.prod(shape)))
    if isinstance(layers, str) or not all(layer.kind in ("linear", "relu", "tanh") for layer in layers):
        return None
    state = {f"{place}.{name}": part for place, module in enumerate(flat) for name, part in module.named_parameters()}
    if not state:
        return None
    weights = np.zeros((), parameter_record(state))
    write_parameters(weights, state)
    return DenseNetwork(layers, weights)


def ends_in_softmax(module: nn.Module) -> bool:
    """Whether a Sequential gives probabilities and not their logarithms."""
    return type(module) is nn.Sequential and len(module) > 0 and isinstance(module[-1], nn.Softmax)


def _flattened(module: nn.Module) -> Any:
    """The modules in a Sequential, however deep, in order; None for one that is touched, and may do anything."""
    if reason(module) is not None:
        yield None
    elif type(module) is nn.Sequential:
        for part in module:
            yield from _flattened(part)
    elif type(module) not in (nn.Identity, nn.Dropout):  # which do nothing when nobody learns
        yield module


def is_compiled() -> bool:
    """Whether the extension evaluates them: what it gives for a row never depends on the other rows of the batch."""
    return kernels.compiled is not None


class Stacked:
    """Several networks of equal architecture.

    Args:
        networks: The networks.
        rows: How many observations each network is asked about at once.

    Attributes:
        inputs: What they are asked about, ``(networks, rows, inputs)``, float32; to be filled before they are called.
        scores: Score of each action, ``(networks, rows, actions)``, float32.
        best: The action with the highest score, ``(networks, rows)``, int64.
    """

    def __init__(self, networks: tuple[DenseNetwork, ...], rows: int) -> None:
        layers, count = networks[0].layers, len(networks)
        self.inputs: Array = aligned_zeros((count, rows, layers[0].inputs), np.float32)
        self.scores: Array = np.zeros((count, rows, layers[-1].outputs), np.float32)
        self.best: Array = np.zeros((count, rows), np.int64)
        if kernels.compiled is None:
            self._bound = [
                DenseForward(layers, layers[0].inputs, one_hot=False).bind(network.weights, {"": inputs[None]})
                for network, inputs in zip(networks, self.inputs, strict=True)
            ]
            return
        self._networks = tuple(
            acting_network(layers, network.weights, rows, scores)[0] for network, scores in zip(networks, self.scores, strict=True)
        )
        for network, inputs, best in zip(self._networks, self.inputs, self.best, strict=True):
            network.observe(inputs[None], False, best)
        self._evaluate = kernels.compiled.Network.greedy_of_all

    def __call__(self) -> None:
        """Evaluate them all."""
        if kernels.compiled is not None:
            self._evaluate(self._networks, 0)
            return
        for number, bound in enumerate(self._bound):
            self.scores[number] = bound(0)
        self.scores.argmax(2, out=self.best)
