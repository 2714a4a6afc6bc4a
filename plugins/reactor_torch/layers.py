"""Linear layers and convolutions of any module, computed by the extension: where autograd differentiates, and where nothing learns.

In a network of the user's own much of the work may be convolutions and products of matrices. The last bits of torch's differ from
one processor to the next, and on some of them they take longer than ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy.typing as npt
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from reactor_torch.images import Images, computes, rows_of, sizes_of, window_of
from reactor_torch.kept import keep
from reactor_torch.unmodified import hook_of

__all__ = ["CompiledLayers"]

Array = npt.NDArray[Any]
LEAST_ROWS, LEAST_PRODUCTS = 16, 2**22
"""Rows of inputs, and multiplications, of a linear layer that the extension computes: with fewer, torch's call takes less time.

Part of the algorithm, as both have other last bits.
"""
_ACTIVATIONS: dict[type[nn.Module], int] = {nn.ReLU: 1, nn.Tanh: 2}
"""Activations as the extension numbers them, ``Kind`` in ``_c/forms.h``."""
Find = Callable[[str], torch.Tensor | None]


class CompiledLayers:
    """The layers of a module that the extension computes: within a ``with`` block, or from :meth:`enter` on for good.

    A linear layer is computed by itself; so is a convolution, but for those that follow each other in an ``nn.Sequential``: then
    they are computed together with the activations behind them, and no module within is called.

    Args:
        module: The module.
        find: A parameter by its name, where its numbers lie; ``None`` if the extension cannot have it. A layer takes part whose
            weight and bias it finds.
        kernels: The extension; ``None`` for none.
        linear: Whether linear layers take part.
    """

    def __init__(self, module: nn.Module, find: Find, kernels: Any, linear: bool = True) -> None:
        self._layers: list[tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]] = []
        for name, part in module.named_modules() if kernels else ():
            if "forward" in vars(part):  # somebody has given it another one
                continue
            prefix = f"{name}." if name else ""
            if type(part) is nn.Linear and linear and (layer := _Linear.of(kernels, part, prefix, find)):
                self._layers.append((part, layer))
            elif type(part) is nn.Conv2d and (convolution := _convolution(part, prefix, find)):
                self._layers.append((part, _Convolutions(kernels, convolution)))
            elif type(part) is nn.Sequential and (sequence := _sequence(kernels, part, prefix, find)):
                self._layers.append((part, sequence))

    @property
    def convolve(self) -> bool:
        """Whether there are convolutions among them."""
        return any(isinstance(layer, _Convolutions) for _, layer in self._layers)

    def enter(self) -> None:
        """Let the extension compute them."""
        for module, layer in self._layers:
            vars(module)["forward"] = layer  # hooks of the module are called as ever

    def leave(self) -> None:
        """Let torch compute them."""
        for module, _ in self._layers:
            del vars(module)["forward"]

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *error: object) -> None:
        self.leave()


# ---------------------------------------------------------------------- layers that follow each other


class _Form(NamedTuple):
    """In which form inputs come; a pass is made for one of them."""

    shape: torch.Size
    divisor: int = 0
    planes: bool = False


class _Layer(NamedTuple):
    """A layer as the extension is given it, without what a pass writes; ``more`` is what its type needs besides."""

    type: str
    activation: int
    inputs: int
    outputs: int
    weight: Array
    bias: Array
    more: tuple[Any, ...] | None = None


class _Layers(Protocol):
    """Layers that one network of the extension computes."""

    passes: _Passes

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Weight and bias of each, as autograd knows them."""

    def inputs(self, given: torch.Tensor) -> tuple[torch.Tensor, _Form]:
        """Inputs as ``(rows, numbers)``, without gaps, and in which form they came."""

    def layers(self, form: _Form) -> list[_Layer]:
        """The layers for inputs of a form."""

    def outputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """A copy of outputs ``(rows, numbers)`` as the module gives them, for inputs of a shape."""

    def gradient(self, given: torch.Tensor) -> torch.Tensor:
        """A gradient by the outputs as ``(rows, numbers)``, without gaps; where there are activations, in memory of its own."""

    def by_inputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """A copy of the gradient by the inputs ``(rows, numbers)`` in their shape."""


