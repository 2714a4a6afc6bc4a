"""The parameters of a network in one array: every tensor of it, and of its gradients, is a view.

What goes over all parameters is one call then: clipping, an optimiser's step, a soft update of a target, a copy for the actors.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

__all__ = ["FlatParameters"]


class FlatParameters:
    """Parameters whose values and gradients lie in one array each, in the order given and without gaps.

    The modules go on as before: what is loaded into them arrives in the array, and what is stepped there is seen by them. Whoever
    may have replaced a parameter's tensor meanwhile, or its gradient (``zero_grad`` does), calls :meth:`bind` before going on.
    Copies (``copy.deepcopy``) are bound to an array of their own by the same call.

    Args:
        named: Names and parameters, as ``module.named_parameters()`` gives them; each is taken once, frozen ones are left alone.
        learned: ``False`` for a network that nobody differentiates (a target): no gradients, and frozen ones are taken too.

    Attributes:
        names: Names of the parameters, in order.
        parameters: The parameters.
        frozen: Names of those that are left alone.
        data: Their values, ``(size,)``, float32.
        gradients: Their gradients, ``(size,)``, float32; empty if they are not learned.

    Raises:
        ValueError: If there are none.
        TypeError: If one is not float32, or they are on several devices.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], learned: bool = True) -> None:
        taken: dict[nn.Parameter, str] = {}
        frozen = set()
        for name, parameter in named:
            if learned and not parameter.requires_grad:
                frozen.add(name)
            else:
                taken.setdefault(parameter, name)
        self.names, self.parameters, self.frozen = tuple(taken.values()), tuple(taken), frozenset(frozen)
        if not self.parameters:
            raise ValueError("there are no parameters to learn: all are frozen, or the network has none")
        self.device = self.parameters[0].device
        for name, parameter in zip(self.names, self.parameters, strict=True):
            self._check(name, parameter)
        size = sum(parameter.numel() for parameter in self.parameters)
        self.data = torch.zeros(size, device=self.device)
        self.gradients = torch.zeros(size if learned else 0, device=self.device)
        self._values = self.views(self.data)
        self._gradients = self.views(self.gradients) if learned else tuple(one.grad for one in self.parameters)
        self._at = {name: index for index, name in enumerate(self.names)}
        self.bind()

    def _check(self, name: str, parameter: nn.Parameter) -> None:
        if parameter.dtype != torch.float32 or parameter.device != self.device:
            raise TypeError(
                f"parameter {name!r} is {parameter.dtype} on {parameter.device}, and learners want float32 on one device "
                f"({self.device}); after moving a network make its learner again"
            )

    def views(self, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """An array like :attr:`data` cut into tensors of the parameters' shapes."""
        pieces = torch.split(array, [parameter.numel() for parameter in self.parameters])
        return tuple(piece.view(parameter.shape) for piece, parameter in zip(pieces, self.parameters, strict=True))

    def bind(self) -> None:
        """Make parameters and gradients views of the arrays again where they are not; values of parameters are kept.

        Raises:
            TypeError: If a parameter has become something else than float32 on the device where they were.
        """
        for name, parameter, value, gradient in zip(self.names, self.parameters, self._values, self._gradients, strict=True):
            if parameter.data_ptr() != value.data_ptr() or parameter.stride() != value.stride():
                self._check(name, parameter)
                value.copy_(parameter.data.clone())  # it may be the same memory, turned
                parameter.data = value
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def move(self, data: torch.Tensor, gradients: torch.Tensor | None = None) -> None:
        """Have the values in another array from now on, those that are there, and the gradients in another one too.

        For who has not looked at them yet: views of the former arrays are views of nothing any more.
        """
        self.data, self._values = data, self.views(data)
        if gradients is not None:
            self.gradients, self._gradients = gradients, self.views(gradients)
        for parameter, value, gradient in zip(self.parameters, self._values, self._gradients, strict=True):
            parameter.data, parameter.grad = value, gradient

    def begin_gradients(self) -> None:
        """Zeros, into which autograd adds."""
        self.gradients.zero_()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def value(self, name: str) -> torch.Tensor | None:
        """A parameter's view of :attr:`data`; ``None`` if there is no such parameter."""
        return self._values[self._at[name]] if name in self._at else None

    def gradient(self, name: str) -> torch.Tensor | None:
        """A parameter's view of :attr:`gradients`; ``None`` if there is no such parameter."""
        return self._gradients[self._at[name]] if name in self._at else None

    def clip(self, max_norm: float) -> torch.Tensor:
        """Scale the gradients down to a norm, as ``torch.nn.utils.clip_grad_norm_`` does.

        Returns:
            The norm before.
        """
        norm: torch.Tensor = torch.linalg.vector_norm(self.gradients)
        if self.device.type != "cpu":  # without waiting for the device
            self.gradients.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        elif not (factor := max_norm / (float(norm) + 1e-6)) >= 1.0:  # what is no number spreads, as it does there
            self.gradients.mul_(factor)
        return norm

    def blend(self, other: FlatParameters, tau: float) -> None:
        """Move towards other parameters, ``tau`` of the way: the soft update of a target network; ``tau=1`` copies."""
        if tau == 1:
            self.data.copy_(other.data)
        else:
            self.data.mul_(1 - tau).add_(other.data, alpha=tau)
