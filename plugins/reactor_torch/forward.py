"""Forward passes of small networks whose parameters are views of a port's slot.

One forward pass of a small network through torch is nine parts dispatch to one part arithmetic, so networks that consist of the
usual layers are evaluated by a compiled extension, layer by layer into buffers that are made once, or by numpy: where there is no
extension, and for large batches where it cannot use AVX2. Those that see images are in :mod:`reactor_torch.convolved`. Others are
built again from their structure, which travels without its weights, and evaluated by torch. Which way is taken depends on the
network and the installation alone, and the batch is always an actor's own environments: nothing changes with the number of workers.

All ways give the same outputs but for the last bits, as two libraries of linear algebra do: where two actions are that close, an
installation without the extension, or another processor, may choose the other one.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_rl.plugin import aligned_zeros, compiled_module
from reactor_torch import kernels
from reactor_torch.dense import PARTS, RUNNING, Layer
from reactor_torch.images import Images
from reactor_torch.layers import CompiledLayers
from reactor_torch.parameters import first_names
from reactor_torch.streams import draws

__all__ = ["KINDS", "BoundDense", "BoundForward", "DenseForward", "Forward", "TorchForward", "computing"]

_network = compiled_module("reactor_torch._network")  # else numpy does the same, in more time

PORTABLE = 80_000
"""Products of a batch up to which the extension is faster than numpy without AVX2, as ``benchmarks/inference.py`` measures."""

Array = npt.NDArray[Any]


class BoundForward(Protocol):
    """A network that reads its weights and observations where they lie, at each call."""

    def __call__(self, step: int) -> Array:
        """The outputs for the observations of a step, ``(envs, outputs)``, float32; valid until the next call."""

    @property
    def argmax(self) -> Callable[[int], Array]:
        """From a step to where its outputs are largest, ``(envs,)``, int64; valid until the next call."""


class Forward(Protocol):
    """The structure of a network, light enough to travel."""

    @property
    def draws(self) -> bool:
        """Whether it may draw from torch's generator."""

    def bind(self, weights: Array, observations: Mapping[str, Array]) -> BoundForward:
        """The network with weights.

        Args:
            weights: A record of parameters.
            observations: By key, ``(steps, envs, ...)``; an observation that is an array has the key ``""``.
        """


def computing() -> str:
    """The code that evaluates small networks here: ``"compiled, AVX2"``, ``"compiled"`` or ``"numpy"``."""
    if _network is None:
        return "numpy"
    return "compiled, AVX2" if _network.AVX2 else "compiled"


# ---------------------------------------------------------------------- layer by layer

KINDS = ("linear", "normalised", "renormalised", "relu", "tanh")
"""The kinds of layers that are evaluated without torch."""


class BoundDense:
    """The :class:`BoundForward` of dense layers.

    Args:
        run: Overwrites the outputs with those of a step.
        outputs: The outputs, ``(envs, outputs)``, float32.
        argmax: See :class:`BoundForward`; ``None`` if ``run`` does not find it.
    """

    def __init__(self, run: Callable[[int], Any], outputs: Array, argmax: Callable[[int], Array] | None = None) -> None:
        def run_and_find(step: int) -> Array:  # no method: the views of ports must not wait for the garbage collector
            run(step)
            return outputs.argmax(1)  # type: ignore[no-any-return]

        self.run, self.outputs, self.argmax = run, outputs, argmax or run_and_find

    def __call__(self, step: int) -> Array:
        self.run(step)
        return self.outputs


@dataclass(frozen=True)
class DenseForward:
    """Linear layers, normalisation and activations, on flat or one-hot observations; batches are normalised by running statistics.

    Attributes:
        layers: Layers of :data:`KINDS`; their names are those of their parameters in a record.
        features: Length of an observation.
        one_hot: Whether an observation is a number below ``features``.
    """

    layers: tuple[Layer, ...]
    features: int
    one_hot: bool

    @property
    def draws(self) -> bool:
        """See :class:`Forward`: nothing does."""
        return False

    @staticmethod
    def knows(layers: Iterable[Layer]) -> bool:
        """Whether such layers can be evaluated without torch."""
        return all(layer.kind in KINDS for layer in layers)

    def bind(self, weights: Array, observations: Mapping[str, Array]) -> BoundDense:
        """See :class:`Forward`."""
        rows = observations[""]
        way = bind_compiled if self.is_for_extension(rows.shape[1], rows.dtype) else bind_numpy
        return way(self, weights, rows)

    def is_for_extension(self, envs: int, dtype: npt.DTypeLike) -> bool:
        """Whether the extension evaluates it: a question of installation, processor and shapes, never of the time it takes.

        Args:
            envs: Observations in a batch.
            dtype: Type of the observations.
        """
        if _network is None or np.dtype(dtype) not in ((np.int64,) if self.one_hot else (np.float32, np.float64)):
            return False
        return bool(_network.AVX2) or envs * self.products() <= PORTABLE

    def products(self) -> int:
        """How many products an observation takes."""
        inputs = [1 if self.one_hot and number == 0 else layer.inputs for number, layer in enumerate(self.layers)]
        return sum(count * layer.outputs for count, layer in zip(inputs, self.layers, strict=True) if layer.kind == "linear")


