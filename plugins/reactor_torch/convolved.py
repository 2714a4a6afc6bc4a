"""Networks that see images, differentiated by hand: convolutions, and dense layers behind them, in one call each way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from reactor_torch.dense import Dense, Layer, layers_of
from reactor_torch.flat import FlatParameters
from reactor_torch.images import Images

__all__ = ["Convolved", "image_layers_of"]


def image_layers_of(modules: Iterable[tuple[str, nn.Module]], shape: Sequence[int]) -> tuple[Layer, ...] | None:
    """Convolutions, and dense layers behind them, as layers.

    Args:
        modules: Their names, and themselves: convolutions and activations, ``nn.Flatten``, and what
            :func:`~reactor_torch.layers_of` knows.
        shape: Of images, channels first.

    Returns:
        The layers; ``None`` if one of them is of another kind or does not fit the one before.
    """
    rest, layers = list(modules), []
    channels, height, width = shape
    while rest and type(rest[0][1]) is not nn.Flatten:
        name, module = rest.pop(0)
        if type(module) is nn.Conv2d:
            layer = _convolution(name, module, channels, height, width)
            if layer is None:
                return None
            channels = module.out_channels
            height, width = (_size(module, side, size) for side, size in enumerate((height, width)))
            layers.append(layer)
        elif layers and (activation := layers_of([(name, module)], layers[-1].outputs)) and activation[0].kind in ("relu", "tanh"):
            layers += activation
        else:
            return None
    if not layers or not rest:
        return None
    name, flatten = rest.pop(0)
    assert isinstance(flatten, nn.Flatten)
    if flatten.start_dim != 1 or flatten.end_dim != -1:
        return None
    numbers = channels * height * width
    layers.append(Layer("flattened", name, numbers, numbers, of_images=channels))
    behind = layers_of(rest, numbers)
    return None if behind is None else (*layers, *behind)


def _convolution(name: str, module: nn.Conv2d, channels: int, height: int, width: int) -> Layer | None:
    if isinstance(module.padding, str) or module.padding_mode != "zeros" or module.groups != 1 or set(module.dilation) != {1}:
        return None
    high, wide = (_size(module, side, size) for side, size in enumerate((height, width)))
    if module.bias is None or module.weight.dtype != torch.float32 or module.in_channels != channels or min(high, wide) < 1:
        return None
    images = (height, width, channels, *module.kernel_size, *module.stride, *module.padding)
    return Layer("convolution", name, height * width * channels, high * wide * module.out_channels, of_images=images)


def _size(module: Any, side: int, size: int) -> int:
    """Height or width of what a convolution makes of so high or wide an image; below one if it is too small."""
    return int((size + 2 * module.padding[side] - module.kernel_size[side]) // module.stride[side] + 1)


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
        first, *others = layers
        assert isinstance(first.of_images, tuple)
        forms: dict[str, tuple[int, ...]] = {"numbers": (), "bytes": (divisor, 0), "planes": (divisor, 1)}
        of_images = first.of_images
        self._networks = {
            name: Dense([first._replace(of_images=(*of_images, *form)), *others], flat) for name, form in forms.items()
        }
        self._now, self._divisor = self._networks["numbers"], divisor

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """See :meth:`Function.forward`; observations are ``(rows, channels, height, width)``, bytes or numbers up to 255."""
        images = observations.bytes if isinstance(observations, Images) else observations
        form = "planes" if images.is_contiguous() else "bytes"
        if images.dtype != torch.uint8:
            images, form = images.float() / self._divisor, "numbers"
        self._now = self._networks[form]
        return self._now.forward(images.flatten(1) if form == "planes" else images.permute(0, 2, 3, 1).contiguous().flatten(1))

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Function.backward`."""
        self._now.backward(gradient)
