"""Forward passes of small networks whose parameters are views of a port's slot.

One forward pass of a small network through torch is nine parts dispatch to one part arithmetic, so networks that consist of the
usual layers are evaluated by a compiled extension, layer by layer into buffers that are made once; without the extension torch
evaluates the same layers. Those that see images are in :mod:`reactor_torch.convolved`. Others are built again from their structure,
which travels without its weights, and evaluated by torch. Which way is taken depends on the network and the installation alone, and
the batch is always an actor's own environments: nothing changes with the number of workers.

All ways give the same outputs but for the last bits, as two libraries of linear algebra do: where two actions are that close, an
installation without the extension may choose the other one.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from reactor_torch import kernels
from reactor_torch.dense import PARTS, RUNNING, Layer, acting_network
from reactor_torch.images import Images
from reactor_torch.layers import CompiledLayers
from reactor_torch.parameters import first_names
from reactor_torch.streams import draws

__all__ = ["KINDS", "BoundDense", "DenseForward", "HeldForward", "TorchForward", "views_of_read_only"]

Array = npt.NDArray[Any]


# ---------------------------------------------------------------------- layer by layer

KINDS = ("linear", "normalised", "renormalised", "relu", "tanh")
"""The kinds of layers that are evaluated layer by layer."""


class BoundDense:
    """Dense layers that read their weights at the beginning of a round, and observations where they lie.

    Args:
        run: Overwrites the outputs with those of a step.
        outputs: The outputs, ``(envs, outputs)``, float32.
        argmax: From a step to where they are largest, ``(envs,)``, int64; ``None`` for NumPy's.
        begin: Begins a round: weights may be others now.
    """

    def __init__(
        self,
        run: Callable[[int], Any],
        outputs: Array,
        argmax: Callable[[int], Array] | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        def run_and_find(step: int) -> Array:  # no method: the views of ports must not wait for the garbage collector
            run(step)
            return outputs.argmax(1)  # type: ignore[no-any-return]

        self.run, self.outputs, self.argmax, self.begin = run, outputs, argmax or run_and_find, begin

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
        keys: Of the arrays that an observation consists of, in the order in which they are one row; ``()`` if it is one array.
    """

    layers: tuple[Layer, ...]
    features: int
    one_hot: bool
    keys: tuple[str, ...] = ()

    @staticmethod
    def knows(layers: Iterable[Layer]) -> bool:
        """Whether there is nothing but what is evaluated here."""
        return all(layer.kind in KINDS for layer in layers)

    def bind(self, weights: Array, observations: Mapping[str, Array], out: Array | None = None) -> BoundDense:
        """The network with weights.

        Args:
            weights: A record of parameters.
            observations: ``(steps, envs, ...)`` by key; without ``keys`` the key ``""`` is looked at.
            out: Where outputs are put, ``(envs, outputs)``, float32 and without gaps; ``None`` for anywhere.
        """
        way = bind_torch if kernels.compiled is None else bind_compiled
        if not self.keys:
            return way(self, weights, observations[""], out)
        rows, join = _side_by_side([observations[key] for key in self.keys], self.features)
        joint = way(self, weights, rows, out)
        run, argmax = joint.run, joint.argmax

        def join_and_run(step: int) -> None:
            join(step)
            run(0)

        def join_and_find(step: int) -> Array:
            join(step)
            return argmax(0)

        return BoundDense(join_and_run, joint.outputs, join_and_find, joint.begin)


def _side_by_side(parts: Sequence[Array], width: int) -> tuple[Array, Callable[[int], None]]:
    """Memory for a step of some arrays side by side, ``(1, envs, width)``, float32, and a function that fills it."""
    rows = np.zeros((1, parts[0].shape[1], width), np.float32)
    ends = np.cumsum([math.prod(part.shape[2:]) for part in parts])
    places = [place.reshape(part.shape[1:]) for place, part in zip(np.split(rows[0], ends[:-1], 1), parts, strict=True)]
    pairs = list(zip(places, parts, strict=True))

    def join(step: int) -> None:
        for place, part in pairs:
            place[...] = part[step]

    return rows, join


def bind_compiled(network: DenseForward, weights: Array, observations: Array, out: Array | None = None) -> BoundDense:
    """A network evaluated by the extension.

    Args:
        network: The layers.
        weights: A record of parameters.
        observations: Observations, ``(steps, envs, ...)``; numbers below ``features`` if they are one-hot.
        out: Where outputs are put; ``None`` for anywhere.

    Raises:
        ValueError: If an array is of the wrong shape or kind.
    """
    envs = observations.shape[1]
    taken, outputs = acting_network(network.layers, weights, envs, out)
    actions = np.zeros(envs, np.int64)
    wanted: tuple[type, ...] = (np.int64,) if network.one_hot else (np.float32, np.float64)
    if observations.dtype in wanted:
        taken.observe(observations, network.one_hot, actions)
        return BoundDense(taken.act, outputs, taken.greedy, taken.take_weights)
    rows = np.zeros((1, *observations.shape[1:]), wanted[0])  # of kinds that the extension does not read
    taken.observe(rows, network.one_hot, actions)

    def act(step: int) -> None:
        rows[0] = observations[step]
        taken.act(0)

    def greedy(step: int) -> Array:
        rows[0] = observations[step]
        return taken.greedy(0)  # type: ignore[no-any-return]

    return BoundDense(act, outputs, greedy, taken.take_weights)


