"""A loss as it is written: autograd differentiates it, and the extension computes its convolutions and larger linear layers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy.typing as npt
import torch
from torch import nn

from reactor_torch.flat import kernels_for, numbers
from reactor_torch.layers import CompiledLayers
from reactor_torch.loss import Loss

__all__ = ["Autograd"]

Array = npt.NDArray[Any]


class Autograd:
    """Gradients of a network, of losses as they are written.

    Args:
        nets: The :class:`~reactor_torch.Networks`, with which losses are called.
        name: Of the network that learns.
    """

    def __init__(self, nets: Any, name: str) -> None:
        self.nets, self.name = nets, name
        module, flat = nets[name], nets.flat(name)
        self.layers = CompiledLayers(module if isinstance(module, nn.Module) else nn.Module(), flat.value, kernels_for(flat.device))

    @torch.enable_grad()
    def gradients(self, loss: Loss, batch: Any, of: int | None = None) -> Array:
        """Overwrite the gradients; see :meth:`Networks.gradients <reactor_torch.Networks.gradients>`."""
        flat = self.nets.flat(self.name)
        # A loss is a mean over its rows, so a block's counts by its share of the minibatch.
        share = 1.0 if of is None else len(batch) / of
        flat.begin_gradients()
        with self.layers:
            found = loss(self.nets, batch)
        made_smaller = found[0] if share == 1 else found[0] * share
        hooked = self.nets.hooked(self.name)
        with flat.without_hooks(hooked) if hooked else nullcontext():
            # Others would get gradients too: an actor's loss looks through critics.
            torch.autograd.backward(made_smaller, inputs=flat.parameters)
        return numbers([one.detach() * share for one in found])
