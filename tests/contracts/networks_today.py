"""Networks and losses under the names that contracts call them by: who renames a class changes this file alone."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.torch_layers import BatchRenorm1d
from torch import nn

import reactor_pettingzoo.learning
import reactor_sb3.algorithms
from reactor_torch import (
    ActorCritic,
    Autograd,
    Categorical,
    Convolved,
    ConvolvedForward,
    Dense,
    DenseForward,
    DenseNet,
    FlatParameters,
    ImageNet,
    Loss,
    Lstm,
    LstmWeights,
    Networks,
    SquashedActor,
    Stacked,
    Team,
    as_policy,
    image_layers_of,
    kernels,
    layers_of,
    learned,
    lstm_of,
    parameter_record,
    tensors_of,
    write_parameters,
)
from reactor_torch import MaskedBatch as MaskedBatch  # those that cases of losses need
from reactor_torch import Network as Network
from reactor_torch import QBatch as QBatch
from reactor_torch import TransitionBatch as TransitionBatch

HAS_EXTENSION = kernels.compiled is not None
LEAF: int = kernels.compiled.LEAF if HAS_EXTENSION else 64
"""Rows of a leaf of the trees that sums over rows are."""

# ---------------------------------------------------------------------- the extension


def forms() -> list[str]:
    """Forms of the extension that this processor has; the last one is portable C, whose bits all others have to have."""
    return list(kernels.compiled.kinds())


@contextmanager
def form(name: str) -> Iterator[None]:
    """Have a form of the extension compute."""
    before = kernels.compiled.using()
    kernels.compiled.use(name)
    try:
        yield
    finally:
        kernels.compiled.use(before)


@contextmanager
def team(threads: int) -> Iterator[None]:
    """Have threads compute, this one among them."""
    helpers = Team(threads)
    with helpers:
        yield
    helpers.close()


NO_LOSSES = {
    "adam", "add", "check", "exp", "gather", "kinds", "norm", "orthonormal", "pack_panels", "polyak", "rmsprop",
    "squashed_gaussian_sample", "standardize", "use", "using",
}  # fmt: skip
"""Functions of the extension that are no part of a loss or a distribution."""


def functions() -> set[str]:
    """Those that are."""
    return {name for name, one in vars(kernels.compiled).items() if callable(one) and name[0].islower()} - NO_LOSSES


class _Watched:
    def __init__(self, extension: Any, called: set[str]) -> None:
        self.extension, self.called = extension, called

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.extension, name)


@contextmanager
def watched() -> Iterator[set[str]]:
    """Note which functions of the extension are called by networks that are made within."""
    called: set[str] = set()
    with mock.patch.object(kernels, "compiled", _Watched(kernels.compiled, called)):
        yield called


# ---------------------------------------------------------------------- losses


def losses() -> set[type[Loss]]:
    """All that there are, of all algorithms."""
    for package in (reactor_sb3.algorithms, reactor_pettingzoo.learning):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return {one for one in _subclasses(Loss) if one.__module__.startswith("reactor_") and not one.__abstractmethods__}


def _subclasses(of: type[Any]) -> Iterator[Any]:
    for one in of.__subclasses__():
        yield one
        yield from _subclasses(one)


def is_fast(nets: Networks) -> bool:
    """Whether all losses are computed by what is derived by hand."""
    return nets.compiled


def adds_up(nets: Networks, loss: str) -> bool:
    """Whether gradients of leaves of rows, added up as a tree, are to have the bits of those of all rows."""
    block = nets.block(loss)
    assert block in (None, LEAF)
    return block is not None


class Fast:
    """A loss by what is derived by hand."""

    def __init__(self, nets: Networks, name: str) -> None:
        self.nets, self.name, self.loss = nets, name, nets.loss(name)
        self.flat = nets.flat(self.loss.learns)

    def gradients(self, batch: Any, of: int | None = None) -> Any:
        """Overwrite the gradients; return statistics."""
        return self.nets.gradients(self.name, batch, of)


class Written(Fast):
    """A loss as it is written, by autograd."""

    def __init__(self, nets: Networks, name: str) -> None:
        super().__init__(nets, name)
        self.autograd = Autograd(nets, self.loss.learns)

    def gradients(self, batch: Any, of: int | None = None) -> Any:
        return self.autograd.gradients(self.loss, batch, of)


def by_torch(nets: Networks, name: str, batch: Any) -> tuple[torch.Tensor, Any, list[torch.Tensor]]:
    """Gradients, statistics, and how buffers change, by torch alone."""
    loss: Any = nets.loss(name)
    learned, buffers = list(nets.flat(loss.learns).parameters), [one for name in nets for one in nets.buffers(name)]
    before = [one.clone() for one in buffers]
    with torch.enable_grad():
        found = loss(nets, batch)
        by_each = torch.autograd.grad(found[0], learned, allow_unused=True)
    gradients = [torch.zeros_like(one) if by is None else by for one, by in zip(learned, by_each, strict=True)]
    changes = [one - was for one, was in zip(buffers, before, strict=True)]
    for one, was in zip(buffers, before, strict=True):
        one.copy_(was)
    return torch.cat([one.flatten() for one in gradients]), np.array([float(one.detach()) for one in found]), changes


def made_again(nets: Networks) -> Networks:
    """Networks and losses as they are made of modules that somebody has touched."""
    return Networks(nets.parts, nets.losses)


def tree(parts: Sequence[Any]) -> Any:
    """Leaves added up as everybody has to add them up: first a power of two of them, then the others."""
    if len(parts) == 1:
        return parts[0]
    middle = 1 << ((len(parts) - 1).bit_length() - 1)
    return tree(parts[:middle]) + tree(parts[middle:])


# ---------------------------------------------------------------------- layers

Tensors = dict[str, torch.Tensor]


def read(module: nn.Sequential, shape: Sequence[int], prefix: str = "") -> Any:
    """The layers of a module, for inputs of a shape; ``None`` if one of them is of a kind that is left to torch."""
    named = [(f"{prefix}{name}", one) for name, one in module.named_children()]
    found = image_layers_of(named, shape) if len(shape) == 3 else layers_of(named, shape[0], BatchRenorm1d)
    return None if isinstance(found, str) else found


def weights_of(module: nn.Module) -> Any:
    """A record of parameters and buffers."""
    state = tensors_of(module)
    record = np.zeros((), parameter_record(state))
    write_parameters(record, state)
    return record


class Learned:
    """Layers that follow each other, as losses see them; the base of what is made of other modules, too.

    Args:
        module: The module.
        shape: Of an input.

    Raises:
        ValueError: If it is left to torch.
    """

    def __init__(self, module: Any, shape: tuple[int, ...]) -> None:
        self.module, self.shape = module, shape
        self.flat = FlatParameters(module.named_parameters())
        self.buffers = dict(module.named_buffers())
        self.make()

    @classmethod
    def knows(cls, module: Any, shape: tuple[int, ...]) -> bool:
        """Whether it is not left to torch."""
        try:
            cls(module, shape)
        except ValueError:
            return False
        return True

    def make(self) -> None:
        """Make what computes them."""
        layers = read(self.module, self.shape)
        if layers is None:
            raise ValueError("torch computes them")
        self.net = Dense(layers, self.flat, passes_on=True, buffers=self.buffers)

    def computed(self, inputs: Sequence[torch.Tensor], slopes: Sequence[torch.Tensor], learning: bool = False) -> Tensors:
        """Copies of outputs, of gradients and of buffers, by name.

        Args:
            inputs: What the module is given.
            slopes: Gradients of a loss by what it gives.
            learning: Whether batches are normalised by their own statistics.
        """
        self.flat.gradients.fill_(torch.nan)  # they are overwritten
        outputs = [one.clone() for one in self.forward(inputs, learning)]
        by_inputs = self.backward([one.clone() for one in slopes])
        gradients = {name: self.flat.gradient(name) for name in self.flat.names}
        found = {f"output {number}": one for number, one in enumerate(outputs)}
        found |= {f"by input {number}": one.clone() for number, one in by_inputs.items()}
        found |= {f"by {name}": one.clone() for name, one in gradients.items() if one is not None}
        return found | {name: one.clone() for name, one in self.buffers.items()}

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        """Outputs."""
        return [self.net.forward(self._rows(inputs[0]), learning)]

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Gradients by inputs, as far as there are any."""
        return {0: self._of_images(self.net.through(slopes[0]))}

    def by_chosen(self, inputs: torch.Tensor, rows: torch.Tensor | None, first: int) -> torch.Tensor:
        """Gradients of the sum of a row's outputs by its inputs from ``first`` on, of some rows."""
        self.net.forward(inputs)
        return self.net.input_gradient(rows, first)

    def _rows(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.permute(0, 2, 3, 1).contiguous().flatten(1) if len(self.shape) == 3 else inputs

    def _of_images(self, rows: torch.Tensor) -> torch.Tensor:
        channels, *size = self.shape if len(self.shape) == 3 else (0, 0)
        return rows.view(len(rows), *size, channels).permute(0, 3, 1, 2) if channels else rows

    def acting(self, seen: Any, one_hot: bool = False) -> Any:
        """The same as actors evaluate it: from a step to outputs, of observations ``(steps, rows, ...)``; and their argmax."""
        return Acting(self.module, self.shape, weights_of(self.module), seen, one_hot)


class Acting:
    """Layers as actors evaluate them: from a step to outputs, of weights and observations that are read where they lie."""

    def __init__(self, module: Any, shape: tuple[int, ...], weights: Any, seen: Any, one_hot: bool = False) -> None:
        self.weights, layers = weights, read(module, shape)
        net: Any = (
            DenseNet(DenseForward(layers, shape[0], one_hot))
            if len(shape) == 1
            else ImageNet(ConvolvedForward(layers, 255 if seen.dtype == np.uint8 else 1))
        )
        self.bound = net.bind(weights, {"": seen}, judges=False)

    def __call__(self, step: int) -> Any:
        return self.bound.outputs(step).copy()

    def best(self, step: int) -> Any:
        """Where a row's outputs are largest."""
        return self.bound.argmax(step).copy()


def all_at_once(modules: Sequence[nn.Module], seen: Any) -> tuple[Any, Any] | None:
    """Outputs of several modules of one architecture, ``(modules, rows, n)``, and where they are largest."""
    space = spaces.Box(-np.inf, np.inf, seen.shape[2:], np.float32)
    sources = [one for module in modules if (one := as_policy(module, space, space)) is not None]
    network = sources[0].policy.network
    if not isinstance(network, DenseNet) or any(one.policy.network != network for one in sources):
        return None
    together = Stacked(network.body, [one.weights() for one in sources], seen.shape[1])
    together.inputs[...] = seen
    together()
    return together.scores, together.best


class OfBytes(Learned):
    """Convolutions of bytes, which are divided by 255."""

    def make(self) -> None:
        layers = read(self.module, self.shape)
        if layers is None:
            raise ValueError("torch computes them")
        self.convolved = Convolved(layers, self.flat, 255)

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        return [self.convolved.forward(inputs[0])]

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        self.convolved.backward(slopes[0])
        return {}


class Squashed(Learned):
    """A body with two heads, means and standard deviations, and actions between -1 and 1 for given noise."""

    def make(self) -> None:
        body = read(self.module.body, self.shape, "body.")
        mean, log_std = (layers_of([(name, getattr(self.module, name))], body[-1].outputs) for name in ("mu", "log_std"))
        if isinstance(mean, str) or isinstance(log_std, str):
            raise ValueError("torch computes them")
        self.actor = SquashedActor(body, mean[0], log_std[0], self.flat)

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        return self.actor.act(inputs[0], inputs[1])

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        self.actor.backward(slopes[0], float(slopes[1][0]))
        return {}


class ActorAndCritic(Learned):
    """Features, and on them an actor that chooses and a critic."""

    def make(self) -> None:
        features = read(self.module.features, self.shape, "features.")
        heads = [layers_of([(name, getattr(self.module, name))], features[-1].outputs) for name in ("actor", "critic")]
        if isinstance(heads[0], str) or isinstance(heads[1], str):
            raise ValueError("torch computes them")
        choice: Any = Categorical((heads[0][-1].outputs,), several=False).learned(self.flat)
        self.both = ActorCritic(heads[0], heads[1], choice, self.flat, Dense(features, self.flat))

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        return [torch.from_numpy(one) for one in self.both.evaluate(inputs[0], inputs[1], *inputs[2:])]

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        self.both.backward(slopes[0].numpy(), slopes[1].numpy(), float(slopes[2][0]))
        return {}


class Critics(Learned):
    """Networks of the same observations and actions, side by side."""

    def make(self) -> None:
        layers = [
            read(one, (self.shape[0] + self.module.actions,), f"critics.{number}.")
            for number, one in enumerate(self.module.critics)
        ]
        self.critics = learned.Critics(layers, self.flat)

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        least, self.by_actions = (one.clone() for one in self.critics.action_gradient(inputs[0], inputs[1]))
        return [least, self.critics.values(inputs[0], inputs[1])]

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        self.critics.backward(slopes[1])
        return {1: self.by_actions * slopes[0][:, None]}


class Memory(Learned):
    """LSTM cells, over sequences ``(rows, steps, features)``."""

    def make(self) -> None:
        if any(self.flat.gradient(f"lstm.{name}") is None for name, _ in self.module.lstm.named_parameters()):
            raise ValueError("torch computes them")
        self.lstm = lstm_of(self.flat, "lstm")

    def forward(self, inputs: Sequence[torch.Tensor], learning: bool) -> Sequence[torch.Tensor]:
        seen, starts, h, c = inputs
        self.lstm.take_weights()
        outputs, cells = self.lstm.run(_first(seen), _first(starts), h.numpy(), c.numpy())
        return [torch.from_numpy(one).transpose(0, 1) for one in (outputs, cells)]

    def backward(self, slopes: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
        self.lstm.back(_first(slopes[0]))
        return {}


def steps_of(module: nn.Module, inputs: Sequence[torch.Tensor]) -> Any:
    """Outputs and cells of an LSTM as actors go through a sequence, step by step: ``(rows, steps, hidden)`` each."""
    parts = [parameter.detach().numpy() for parameter in module.parameters()]
    lstm, (seen, starts, h, c) = Lstm(LstmWeights(*parts)), inputs
    lstm.take_weights()
    state, found = (h.numpy(), c.numpy()), []
    for step in range(seen.shape[1]):
        now = slice(step, step + 1)
        state = tuple(one[0].copy() for one in lstm.run(_first(seen[:, now]), _first(starts[:, now]), *state))
        found.append(np.stack(state))
    return np.stack(found, 2)


def _first(one: torch.Tensor) -> Any:
    """``(rows, steps, ...)`` as ``(steps, rows, ...)``."""
    return np.ascontiguousarray(one.numpy().swapaxes(0, 1))
