"""Dense networks as losses see them: they are differentiated by hand, layer by layer into buffers that are made once.

A pass of a small network through autograd is mostly bookkeeping. Here the gradients of parameters are written where
:class:`~reactor_torch.FlatParameters` has them, and nothing is allocated: our own extension goes through a network in one call each
way. Without it, and on other devices, autograd differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch.flat import FlatParameters, kernels_for
from reactor_torch.kept import keep
from reactor_torch.unmodified import reason

__all__ = [
    "PARTS",
    "RUNNING",
    "Dense",
    "Function",
    "Layer",
    "Renormalisation",
    "acting_network",
    "backward_all",
    "bound_layers",
    "forward_all",
    "input_gradients",
    "layers_of",
    "least_and_slopes",
]

Array = npt.NDArray[Any]
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


class Renormalisation(NamedTuple):
    """How a layer normalises batches: by their own statistics, as far as running ones let it (Ioffe 2017).

    Attributes:
        momentum: How far running statistics move towards those of a batch.
        rmax: How many times wider or narrower the running standard deviation may say that a batch is than the batch itself says.
        dmax: How far apart both means may be, in running standard deviations.
        warmup: Steps before running statistics have a say.
    """

    momentum: float
    rmax: float
    dmax: float
    warmup: int


class Layer(NamedTuple):
    """One layer.

    Attributes:
        kind: ``"linear"``, ``"normalised"`` (LayerNorm), ``"renormalised"`` (batch renormalisation), ``"convolution"``,
            ``"flattened"`` (of images, channels first), or an activation: ``"relu"``, ``"tanh"``, ``"sigmoid"``.
        name: Its module's name, under which a state dict has its parameters.
        inputs: How many numbers it is given.
        outputs: How many it gives.
        epsilon: What a normalisation adds to the variance.
        of_batch: How batches are normalised, where they are.
        of_images: Of a convolution height, width and channels of images, the kernel's height and width, strides and padding, and
            for bytes what they are divided by and whether channels come first; of flattened images their channels.
    """

    kind: str
    name: str
    inputs: int
    outputs: int
    epsilon: float = 0.0
    of_batch: Renormalisation | None = None
    of_images: tuple[int, ...] | int | None = None


def layers_of(
    modules: Iterable[tuple[str, nn.Module]], width: int, renormalising: type[nn.Module] | None = None
) -> tuple[Layer, ...] | str:
    """Modules that follow each other, as layers.

    Args:
        modules: Their names, and themselves.
        width: How many numbers the first one is given.
        renormalising: A class of modules that are batch renormalisation, with the names of sb3-contrib's ``BatchRenorm1d``.

    Returns:
        The layers; or why not, if one of them is of another kind, is touched or does not fit the one before.
    """
    layers = []
    for name, module in modules:
        parts = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if (touched := reason(module, named=name)) is not None:
            return touched
        if other := next((one.dtype for one in parts if one.is_floating_point() and one.dtype != torch.float32), None):
            return f"its {name} computes with {str(other).removeprefix('torch.')}"
        if type(module) is nn.Linear and module.in_features == width:
            layers.append(Layer("linear", name, width, module.out_features))
            width = module.out_features
        elif type(module) is nn.LayerNorm and module.normalized_shape == (width,) and module.bias is not None:
            layers.append(Layer("normalised", name, width, width, module.eps))
        elif renormalising is not None and type(module) is renormalising and _renormalises(module, width):
            layers.append(_renormalised(name, module, width))
        elif type(module) in _ACTIVATIONS:
            layers.append(Layer(_ACTIVATIONS[type(module)], name, width, width))
        else:
            return f"its {name} is a {type(module).__name__}({module.extra_repr()}), given {width} numbers"
    return tuple(layers)


def _renormalises(module: Any, width: int) -> bool:
    """Whether it does so with weights, and rows of so many numbers."""
    shapes = {name: tuple(getattr(module, name).shape) for name in ("scale", "bias", "ra_mean", "ra_var", "steps")}
    return bool(module.affine) and shapes == {**dict.fromkeys(shapes, (width,)), "steps": ()}


def _renormalised(name: str, module: Any, width: int) -> Layer:
    how = Renormalisation(float(module.momentum), float(module.rmax), float(module.dmax), int(module.warmup_steps))
    return Layer("renormalised", name, width, width, float(module.eps), how)


PARTS = {
    **dict.fromkeys(("linear", "normalised", "convolution"), ("weight", "bias")), "renormalised": ("scale", "bias")
}  # fmt: skip
"""Names of the parameters of each kind of layer that has any."""
RUNNING = ("ra_mean", "ra_var", "steps")
"""Names of what batch renormalisation knows of earlier batches."""
KINDS = (*PARTS, "flattened", "relu", "tanh")
"""The kinds of layers that are differentiated here."""

_TYPES = {
    "linear": "linear", "normalised": "layer_norm", "renormalised": "batch_renorm", "convolution": "convolution",
    "flattened": "flatten",
}  # fmt: skip
_ACTIVATION_NUMBERS = {"relu": 1, "tanh": 2}
"""Names of layers and numbers of activations, for the extension."""


class Function(Protocol):
    """A network that gives numbers for observations, and the gradients of its parameters for those of the numbers.

    Attributes:
        flat: The parameters.
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
    """

    flat: FlatParameters
    adds_up: bool

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """``(rows, outputs)``, valid until the next call; cut off from autograd's graph."""
        ...

    def backward(self, gradient: torch.Tensor) -> None:
        """Compute the gradients of the parameters from that of the loss by what the last :meth:`forward` gave.

        They overwrite what was there. So may the gradient that is given be.
        """
        ...


