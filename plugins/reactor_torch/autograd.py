"""A loss as it is written: autograd differentiates it, and the extension computes its larger linear layers.

Behind convolutions, or in a network of the user's own, much of an update may be products of matrices. The last bits of torch's
differ from one processor to the next, and on some of them they take longer than ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from reactor_torch.flat import FlatParameters, kernels_for, numbers
from reactor_torch.loss import Loss

__all__ = ["Autograd", "LinearLayers"]

Array = npt.NDArray[Any]
LEAST_ROWS, LEAST_PRODUCTS = 16, 2**22
"""Rows of inputs, and multiplications, of a linear layer that the extension computes: with fewer, torch's call takes less time.

Part of the algorithm, as both have other last bits.
"""


class Autograd:
    """A loss as it is written; see :class:`~reactor_torch.Formula`.

    Args:
        loss: The loss.
        nets: The :class:`~reactor_torch.Networks`, with which it is called.
    """

    block: int | None = None

    def __init__(self, loss: Loss, nets: Any) -> None:
        self.loss, self.nets = loss, nets
        self.layers = LinearLayers(nets[loss.learns], nets.flat(loss.learns))

    @torch.enable_grad()
    def gradients(self, batch: Any, of: int | None = None) -> Array:
        """See :meth:`Formula.gradients`."""
        flat = self.nets.flat(self.loss.learns)
        share = 1.0 if of is None else len(batch) / of
        flat.begin_gradients()
        with self.layers:
            found = self.loss(self.nets, batch)
        made_smaller = found[0] if share == 1 else found[0] * share
        # Others would get gradients too: an actor's loss looks through critics.
        torch.autograd.backward(made_smaller, inputs=flat.parameters)
        return numbers([one.detach() * share for one in found])


class LinearLayers:
    """The linear layers of a module that learns: within a ``with`` block the extension computes them.

    Args:
        module: The module; tensors by name have no layers.
        flat: Its parameters. A layer takes part whose weight and bias are among them.
    """

    def __init__(self, module: Any, flat: FlatParameters) -> None:
        kernels = kernels_for(flat.device)
        parts = module.named_modules() if kernels is not None and isinstance(module, nn.Module) else ()
        self._layers: list[tuple[nn.Linear, _Linear]] = []
        for name, part in parts:
            if type(part) is nn.Linear and "forward" not in vars(part):  # else somebody has given it another one
                weight, bias = (flat.value(f"{name}.{which}" if name else which) for which in ("weight", "bias"))
                if weight is not None and bias is not None:
                    self._layers.append((part, _Linear(kernels, part, weight.numpy(), bias.numpy())))

    def __enter__(self) -> None:
        for module, layer in self._layers:
            vars(module)["forward"] = layer  # hooks of the module are called as ever

    def __exit__(self, *error: object) -> None:
        for module, _ in self._layers:
            del vars(module)["forward"]


class _Linear:
    """The forward pass of a layer, with the products of the extension where that pays."""

    def __init__(self, kernels: Any, module: nn.Linear, weight: Array, bias: Array) -> None:
        self.kernels, self.module, self.weight, self.bias = kernels, module, weight, bias
        self._free: dict[tuple[int, bool], list[_Pass]] = {}

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        weight, bias = self.module.weight, self.module.bias
        plain = inputs.dim() == 2 and inputs.dtype == torch.float32 and inputs.device.type == "cpu"
        rows = inputs.shape[0] if plain and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") else 0
        if rows < LEAST_ROWS or rows * self.weight.size < LEAST_PRODUCTS:
            return linear(inputs, weight, bias)
        found: torch.Tensor = _Product.apply(inputs, weight, bias, self)  # type: ignore[no-untyped-call]
        return found

    def take(self, rows: int, passes_on: bool) -> _Pass:
        """Memory for a pass forwards and back; a loss may call a layer several times before the first way back."""
        free = self._free.setdefault((rows, passes_on), [])
        return free.pop() if free else _Pass(self, rows, passes_on)

    def give_back(self, one: _Pass) -> None:
        """Let another pass have it."""
        self._free[one.kind].append(one)


class _Pass:
    """The memory of a pass: what the layer gives, and gradients of parameters and inputs."""

    def __init__(self, layer: _Linear, rows: int, passes_on: bool) -> None:
        self.kind = rows, passes_on
        outputs, inputs = layer.weight.shape
        self.out, self.by_weight, self.by_bias = torch.zeros(rows, outputs), torch.zeros(outputs, inputs), torch.zeros(outputs)
        self.below = torch.zeros(rows, inputs) if passes_on else None
        arrays = [one.numpy() for one in (self.by_weight, self.by_bias, self.out)]
        below = None if self.below is None else self.below.numpy()
        self.network = layer.kernels.Network(rows, ((0, 0, inputs, outputs, 0.0, layer.weight, layer.bias, *arrays, below),))


class _Product(torch.autograd.Function):
    """A linear layer in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, layer: _Linear) -> torch.Tensor:
        ctx.layer, ctx.one = layer, layer.take(inputs.shape[0], ctx.needs_input_grad[0])
        inputs = inputs.contiguous()
        ctx.save_for_backward(inputs)  # the extension holds them; autograd knows then whether somebody has changed them
        ctx.one.network.run(inputs.numpy())
        out: torch.Tensor = ctx.one.out.clone()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, None]:
        assert ctx.saved_tensors  # raises if they were changed
        one = ctx.one
        one.network.back(np.ascontiguousarray(gradient.numpy()))
        ctx.layer.give_back(one)
        # Gradients of parameters are added to those that there are before another pass begins.
        return None if one.below is None else one.below.clone(), one.by_weight, one.by_bias, None