class _Passes:
    """The memory of passes through the same layers; a loss may call them several times before the first way back."""

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels
        self._free: dict[tuple[_Form, bool, bool], list[_Pass]] = {}

    def take(self, layers: _Layers, form: _Form, learns: bool, passes_on: bool) -> _Pass:
        """Memory for a pass forwards and, if it learns, back."""
        free = self._free.get((form, learns, passes_on))
        if free is None:
            # A round has few forms (two lengths of minibatches, with and without a way back); each has memory of its own.
            free = keep(self._free, (form, learns, passes_on), [], most=8)
        return free.pop() if free else _Pass(self.kernels, layers.layers(form), form, learns, passes_on)

    def give_back(self, one: _Pass) -> None:
        """Let another pass have it."""
        if (free := self._free.get(one.kind)) is not None:
            free.append(one)


class _Pass:
    """The memory of a pass: what the layers give, and gradients of parameters and inputs."""

    def __init__(self, kernels: Any, layers: Sequence[_Layer], form: _Form, learns: bool, passes_on: bool) -> None:
        self.kind, rows = (form, learns, passes_on), form.shape[0]
        self.by_parameters: list[torch.Tensor] = []
        self.by_inputs: torch.Tensor | None = None
        given = []
        for number, layer in enumerate(layers):
            below = torch.zeros(rows, layer.inputs) if learns and (number or passes_on) else None
            gradients = [torch.zeros(one.shape) for one in (layer.weight, layer.bias)] if learns else [None, None]
            self.out = torch.zeros(rows, layer.outputs)
            self.by_inputs = below if number == 0 else self.by_inputs
            self.by_parameters += [one for one in gradients if one is not None]
            written = [None if one is None else one.numpy() for one in (*gradients, self.out, below)]
            written[0] = written[0] if written[0] is None else _flat(written[0])
            head = (layer.type, layer.activation, layer.inputs, layer.outputs, 0.0)
            given.append((*head, _flat(layer.weight), layer.bias, *written, layer.more))
        self.network = kernels.Network(rows, tuple(given))


class _Taken:
    """A pass that belongs to autograd's graph, which may be gone through more than once: it is given back when that is gone."""

    def __init__(self, passes: _Passes, one: _Pass) -> None:
        self.passes, self.one = passes, one

    def __del__(self) -> None:
        self.passes.give_back(self.one)


class _Through(torch.autograd.Function):
    """Layers in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, layers: _Layers, *parameters: torch.Tensor) -> torch.Tensor:
        inputs, form = layers.inputs(given)
        one = layers.passes.take(layers, form, True, ctx.needs_input_grad[0])
        ctx.layers, ctx.taken = layers, _Taken(layers.passes, one)
        ctx.save_for_backward(inputs)  # the extension holds them; autograd knows then whether somebody has changed them
        one.network.run(inputs.numpy())
        return layers.outputs(one.out, form.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        assert ctx.saved_tensors  # raises if they were changed
        layers, one = ctx.layers, ctx.taken.one
        one.network.back(layers.gradient(gradient).numpy())
        by_inputs = None if one.by_inputs is None else layers.by_inputs(one.by_inputs, one.kind[0].shape)
        return by_inputs, None, *one.by_parameters  # memory of the pass: autograd adds them to what there is at once


def _compute(layers: _Layers, given: torch.Tensor) -> torch.Tensor:
    if torch.is_grad_enabled():
        found: torch.Tensor = _Through.apply(given, layers, *layers.parameters)  # type: ignore[no-untyped-call]
        return found
    inputs, form = layers.inputs(given)
    one = layers.passes.take(layers, form, False, False)
    one.network.run(inputs.numpy())
    layers.passes.give_back(one)
    return layers.outputs(one.out, form.shape)


def _computable(given: torch.Tensor, dtype: torch.dtype, dimensions: int) -> bool:
    plain = given.dim() == dimensions and given.dtype == dtype and given.device.type == "cpu"
    return plain and not torch.is_autocast_enabled("cpu")


def _flat(weight: Array) -> Array:
    return weight.reshape(len(weight), -1)


def _found(module: nn.Module, prefix: str, find: Find) -> tuple[Array, Array] | None:
    """Where the numbers of a layer's weight and bias lie, if the extension can have both."""
    found = [find(prefix + which) for which in ("weight", "bias")]
    right = [one for one in found if one is not None and one.dtype == torch.float32 and one.is_contiguous()]
    return (right[0].detach().numpy(), right[1].detach().numpy()) if len(right) == 2 else None