class Dense:
    """A network of dense layers; see :class:`Function`.

    Args:
        layers: Layers of :data:`KINDS`; their names are those of their parameters in ``flat``.
        flat: The parameters.
        passes_on: Whether :meth:`through` is to give the gradients of the inputs.
        room: From a number of rows to where the extension is to put what the network gives, ``(rows, outputs)``; ``None`` for
            anywhere.
        buffers: By name, what layers that normalise batches know of earlier ones: it changes where they learn.

    Raises:
        ValueError: If a layer is of another kind.
    """

    adds_up = True

    def __init__(
        self,
        layers: Sequence[Layer],
        flat: FlatParameters,
        passes_on: bool = False,
        room: Callable[[int], torch.Tensor] | None = None,
        buffers: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        if not self.knows(layers, flat):
            raise ValueError(
                f"no derivatives here for {[layer.kind for layer in layers]} with these parameters on {flat.device.type}: let "
                "autograd do it"
            )
        self.layers, self.flat, self.passes_on, self.room, self.buffers = tuple(layers), flat, passes_on, room, buffers or {}
        self._of_rows: dict[int, _Compiled | _Identity] = {}
        self._passes: _Compiled | _Identity | None = None
        self._rows = 0

    @staticmethod
    def knows(layers: Iterable[Layer], flat: FlatParameters) -> bool:
        """Whether it can differentiate them: there is the extension, which knows them, and none of their parameters is frozen."""
        layers = tuple(layers)
        parts = [f"{layer.name}.{part}" for layer in layers for part in PARTS.get(layer.kind, ())]
        there = all(flat.value(f"{layer.name}.{PARTS[layer.kind][0]}") is not None for layer in layers if layer.kind in PARTS)
        known = kernels_for(flat.device) is not None and all(layer.kind in KINDS for layer in layers)
        return known and there and flat.frozen.isdisjoint(parts)

    def forward(self, observations: torch.Tensor, training: bool = False) -> torch.Tensor:
        """See :meth:`Function.forward`; observations are ``(rows, features)``, float32.

        Args:
            observations: The observations.
            training: Whether batches are normalised by their own statistics, and running ones change.
        """
        passes = self._at(observations.shape[0])
        return passes.learn(observations) if training else passes.forward(observations)

    def backward(self, gradient: torch.Tensor) -> None:
        """See :meth:`Function.backward`."""
        self.through(gradient)

    def through(self, gradient: torch.Tensor) -> torch.Tensor:
        """As :meth:`backward`; returns the gradient of the loss by the inputs, for a network that passes it on."""
        assert len(self.flat.gradients), "a network whose parameters are not learned has no gradients"
        assert self._passes is not None, "forward first"
        return self._passes.backward(gradient)

    def input_gradient(self, rows: torch.Tensor | None, first: int, weight: float = 1.0) -> torch.Tensor:
        """The derivative of the sum of what the last :meth:`forward` gave for a row by the inputs of that row.

        No gradients of parameters are computed, and nothing is for rows that nobody asks about.

        Args:
            rows: Indices of the rows; ``None`` for all.
            first: The first input that is asked about; so are all behind it.
            weight: What the sum is multiplied by.

        Returns:
            ``(rows, inputs - first)``.
        """
        assert isinstance(self._passes, _Compiled), "forward first"
        return self._passes.input_gradient(self._ones(rows, weight), rows, first)

    def _ones(self, rows: torch.Tensor | None, weight: float) -> Array:
        """The gradient of a weighted sum of what was given for some rows, by that."""
        assert self.layers[0].kind in ("linear", "renormalised"), "gradients by inputs go through a linear layer first"
        shape = (self._rows if rows is None else rows.shape[0], self.layers[-1].outputs)
        return np.full(shape, weight, np.float32)

    def _at(self, rows: int) -> _Compiled | _Identity:
        """The layers for so many rows, which those are from now on that gradients are about."""
        self._rows = rows
        self._passes = passes = self._of_rows.get(rows) or self._build(rows)
        return passes

    def _build(self, rows: int) -> _Compiled | _Identity:
        if not self.layers:
            return keep(self._of_rows, rows, _Identity())
        finds = _arrays_by(self.flat.value), _arrays_by(self.buffers.get), _arrays_by(self.flat.gradient)
        made = _Compiled(kernels_for(self.flat.device), self.layers, rows, *finds, self.passes_on, self.room)
        if self.room is not None:  # who gives room sees to it that there are not too many
            self._of_rows[rows] = made
            return made
        return keep(self._of_rows, rows, made)

    def forget(self) -> None:
        """Forget the layers that were made for any number of rows."""
        self._of_rows.clear()


# ---------------------------------------------------------------------- several networks, side by side where there are threads


def forward_all(networks: Sequence[Dense], inputs: torch.Tensor, training: bool = False) -> list[torch.Tensor]:
    """Evaluate several networks on the same inputs; see :meth:`Dense.forward`."""
    passes = [network._at(inputs.shape[0]) for network in networks]
    if not _all_compute(passes):
        return [network.forward(inputs, training) for network in networks]
    first, *others = passes
    run = first.network.run_together if training else first.network.run
    run(inputs.numpy(), *(one.network for one in others))
    return [one.out for one in passes]


def backward_all(networks: Sequence[Dense], gradients: Sequence[Array]) -> list[torch.Tensor]:
    """As :meth:`Dense.through` of each, from the gradient of what it gave; what networks give that pass nothing on is of no use."""
    passes = [network._passes for network in networks]
    if not _all_compute(passes):
        return [network.through(torch.from_numpy(gradient)) for network, gradient in zip(networks, gradients, strict=True)]
    given: list[Any] = []
    for one, gradient in zip(passes, gradients, strict=True):
        given += [one.network, gradient]
    given[0].back(*given[1:])
    return [one.out if one.below is None else one.below for one in passes]


def input_gradients(networks: Sequence[Dense], first: int, weight: float) -> list[torch.Tensor]:
    """As :meth:`Dense.input_gradient` of each, for all rows."""
    passes = [network._passes for network in networks]
    if not _all_compute(passes):
        return [network.input_gradient(None, first, weight) for network in networks]
    given: list[Any] = []
    found: list[Array] = []
    for network, one in zip(networks, passes, strict=True):
        gradient = network._ones(None, weight)
        found.append(out := np.empty((len(gradient), one.inputs - first), np.float32))
        given += [one.network, gradient, None, *([] if given else [first]), out]
    given[0].slopes(*given[1:])
    return [torch.from_numpy(out) for out in found]


def least_and_slopes(networks: Sequence[Dense], values: torch.Tensor, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The least value of each row and its gradient by the inputs from ``first`` on.

    Args:
        networks: They give one number for each row.
        values: Those that they gave last, ``(networks, rows)``.
        first: The first input that is asked about.
    """
    passes = [network._passes for network in networks]
    assert _all_compute(passes), "forward first, by the extension"
    rows = values.shape[1]
    least, slopes = np.empty(rows, np.float32), np.empty((rows, passes[0].inputs - first), np.float32)
    one, *others = [each.network for each in passes]
    one.least(values.numpy(), first, least, slopes, *others)
    return torch.from_numpy(least), torch.from_numpy(slopes)


def _all_compute(passes: Sequence[_Compiled | _Identity | None]) -> TypeGuard[Sequence[_Compiled]]:
    for one in passes:  # all() and a generator take as long as the rest of a call
        if type(one) is not _Compiled:
            return False
    return True


class _Compiled:
    """Layers in one call of the extension each way, into tensors that it has known from the beginning.

    Without gradients it has no memory for any, and goes forward alone.
    """

    def __init__(
        self,
        kernels: Any,
        layers: Sequence[Layer],
        rows: int,
        value: Callable[[str], Array | None],
        buffer: Callable[[str], Array | None],
        gradient: Callable[[str], Array | None] | None = None,
        passes_on: bool = False,
        room: Callable[[int], torch.Tensor] | None = None,
    ) -> None:
        self.inputs = layers[0].inputs
        given: list[tuple[Any, ...]] = []
        below: torch.Tensor | None = torch.zeros(rows, self.inputs) if passes_on else None
        self.below, rest = below, list(layers)
        while rest:
            layer = rest.pop(0)
            activation = 0
            if layer.kind in _ACTIVATION_NUMBERS:
                activation = _ACTIVATION_NUMBERS[layer.kind]
            elif rest and rest[0].kind in _ACTIVATION_NUMBERS:
                activation = _ACTIVATION_NUMBERS[rest.pop(0).kind]
            out = torch.zeros(rows, layer.outputs) if rest or room is None else room(rows)
            names = PARTS.get(layer.kind, ("", ""))
            parts = [find and find(f"{layer.name}.{part}") for find in (value, gradient) for part in names]
            if layer.kind == "convolution":
                parts = [part if part is None or part.ndim == 1 else part.reshape(len(part), -1) for part in parts]
            head = (_TYPES.get(layer.kind, "activation"), activation, layer.inputs, layer.outputs, layer.epsilon)
            more: Any = layer.of_images
            if layer.of_batch is not None:
                more = (*(buffer(f"{layer.name}.{part}") for part in RUNNING), *layer.of_batch)
            given.append((*head, *parts, out.numpy(), _numpy(below), more))
            self.out, below = out, None if gradient is None else torch.zeros(rows, layer.outputs)
        self.network = kernels.Network(rows, tuple(given))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.network.run(inputs.numpy())
        return self.out

    def learn(self, inputs: torch.Tensor) -> torch.Tensor:
        self.network.run_together(inputs.numpy())
        return self.out

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        self.network.back(gradient.numpy())
        return gradient if self.below is None else self.below

    def input_gradient(self, gradient: Array, rows: torch.Tensor | None, first: int = 0) -> torch.Tensor:
        out = np.empty((len(gradient), self.inputs - first), np.float32)
        self.network.slopes(gradient, None if rows is None else rows.numpy(), first, out)
        return torch.from_numpy(out)


class _Identity:
    """No layers: what comes in goes out."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    learn = backward = forward


def _numpy(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else tensor.numpy()


def _arrays_by(find: Callable[[str], torch.Tensor | None]) -> Callable[[str], Array | None]:
    return lambda name: _numpy(find(name))


def acting_network(layers: Sequence[Layer], record: Array, rows: int, out: Array | None = None) -> tuple[Any, Array]:
    """A network of the extension's with the weights of a record, that does not learn; and its outputs.

    Its ``run`` reads weights where they lie, ``act`` and ``greedy`` what ``take_weights`` has laid out.

    Args:
        layers: Layers of :data:`KINDS`; their names are those of their parameters in the record.
        record: A record of parameters.
        rows: Of inputs.
        out: Where outputs are put, ``(rows, outputs)``; ``None`` for anywhere.
    """
    fields = record.dtype.names or ()

    def find(name: str) -> Array | None:
        return record[name] if name in fields else None

    room = None if out is None else lambda _rows: torch.from_numpy(out)
    passes = _Compiled(kernels_for(torch.device("cpu")), layers, rows, find, find, room=room)
    return passes.network, passes.out.numpy()


def bound_layers(layers: Sequence[Layer], record: Array, rows: int) -> Callable[[Array], Array]:
    """An :func:`acting_network` that is given its inputs; arguments likewise.

    Returns:
        From inputs ``(rows, inputs)`` to outputs ``(rows, outputs)``, float32, valid until the next call.
    """
    network, outputs = acting_network(layers, record, rows)

    def run(inputs: Array) -> Array:
        network.run(inputs)
        return outputs

    return run
