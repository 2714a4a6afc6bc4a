"""Declarations of what an algorithm learns: networks with their optimisers, and losses, each a value that can be called.

A loss is written as a paper has it, in torch, over whole networks and a minibatch. Beside that it may have :meth:`Loss.fast`, the
same by the extension with gradients derived by hand, which learns where all its networks can be read: where they are dense layers,
convolutions and LSTMs that nobody has changed. Elsewhere autograd does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn

from reactor_torch.flat import FlatParameters

__all__ = ["Loss", "Network", "Task", "Update"]


@dataclass(frozen=True)
class Network:
    """A part of a policy with its optimiser.

    Attributes:
        module: A module, or tensors by name that learn without one, as SB3's ``log_ent_coef``.
        optimizer: Optimiser of its parameters; ``None`` for a network that nobody steps, as a target.
        max_grad_norm: Norm that gradients are clipped to before a step; ``None`` for no clipping.
        excluding: Module whose parameters are learned elsewhere, even where this network has them too (SB3's shared extractors).
        fixed: Whether the network stays as it is during a round (DQN's target): gradient workers are told once a round.
        buffers: Whether buffers (statistics of batch normalisation) are changed by the loss that learns this network.
        read: From the module and its parameters to the network as :meth:`Loss.fast` is given it (:mod:`reactor_torch.learned` has
            such), or to the reason why autograd learns: ``"MyPolicy overrides extract_features"``. ``None``: it always does.
    """

    module: nn.Module | Mapping[str, torch.Tensor]
    optimizer: torch.optim.Optimizer | None = None
    max_grad_norm: float | None = None
    excluding: nn.Module | None = None
    fixed: bool = False
    buffers: bool = False
    read: Callable[[Any, FlatParameters], Any] | None = None


class Loss(ABC):
    """A quantity that a network's parameters make smaller.

    A subclass is a frozen dataclass of numbers: it holds no tensor, can be pickled, and is compared by its values. Each round has
    losses of its own, so that a schedule is a number by the time it arrives here.

    Attributes:
        learns: Name of the network that the gradients are of.
        reads: Names of other networks that are evaluated.
        statistics: Names of what a call returns; the first is what is made smaller.
        fields: Names of the fields of a minibatch that are looked at, besides ``actions``; ``None`` for all.
        by_blocks: Whether :meth:`fast` may be given some rows of a minibatch at a time: not where rows are normalised together.
    """

    learns: str
    reads: tuple[str, ...] = ()
    statistics: tuple[str, ...]
    fields: tuple[str, ...] | None = None
    by_blocks: bool = True

    @abstractmethod
    def __call__(self, nets: Mapping[str, Any], batch: Any) -> tuple[torch.Tensor, ...]:
        """Evaluate a minibatch, or a slice of one.

        Args:
            nets: The networks, by name.
            batch: Fields ``(rows, ...)``, and numbers.

        Returns:
            :attr:`statistics`, scalars, each a mean over the rows; the first with a graph.
        """

    def fast(self, nets: Mapping[str, Any], batch: Any, share: float) -> tuple[float, ...]:
        """The same by the extension: overwrite the gradients of the network that learns.

        A loss need not have it. A subclass with other methods of its own that is to be fast says so by a ``fast`` of its own:
        ``fast = PPOLoss.fast``, if that one suits it.

        Args:
            nets: The networks, by name, as :attr:`Network.read` gives them.
            batch: A minibatch, or a slice of one.
            share: Weight of a row, 1 / the rows of the whole minibatch: gradients and statistics of its slices add up to its own.

        Returns:
            :attr:`statistics`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `fast`: autograd differentiates it")

    def why_not_fast(self) -> str | None:
        """The reason why autograd has to differentiate it, ``None`` if :meth:`fast` is that of its other methods."""
        own = None
        for kind in type(self).__mro__[: type(self).__mro__.index(Loss)]:
            if "fast" in vars(kind):
                return own
            methods = [name for name, one in vars(kind).items() if isinstance(one, FunctionType | property) and _is_told(name)]
            if methods and own is None:
                own = f"{kind.__name__} has its own `{methods[0]}` and no `fast` beside it"
        return f"{type(self).__name__} has no `fast`"


def _is_told(name: str) -> bool:
    """Whether a method is somebody's, and not made by ``dataclass``."""
    return name == "__call__" or not name.startswith("__")


class Task(NamedTuple):
    """Gradients that an update waits for.

    Attributes:
        loss: Name of the loss.
        batch: The batch that the minibatch is a part of.
        rows: Rows of the minibatch.
    """

    loss: str
    batch: Any
    rows: slice


Update = Generator[tuple[Task, ...], list[Mapping[str, float]], dict[str, float]]
"""An update whose gradients somebody else computes.

Yields tasks that may be done at the same time. When it goes on the gradients are in the networks' flat arrays, and it is sent the
statistics of each task, by name. Returns what is to be logged.
"""