# ---------------------------------------------------------------------- linear layers


class _Linear:
    """The forward pass of a linear layer, with the products of the extension where that pays."""

    def __init__(self, kernels: Any, module: nn.Linear, weight: Array, bias: Array) -> None:
        self.passes, self.module = _Passes(kernels), module
        self.layer = _Layer("linear", 0, weight.shape[1], weight.shape[0], weight, bias)

    @classmethod
    def of(cls, kernels: Any, module: nn.Linear, prefix: str, find: Find) -> _Linear | None:
        found = _found(module, prefix, find)
        return found and cls(kernels, module, *found)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [self.module.weight, self.module.bias]

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        rows = given.shape[0] if _computable(given, torch.float32, 2) and torch.is_grad_enabled() else 0
        if rows < LEAST_ROWS or rows * self.layer.weight.size < LEAST_PRODUCTS:
            return linear(given, *self.parameters)
        return _compute(self, given)

    def inputs(self, given: torch.Tensor) -> tuple[torch.Tensor, _Form]:
        return given.contiguous(), _Form(given.shape)

    def layers(self, form: _Form) -> list[_Layer]:
        return [self.layer]

    def outputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return rows.clone()

    def gradient(self, given: torch.Tensor) -> torch.Tensor:
        return given.contiguous()

    def by_inputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return rows.clone()


# ---------------------------------------------------------------------- convolutions


class _Convolution(NamedTuple):
    """A convolution, and the activation behind it.

    The module is a weak proxy, as the module has this: the weights of an actor are views of a port, which must be gone when the
    actor is, and not when the garbage collector comes.
    """

    module: Any
    weight: Array
    bias: Array
    activation: int = 0

    def layer(self, height: int, width: int, of_bytes: tuple[int, bool] | tuple[()] = ()) -> _Layer:
        """As the extension is given it, for images of such a size; what bytes are divided by, and whether channels come first."""
        module, (high, wide) = self.module, sizes_of(self.module, height, width)
        inputs, outputs = height * width * module.in_channels, high * wide * module.out_channels
        images = (*window_of(module, height, width), *of_bytes)
        return _Layer("convolution", self.activation, inputs, outputs, self.weight, self.bias, images)


def _convolution(module: nn.Module, prefix: str, find: Find) -> _Convolution | None:
    """A module as a convolution that the extension computes, if it is one."""
    if not computes(module) or "forward" in vars(module) or (found := _found(module, prefix, find)) is None:
        return None
    return _Convolution(weakref.proxy(module), *found)


