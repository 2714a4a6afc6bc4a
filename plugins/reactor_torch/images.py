"""Images of bytes that are made float32 only where somebody else than a convolution of the extension asks for it.

A policy begins with ``observations.float() / 255``, which for a minibatch of images takes as long as their first convolution.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Images"]

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
        found = torch.Tensor._make_subclass(cls, images)
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
