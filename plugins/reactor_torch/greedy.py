"""Greedy actions of a Q-network whose parameters are views of a port's slot.

One forward pass of a small network through torch is nine parts dispatch to one part arithmetic, so networks that consist of the
usual layers are evaluated by a compiled extension, layer by layer into buffers that are made once, or by numpy: where there is no
extension, and for large batches where it cannot use AVX2. Others
are built again from their structure, which travels without its weights, and evaluated by torch. Which way is taken depends on the
network and the installation alone, and the batch is always an actor's own environments: nothing changes with the number of workers.

All ways give the same values but for the last bits, as two libraries of linear algebra do: where two actions are that close, an
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

from reactor_rl.plugin import aligned_zeros, extension
from reactor_torch.layers import Layer

__all__ = ["Greedy", "Layered", "Network", "TorchNetwork", "computing"]

_network = extension("reactor_torch._network")  # else numpy does the same, in more time

PORTABLE = 80_000
"""Products of a batch up to which the extension is faster than numpy without AVX2, as ``benchmarks/inference.py`` measures."""

Array = npt.NDArray[Any]
Greedy = Callable[[int], Array]
"""From a step to the greedy actions for its observations, ``(envs,)``, int64; valid until the next call."""


class Network(Protocol):
    """The structure of a network, light enough to travel."""

    def bind(self, parameters: Array, observations: Mapping[str, Array]) -> Greedy:
        """The network with its weights in a record of parameters, for observations ``(steps, envs, ...)``, by key."""
        ...


def computing() -> str:
    """What evaluates small networks here: ``"compiled, AVX2"``, ``"compiled"`` or ``"numpy"``."""
    if _network is None:
        return "numpy"
    return "compiled, AVX2" if _network.AVX2 else "compiled"


# ---------------------------------------------------------------------- layer by layer

KINDS = ("linear", "normalised", "relu", "tanh")
"""The kinds of layers that are evaluated without torch."""


@dataclass(frozen=True)
class Layered:
    """Linear layers, layer normalisation and activations, on flat or one-hot observations.

    Attributes:
        layers: Layers of :data:`KINDS`; their names are those of their parameters in a record.
        features: Length of an observation.
        one_hot: Whether an observation is a number below ``features``.
    """

    layers: tuple[Layer, ...]
    features: int
    one_hot: bool

    @staticmethod
    def knows(layers: Iterable[Layer]) -> bool:
        """Whether it can evaluate them."""
        return all(layer.kind in KINDS for layer in layers)

    def bind(self, parameters: Array, observations: Mapping[str, Array]) -> Greedy:
        """See :class:`Network`."""
        return self.evaluated(parameters, observations[""])[0]

    def evaluated(self, parameters: Array, observations: Array) -> tuple[Greedy, Array]:
        """The network with its weights, and what it gave when it was last called.

        Args:
            parameters: A record of parameters.
            observations: Observations, ``(steps, envs, ...)``.

        Returns:
            The function, and what it finds before it chooses, ``(envs, outputs)``, float32.
        """
        way = bind_compiled if self.is_for_extension(observations.shape[1], observations.dtype) else bind_numpy
        return way(self, parameters, observations)

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


def bind_compiled(network: Layered, parameters: Array, observations: Array, avx2: bool = True) -> tuple[Greedy, Array]:
    """A network evaluated by the extension.

    Args:
        network: Its layers.
        parameters: A record of parameters.
        observations: Observations, ``(steps, envs, ...)``: float32, float64, or int64 if they are one-hot.
        avx2: Whether AVX2 may be used where the processor has it.

    Returns:
        The function, and what each action was worth when it was last called, ``(envs, actions)``.

    Raises:
        ValueError: If an array is of the wrong shape or kind.
    """
    fields = parameters.dtype.names or ()

    def part(name: str) -> Array | None:
        return parameters[name] if name in fields else None

    layers = tuple(
        (layer.kind, part(f"{layer.name}.weight"), part(f"{layer.name}.bias"), layer.outputs, layer.epsilon)
        for layer in network.layers
    )
    envs = observations.shape[1]
    values, actions = np.zeros((envs, network.layers[-1].outputs), np.float32), np.zeros(envs, np.int64)
    numbers = network.features if network.one_hot else 0
    return _network.Network(observations, numbers, layers, values, actions, avx2).greedy, values


def bind_numpy(network: Layered, parameters: Array, observations: Array) -> tuple[Greedy, Array]:
    """The same by numpy, for observations of any kind."""
    envs = observations.shape[1]
    batch = envs > 1
    shape = (envs,) if batch else ()
    inputs = aligned_zeros((*shape, network.features), np.float32)  # the last bits of a product depend on where it begins
    steps: list[Callable[[], Any]] = []
    current = inputs
    for kind, name, _, outputs, epsilon in network.layers:
        if kind == "linear":
            below, current = current, aligned_zeros((*shape, outputs), np.float32)
            weights = parameters[f"{name}.weight"]
            steps.append(_call(np.dot, below, weights.T, current) if batch else _call(np.dot, weights, below, current))
            if f"{name}.bias" in (parameters.dtype.names or ()):
                steps.append(_call(np.add, current, parameters[f"{name}.bias"], current))
        elif kind == "relu":
            steps.append(_rectified(current))
        elif kind == "tanh":
            steps.append(_call(np.tanh, current, current))
        else:
            steps.append(_normalised(current, parameters[f"{name}.weight"], parameters[f"{name}.bias"], np.float32(epsilon)))
    rows, values = inputs.reshape(envs, network.features), current.reshape(envs, -1)
    numbers, flat, one_hot = np.arange(envs), observations.reshape(len(observations), envs, -1), network.one_hot

    def greedy(step: int) -> Array:
        if one_hot:
            inputs.fill(0)
            rows[numbers, observations[step]] = 1
        else:
            rows[...] = flat[step]
        for function in steps:
            function()
        return values.argmax(1)  # type: ignore[no-any-return]

    return greedy, values


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


# ---------------------------------------------------------------------- torch


class TorchNetwork:
    """Any network, evaluated by torch.

    Args:
        network: The network.
        keyed: Whether it is given a dict of observations.
    """

    def __init__(self, network: nn.Module, keyed: bool) -> None:
        training = network.training
        self.structure = copy.deepcopy(network).to("meta")
        self.structure.train(False)
        network.train(training)
        self.keyed = keyed

    def bind(self, parameters: Array, observations: Mapping[str, Array]) -> Greedy:
        """See :class:`Network`."""
        network = copy.deepcopy(self.structure)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody will write to it
            state = {name: torch.from_numpy(parameters[name]) for name in network.state_dict()}
        network.load_state_dict(state, assign=True)
        network.requires_grad_(False)
        tensors = {key: torch.from_numpy(rows) for key, rows in observations.items()}
        keyed = self.keyed

        def greedy(step: int) -> Array:
            with torch.inference_mode():
                values = network({key: rows[step] for key, rows in tensors.items()} if keyed else tensors[""][step])
                return values.argmax(1).numpy()  # type: ignore[no-any-return]

        return greedy
