"""Networks of equal architecture, evaluated together.

Ten networks of 50-64-5 one by one spend nearly all their time in the dispatch of torch calls. Here they are one call of a compiled
extension, or, where it could not be built or has not that kind of layer, one batched matrix product of torch for each layer.
Which way is taken depends on the networks and the installation alone; their values differ in the last bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space
from torch import nn

from reactor_rl.plugin import aligned_zeros, compiled_module
from reactor_torch.dense import is_untouched, layers_of

__all__ = ["DenseNetwork", "Stacked", "dense_network_of", "ends_in_softmax", "is_compiled", "stack"]

Array = npt.NDArray[Any]

_network = compiled_module("reactor_torch._network")  # else torch evaluates them

KINDS = ("linear", "relu", "tanh", "sigmoid")
"""The kinds of layers that are evaluated together."""
_LAST = (nn.Softmax, nn.LogSoftmax)
"""Layers that may come last and are left out: actions are chosen by the logits before it."""


@dataclass(frozen=True)
class DenseNetwork:
    """Linear layers and activations.

    Attributes:
        kinds: For each layer the numbers of its inputs and outputs, or the name of an activation.
        weights: Weights and biases of the linear layers: ``(outputs, inputs)`` and ``(outputs,)``, float32.
    """

    kinds: tuple[tuple[int, int] | str, ...]
    weights: tuple[tuple[Array, Array], ...]


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
    layers = layers_of((("", module) for module in flat), int(np.prod(shape)))
    if layers is None or not all(layer.kind in KINDS for layer in layers):
        return None
    linear = [module for module in flat if isinstance(module, nn.Linear)]
    weights = tuple((_array(module.weight), _array(_bias(module))) for module in linear)
    kinds = tuple((layer.inputs, layer.outputs) if layer.kind == "linear" else layer.kind for layer in layers)
    return DenseNetwork(kinds, weights) if weights else None


def _bias(module: nn.Linear) -> torch.Tensor:
    return torch.zeros(module.out_features) if module.bias is None else module.bias


def _array(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().numpy().copy()


def ends_in_softmax(module: nn.Module) -> bool:
    """Whether a Sequential gives probabilities and not their logarithms."""
    return type(module) is nn.Sequential and len(module) > 0 and isinstance(module[-1], nn.Softmax)


def _flattened(module: nn.Module) -> Any:
    """The modules in a Sequential, however deep, in order; None for one that is touched, and may do anything."""
    if not is_untouched(module):
        yield None
    elif type(module) is nn.Sequential:
        for part in module:
            yield from _flattened(part)
    elif type(module) not in (nn.Identity, nn.Dropout):  # which do nothing when nobody learns
        yield module


class Stacked(ABC):
    """Several networks of equal architecture.

    Args:
        networks: The layers of each network.
        rows: How many observations each network is asked about at once.

    Attributes:
        inputs: What they are asked about, ``(networks, rows, inputs)``, float32; to be filled before they are called.
        scores: Score of each action, ``(networks, rows, actions)``, float32.
        best: The action with the highest score, ``(networks, rows)``, int64.
    """

    def __init__(self, networks: tuple[DenseNetwork, ...], rows: int) -> None:
        widths = [kind for kind in networks[0].kinds if isinstance(kind, tuple)]
        count = len(networks)
        self.inputs: Array = aligned_zeros((count, rows, widths[0][0]), np.float32)
        self.scores: Array = np.zeros((count, rows, widths[-1][1]), np.float32)
        self.best: Array = np.zeros((count, rows), np.int64)

    @abstractmethod
    def __call__(self) -> None:
        """Evaluate them all."""


def is_compiled(layers: DenseNetwork) -> bool:
    """Whether the extension evaluates them: what it gives for a row never depends on the other rows of the batch."""
    return _network is not None and all(kind in ("relu", "tanh") or isinstance(kind, tuple) for kind in layers.kinds)


def stack(networks: tuple[DenseNetwork, ...], rows: int) -> Stacked:
    """Networks of equal architecture, by the extension if that is possible."""
    return (Compiled if is_compiled(networks[0]) else Batched)(networks, rows)


class Compiled(Stacked):
    """Networks that the extension evaluates, one after the other in one call."""

    def __init__(self, networks: tuple[DenseNetwork, ...], rows: int) -> None:
        super().__init__(networks, rows)
        self._networks = tuple(
            _network.Network(inputs[None], 0, _for_extension(network, inputs.shape[1]), scores, best)
            for network, inputs, scores, best in zip(networks, self.inputs, self.scores, self.best, strict=True)
        )
        self._evaluate = _network.Network.greedy_of_all

    def __call__(self) -> None:
        self._evaluate(self._networks, 0)


def _for_extension(network: DenseNetwork, width: int) -> tuple[tuple[str, Array | None, Array | None, int, float], ...]:
    """Layers as the extension takes them, the first of which is given ``width`` numbers."""
    layers: list[tuple[str, Array | None, Array | None, int, float]] = []
    weights = iter(network.weights)
    for kind in network.kinds:
        if isinstance(kind, tuple):
            width = kind[1]
            layers.append(("linear", *next(weights), width, 0.0))
        else:
            layers.append((kind, None, None, width, 0.0))
    return tuple(layers)


class Batched(Stacked):
    """Networks that torch evaluates, layer by layer, all at once."""

    def __init__(self, networks: tuple[DenseNetwork, ...], rows: int) -> None:
        super().__init__(networks, rows)
        self._kinds, self._observed = networks[0].kinds, torch.from_numpy(self.inputs)
        layers = zip(*(network.weights for network in networks), strict=True)
        self._weights = [
            (_joined([weight for weight, _ in layer]).transpose(1, 2), _joined([bias for _, bias in layer])[:, None])
            for layer in layers
        ]

    @torch.inference_mode()
    def __call__(self) -> None:
        values, weights = self._observed, iter(self._weights)
        for kind in self._kinds:
            if isinstance(kind, tuple):
                weight, bias = next(weights)
                values = torch.baddbmm(bias, values, weight)
            else:
                values = getattr(values, kind)()
        self.scores[...] = values.numpy()
        self.scores.argmax(2, out=self.best)


def _joined(arrays: list[Array]) -> torch.Tensor:
    """Arrays of one shape below each other, beginning with a cache line: the last bits of a product depend on where it begins."""
    joined = aligned_zeros((len(arrays), *arrays[0].shape), np.float32)
    return torch.from_numpy(np.stack(arrays, out=joined))
