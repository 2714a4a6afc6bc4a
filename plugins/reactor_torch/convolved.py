"""Networks that see images: convolutions, and dense layers behind them, in one call of the extension each way.

Actors evaluate them, and learners have their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch import kernels
from reactor_torch.dense import Dense, Layer, bound_layers, layers_of
from reactor_torch.flat import FlatParameters
from reactor_torch.forward import KINDS
from reactor_torch.images import Images, computes, rows_of, sizes_of, window_of
from reactor_torch.unmodified import reason

__all__ = ["Convolved", "ConvolvedForward", "image_layers_of"]

Array = npt.NDArray[Any]
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh"}


def image_layers_of(modules: Iterable[tuple[str, nn.Module]], shape: Sequence[int]) -> tuple[Layer, ...] | str:
    """Convolutions, and dense layers behind them, as layers.

    Args:
        modules: Their names, and themselves: convolutions and activations, ``nn.Flatten``, and what
            :func:`~reactor_torch.layers_of` knows.
        shape: Of images, channels first.

    Returns:
        The layers; or why not, if one of them is of another kind, is touched or does not fit the one before.
    """
    rest, layers = list(modules), []
    channels, height, width = shape
    while rest and type(rest[0][1]) is not nn.Flatten:
        name, module = rest.pop(0)
        if (touched := reason(module, named=name)) is not None:
            return touched
        if isinstance(module, nn.Conv2d):
            (high, wide), inputs = sizes_of(module, height, width) if computes(module) else (0, 0), channels * height * width
            if min(high, wide) < 1 or module.in_channels != channels or module.weight.dtype != torch.float32:
                return f"its {name} is no convolution of {channels} x {height} x {width} numbers that is known: {module}"
            of_images = window_of(module, height, width)
            channels, height, width = module.out_channels, high, wide
            layers.append(Layer("convolution", name, inputs, channels * height * width, of_images=of_images))
        elif layers and type(module) in _ACTIVATIONS:
            layers.append(Layer(_ACTIVATIONS[type(module)], name, layers[-1].outputs, layers[-1].outputs))
        else:
            return f"its {name} is {module}"
    if not layers or not rest:
        return "no dense layers follow its convolutions"
    name, flatten = rest.pop(0)
    assert isinstance(flatten, nn.Flatten)
    if (touched := reason(flatten, named=name)) is not None or (flatten.start_dim, flatten.end_dim) != (1, -1):
        return touched or f"its {name} is {flatten}"
    numbers = channels * height * width
    layers.append(Layer("flattened", name, numbers, numbers, of_images=channels))
    behind = layers_of(rest, numbers)
    return behind if isinstance(behind, str) else (*layers, *behind)


def _seeing(layers: Sequence[Layer], *of_bytes: int) -> list[Layer]:
    """Layers for numbers, or for bytes: what they are divided by, and whether channels come first."""
    first, *others = layers
    assert isinstance(first.of_images, tuple)
    return [first._replace(of_images=(*first.of_images, *of_bytes)), *others]


# ---------------------------------------------------------------------- as actors evaluate them


@dataclass(frozen=True)
class ConvolvedForward:
    """Convolutions and dense layers behind them, where there is the extension.

    Attributes:
        layers: Layers, as :func:`image_layers_of` gives them.
        divisor: What bytes are divided by, 1 or 255.
    """

    layers: tuple[Layer, ...]
    divisor: int

    @staticmethod
    def knows(layers: Iterable[Layer]) -> bool:
        """Whether such layers can be evaluated here."""
        return kernels.compiled is not None and all(layer.kind in (*KINDS, "convolution", "flattened") for layer in layers)

    def with_weights(self, weights: Array, images: Array) -> Callable[[Array], Array]:
        """The network with weights, for images of one kind.

        Args:
            weights: A record of parameters.
            images: An example, ``(count, channels, height, width)``. All are as many, of its type, and lie in memory as it does.

        Returns:
            From images to outputs, ``(count, outputs)``, float32, valid until the next call.
        """
        count, divisor, planes = len(images), self.divisor, images.flags.c_contiguous
        if images.dtype != np.uint8:
            run = bound_layers(_seeing(self.layers), weights, count)
            return lambda images: run(_rows_of(images.astype(np.float32) / np.float32(divisor)))
        run = bound_layers(_seeing(self.layers, divisor, int(planes)), weights, count)
        return lambda images: run(images.reshape(count, -1) if planes else _rows_of(images))


def _rows_of(images: Array) -> Array:
    """As :func:`~reactor_torch.images.rows_of`."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)).reshape(len(images), -1)


# ---------------------------------------------------------------------- as losses see them


class Convolved:
    """A network of convolutions of bytes; see :class:`~reactor_torch.Function`.

    Args:
        layers: Layers, as :func:`image_layers_of` gives them.
        flat: The parameters.
        divisor: What bytes are divided by, 1 or 255.

    Raises:
        ValueError: If a layer is of another kind.
    """

    adds_up = False  # a convolution adds up the windows of several images first, of how many depends on its size

    def __init__(self, layers: Sequence[Layer], flat: FlatParameters, divisor: int) -> None:
        self.flat = flat
        forms: dict[str, tuple[int, ...]] = {"numbers": (), "bytes": (divisor, 0), "planes": (divisor, 1)}
        self._networks = {name: Dense(_seeing(layers, *form), flat) for name, form in forms.items()}
        self._now, self._divisor = self._networks["numbers"], divisor

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """See :meth:`Function.forward`; observations are ``(rows, channels, height, width)``, bytes or numbers up to 255."""
        images = observations.bytes if isinstance(observations, Images) else observations
        form = "planes" if images.is_contiguous() else "bytes"
        if images.dtype != torch.uint8:
            images, form = images.float() / self._divisor, "numbers"
        self._now = self._networks[form]
        return self._now.forward(images.flatten(1) if form == "planes" else rows_of(images))

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Function.backward`."""
        self._now.backward(gradient)