class _Convolutions:
    """The forward pass of convolutions that follow each other, activations included.

    In memory they are height x width x channels. Bytes are made numbers within the extension, see ``Images``.
    """

    def __init__(self, kernels: Any, first: _Convolution) -> None:
        self.passes = _Passes(kernels)
        self.convolutions, self.modules = [first], [first.module]

    def add(self, convolution: _Convolution, module: nn.Module) -> None:
        """One more, behind the others."""
        self.convolutions.append(convolution)
        self.modules.append(module)

    def end_in(self, module: nn.Module) -> bool:
        """Take over an activation behind the last one, if it can be taken over. Returns whether it was."""
        if type(module) not in _ACTIVATIONS or self.convolutions[-1].activation:
            return False
        self.convolutions[-1] = self.convolutions[-1]._replace(activation=_ACTIVATIONS[type(module)])
        self.modules.append(module)
        return True

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [one for convolution in self.convolutions for one in (convolution.module.weight, convolution.module.bias)]

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        if self._computes(given):
            return _compute(self, given)
        if len(self.modules) == 1:  # it has this as its forward
            return nn.Conv2d.forward(self.modules[0], given)
        for module in self.modules:
            given = module(given)
        return given

    def _computes(self, given: torch.Tensor) -> bool:
        plain, dtype = (given.bytes, torch.uint8) if _of_bytes(given) else (given, torch.float32)
        return _computable(plain, dtype, 4) and self._fits(plain.shape)

    def _fits(self, shape: torch.Size) -> bool:
        if shape[0] == 0 or shape[1] != self.convolutions[0].module.in_channels:
            return False
        if torch.is_grad_enabled() and shape[0] < LEAST_ROWS:
            return False
        if len(self.modules) > 1 and any(map(_touched, self.modules)):
            return False
        return min(min(sizes) for sizes in self._sizes(shape)) > 0

    def _sizes(self, shape: torch.Size) -> list[tuple[int, int]]:
        sizes = [(shape[2], shape[3])]
        for convolution in self.convolutions:
            sizes.append(sizes_of(convolution.module, *sizes[-1]))
        return sizes

    def inputs(self, given: torch.Tensor) -> tuple[torch.Tensor, _Form]:
        if not _of_bytes(given):
            return rows_of(given), _Form(given.shape)
        planes = (images := given.bytes).is_contiguous()
        return images.flatten(1) if planes else rows_of(images), _Form(images.shape, given.divisor, planes)

    def layers(self, form: _Form) -> list[_Layer]:
        first, *others = zip(self.convolutions, self._sizes(form.shape), strict=False)
        of_bytes = (form.divisor, form.planes) if form.divisor else ()
        return [first[0].layer(*first[1], of_bytes), *(convolution.layer(*sizes) for convolution, sizes in others)]

    def outputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return _channels_first(rows, *self._sizes(shape)[-1])

    def gradient(self, given: torch.Tensor) -> torch.Tensor:
        rows = rows_of(given)
        return rows.clone() if rows.data_ptr() == given.data_ptr() else rows  # autograd's may belong to others, too

    def by_inputs(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        return _channels_first(rows, shape[2], shape[3])


def _of_bytes(given: torch.Tensor) -> TypeGuard[Images]:
    return type(given) is Images and given.divisor > 0 and given.untouched


def _channels_first(rows: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """A copy of images ``(rows, height * width * channels)`` as ``(rows, channels, height, width)``."""
    images = rows.view(len(rows), height, width, -1).permute(0, 3, 1, 2)
    return images.clone(memory_format=torch.contiguous_format)


def _touched(module: nn.Module) -> bool:
    own = vars(module).get("forward")
    return hook_of(module) is not None or not (own is None or isinstance(own, _Convolutions))


def _sequence(kernels: Any, module: nn.Sequential, prefix: str, find: Find) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """The forward pass of a sequence with convolutions; ``None`` if nothing in it can be put together."""
    steps: list[Any] = []
    for number, part in enumerate(module):
        last = steps[-1] if steps and isinstance(steps[-1], _Convolutions) else None
        if (convolution := _convolution(part, f"{prefix}{number}.", find)) is not None:
            if last is None:
                steps.append(_Convolutions(kernels, convolution._replace(module=part)))
            else:
                last.add(convolution, part)
        elif last is None or not last.end_in(part):
            steps.append(part)
    steps = [step.modules[0] if isinstance(step, _Convolutions) and len(step.modules) == 1 else step for step in steps]

    def forward(given: torch.Tensor) -> torch.Tensor:
        for step in steps:
            given = step(given)
        return given

    return forward if any(isinstance(step, _Convolutions) for step in steps) else None