def bind_torch(network: DenseForward, weights: Array, observations: Array, out: Array | None = None) -> BoundDense:
    """The same by torch, layer by layer; arguments likewise."""
    with views_of_read_only():
        parts = {name: torch.from_numpy(weights[name]) for name in weights.dtype.names or ()}
        seen = torch.from_numpy(observations).flatten(2) if observations.ndim > 2 else torch.from_numpy(observations)
    outputs = np.zeros((observations.shape[1], network.layers[-1].outputs), np.float32) if out is None else out

    @torch.inference_mode()
    def run(step: int) -> None:
        values = nn.functional.one_hot(seen[step].long(), network.features) if network.one_hot else seen[step]
        values = values.float()
        for layer in network.layers:
            values = _evaluated(layer, parts, values)
        outputs[...] = values.numpy()

    return BoundDense(run, outputs)


def _evaluated(layer: Layer, parts: Mapping[str, torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """Evaluate a layer for some rows."""
    if layer.kind in ("relu", "tanh"):
        return values.relu() if layer.kind == "relu" else values.tanh()
    weight, bias = (parts.get(f"{layer.name}.{part}") for part in PARTS[layer.kind])
    assert weight is not None
    if layer.kind == "linear":
        return nn.functional.linear(values, weight, bias)
    if layer.kind == "normalised":
        return nn.functional.layer_norm(values, (layer.outputs,), weight, bias, layer.epsilon)
    mean, variance = (parts[f"{layer.name}.{part}"] for part in RUNNING[:2])
    return nn.functional.batch_norm(values, mean, variance, weight, bias, eps=layer.epsilon)


@contextmanager
def views_of_read_only() -> Iterator[None]:
    """Do without torch's warning: nobody will write to what is a view of an array that may only be read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        yield


# ---------------------------------------------------------------------- torch


class TorchForward:
    """Any network, evaluated by torch.

    Args:
        module: A copy of the network that nobody else has: it loses its weights.
        keyed: Whether it is given a dict of observations.
        why: Why nothing else evaluates it.

    Attributes:
        draws: Whether it may draw from torch's generator.
    """

    def __init__(self, module: nn.Module, keyed: bool, why: str = "") -> None:
        self.why = why
        self.names = first_names(module)
        self.module: Any = module.to("meta").train(False)
        self.keyed, self.draws = keyed, draws(module, learning=False)
        self.convolves = _convolves(module)

    def with_weights(self, weights: Array) -> Any:
        """The module, with views of a record of parameters and buffers in the place of its own.

        Raises:
            ValueError: If the record does not have one of them.
        """
        module = copy.deepcopy(self.module)
        if missing := set(self.names.values()) - set(weights.dtype.names or ()):
            raise ValueError(f"{min(missing)!r} is shared by networks that are sent apart: give each of them one of its own")
        with views_of_read_only():
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


class HeldForward(TorchForward):
    """A module that acts where it is, with the weights that it has: any that torch can call, on any device.

    Args:
        module: A copy of the network that nobody else has.
        keyed: Whether it is given a dict of observations.
        why: Why nothing else evaluates it.
    """

    def __init__(self, module: nn.Module, keyed: bool, why: str = "") -> None:
        self.module, self.keyed, self.why = module.train(False), keyed, why
        self.draws, self.convolves = draws(module, learning=False), _convolves(module)

    @property
    def device(self) -> torch.device:
        """Where it acts."""
        return next((one.device for one in self.module.parameters()), torch.device("cpu"))

    def with_weights(self, weights: Array) -> Any:
        """The module, whatever the record is."""
        return self.module

    def steps(self, observations: Mapping[str, Array]) -> Callable[[int], Any]:
        """See :class:`TorchForward`; but the module is given copies."""
        return lambda step: self.copies({key: rows[step] for key, rows in observations.items()})

    def copies(self, observations: Mapping[str, Array]) -> Any:
        """See :class:`TorchForward`."""
        tensors = {key: torch.tensor(rows, device=self.device) for key, rows in observations.items()}
        return tensors if self.keyed else tensors[""]


def _convolves(module: nn.Module) -> bool:
    return kernels.compiled is not None and any(isinstance(part, nn.Conv2d) for part in module.modules())


def _images_of(rows: torch.Tensor) -> Callable[[int], torch.Tensor]:
    """From a step to its rows, as ``Images`` if they are such."""
    if rows.ndim != 5 or rows.dtype != torch.uint8:
        return rows.__getitem__
    return lambda step: Images.of(rows[step])