def bind_compiled(network: DenseForward, weights: Array, observations: Array, avx2: bool = True) -> BoundDense:
    """A network evaluated by the extension.

    Args:
        network: The layers.
        weights: A record of parameters.
        observations: Observations, ``(steps, envs, ...)``: float32, float64, or int64 if they are one-hot.
        avx2: Whether AVX2 may be used where the processor has it.

    Raises:
        ValueError: If an array is of the wrong shape or kind.
    """
    fields = weights.dtype.names or ()

    def part(name: str) -> Array | None:
        return weights[name] if name in fields else None

    layers = tuple(
        (
            layer.kind, *(part(f"{layer.name}.{name}") for name in PARTS.get(layer.kind, ("", ""))), layer.outputs, layer.epsilon,
            *(part(f"{layer.name}.{name}") for name in RUNNING[:2] if layer.kind == "renormalised"),
        )
        for layer in network.layers
    )  # fmt: skip
    envs = observations.shape[1]
    outputs, actions = np.zeros((envs, network.layers[-1].outputs), np.float32), np.zeros(envs, np.int64)
    numbers = network.features if network.one_hot else 0
    greedy = _network.Network(observations, numbers, layers, outputs, actions, avx2).greedy
    return BoundDense(greedy, outputs, greedy)


def bind_numpy(network: DenseForward, weights: Array, observations: Array) -> BoundDense:
    """The same by numpy, for observations of any kind."""
    envs = observations.shape[1]
    batch = envs > 1
    shape = (envs,) if batch else ()
    inputs = aligned_zeros((*shape, network.features), np.float32)  # the last bits of a product depend on where it begins
    steps: list[Callable[[], Any]] = []
    current = inputs
    for kind, name, _, outputs, epsilon, *_ in network.layers:
        if kind == "linear":
            below, current = current, aligned_zeros((*shape, outputs), np.float32)
            weight = weights[f"{name}.weight"]
            steps.append(_call(np.dot, below, weight.T, current) if batch else _call(np.dot, weight, below, current))
            if f"{name}.bias" in (weights.dtype.names or ()):
                steps.append(_call(np.add, current, weights[f"{name}.bias"], current))
        elif kind == "relu":
            steps.append(_rectified(current))
        elif kind == "tanh":
            steps.append(_call(np.tanh, current, current))
        elif kind == "normalised":
            steps.append(_normalised(current, weights[f"{name}.weight"], weights[f"{name}.bias"], np.float32(epsilon)))
        else:
            weight, bias, mean, variance = (weights[f"{name}.{part}"] for part in (*PARTS[kind], *RUNNING[:2]))
            steps.append(_renormalised(current, weight, bias, mean, variance, np.float32(epsilon)))
    rows = inputs.reshape(envs, network.features)
    numbers, flat, one_hot = np.arange(envs), observations.reshape(len(observations), envs, -1), network.one_hot

    def run(step: int) -> None:
        if one_hot:
            inputs.fill(0)
            rows[numbers, observations[step]] = 1
        else:
            rows[...] = flat[step]
        for function in steps:
            function()

    return BoundDense(run, current.reshape(envs, -1))


def _call(function: Callable[..., Any], a: Array, b: Array, out: Array | None = None) -> Callable[[], Any]:
    if out is None:
        return lambda: function(a, b)
    return lambda: function(a, b, out)


def _rectified(rows: Array) -> Callable[[], Any]:
    zero, maximum = np.float32(0), np.maximum
    return lambda: maximum(rows, zero, out=rows)


