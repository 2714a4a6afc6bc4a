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

import reactor_pettingzoo.learning
import reactor_sb3.algorithms
from reactor_torch import Autograd, Loss, Networks, Team, kernels

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


NO_LOSSES = {"adam", "blend", "check", "exp", "gather", "kinds", "norm", "panels", "standardise", "use", "using"}
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
    return nets.dense


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
        self.autograd = Autograd(self.loss, nets)

    def gradients(self, batch: Any, of: int | None = None) -> Any:
        return self.autograd.gradients(batch, of)


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
