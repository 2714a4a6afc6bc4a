"""Any network as losses see it, differentiated by autograd into a flat array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from reactor_torch.flat import FlatParameters

__all__ = ["Autograd"]


class Autograd:
    """A module, or a method of one; see :class:`~reactor_torch.Function`.

    Args:
        evaluate: From observations to ``(rows, outputs)``, with a graph.
        flat: The parameters of the module.
    """

    def __init__(self, evaluate: Callable[[Any], torch.Tensor], flat: FlatParameters) -> None:
        self.evaluate, self.flat = evaluate, flat
        self._outputs = torch.empty(0)

    def forward(self, observations: Any) -> torch.Tensor:
        """See :meth:`Function.forward`; observations are what the module takes."""
        with torch.set_grad_enabled(bool(len(self.flat.gradients))):
            self._outputs = self.evaluate(observations)
        return self._outputs.detach()

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Function.backward`."""
        self.flat.begin_gradients()
        self._outputs.backward(gradient)  # type: ignore[no-untyped-call]
        self._outputs = torch.empty(0)