def _normalised(rows: Array, weight: Array, bias: Array, epsilon: np.float32) -> Callable[[], Any]:
    squares = np.empty_like(rows)
    scale = np.float32(1 / rows.shape[-1])
    sums = np.add.reduce

    def normalise() -> None:
        np.subtract(rows, sums(rows, -1, keepdims=True) * scale, out=rows)
        np.multiply(rows, rows, out=squares)
        np.divide(rows, np.sqrt(sums(squares, -1, keepdims=True) * scale + epsilon), out=rows)
        np.multiply(rows, weight, out=rows)
        np.add(rows, bias, out=rows)

    return normalise


def _renormalised(rows: Array, weight: Array, bias: Array, mean: Array, variance: Array, epsilon: np.float32) -> Callable[[], Any]:
    def renormalise() -> None:
        np.subtract(rows, mean, out=rows)
        np.multiply(rows, weight / np.sqrt(variance + epsilon), out=rows)
        np.add(rows, bias, out=rows)

    return renormalise


# ---------------------------------------------------------------------- torch


class TorchForward:
    """Any network, evaluated by torch.

    Args:
        module: A copy of the network that nobody else has: it loses its weights.
        keyed: Whether it is given a dict of observations.

    Attributes:
        draws: See :class:`Forward`.
    """

    def __init__(self, module: nn.Module, keyed: bool) -> None:
        self.names = first_names(module)
        self.module: Any = module.to("meta").train(False)
        self.keyed, self.draws = keyed, draws(module, learning=False)
        self.convolves = kernels.compiled is not None and any(isinstance(part, nn.Conv2d) for part in module.modules())

    def bind(self, weights: Array, observations: Mapping[str, Array]) -> BoundForward:
        """See :class:`Forward`."""
        return BoundTorch(self.with_weights(weights), self.steps(observations))

    def with_weights(self, weights: Array) -> Any:
        """The module, with views of a record of parameters and buffers in the place of its own.

        Raises:
            ValueError: If the record does not have one of them.
        """
        module = copy.deepcopy(self.module)
        if missing := set(self.names.values()) - set(weights.dtype.names or ()):
            raise ValueError(f"{min(missing)!r} is shared by networks that are sent apart: give each of them one of its own")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            views = {name: torch.from_numpy(weights[name]) for name in set(self.names.values())}
        state = {name: views[first] for name, first in self.names.items()}  # what is shared has several names
        module.load_state_dict(state, strict=False, assign=True)
        for name in state.keys() - module.state_dict().keys():  # of buffers that are not saved
            owner, _, own = name.rpartition(".")
            module.get_submodule(owner)._buffers[own] = state[name]
        module.requires_grad_(False)
        CompiledLayers(module, state.get, kernels.compiled, linear=False).enter()
        return module

    def steps(self, observations: Mapping[str, Array]) -> Callable[[int], Any]:
        """From a step to its observations as the module is given them, views of ``(steps, envs, ...)``."""
        tensors = {key: torch.from_numpy(rows) for key, rows in observations.items()}
        seen = {key: _images_of(rows) if self.convolves else rows.__getitem__ for key, rows in tensors.items()}
        if self.keyed:
            return lambda step: {key: of_step(step) for key, of_step in seen.items()}
        return seen[""]

    def copies(self, observations: Mapping[str, Array]) -> Any:
        """Observations ``(count, ...)`` as the module is given them.

        They are copied to memory of torch's, which always begins at the same place of a cache line, as a port's slot does.
        """
        tensors = {key: torch.tensor(rows) for key, rows in observations.items()}
        return tensors if self.keyed else tensors[""]


def _images_of(rows: torch.Tensor) -> Callable[[int], torch.Tensor]:
    """From a step to its rows, as ``Images`` if they are such."""
    if rows.ndim != 5 or rows.dtype != torch.uint8:
        return rows.__getitem__
    return lambda step: Images.of(rows[step])


class BoundTorch:
    """The :class:`BoundForward` of a module that has its weights."""

    def __init__(self, module: nn.Module, steps: Callable[[int], Any]) -> None:
        self.module, self.steps = module, steps

    def __call__(self, step: int) -> Array:
        with torch.inference_mode():
            return self.module(self.steps(step)).numpy()  # type: ignore[no-any-return]

    def argmax(self, step: int) -> Array:
        """See :class:`BoundForward`."""
        return self(step).argmax(1)  # type: ignore[no-any-return]
