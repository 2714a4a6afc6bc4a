"""Convolutions as the extension is given them, and images of bytes, which others than these are given as float32.

A policy begins with ``observations.float() / 255``, which for a minibatch of images takes as long as their first convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["Images", "computes", "rows_of", "sizes_of", "window_of"]

_DIVISIONS = (torch.Tensor.div, torch.Tensor.__truediv__, torch.div, torch.true_divide, torch.Tensor.true_divide)


class Images(torch.Tensor):
    """Bytes ``(images, channels, height, width)`` that are float32 for everybody, made so when it is looked at.

    As any tensor of bytes, until ``float()`` is called. What that returns may be divided by 255; anything else that is done with it
    is done with a tensor of float32.

    Attributes:
        divisor: By what bytes are divided, 1 or 255; 0 as long as they are bytes.
    """

    divisor: int
    _made: torch.Tensor | None

    @classmethod
    def of(cls, images: torch.Tensor, divisor: int = 0) -> Images:
        """See the class.

        Args:
            images: uint8, four dimensions.
            divisor: See :attr:`divisor`.
        """
        found = images.as_subclass(cls)
        found.divisor, found._made = divisor, None
        return found

    @property
    def untouched(self) -> bool:
        """Whether nobody has looked at the numbers yet; who has may have changed them."""
        return self._made is None

    @property
    def bytes(self) -> torch.Tensor:
        """The bytes, as a plain tensor."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    def made(self) -> torch.Tensor:
        """The numbers, as a plain tensor."""
        if self.divisor == 0:
            return self.bytes
        if self._made is None:
            self._made = self.bytes.float() if self.divisor == 1 else self.bytes.float() / self.divisor
        return self._made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        images = args[0] if args else None
        if type(images) is cls and not kwargs:
            if func is torch.Tensor.float and images.divisor == 0:
                return cls.of(images.bytes, 1)
            if func in _DIVISIONS and images.divisor == 1 and args[1] == 255 and not isinstance(args[1], torch.Tensor):
                return cls.of(images.bytes, 255)
        plain = [torch.utils._pytree.tree_map_only(cls, cls.made, one) for one in (args, kwargs or {})]
        return func(*plain[0], **plain[1])


def computes(module: nn.Module) -> bool:
    """Whether a module is a convolution that the extension computes."""
    if type(module) is not nn.Conv2d or isinstance(module.padding, str) or module.bias is None:
        return False
    return module.padding_mode == "zeros" and module.groups == 1 and set(module.dilation) == {1}


def sizes_of(module: Any, height: int, width: int) -> tuple[int, int]:
    """Height and width of what a convolution makes of such images; below one if they are too small for its kernel."""
    around = zip((height, width), module.padding, module.kernel_size, module.stride, strict=True)
    high, wide = ((size + 2 * padding - kernel) // stride + 1 for size, padding, kernel, stride in around)
    return int(high), int(wide)


def window_of(module: Any, height: int, width: int) -> tuple[int, ...]:
    """A convolution of such images, as the extension is given it; for bytes there is more to say, see ``_images.h``."""
    return (height, width, module.in_channels, *module.kernel_size, *module.stride, *map(int, module.padding))


def rows_of(images: torch.Tensor) -> torch.Tensor:
    """Images ``(rows, channels, height, width)`` as ``(rows, height * width * channels)``, without gaps."""
    return images.permute(0, 2, 3, 1).contiguous().flatten(1)
