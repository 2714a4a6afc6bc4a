"""Networks that see images, differentiated by hand: convolutions, and dense layers behind them, in one call each way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from reactor_torch.dense import Dense, Layer, layers_of
from reactor_torch.flat import FlatParameters
from reactor_torch.images import Images, computes, rows_of, sizes_of, window_of

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
        if isinstance(module, nn.Conv2d):
            (high, wide), inputs = sizes_of(module, height, width) if computes(module) else (0, 0), channels * height * width
            if min(high, wide) < 1 or module.in_channels != channels or module.weight.dtype != torch.float32:
                return None
            of_images = window_of(module, height, width)
            channels, height, width = module.out_channels, high, wide
            layers.append(Layer("convolution", name, inputs, channels * height * width, of_images=of_images))
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
        return self._now.forward(images.flatten(1) if form == "planes" else rows_of(images))

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Function.backward`."""
        self._now.backward(gradient)
